"""Fit a plan to a traffic: budgets for given bins, then pack again, since bins depend on budgets.

For every number of graphs: price the bins of a dense plan, find the best budgets for them
(`ladders`), pack the traffic under those, find the best budgets for the new bins, and so on while it
pays. The cheapest plan *after packing* wins, and the baselines handed in are among the candidates,
so that no baseline with as many graphs is predicted better on the same requests.

A limit on bytes comes last: where the plan so chosen keeps it, that is the plan.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from encgraph.costs import Costs
from encgraph.fitting import affording, shapes, solving
from encgraph.fitting.judging import Prediction, predict
from encgraph.fitting.posing import Candidate, Limits, Problem, pose
from encgraph.fitting.shapes import Shape, Target
from encgraph.fitting.solving import SolvedLadders
from encgraph.records import Capacity, Item, Plan
from encgraph.tabular import Showing

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
class Fit(Showing):
    """The best plan for every number of graphs."""

    frontier: tuple[Choice, ...]
    """Index k holds the least mean found with at most k graphs; index 0 leaves graphs off."""
    best: Choice
    """The least mean within the limits; fewer and smaller graphs where that costs under 0.5 % of the
    mean and under 0.5 % of p99. Where that is over the byte limit: the least mean within it, of at most
    as many graphs."""


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
    none = problem.packed(target.plan((), ("no graphs: every batch runs eager",)))
    ruled = [problem.packed(plan) for plan in baselines if problem.fits(plan)]
    best, starts = _fewest([none, *ruled]), solving.starts(problem)
    for count, candidate in _fitted(problem, starts).items():
        _keep(best, candidate, count)
    chosen = _best(problem, best, _frontier(problem, best))
    if not problem.affords(chosen.plan):
        affording.pack(problem, starts)
    pool = _affordable(problem, {one.plan.graphs for one in ruled})
    frontier = _frontier(problem, _fewest(pool))
    chosen = _within(problem, chosen, pool)
    made = {id(one): _choice(problem, one) for one in frontier}
    return Fit(frontier=tuple(made[id(one)] for one in frontier), best=_choice(problem, chosen))


def _fewest(candidates: Iterable[Candidate]) -> dict[int, Candidate]:
    """The fastest of each number of graphs."""
    best: dict[int, Candidate] = {}
    for candidate in candidates:
        _keep(best, candidate)
    return best


def _keep(best: dict[int, Candidate], candidate: Candidate, count: int | None = None) -> None:
    index = len(candidate.plan.graphs) if count is None else count
    if index not in best or candidate.total_ms < best[index].total_ms:
        best[index] = candidate


def _fitted(problem: Problem, starts: Sequence[SolvedLadders]) -> dict[int, Candidate]:
    """Fit every number of graphs: shapes shortlisted by their bins' price, then packed again."""
    best = dict[int, Candidate]()
    offers: dict[int, list[tuple[float, Plan, Shape]]] = {}
    for solved in starts:
        for count in range(1, problem.limits.max_graphs + 1):
            if offer := solved.best(count, problem.top):
                offers.setdefault(count, []).append((*offer, solved.shape))
    for count, found in offers.items():
        found.sort(key=lambda offer: offer[0])
        close = [offer for offer in found[:2] if offer[0] <= CLOSE_OFFER * found[0][0]]
        for _, plan, shape in close:
            candidate = solving.repacked(problem, plan, shape, count)
            if count not in best or candidate.total_ms < best[count].total_ms:
                best[count] = candidate
    return best


def _frontier(problem: Problem, best: Mapping[int, Candidate]) -> list[Candidate]:
    """The best of at most each number of graphs."""
    frontier = [best[0]]
    for count in range(1, problem.limits.max_graphs + 1):
        found = best.get(count, frontier[-1])
        frontier.append(found if found.total_ms < frontier[-1].total_ms else frontier[-1])
    return frontier


def _best(
    problem: Problem, best: Mapping[int, Candidate], frontier: Sequence[Candidate]
) -> Candidate:
    """The fewest and smallest graphs that are close to the least in mean and, of that plan, in p99."""
    close = partial(_close, least=_choice(problem, frontier[-1]).prediction)
    fewest = next(
        best[k]
        for k, found in enumerate(frontier)
        if k in best and close(_choice(problem, found).prediction)
    )
    return _lowered(problem, fewest, close)


def _affordable(problem: Problem, ruled: Container[tuple[Capacity, ...]]) -> list[Candidate]:
    """What was packed and keeps the limits; `ruled` are the graphs of baselines."""
    return [
        replace(candidate, fitted=candidate.plan.graphs not in ruled)
        for candidate in problem.known.values()
        if problem.fits(candidate.plan) and problem.affords(candidate.plan)
    ]


def _within(problem: Problem, free: Candidate, pool: Sequence[Candidate]) -> Candidate:
    """The plan chosen without a byte limit if it keeps it, or the best of at most as many graphs.

    None is faster than the plan without a limit, which gave so little up for fewer graphs: more memory
    would else be slower.
    """
    if problem.affords(free.plan):
        return free
    most, slower = len(free.plan.graphs), [one for one in pool if one.total_ms >= free.total_ms]
    none = problem.packed(replace(free.plan, graphs=(), reasons=()))
    fewer = [one for one in slower if len(one.plan.graphs) <= most]
    return min(fewer, key=lambda one: one.total_ms, default=none)


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
