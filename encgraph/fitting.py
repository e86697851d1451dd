"""Fit a plan to a traffic: budgets for given bins, then pack again, since bins depend on budgets.

For every number of graphs: price the bins of a dense plan, find the best budgets for them
(`ladders`), pack the traffic under those, find the best budgets for the new bins, and so on while it
pays. The cheapest plan *after packing* wins, and the baselines handed in are among the candidates,
so that no baseline with as many graphs is predicted better on the same requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from encgraph import ladders, shapes, sizes, sweep
from encgraph.bulk import Batches, Floats
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.judging import Prediction, predict
from encgraph.records import Capacity, Item, Plan
from encgraph.shapes import Shape, Target

ROUNDS = 3
"""Most times that bins are packed again for one number of graphs."""
CLOSE_RATIO = 0.005
"""Fewer graphs are preferred within this share of the least mean."""
TAIL_WEIGHT = 0.01
"""Weight of all pseudo-requests together, as a share of the traffic."""
TAIL_STEPS = 12
CLOSE_OFFER = 1.01
"""A second shape is tried where its bins cost at most this many times those of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best plan found for at most one number of graphs, and what it is predicted to give."""

    plan: Plan
    prediction: Prediction
    """On the requests it was fitted on; judge it on others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The best plan for every number of graphs."""

    frontier: tuple[Choice, ...]
    """Index k holds the best with at most k graphs; index 0 leaves graphs off."""
    best: Choice
    """The least mean within the limits, fewer graphs preferred where that costs under 0.5 %."""


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
    pack: sweep.Rule = "cheapest"

    def __post_init__(self) -> None:
        require(self.max_graphs >= 0, f"max_graphs must be at least 0, got {self.max_graphs!r}")
        require(
            self.items is None or self.items >= 1,
            f"items must be at least 1, got {self.items!r}",
        )
        require(
            self.largest is None or self.largest >= 1,
            f"largest must be at least 1 token, got {self.largest!r}",
        )


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
    tops: tuple[float, ...]
    """Largest token budget that the byte limit allows, by number of graphs."""
    known: dict[tuple[Capacity, ...], "Candidate"] = field(default_factory=dict)
    """Plans packed before."""

    def packed(self, plan: Plan) -> "Candidate":
        """Pack the traffic under a plan, once."""
        if plan.graphs not in self.known:
            self.known[plan.graphs] = self._packed(plan)
        return self.known[plan.graphs]

    def _packed(self, plan: Plan) -> "Candidate":
        outcome = sweep.pack(self.batches, plan, costs=self.costs, rule=self.limits.pack)
        return Candidate(plan, outcome, float(self.real @ outcome.ms), None)

    def fits(self, plan: Plan) -> bool:
        """Whether a plan keeps the limits on graphs and bytes."""
        limit, largest = self.limits.max_bytes, self.limits.largest
        return (
            len(plan.graphs) <= self.limits.max_graphs
            and (limit is None or self.costs.memory(plan).total_bytes <= limit)
            and (not plan.graphs or largest is None or plan.graphs[-1].tokens <= largest)
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with the traffic packed under it."""

    plan: Plan
    outcome: sweep.Outcome
    total_ms: float
    """Weighted over the real requests."""
    shape: Shape | None
    """None for a baseline, which no shape made."""


def fit(
    requests: Sequence[Sequence[Item]],
    *,
    target: Target,
    costs: Costs,
    limits: Limits,
    baselines: Iterable[Plan] = (),
    weights: Sequence[float] = (),
) -> Fit:
    """Fit plans of every number of graphs; see `budgets.fitted`."""
    problem = pose(requests, target=target, costs=costs, limits=limits, weights=weights)
    none = Plan(
        graphs=(),
        encoder=target.size.name,
        dtype=target.dtype,
        attention=target.attention,
        compiled=target.compiled,
        reasons=("no graphs: every batch runs eager",),
    )
    best = {0: problem.packed(none)}
    for plan in baselines:
        if problem.fits(plan):
            _keep(best, problem.packed(plan))
    for count, candidate in _fitted(problem).items():
        _keep(best, candidate, count)
    return _frontier(problem, best)


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
        tops=_tops(batches, target, costs, limits),
    )


def tail(
    requests: Sequence[Sequence[Item]], size: sizes.EncoderSize, largest: int | None
) -> list[Item]:
    """Pseudo-requests of one item on a log ladder, from the 90 % quantile to the largest budget."""
    tokens = sorted(sum(item.tokens for item in items) for items in requests)
    start = max(1, tokens[int(0.9 * (len(tokens) - 1))])
    end = max(start, largest or tokens[-1])
    top = size.rule.max_pixels // size.rule.factor**2
    steps = {round(float(t)) for t in np.geomspace(start, end, TAIL_STEPS)}
    area = size.rule.merge_area
    return [Item(tokens=t, patches=t * area) for t in sorted(steps) if t <= top]


def _tops(batches: Batches, target: Target, costs: Costs, limits: Limits) -> tuple[float, ...]:
    """Largest token budget the limits allow, by number of graphs; 0 where not even one fits."""
    largest = float(limits.largest or max(sum(s[0] for s in row) for row in batches.sizes))
    smallest = min(size[0] for row in batches.sizes for size in row)
    if limits.max_bytes is None:
        return (largest,) * (limits.max_graphs + 1)

    def needed(count: int, tokens: int) -> int:
        # Graphs of one size, told apart by the longest segment, cost what any others below would.
        graphs = tuple(
            sizes.capacity(tokens, target.size.rule, items=1, longest_segment=i + 1)
            for i in range(count)
        )
        return costs.memory(target.plan(graphs)).total_bytes

    least = needed(1, smallest)
    require(
        limits.max_graphs == 0 or least <= limits.max_bytes,
        f"max_bytes must be at least {least} for one graph of {smallest} tokens, "
        f"got {limits.max_bytes!r}; raise it or leave graphs off",
    )
    tops = [largest]
    for count in range(1, limits.max_graphs + 1):
        low, high = 0, int(largest)
        while low < high:
            middle = (low + high + 1) // 2
            allowed = 4 * middle >= count and needed(count, middle) <= limits.max_bytes
            low, high = (middle, high) if allowed else (low, middle - 1)
        tops.append(float(low))
    return tuple(tops)


def _keep(best: dict[int, Candidate], candidate: Candidate, count: int | None = None) -> None:
    index = len(candidate.plan.graphs) if count is None else count
    if index not in best or candidate.total_ms < best[index].total_ms:
        best[index] = candidate


def _fitted(problem: Problem) -> dict[int, Candidate]:
    """Fit every number of graphs: shapes shortlisted by their bins' price, then packed again."""
    limits, best = problem.limits, dict[int, Candidate]()
    offers: dict[int, list[tuple[float, Plan, Shape]]] = {}
    for shape in shapes.offered(
        problem.batches, problem.smoothed, one_cap=limits.one_cap, items=limits.items
    ):
        dense = shape.dense(problem.batches, problem.smoothed, problem.target, problem.tops[0])
        start = problem.packed(dense)
        for count, (ms, plan) in solved(problem, start.outcome, shape).items():
            offers.setdefault(count, []).append((ms, plan, shape))
    for count, found in offers.items():
        found.sort(key=lambda offer: offer[0])
        close = [offer for offer in found[:2] if offer[0] <= CLOSE_OFFER * found[0][0]]
        for _, plan, shape in close:
            candidate = repacked(problem, plan, shape, count)
            if count not in best or candidate.total_ms < best[count].total_ms:
                best[count] = candidate
    return best


def repacked(problem: Problem, plan: Plan, shape: Shape, count: int) -> Candidate:
    """Pack again and again, each time with the best budgets for the bins before, while it pays."""
    best = problem.packed(plan)
    for _ in range(ROUNDS):
        again = solved(problem, best.outcome, shape, only=count).get(count)
        if again is None or again[1].graphs == best.plan.graphs:
            break
        candidate = problem.packed(again[1])
        if candidate.total_ms >= best.total_ms:
            break
        best = candidate
    return Candidate(best.plan, best.outcome, best.total_ms, shape)


def solved(
    problem: Problem, outcome: sweep.Outcome, shape: Shape, only: int | None = None
) -> Mapping[int, tuple[float, Plan]]:
    """Best budgets for the bins of an outcome, for every number of graphs (or only one)."""
    limits = problem.limits
    given, beyond = shape.split(outcome, problem.smoothed, problem.target, problem.costs)
    most = limits.max_graphs if only is None else only
    rows = [
        ladders.solve(
            bins,
            partial(_price, problem, shape, i),
            most=most,
            choosing=limits.pack == "cheapest",
        )
        for i, bins in enumerate(given)
    ]
    found: dict[int, tuple[float, Plan]] = {}
    for count in range(1, most + 1) if only is None else (only,):
        options = [[row.best(k, problem.tops[count]) for row in rows] for k in range(count + 1)]
        ways = [(count,)] if len(rows) == 1 else [(k, count - k) for k in range(count + 1)]
        priced = [(sum(options[k][i][0] for i, k in enumerate(way)), way) for way in ways]
        ms, way = min(priced)
        if np.isfinite(ms):
            chosen = [options[k][i][1] for i, k in enumerate(way)]
            found[count] = (ms + beyond, shape.plan(chosen, problem.target))
    return found


def _price(problem: Problem, shape: Shape, rung: int, tokens: int) -> float:
    return problem.costs.capacity_ms(shape.capacity(tokens, rung, problem.target))


def _frontier(problem: Problem, best: Mapping[int, Candidate]) -> Fit:
    chosen, frontier = best[0], []
    made: dict[int, Choice] = {}
    for count in range(problem.limits.max_graphs + 1):
        if count in best and best[count].total_ms < chosen.total_ms:
            chosen = best[count]
        if id(chosen) not in made:
            made[id(chosen)] = _choice(problem, chosen)
        frontier.append(made[id(chosen)])
    least = frontier[-1].prediction.mean_ms * (1 + CLOSE_RATIO)
    return Fit(
        frontier=tuple(frontier),
        best=next(c for c in frontier if c.prediction.mean_ms <= least),
    )


def _choice(problem: Problem, candidate: Candidate) -> Choice:
    outcome = candidate.outcome
    plan = shapes.explained(candidate.plan, outcome, problem.real, candidate.shape is not None)
    return Choice(
        plan=plan,
        prediction=predict(
            problem.batches, outcome, plan=plan, costs=problem.costs, weights=problem.weights
        ),
    )
