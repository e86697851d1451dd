"""Fit a plan to a traffic: budgets for given bins, then pack again, since bins depend on budgets.

For every number of graphs: price the bins of a dense plan, find the best budgets for them
(`ladders`), pack the traffic under those, find the best budgets for the new bins, and so on while it
pays. The cheapest plan *after packing* wins, and the baselines handed in are among the candidates,
so that no baseline with as many graphs is predicted better on the same requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from encgraph.costs import Costs
from encgraph.fitting import ladders, shapes, sweep
from encgraph.fitting.judging import Prediction, predict
from encgraph.fitting.posing import Candidate, Limits, Problem, pose
from encgraph.fitting.shapes import Shape, Target
from encgraph.records import Item, Plan

ROUNDS = 3
"""Most times that bins are packed again for one number of graphs."""
CLOSE_RATIO = 0.005
"""Fewer graphs, and less memory, are preferred within this share of the least mean and of its p99."""
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
    """The least mean within the limits; fewer and smaller graphs where that costs under 0.5 % of the
    mean and under 0.5 % of p99."""


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
    none = target.plan((), ("no graphs: every batch runs eager",))
    best = {0: problem.packed(none)}
    for plan in baselines:
        if problem.fits(plan):
            _keep(best, problem.packed(plan))
    for count, candidate in _fitted(problem).items():
        _keep(best, candidate, count)
    return _frontier(problem, best)


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
    return replace(best, fitted=True)


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
    return Fit(frontier=tuple(frontier), best=_best(problem, best, frontier))


def _best(problem: Problem, best: Mapping[int, Candidate], frontier: Sequence[Choice]) -> Choice:
    """The fewest and smallest graphs that are close to the least in mean and, of that plan, in p99."""
    close = partial(_close, least=frontier[-1].prediction)
    fewest = next(
        best[k] for k, choice in enumerate(frontier) if k in best and close(choice.prediction)
    )
    return _choice(problem, _lowered(problem, fewest, close))


def _close(prediction: Prediction, *, least: Prediction) -> bool:
    """Whether a plan gives up under `CLOSE_RATIO` of the mean, and of p99."""
    mine, theirs, most = prediction.latency, least.latency, 1 + CLOSE_RATIO
    return mine.mean_ms <= most * theirs.mean_ms and mine.p99_ms <= most * theirs.p99_ms


def _lowered(
    problem: Problem, candidate: Candidate, close: Callable[[Prediction], bool]
) -> Candidate:
    """Drop the largest graph, and the next, while the prediction stays close.

    Slabs and pool are as large as the largest graph: one that serves a rare batch, which eager runs
    as fast, is the dearest of all.
    """
    while candidate.plan.graphs:
        plan = candidate.plan
        lower = problem.packed(replace(plan, graphs=plan.graphs[:-1], reasons=plan.reasons[:-1]))
        if not close(_choice(problem, lower).prediction):
            break
        candidate = replace(lower, fitted=candidate.fitted)
    return candidate


def _choice(problem: Problem, candidate: Candidate) -> Choice:
    outcome = candidate.outcome
    plan = shapes.explained(candidate.plan, outcome, problem.real, candidate.fitted)
    return Choice(
        plan=plan,
        prediction=predict(
            problem.batches, outcome, plan=plan, costs=problem.costs, weights=problem.weights
        ),
    )
