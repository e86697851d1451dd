import random
from itertools import combinations
from math import inf

import numpy as np
import pytest

from encgraph.fitting import ladders
from encgraph.fitting.ladders import Given


def given(seed: int, count: int) -> Given:
    rng = random.Random(seed)
    return Given(
        tokens=np.array([rng.randint(1, 30) for _ in range(count)]),
        weight=np.array([rng.choice((1.0, 0.5, 3.0)) for _ in range(count)]),
        eager_ms=np.array([rng.uniform(1, 12) for _ in range(count)]),
    )


def price(tokens: int) -> float:
    return 1.5 + 0.3 * tokens


def total_ms(bins: Given, budgets: tuple[int, ...], choosing: bool) -> float:
    total = 0.0
    for tokens, weight, eager in zip(bins.tokens, bins.weight, bins.eager_ms, strict=True):
        replay = min((price(b) for b in budgets if b >= tokens), default=inf)
        total += weight * (min(replay, eager) if choosing or replay == inf else replay)
    return total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("choosing", [True, False])
def test_budgets_are_the_brute_force_optimum_for_given_bins(seed: int, choosing: bool) -> None:
    bins = given(seed, 14)
    solved = ladders.solve(bins, price, most=4, choosing=choosing)
    distinct = sorted(set(bins.tokens.tolist()))
    for count in range(5):
        best = min(total_ms(bins, chosen, choosing) for chosen in combinations(distinct, count))
        found, budgets = solved.best(count, inf)
        assert found == pytest.approx(best)
        assert total_ms(bins, budgets, choosing) == pytest.approx(best)


def test_no_budget_exceeds_the_largest_allowed() -> None:
    bins = given(1, 20)
    solved = ladders.solve(bins, price, most=3)
    distinct = [t for t in sorted(set(bins.tokens.tolist())) if t <= 15]
    best = min(total_ms(bins, chosen, True) for chosen in combinations(distinct, 3))
    found, budgets = solved.best(3, 15)
    assert found == pytest.approx(best)
    assert max(budgets) <= 15
    assert solved.best(1, 0) == (inf, ())


def test_more_budgets_than_distinct_bins_are_not_possible() -> None:
    bins = Given(np.array([5, 5, 9]), np.ones(3), np.full(3, 20.0))
    solved = ladders.solve(bins, price, most=8)
    assert solved.best(2, inf)[1] == (5, 9)
    assert solved.best(3, inf) == (inf, ())


def test_no_bins_cost_nothing() -> None:
    none = Given(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    assert ladders.solve(none, price, most=3).best(0, inf) == (0.0, ())


def test_thinning_keeps_the_largest_and_the_heaviest() -> None:
    tokens = np.arange(1, 1001)
    weight = np.ones(1000)
    weight[416] = 500.0
    kept = ladders.thinned(tokens, weight, 64)
    assert len(kept) <= 64
    assert kept[-1] == 1000
    assert 417 in kept


def test_a_thinned_ladder_stays_close_to_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.lognormal(5.5, 0.8, 400).astype(int) + 1
    bins = Given(tokens, np.ones(400), 8.0 + 0.4 * tokens)
    exact = ladders.solve(bins, price, most=8, candidates=1000).best(8, inf)[0]
    thin = ladders.solve(bins, price, most=8, candidates=64).best(8, inf)[0]
    assert exact <= thin <= 1.02 * exact
