"""Pose the problem that `fitting` solves: a traffic counted, its tail smoothed, and what limits leave."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from encgraph import sizes
from encgraph.costs import Costs
from encgraph.errors import MOST_BYTES, MOST_GRAPHS, MOST_TOKENS, require, whole
from encgraph.fitting import sweep
from encgraph.fitting.bulk import Batches
from encgraph.fitting.shapes import Target
from encgraph.intervals import Floats
from encgraph.records import Capacity, Item, Plan

TAIL_WEIGHT = 0.01
"""Weight of all pseudo-requests together, as a share of the traffic."""
TAIL_STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may cost and which rules its engine packs by."""

    max_graphs: int = 16
    max_bytes: int | None = None
    """Slabs, pool and driver together; None for no limit."""
    largest: int | None = None
    """Largest token budget; None for the largest batch or item seen, whichever is larger."""
    one_cap: bool = False
    """One item cap for all budgets and worst-case segments, as vLLM needs."""
    items: int | None = None
    """That one cap; None leaves it to the traffic."""
    pack: sweep.PackingRule = "cheapest"

    def __post_init__(self) -> None:
        whole("max_graphs", self.max_graphs, least=0, most=MOST_GRAPHS)
        if self.items is not None:
            whole("items", self.items, most=MOST_TOKENS)
        if self.max_bytes is not None:
            whole("max_bytes", self.max_bytes, most=MOST_BYTES)
        if self.largest is not None:
            whole("largest", self.largest, most=MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class Problem:
    """A traffic to fit, its smoothed tail included, with everything a candidate is judged by."""

    batches: Batches
    weights: Floats
    """One a real request."""
    smoothed: Floats
    """One a distinct batch, pseudo-requests included."""
    real: Floats
    """One a distinct batch, pseudo-requests left out."""
    target: Target
    costs: Costs
    limits: Limits
    top: float
    """Largest token budget: what the limits say, or else the largest batch."""
    known: dict[tuple[Capacity, ...], "Candidate"] = field(default_factory=dict)
    """Plans packed before."""

    def packed(self, plan: Plan) -> "Candidate":
        """Pack the traffic under a plan, once."""
        if plan.graphs not in self.known:
            self.known[plan.graphs] = self._packed(plan)
        return self.known[plan.graphs]

    def _packed(self, plan: Plan) -> "Candidate":
        outcome = sweep.pack(self.batches, plan, costs=self.costs, rule=self.limits.pack)
        return Candidate(plan, outcome, float(self.real @ outcome.ms))

    def fits(self, plan: Plan) -> bool:
        """Whether a plan keeps the limits on graphs and on the largest budget."""
        largest = self.limits.largest
        return len(plan.graphs) <= self.limits.max_graphs and (
            not plan.graphs or largest is None or plan.graphs[-1].tokens <= largest
        )

    def affords(self, plan: Plan) -> bool:
        """Whether a plan keeps the limit on bytes."""
        limit = self.limits.max_bytes
        return limit is None or self.costs.memory(plan).total_bytes <= limit


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with the traffic packed under it."""

    plan: Plan
    outcome: sweep.Outcome
    total_ms: float
    """Weighted over the real requests."""
    fitted: bool = False
    """False for a baseline."""


def pose(
    requests: Sequence[Sequence[Item]],
    *,
    target: Target,
    costs: Costs,
    limits: Limits,
    weights: Sequence[float] = (),
) -> Problem:
    """Count a traffic, smooth its tail and work out what the limits leave."""
    each = np.asarray(weights, float) if len(weights) else np.ones(len(requests))
    pseudo = tail(requests, target.size, limits.largest)
    batches = Batches.of([*requests, *([item] for item in pseudo)])
    ladder = np.full(len(pseudo), TAIL_WEIGHT * each.sum() / max(1, len(pseudo)))
    return Problem(
        batches=batches,
        weights=each,
        smoothed=batches.weights(np.concatenate([each, ladder])),
        real=batches.weights(np.concatenate([each, np.zeros(len(pseudo))])),
        target=target,
        costs=costs,
        limits=limits,
        top=_top(batches, target, costs, limits),
    )


def tail(
    requests: Sequence[Sequence[Item]], size: sizes.EncoderSize, largest: int | None
) -> list[Item]:
    """Pseudo-requests of one item on a log ladder, from the 90 % quantile to the largest budget."""
    tokens = sorted(sum(item.tokens for item in items) for items in requests)
    start = max(1, tokens[int(0.9 * (len(tokens) - 1))])
    end = max(start, largest or tokens[-1])
    rule = size.rule
    steps = {round(float(t)) for t in np.geomspace(start, end, TAIL_STEPS)}
    return [sizes.item_of(t, rule) for t in sorted(steps) if t <= rule.max_tokens]


def _top(batches: Batches, target: Target, costs: Costs, limits: Limits) -> float:
    """Largest token budget, once the limit on bytes has room for the smallest."""
    slot = target.size.rule.slot_tokens
    totals = [sum(max(size[0], slot) for size in row) for row in batches.sizes]
    smallest = min(size[0] for row in batches.sizes for size in row)
    if limits.max_bytes is not None and limits.max_graphs:
        one = sizes.capacity(smallest, target.size.rule, items=1)
        least = costs.memory(target.plan([one])).total_bytes
        require(
            least <= limits.max_bytes,
            f"max_bytes must be at least {least:,} bytes for one graph of {smallest} tokens, "
            f"got {limits.max_bytes:,}; raise it or leave graphs off",
        )
    return float(limits.largest or max(totals))
