"""Plans to choose from under a limit on bytes: which there are does not depend on the limit.

A limit that steered the search would change its course, and more memory could give a slower plan. So
the same plans are looked at for every limit: the best of each number of graphs up to each of many
largest budgets. A limit only says which of them are too large, and a higher one takes none away.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encgraph.fitting import ladders, solving
from encgraph.fitting.posing import Problem
from encgraph.fitting.solving import SolvedLadders
from encgraph.records import Plan

TOPS = 32
"""Largest budgets tried for every number of graphs."""
COARSE = 4
"""Of those, every so many are packed for every number; of the others what nothing smaller beats."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A plan before it is packed."""

    plan: Plan
    taken_bytes: int
    ms: float
    """Weighted, of the bins that it was solved for."""
    solved: SolvedLadders
    is_coarse: bool


def pack(problem: Problem, starts: Sequence[SolvedLadders]) -> None:
    """Pack the traffic under such plans, as far as the limit has room for them."""
    for offer in _kept(_offers(problem, starts)):
        if problem.affords(offer.plan):
            plan, shape = offer.plan, offer.solved.shape
            solving.repacked(problem, plan, shape, len(plan.graphs), top=max(plan.token_budgets))


def _offers(problem: Problem, starts: Sequence[SolvedLadders]) -> list[Offer]:
    """The best plan of every number of graphs up to every largest budget, over all shapes."""
    budgets = np.unique(np.concatenate([row.budgets for rows in starts for row in rows.ladders]))
    budgets = budgets[budgets <= problem.top]
    tops = ladders.thinned(budgets, np.ones(len(budgets)), TOPS).tolist()
    found = []
    for index, top in enumerate(tops):
        for count in range(1, problem.limits.max_graphs + 1):
            options = [(*best, rows) for rows in starts if (best := rows.best(count, top))]
            if options:
                ms, plan, rows = min(options, key=lambda option: option[0])
                taken = problem.costs.memory(plan).total_bytes
                found.append(Offer(plan, taken, ms, rows, index % COARSE == 0))
    return found


def _kept(offers: list[Offer]) -> list[Offer]:
    """Those that no smaller one is as fast as, and some of every number of graphs."""
    kept, least = [], np.inf
    for offer in sorted(offers, key=lambda offer: (offer.taken_bytes, offer.ms)):
        if offer.ms < least or offer.is_coarse:
            kept.append(offer)
        least = min(least, offer.ms)
    return kept
