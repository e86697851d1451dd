"""What the planning tests share: plans, costs, seeded traffic and a brute-force optimum."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf

from encgraph import costs, sizes
from encgraph.budgets import Target
from encgraph.costs import Costs
from encgraph.records import Item, Load, Modality, Packing, Plan

SIZE = sizes.named("qwen3-vl-8b")
TARGET = Target(size=SIZE)
MODELLED = costs.modelled(SIZE)
SLOW_EAGER = replace(
    MODELLED,
    patch_ms=1e-4,
    eager_floor_ms=14.0,
    eager_spread_ms=(-3.0, -1.0, 0.0, 4.0),
    eager_dense=replace(MODELLED.eager_dense, ms=tuple(1.3 * ms for ms in MODELLED.eager_dense.ms)),
)
"""Eager so slow that replays pay at most sizes."""


def images(*tokens: int) -> tuple[Item, ...]:
    return tuple(Item(tokens=n, patches=4 * n) for n in tokens)


def clip(steps: int, tokens: int) -> Item:
    """A clip of equal temporal steps."""
    return Item(
        modality=Modality.VIDEO,
        tokens=steps * tokens,
        patches=4 * steps * tokens,
        segments=steps,
        longest_segment=4 * tokens,
        frames=steps,
    )


def plan(*budgets: int, items: int = 64, few: int = 0) -> Plan:
    """Graphs of one item cap a budget, or of two."""
    caps = [(b, min(items, b)) for b in budgets] + [(b, few) for b in budgets if few]
    return TARGET.plan([sizes.capacity(b, SIZE.rule, items=n) for b, n in sorted(caps)])


def batches(seed: int, count: int, *, most: int) -> list[tuple[Item, ...]]:
    """Random batches of images: thumbnails, a few common sizes, and anything up to 1500 tokens."""
    rng = random.Random(seed)

    def tokens() -> int:
        return rng.choice((64, 64, 169, 256, rng.randint(64, 1500)))

    return [images(*(tokens() for _ in range(rng.randint(1, most)))) for _ in range(count)]


def traffic(seed: int, count: int) -> list[tuple[Item, ...]]:
    """Synthetic requests: atoms and a log-normal tail, one image or several."""
    rng = random.Random(seed)

    def tokens() -> int:
        if rng.random() < 0.4:
            return rng.choice((64, 140, 300))
        return min(4096, max(64, round(rng.lognormvariate(5.8, 0.8))))

    return [
        images(*(tokens() for _ in range(rng.choice((1, 1, 1, 1, 2, 3, 5))))) for _ in range(count)
    ]


def partitions(indices: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """All ways to split indices into bins."""
    if not indices:
        yield []
        return
    first, *rest = indices
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            left = [i for i in rest if i not in others]
            for bins in partitions(left):
                yield [(first, *others), *bins]


def optimum_ms(batch: Sequence[Item], planned: Plan, model: Costs) -> float:
    """Least time of a batch over all partitions and all sets left for eager."""
    least = inf
    for mask in range(1 << len(batch)):
        left = [i for i in range(len(batch)) if mask >> i & 1]
        replayed = [i for i in range(len(batch)) if not mask >> i & 1]
        eager = model.request_ms + model.eager_ms(Load.of(batch[i] for i in left))
        for bins in partitions(replayed):
            least = min(least, eager + sum(_replay_ms(b, batch, planned, model) for b in bins))
    return least


def _replay_ms(bin: tuple[int, ...], batch: Sequence[Item], planned: Plan, model: Costs) -> float:
    load = Load.of(batch[i] for i in bin)
    return min((model.replay_ms(g, load) for g in planned.graphs if g.holds(load)), default=inf)


def indices(packing: Packing) -> list[int]:
    """Every index a packing holds, sorted."""
    binned = [i for bin in packing.bins for i in bin.items]
    return sorted(binned + [f.item for f in packing.fallback])
