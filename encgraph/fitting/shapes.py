"""Item caps and segment bounds of a plan's graphs: one ladder of budgets for each set of limits.

A second ladder lets bins of few items, which most are, replay captures that pay for few attention
blocks, and keeps room for bins of many. Whether it pays is for the cost of a replay to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from encgraph import sizes
from encgraph.costs import Costs
from encgraph.errors import check_named
from encgraph.fitting import bulk, ladders, sweep
from encgraph.fitting.bulk import Batches, Ints
from encgraph.fitting.ladders import Given
from encgraph.intervals import Floats
from encgraph.records import Capacity, Plan
from encgraph.results import at_shares

DENSE = 24
"""Budgets a ladder of the dense plan whose bins a fit starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a plan is for."""

    size: sizes.EncoderSize
    dtype: str = "bfloat16"
    attention: str = "auto"
    compiled: bool = False

    def __post_init__(self) -> None:
        sizes.given(self.size)
        check_named(dtype=self.dtype, attention=self.attention)

    def plan(self, graphs: Sequence[Capacity], reasons: Sequence[str] = ()) -> Plan:
        """A plan of these capacities."""
        return Plan(
            graphs=tuple(graphs),
            encoder=self.size.name,
            dtype=self.dtype,
            attention=self.attention,
            compiled=self.compiled,
            reasons=tuple(reasons),
        )


@dataclass(frozen=True, slots=True)
class Rung:
    """Limits that the budgets of one ladder share."""

    items: int
    frames: int
    """Or segments, where there are more of them."""
    longest_segment: int
    """Patches; 0 for the whole budget."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The ladders of a plan, few items first."""

    rungs: tuple[Rung, ...]
    uniform: bool = False
    """Every budget holds as many items as the cap says, so none may be smaller than that."""

    def capacity(self, tokens: int, rung: int, target: Target) -> Capacity:
        """Capacity of a budget on one ladder."""
        limits = self.rungs[rung]
        return sizes.capacity(
            tokens,
            target.size.rule,
            items=limits.items,
            frames=min(limits.frames, tokens),
            longest_segment=limits.longest_segment,
        )

    def plan(self, budgets: Sequence[Sequence[int]], target: Target) -> Plan:
        """A plan of some budgets on each ladder."""
        graphs: dict[tuple[int, int, int], Capacity] = {}
        for rung, ladder in enumerate(budgets):
            for tokens in ladder:
                graph = self.capacity(tokens, rung, target)
                key = (graph.tokens, graph.items, graph.longest_segment)
                if key not in graphs or graphs[key].frames < graph.frames:
                    graphs[key] = graph
        return target.plan([graphs[key] for key in sorted(graphs)])

    def dense(self, batches: Batches, weights: Floats, target: Target, largest: float) -> Plan:
        """A plan of many budgets: its bins show what the traffic would fill if graphs were free."""
        slot = target.size.rule.slot_tokens
        totals = np.array([sum(max(size[0], slot) for size in row) for row in batches.sizes])
        least = max(self.rungs[0].items, 1) if self.uniform else 1
        totals = np.clip(totals, least, max(int(largest), least))
        budgets = ladders.thinned(totals, weights, DENSE).tolist()
        return self.plan([budgets] * len(self.rungs), target)

    def split(
        self, outcome: sweep.Outcome, weights: Floats, target: Target, costs: Costs
    ) -> tuple[list[Given], float]:
        """Bins of each ladder, and the weighted cost of those that no ladder takes."""
        loads, share = outcome.loads, weights[outcome.batch]
        beyond = bulk.eager_ms(loads, costs) - bulk.load_ms(loads, costs)
        tokens = self._least(loads, target)
        rung = self._rung(loads)
        given = [
            Given(tokens[rung == i], share[rung == i], beyond[rung == i])
            for i in range(len(self.rungs))
        ]
        return given, float((share * beyond)[rung < 0].sum())

    def _least(self, loads: Floats, target: Target) -> Ints:
        """Smallest budget that may hold each load."""
        area, slot = target.size.rule.merge_area, target.size.rule.slot_tokens
        rows = slot * loads[2] if slot else np.ceil(loads[1] / area)
        least: Floats = np.max([loads[0], rows, loads[5]], 0)
        if self.uniform:
            least = np.maximum(least, self.rungs[0].items)
        return least.astype(np.int64)

    def _rung(self, loads: Floats) -> Ints:
        """First ladder whose limits each load keeps, or -1."""
        found = np.full(loads.shape[1], -1)
        for index in reversed(range(len(self.rungs))):
            limits = self.rungs[index]
            steps = max(limits.items, limits.frames)
            holds = (loads[2] <= limits.items) & (loads[5] <= steps) & (loads[3] <= steps)
            if limits.longest_segment:
                holds &= loads[4] <= limits.longest_segment
            found[holds] = index
        return found


def offered(
    batches: Batches, weights: Floats, *, one_cap: bool = False, items: int | None = None
) -> list[Shape]:
    """Shapes worth trying: item caps at quantiles of the traffic, one or two, bounds on segments."""
    counts = [len(row) for row in batches.sizes]
    caps = sorted({int(q) for q in at_shares(counts, (0.5, 0.9, 0.99, 1), weights.tolist())})
    if items is not None:
        return [Shape((replace(_rung_of(batches, items), longest_segment=0),), uniform=True)]
    rungs = {cap: _rung_of(batches, cap) for cap in {1, *caps}}
    if one_cap:
        # No budget is smaller than the cap, which may cost more than it saves where items are small.
        smallest = min(size[0] for row in batches.sizes for size in row)
        fewer = {min(cap, smallest) for cap in caps}
        loose = [replace(_rung_of(batches, cap), longest_segment=0) for cap in {*caps, *fewer}]
        return [Shape((rung,), uniform=True) for rung in loose]
    most = caps[-1]
    found = [Shape((replace(rungs[cap], longest_segment=0),)) for cap in caps[-2:]]
    found.append(Shape((rungs[most],)))
    for few in sorted({1, *caps[:-1]} - {most}):
        low = replace(rungs[few], longest_segment=0)
        found += [Shape((low, replace(rungs[most], longest_segment=0))), Shape((low, rungs[most]))]
    return found


def _rung_of(batches: Batches, cap: int) -> Rung:
    """Limits that let every batch of at most so many items share one replay, if any budget does."""
    rows = [row for row in batches.sizes if len(row) <= cap] or [(min(r),) for r in batches.sizes]
    return Rung(
        items=cap,
        frames=max(sum(max(size[3], size[5]) for size in row) for row in rows),
        longest_segment=max(size[4] for row in batches.sizes for size in row),
    )


def explained(plan: Plan, outcome: sweep.Outcome, weights: Floats, fitted: bool) -> Plan:
    """The plan with a reason for each graph, from what packing put into it."""
    if not plan.graphs:
        return plan
    share = weights[outcome.batch]
    replays = float(share[outcome.graph >= 0].sum()) or 1.0
    how = "fitted, tail smoothed" if fitted else "by rule: no fitted plan beat it on these requests"
    reasons, last = [], int(outcome.graph[share > 0].max(initial=-1))
    for index, graph in enumerate(plan.graphs):
        mine = outcome.graph == index
        times = float(share[mine].sum())
        tokens = float((share * outcome.loads[0])[mine].sum())
        use = f"kept for batches {'larger than' if index > last else 'between'} those seen"
        if times:
            fill = tokens / times / graph.tokens
            use = f"expected to take {times / replays:.1%} of replays at {fill:.0%} fill"
        noun = "item" if graph.items == 1 else "items"
        reasons.append(f"{graph.tokens:,} tokens, up to {graph.items} {noun}: {use} ({how})")
    return replace(plan, reasons=tuple(reasons))
