import pytest
from planning_examples import SLOW_EAGER, batches, images, plan

from encgraph import budgets, packing
from encgraph.records import Plan

PLAN = plan(64, 256, 1024, items=8)


@pytest.mark.parametrize("pack", ["cheapest", "ascending", "first_fit_decreasing"])
def test_each_request_is_routed_as_it_is_packed_alone(pack: str) -> None:
    requests = batches(7, 40, most=5)
    found = budgets.routed(requests, PLAN, costs=SLOW_EAGER, pack=pack)
    packer = packing.packer(PLAN, SLOW_EAGER, rule=pack)
    for place, request in enumerate(requests):
        packed = packer(request)
        eager = sum(request[left.item].tokens for left in packed.fallback)
        assert found.tokens[place] == sum(item.tokens for item in request)
        assert (found.eager[place], found.padding[place]) == (
            eager,
            sum(bin.padding_tokens for bin in packed.bins),
        )
    assert found.pack == pack


def test_padding_by_request_adds_up_to_the_predicted_ratio() -> None:
    requests = batches(8, 60, most=4)
    found = budgets.routed(requests, PLAN, costs=SLOW_EAGER)
    predicted = budgets.judge(requests, PLAN, costs=SLOW_EAGER)
    real = sum(found.tokens) - sum(found.eager)
    assert sum(found.padding) / (real + sum(found.padding)) == pytest.approx(
        predicted.padding_ratio
    )


def test_without_graphs_all_tokens_run_eager() -> None:
    none = Plan(graphs=(), encoder=PLAN.encoder)
    found = budgets.routed([images(64, 100)], none, costs=SLOW_EAGER)
    assert (found.tokens, found.padding, found.eager) == ((164,), (0,), (164,))


def test_a_rule_that_is_a_function_is_called_one_and_no_requests_are_refused() -> None:
    found = budgets.routed([images(64)], PLAN, costs=SLOW_EAGER, pack=packing.ascending)
    assert found.pack == "a function"
    with pytest.raises(ValueError, match="at least one request"):
        budgets.routed([], PLAN, costs=SLOW_EAGER)
