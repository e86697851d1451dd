import random

import pytest
from planning_examples import MODELLED, SLOW_EAGER, batches, images, plan

from encgraph.costs import Costs
from encgraph.packers import lookup, search
from encgraph.packers.lookup import Size
from encgraph.packers.search import Prices

PLAN = plan(64, 128, 200, 256, 512, 1024, few=4)


def sizes_of(*tokens: int) -> list[Size]:
    return sorted(lookup.size_of(item) for item in images(*tokens))


@pytest.mark.parametrize("model", [MODELLED, SLOW_EAGER])
def test_a_settled_first_step_is_the_exact_optimum(model: Costs) -> None:
    prices = Prices.of(PLAN, model)
    settled = 0
    for batch in batches(0, 150, most=5):
        sizes = sorted(lookup.size_of(item) for item in batch)
        found, sure = search.one_step(sizes, prices)
        settled += sure
        if sure:
            assert found[0] == pytest.approx(search.exact(sizes, prices)[0])
    assert settled > 50


def test_contiguous_is_close_to_exact_on_few_items() -> None:
    prices = Prices.of(PLAN, SLOW_EAGER)
    worst = 1.0
    for batch in batches(1, 80, most=6):
        sizes = sorted(lookup.size_of(item) for item in batch)
        exact = search.exact(sizes, prices)[0]
        bounded = search.contiguous(sizes, prices)[0]
        assert bounded >= exact - 1e-9
        base = sum(prices.load_ms(size) for size in sizes)
        worst = max(worst, (bounded + base) / (exact + base))
    assert worst <= 1.10, f"contiguous is up to {worst:.3f} times the optimum"


def test_edges_lie_below_every_price() -> None:
    rng = random.Random(0)
    prices = [rng.uniform(1, 9) for _ in PLAN.graphs]
    for a, b in search.edges(PLAN, prices):
        for graph, ms in zip(PLAN.graphs, prices, strict=True):
            assert a + b * graph.tokens <= ms + 1e-9


def test_items_that_no_graph_holds_run_eager_beside_a_run_of_others() -> None:
    _, bins, left = search.contiguous(sizes_of(64, 300, 5000), Prices.of(PLAN, SLOW_EAGER))
    assert 2 in left
    assert sorted(left + [i for _, members in bins for i in members]) == [0, 1, 2]
