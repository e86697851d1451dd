from typing import Any

import pytest
from planning_examples import MODELLED, SIZE, TARGET, images, plan, traffic

from encgraph.fitting import posing
from encgraph.fitting.posing import Limits


def test_the_tail_climbs_to_the_largest_budget() -> None:
    pseudo = posing.tail([images(100)] * 99 + [images(800)], SIZE, 4096)
    tokens = [item.tokens for item in pseudo]
    assert tokens == sorted(set(tokens))
    assert tokens[0] == 100
    assert tokens[-1] == 4096


def test_pseudo_requests_weigh_little_and_nothing_in_what_is_judged() -> None:
    requests = traffic(0, 200)
    problem = posing.pose(requests, target=TARGET, costs=MODELLED, limits=Limits())
    assert problem.real.sum() == pytest.approx(200)
    assert problem.smoothed.sum() == pytest.approx(200 * (1 + posing.TAIL_WEIGHT))


def test_a_byte_limit_refuses_plans_and_leaves_the_largest_budget_to_the_traffic() -> None:
    requests = traffic(0, 100)
    limits = Limits(max_bytes=200 * 2**20, max_graphs=8)
    problem = posing.pose(requests, target=TARGET, costs=MODELLED, limits=limits)
    assert problem.top == max(sum(item.tokens for item in items) for items in requests)
    assert problem.affords(plan(64, 128))
    assert not problem.affords(plan(4096))
    assert problem.fits(plan(4096))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_graphs": -1}, "max_graphs must be at least 0, got -1"),
        ({"largest": 0}, "largest must be at least 1, got 0"),
        ({"items": 0}, "items must be at least 1, got 0"),
        ({"largest": 10**20}, "largest must be at most 10,000,000, got 1000000"),
        ({"largest": 64.5}, "largest must be a whole number of at least 1, got 64.5"),
        ({"max_graphs": 10**9}, "max_graphs must be at most 128, got 1000000000"),
        ({"max_bytes": float("nan")}, "max_bytes must be a whole number of at least 1, got nan"),
        ({"items": 10**9}, "items must be at most 10,000,000, got 1000000000"),
    ],
)
def test_limits_that_allow_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**options)
