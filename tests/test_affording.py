"""What a limit on bytes may do to a plan, over traffics, engines and limits."""

from collections.abc import Sequence

import pytest
from planning_examples import MODELLED, SLOW_EAGER, TARGET, traffic

from encgraph import budgets
from encgraph.budgets import Fit, Limits
from encgraph.costs import Costs
from encgraph.records import Item

MIB = 2**20
OWN_SLABS = SLOW_EAGER.with_private_slabs()
ENGINES = [
    pytest.param(SLOW_EAGER, {}, id="encgraph"),
    pytest.param(MODELLED, {"max_graphs": 6}, id="encgraph modelled"),
    pytest.param(OWN_SLABS, {"one_cap": True, "pack": "ascending", "largest": 8192}, id="vllm"),
]


def fitted(
    requests: Sequence[Sequence[Item]], costs: Costs, rules: dict[str, object], limit: int | None
) -> Fit:
    limits = Limits(max_bytes=limit, **rules)
    return budgets.fitted(requests, target=TARGET, costs=costs, limits=limits)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("costs", "rules"), ENGINES)
def test_more_memory_is_never_slower_and_a_plan_that_fits_is_kept(
    costs: Costs, rules: dict[str, object], seed: int
) -> None:
    requests = traffic(seed, 80)
    free = fitted(requests, costs, rules, None).best
    taken = free.prediction.memory.total_bytes
    shares = (0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99)
    means = []
    for limit in [round(share * taken) for share in shares]:
        best = fitted(requests, costs, rules, limit).best
        assert best.prediction.memory.total_bytes <= limit
        means.append(best.prediction.mean_ms)
    means.append(free.prediction.mean_ms)
    assert means == sorted(means, reverse=True)
    for limit in (taken, 20 * taken):
        assert fitted(requests, costs, rules, limit).best == free


def test_a_limit_leaves_more_than_graphs_all_as_large_as_the_largest_would_take() -> None:
    """With slabs of their own, graphs below the largest take less than it does."""
    requests, rules = traffic(3, 120), {"one_cap": True, "pack": "ascending", "largest": 8192}
    free = fitted(requests, OWN_SLABS, rules, None).best
    limit = round(0.9 * free.prediction.memory.total_bytes)
    best = fitted(requests, OWN_SLABS, rules, limit).best
    assert len(best.plan.graphs) * best.plan.largest().patches * OWN_SLABS.row_bytes > limit
    assert best.prediction.mean_ms <= 1.01 * free.prediction.mean_ms


@pytest.mark.parametrize(("costs", "rules"), ENGINES)
def test_every_number_of_graphs_keeps_the_limit(costs: Costs, rules: dict[str, object]) -> None:
    requests = traffic(4, 120)
    free = fitted(requests, costs, rules, None)
    limit = round(0.5 * free.best.prediction.memory.total_bytes)
    found = fitted(requests, costs, rules, limit).frontier
    assert len(found) == len(free.frontier)
    assert all(len(choice.plan.graphs) <= count for count, choice in enumerate(found))
    assert all(choice.prediction.memory.total_bytes <= limit for choice in found)
    means = [choice.prediction.mean_ms for choice in found]
    assert means == sorted(means, reverse=True)
