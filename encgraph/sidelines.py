"""Measure what latency alone does not show: jitter between routes, and host time before the launch."""

import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import torch

from encgraph import measure, meters
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner

Routes = tuple[int, int]
"""Replays and eager runs of one request."""
HOST_ITEMS = 8
"""Items of the batches whose host time is reported."""
_WARM = 3
"""Batches whose host time is not counted."""
_SAMPLES = 50
"""Batches whose host time is."""


@dataclass(slots=True)
class _Stamp:
    """Stands where a graph is and notes when it would be launched."""

    at: float | None = None

    def replay(self) -> None:
        """Note the first launch of a batch."""
        if self.at is None:
            self.at = time.perf_counter()


def before_launch_us(runner: EncoderRunner, batches: Iterable[Sequence[Input]]) -> list[float]:
    """Host time of `execute` from its call to its first graph launch, in microseconds.

    Nothing is launched: the graphs are put back afterwards, and outputs are whatever the slabs hold.

    Args:
        runner: With graphs captured.
        batches: What to execute, each once, the first `_WARM` not counted; no two alike where the
            figure is to hold for traffic that does not repeat.

    Returns:
        Microseconds of each batch that launches something; those that run eager are left out.
    """
    stamp = _Stamp()
    found: list[float] = []
    with _stamped(runner, stamp):
        for batch in batches:
            stamp.at = None
            meters.synchronize(runner.encoder.spec.device)
            start = time.perf_counter()
            runner.execute(batch)
            if stamp.at is not None:
                found.append((stamp.at - start) * 1e6)
    return found[_WARM:]


@contextmanager
def _stamped(runner: EncoderRunner, stamp: _Stamp) -> Iterator[None]:
    made = runner.graphs.graphs if runner.graphs else []
    kept = [(graph, graph.graph) for graph in made]
    try:
        for graph in made:
            graph.graph = cast(torch.cuda.CUDAGraph, stamp)
        yield
    finally:
        for graph, own in kept:
            graph.graph = own


def jitter_numbers(
    runner: EncoderRunner,
    batches: Sequence[Sequence[Input]],
    routes: Sequence[Routes],
    *,
    samples: int,
) -> dict[str, float]:
    """Medians of a replayed and an eager request, each alone and in turn with the other.

    The requests are those of middle size that were all replayed and all eager; where none ran eager,
    the replayed one's own eager run alternates with it. Nothing replayed gives nothing.
    """
    replayed = _middle([b for b, (r, e) in zip(batches, routes, strict=True) if r and not e])
    eager = _middle([b for b, (r, e) in zip(batches, routes, strict=True) if e and not r])
    if replayed is None:
        return {}
    other = replayed if eager is None else eager
    turned = list(other)  # its own object, by which the two are told apart

    def execute(batch: Sequence[Input]) -> list[EncoderOutput]:
        alone = batch is turned and eager is None
        return runner.encoder.eager(batch) if alone else runner.execute(batch)

    device = runner.encoder.spec.device
    found = measure.jitter(execute, replayed, turned, device=device, samples=samples)
    return {
        "jitter_replay_alone_ms": statistics.median(found.replay_alone_ms),
        "jitter_replay_alternating_ms": statistics.median(found.replay_alternating_ms),
        "jitter_eager_alone_ms": statistics.median(found.fallback_alone_ms),
        "jitter_eager_alternating_ms": statistics.median(found.fallback_alternating_ms),
    }


def host_numbers(
    runner: EncoderRunner,
    small: Sequence[Input],
    batches: Sequence[Sequence[Input]],
    routes: Sequence[Routes],
) -> dict[str, float]:
    """Host time before the launch of small items, or of the replayed request most like them in number;
    and of as many items of any size, which take longer to pack.

    Items are drawn anew for every sample, so that no sample packs what an earlier one packed.

    Args:
        runner: With graphs captured.
        small: As many of the smallest items as a batch is to have.
        batches: The requests: their items are drawn too, and one stands in for graphs that would
            not take the small ones.
        routes: How each request ran.

    Returns:
        `before_launch_us` of batches of `before_launch_items_count` small items, with the quickest
        tenth's `before_launch_p10_us`, which a busy host moves less; and
        `before_launch_mixed_us` of as many of any size, over the `before_launch_mixed_count` batches
        that launched a graph; each where there is one.
    """
    replayed = [
        b for b, (replays, eager) in zip(batches, routes, strict=True) if replays and not eager
    ]
    replayed.sort(key=lambda batch: abs(len(batch) - len(small)))
    timed: list[Sequence[Input]]
    found: dict[str, float] = {}
    known = sorted([*small, *chain(*batches)], key=lambda value: value.item.tokens)
    few = _drawn(known[: 4 * len(small)], len(small))
    for timed in (few, *([one] * (_WARM + _SAMPLES) for one in replayed[:1])):
        if few_us := before_launch_us(runner, timed):
            found = {
                "before_launch_us": statistics.median(few_us),
                "before_launch_p10_us": float(np.percentile(few_us, 10)),
                "before_launch_items_count": float(len(timed[0])),
            }
            break
    mixed = before_launch_us(runner, _drawn(known, len(small)))
    if mixed:
        found["before_launch_mixed_us"] = statistics.median(mixed)
        found["before_launch_mixed_count"] = float(len(mixed))
    return found


def _drawn(known: Sequence[Input], count: int) -> list[Sequence[Input]]:
    """Batches of so many items, each drawn anew."""
    draw = random.Random(0)
    return [draw.sample(known, count) for _ in range(_WARM + _SAMPLES)]


def _middle(batches: Sequence[Sequence[Input]]) -> Sequence[Input] | None:
    ordered = sorted(batches, key=lambda batch: sum(value.item.tokens for value in batch))
    return ordered[len(ordered) // 2] if ordered else None


def counted(observed: dict[str, int], before: dict[str, Any]) -> Routes:
    """Replays and eager runs since an earlier copy of the counts."""
    steps = {
        route: observed.get(f"{route}_steps", 0) - before.get(f"{route}_steps", 0)
        for route in ("replay", "fallback", "eager")
    }
    return steps["replay"], steps["fallback"] + steps["eager"]
