"""Weigh choices against each other: budget rules by graphs, packing rules by request, replay by eager.

Everything here is predicted from a cost model; what was measured is in `readings`. The values are
records that figures draw.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from encgraph import balance, budgets, packing, sharding, sizes
from encgraph.budgets import Limits, Prediction, Target
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.packers.search import EXACT_ITEMS
from encgraph.records import FallbackReason, Item, Load, Packing, Plan
from encgraph.results import Memory
from encgraph.sharding import Burst, Simulated
from encgraph.traffic import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan made by one rule, judged on requests it was not made from."""

    rule: str
    plan: Plan
    prediction: Prediction

    @property
    def graphs(self) -> int:
        """Number of graphs it captures."""
        return len(self.plan.graphs)


def rules(
    fit_on: Requests, held_out: Requests, *, target: Target, costs: Costs, max_graphs: int = 12
) -> tuple[Judged, ...]:
    """Judge doubling, quantile and fitted budgets of every number of graphs on held-out requests.

    All pack by "cheapest", so only the budgets differ. Doubling starts at the smallest item and
    stops one step past the largest request.

    Args:
        fit_on: Requests that quantile and fitted budgets are made from.
        held_out: Requests that all are judged on.
        target: What the plans are for.
        costs: What replays and eager runs cost.
        max_graphs: Most graphs of a plan.
    """
    fit = budgets.fitted(fit_on, target=target, costs=costs, limits=Limits(max_graphs=max_graphs))
    plans = {"eager": [fit.frontier[0].plan], "doubling": _doubled(fit_on, target, max_graphs)}
    counts = range(1, max_graphs + 1)
    plans["quantile"] = [budgets.quantile(fit_on, n, target=target) for n in counts]
    plans["fitted"] = [choice.plan for choice in fit.frontier[1:]]
    return tuple(
        Judged(rule=rule, plan=plan, prediction=budgets.judge(held_out, plan, costs=costs))
        for rule, made in plans.items()
        for plan in {len(p.graphs): p for p in made}.values()
    )


def _doubled(requests: Requests, target: Target, max_graphs: int) -> list[Plan]:
    smallest = min(item.tokens for items in requests for item in items)
    largest = max(sum(item.tokens for item in items) for items in requests)
    found = []
    for upper in [smallest * 2**n for n in range(max_graphs)]:
        items = min(max(upper // smallest, 1), smallest)
        found.append(budgets.doubling(smallest, upper, target=target, items=items))
        if upper >= largest:
            break
    return found


def pick(judged: Sequence[Judged], rule: str, graphs: int) -> Judged:
    """The plan of a rule with at most so many graphs, the most it has.

    Raises:
        ValueError: If there is none.
    """
    found = [j for j in judged if j.rule == rule and j.graphs <= graphs]
    require(bool(found), f"no plan of rule {rule!r} has at most {graphs!r} graphs")
    return max(found, key=lambda j: j.graphs)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenGrid:
    """Eager time over replay time on a grid; above 1 the replay is faster."""

    captured_tokens: tuple[int, ...]
    real_tokens: tuple[int, ...]
    ratios: tuple[tuple[float | None, ...], ...]
    """A row for each real, a column for each captured; None where the load does not fit."""
    items: int
    """Items that the real tokens are shared among."""


def break_even(
    costs: Costs, size: sizes.EncoderSize, *, tokens: Sequence[int], items: int = 1
) -> BreakEvenGrid:
    """Compare a replay with eager for every pair of captured and real tokens.

    Args:
        costs: What replays and eager runs cost.
        size: The encoder, whose token rule gives patches.
        tokens: Grid of both axes, increasing, none under `items`.
        items: Equal items that a load is made of.
    """
    captured = [sizes.capacity(t, size.rule, items=items) for t in tokens]
    loads = [_even(t, items, size) for t in tokens]
    ratios = tuple(
        tuple(
            costs.eager_ms(load) / costs.replay_ms(graph, load) if graph.holds(load) else None
            for graph in captured
        )
        for load in loads
    )
    kept = tuple(tokens)
    return BreakEvenGrid(captured_tokens=kept, real_tokens=kept, ratios=ratios, items=items)


def _even(tokens: int, items: int, size: sizes.EncoderSize) -> Load:
    """A load of equal items."""
    counts = [tokens // items + (i < tokens % items) for i in range(items)]
    return Load.of(sizes.item_of(t, size.rule) for t in counts)


def packings(batch: Sequence[Item], plan: Plan, *, costs: Costs) -> Mapping[str, Packing]:
    """Pack one batch by every rule; see `packing.PACKINGS`."""
    return {rule: packing.packer(plan, costs, rule=rule)(batch) for rule in packing.PACKINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    """One decision of the ascending rule: put the next item into the open bin, or close it."""

    bin_tokens: int
    item_tokens: int
    bin_budget: int
    """Smallest budget that holds the open bin."""
    item_budget: int
    """Smallest that holds the item alone."""
    joint_budget: int | None
    """Smallest that holds both; None where none does."""
    apart_ms: float
    """Two replays, predicted."""
    together_ms: float | None
    """One replay of both; None where nothing holds both."""
    closes: bool
    """Whether the bin was closed and the item opened a new one."""


def defers(batch: Sequence[Item], plan: Plan, *, costs: Costs) -> tuple[Defer, ...]:
    """Every decision the ascending rule takes on a batch, with the milliseconds at stake."""
    packed = packing.ascending(batch, plan)
    steps = [(i, n) for n, bin in enumerate(packed.bins) for i in bin.items]
    found, load = [], Load()
    for (before, bin_before), (index, bin_now) in pairwise(steps):
        load = load.plus(batch[before])
        closes = bin_now != bin_before
        found.append(_decision(load, batch[index], plan, costs, closes=closes))
        load = Load() if closes else load
    return tuple(found)


def _decision(load: Load, item: Item, plan: Plan, costs: Costs, *, closes: bool) -> Defer:
    alone, both = Load.of([item]), load.plus(item)
    first, second, joint = (packing.smallest(plan, x) for x in (load, alone, both))
    assert first is not None and second is not None, "ascending replayed what fits no graph"
    graphs = plan.graphs
    apart = costs.replay_ms(graphs[first], load) + costs.replay_ms(graphs[second], alone)
    return Defer(
        bin_tokens=load.tokens,
        item_tokens=item.tokens,
        bin_budget=graphs[first].tokens,
        item_budget=graphs[second].tokens,
        joint_budget=None if joint is None else graphs[joint].tokens,
        apart_ms=apart,
        together_ms=None if joint is None else costs.replay_ms(graphs[joint], both),
        closes=closes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How far a packing rule is from the optimum, request by request."""

    rule: str
    ratios: tuple[float, ...]
    """Predicted milliseconds over the least possible, at least 1, ascending."""
    lost_ms: float
    """Mean milliseconds a request above the optimum."""


def gaps(requests: Requests, plan: Plan, *, costs: Costs) -> tuple[Gap, ...]:
    """Compare every packing rule with the exact optimum, on requests small enough to have one.

    Only requests of 2 to `EXACT_ITEMS` items count: one item leaves little to choose, and above
    that the optimum is not searched exhaustively.

    Raises:
        ValueError: If no request has that many items.
    """
    chosen = [items for items in requests if 2 <= len(items) <= EXACT_ITEMS]
    require(bool(chosen), f"gaps need a request of 2 to {EXACT_ITEMS} items, got none")
    taken = {
        rule: [packing.predicted_ms(pack(batch), batch, costs) for batch in chosen]
        for rule in packing.PACKINGS
        for pack in [packing.packer(plan, costs, rule=rule)]
    }
    taken["all eager"] = [costs.request_ms + costs.eager_ms(Load.of(batch)) for batch in chosen]
    least = taken.pop("cheapest")
    return tuple(
        Gap(
            rule=rule,
            ratios=tuple(sorted(a / b for a, b in zip(ms, least, strict=True))),
            lost_ms=sum(a - b for a, b in zip(ms, least, strict=True)) / len(ms),
        )
        for rule, ms in taken.items()
    )


def fallback_reasons(
    requests: Requests, plan: Plan, *, costs: Costs, rule: str = "cheapest"
) -> Mapping[FallbackReason, int]:
    """Items that a plan leaves to eager, by reason."""
    pack = packing.packer(plan, costs, rule=rule)
    return Counter(left.reason for batch in requests for left in pack(batch).fallback)


def memory(plan: Plan, costs: Costs, *, slabs: str = "shared") -> Memory:
    """Bytes of a plan with one slab for all budgets, or with buffers of its own for each graph.

    Args:
        plan: The graphs.
        costs: Recorded or modelled coefficients.
        slabs: "shared" or "private".
    """
    require(slabs in ("shared", "private"), f"slabs must be 'shared' or 'private', got {slabs!r}")
    shared = costs.memory(plan)
    if slabs == "shared":
        return shared
    return Memory(
        slabs_bytes=costs.row_bytes * sum(graph.patches for graph in plan.graphs),
        pool_bytes=shared.pool_bytes,
        driver_bytes=shared.driver_bytes,
    )


def memory_by_graphs(
    judged: Sequence[Judged], costs: Costs, *, slabs: str = "shared"
) -> Mapping[int, Memory]:
    """Bytes by number of graphs."""
    return {j.graphs: memory(j.plan, costs, slabs=slabs) for j in judged if j.graphs}


def ways_to_hold(
    judged: Sequence[Judged], costs: Costs, *, rule: str = "doubling"
) -> Mapping[str, Mapping[int, Memory]]:
    """Bytes by number of graphs of one rule's plans, slabs shared and private."""
    mine = [j for j in judged if j.rule == rule]
    return {
        "one slab for all": memory_by_graphs(mine, costs),
        "buffers of its own for each graph": memory_by_graphs(mine, costs, slabs="private"),
    }


RANKS = (1, 2, 4, 8)
BALANCES = ("round_robin", "tokens", "longest_first")


def balances(
    requests: Requests, size: sizes.EncoderSize, *, costs: Costs, ranks: Sequence[int] = RANKS
) -> tuple[Simulated, ...]:
    """Simulate every balance rule on every number of ranks, each request one burst."""
    return tuple(
        sharding.simulate(requests, n, size=size, costs=costs, rule=rule)
        for rule in BALANCES
        for n in ranks
    )


def bursts(
    request: Sequence[Item], ranks: int, *, size: sizes.EncoderSize, costs: Costs
) -> Mapping[str, Burst]:
    """One request shared by every balance rule."""
    moved = sharding.token_bytes(size)
    return {
        name: sharding.burst(
            request, ranks, rule=balance.rule(name, costs), costs=costs, token_bytes=moved
        )
        for name in BALANCES
    }
