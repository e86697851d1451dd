"""The best budgets of one shape for given bins, and what packing again under them gives."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from encgraph.fitting import ladders, shapes, sweep
from encgraph.fitting.ladders import Ladder
from encgraph.fitting.posing import Candidate, Problem
from encgraph.fitting.shapes import Shape, Target
from encgraph.records import Plan

ROUNDS = 3
"""Most times that bins are packed again for one number of graphs."""


@dataclass(frozen=True, slots=True)
class SolvedLadders:
    """The ladders of a shape, solved for the bins of an outcome."""

    ladders: tuple[Ladder, ...]
    beyond_ms: float
    """Weighted cost of bins that no ladder takes."""
    shape: Shape
    target: Target

    def best(self, count: int, top: float) -> tuple[float, Plan] | None:
        """Least weighted milliseconds of a number of graphs up to a budget; None if there are none."""
        options = [[row.best(k, top) for row in self.ladders] for k in range(count + 1)]
        ways: list[tuple[int, ...]] = [(count,)]
        if len(self.ladders) > 1:
            ways = [(k, count - k) for k in range(count + 1)]
        ms, way = min((sum(options[k][i][0] for i, k in enumerate(way)), way) for way in ways)
        if not np.isfinite(ms):
            return None
        chosen = [options[k][i][1] for i, k in enumerate(way)]
        return ms + self.beyond_ms, self.shape.plan(chosen, self.target)


def starts(problem: Problem) -> list[SolvedLadders]:
    """Every shape worth trying, solved for the bins that it would fill if graphs were free."""
    limits, batches, weights = problem.limits, problem.batches, problem.smoothed
    found = []
    for shape in shapes.offered(batches, weights, one_cap=limits.one_cap, items=limits.items):
        dense = problem.packed(shape.dense(batches, weights, problem.target, problem.top))
        found.append(rows(problem, dense.outcome, shape, limits.max_graphs))
    return found


def rows(problem: Problem, outcome: sweep.Outcome, shape: Shape, most: int) -> SolvedLadders:
    """Solve the ladders of a shape for the bins of an outcome, for up to so many graphs."""
    given, beyond = shape.split(outcome, problem.smoothed, problem.target, problem.costs)
    choosing = problem.limits.pack == "cheapest"
    solved = tuple(
        ladders.solve(bins, _price(problem, shape, i), most=most, choosing=choosing)
        for i, bins in enumerate(given)
    )
    return SolvedLadders(solved, beyond, shape, problem.target)


def _price(problem: Problem, shape: Shape, rung: int) -> Callable[[int], float]:
    def price(tokens: int) -> float:
        return problem.costs.capacity_ms(shape.capacity(tokens, rung, problem.target))

    return price


def repacked(
    problem: Problem, plan: Plan, shape: Shape, count: int, *, top: float | None = None
) -> Candidate:
    """Pack again and again, each time with the best budgets for the bins before, while it pays."""
    best = problem.packed(plan)
    for _ in range(ROUNDS):
        again = rows(problem, best.outcome, shape, count).best(count, top or problem.top)
        if again is None or again[1].graphs == best.plan.graphs:
            break
        candidate = problem.packed(again[1])
        if candidate.total_ms >= best.total_ms:
            break
        best = candidate
    return replace(best, fitted=True)
