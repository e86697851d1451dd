"""Choose token budgets for given bins by dynamic programming, every number of graphs in one run.

A ladder is a row of budgets that share their limits on items, frames and longest segment. Its bins
are given; each costs its weight times the price of the smallest budget that holds it, or what eager
costs beyond the live load, whichever rule says. With prices rising along the ladder, the best k
budgets with the largest at j are the best k - 1 with the largest at some i < j, plus the bins
between: O(k m^2) for m candidate budgets, and exact as long as no candidate was thinned out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encgraph.fitting.bulk import Ints
from encgraph.intervals import Floats

CANDIDATES = 128
"""Most candidate budgets a ladder; more are thinned by weight, which costs some exactness."""


@dataclass(frozen=True, slots=True)
class Given:
    """The bins of one ladder."""

    tokens: Ints
    """Smallest budget that holds each."""
    weight: Floats
    eager_ms: Floats
    """What eager costs beyond the live load."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The least total price of given bins for every number of budgets and every largest one."""

    budgets: Ints
    """Candidate budgets, ascending."""
    total_ms: Floats
    """Axes: number of budgets, largest candidate + 1 (0 for none); bins above it run eager."""
    below: Ints
    """The next smaller budget on the best way, as an index like the largest."""

    def best(self, count: int, largest: float) -> tuple[float, tuple[int, ...]]:
        """Least weighted milliseconds with a number of budgets up to a largest, and the budgets."""
        allowed = 1 + int(np.searchsorted(self.budgets, largest, "right"))
        if count >= len(self.total_ms) or not np.isfinite(self.total_ms[count, :allowed]).any():
            return np.inf, ()
        top = int(self.total_ms[count, :allowed].argmin())
        total, chosen = float(self.total_ms[count, top]), []
        for k in range(count, 0, -1):
            chosen.append(int(self.budgets[top - 1]))
            top = int(self.below[k, top])
        return total, tuple(reversed(chosen))


def solve(
    given: Given,
    price: Callable[[int], float],
    *,
    most: int,
    choosing: bool = True,
    candidates: int = CANDIDATES,
) -> Ladder:
    """Find the best budgets for given bins.

    Args:
        given: The bins.
        price: Milliseconds of a replay of a budget, rising with it.
        most: Largest number of budgets.
        choosing: Whether a bin that eager runs faster goes eager although a budget holds it.
        candidates: Most candidate budgets.

    Source:
        Exact one-dimensional clustering by dynamic programming: H. Wang and M. Song,
        Ckmeans.1d.dp, The R Journal 3(2), 2011.
    """
    order = np.argsort(given.tokens, kind="stable")
    tokens, weight, eager = given.tokens[order], given.weight[order], given.eager_ms[order]
    budgets = thinned(tokens, weight, candidates)
    count = len(budgets)
    starts = np.searchsorted(tokens, np.concatenate([[0], budgets[:-1]]), "right")
    prices = np.array([price(int(b)) for b in budgets])
    each = np.broadcast_to(prices[:, None], (count, len(tokens)))
    if choosing:
        each = np.minimum(each, eager)
    sums = np.add.reduceat(each * weight, starts, 1) if count else np.zeros((0, 0))
    upto = np.concatenate([np.zeros((count, 1)), sums.cumsum(1)], 1)
    # between[j, i]: bins above candidate i - 1 up to candidate j, all at the price of j.
    between = np.diagonal(upto, 1)[:, None] - upto[:, :count]
    between = np.where(np.arange(count) <= np.arange(count)[:, None], between, np.inf)
    above = np.concatenate([np.add.reduceat(eager * weight, starts), [0.0]]) if count else [0.0]
    tail = np.cumsum(np.asarray(above)[::-1])[::-1]
    return _climb(budgets, between, tail, min(most, count))


def _climb(budgets: Ints, between: Floats, tail: Floats, most: int) -> Ladder:
    count = len(budgets)
    best = np.full((most + 1, count + 1), np.inf)
    below = np.zeros((most + 1, count + 1), np.int64)
    best[0, 0] = 0.0
    for k in range(1, most + 1):
        tried = best[k - 1, :count] + between
        below[k, 1:] = tried.argmin(1)
        best[k, 1:] = tried.min(1)
    return Ladder(budgets, best + tail, below)


def thinned(tokens: Ints, weight: Floats, most: int) -> Ints:
    """Distinct token counts, ascending; if too many, those at equal steps of weight and the last."""
    distinct, inverse = np.unique(tokens, return_inverse=True)
    if len(distinct) <= most:
        return distinct
    share = np.cumsum(np.bincount(inverse, weight))
    steps = np.linspace(0, share[-1], most // 2 + 1)[1:]
    by_weight = np.searchsorted(share, steps * (1 - 1e-12))
    # Half by weight, half evenly over the distinct values, so that the tail keeps candidates.
    evenly = np.linspace(0, len(distinct) - 1, most - len(steps)).round().astype(int)
    kept: Ints = distinct[np.union1d(np.minimum(by_weight, len(distinct) - 1), evenly)]
    return kept
