import math
import random
from dataclasses import replace

import pytest
from planning_examples import MODELLED, SLOW_EAGER, batches, images, plan

from encgraph.costs import Costs
from encgraph.packers import lookup, search
from encgraph.packers.lookup import Size
from encgraph.packers.prices import EagerRun, Pairs, Prices, edges
from encgraph.records import Load

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
    drawn = [rng.uniform(1, 9) for _ in PLAN.graphs]
    found = edges(PLAN, drawn)
    assert found
    for a, b in found:
        for graph, ms in zip(PLAN.graphs, drawn, strict=True):
            assert a + b * graph.tokens <= ms + 1e-9


def test_the_price_of_a_pair_is_that_of_the_cheapest_which_holds_it() -> None:
    rng = random.Random(0)
    drawn = [rng.uniform(1, 9) for _ in PLAN.graphs]
    pairs = Pairs.of(PLAN, drawn)
    priced = [(graph.tokens, ms) for graph, ms in zip(PLAN.graphs, drawn, strict=True)]
    for tokens in (0, 1, 127, 128, 129, *(rng.randint(1, 2048) for _ in range(50)), 2048, 2049):
        held = [a + b for s, a in priced for t, b in priced if s + t >= tokens]
        assert pairs.ms(tokens) == pytest.approx(min(held, default=math.inf))


@pytest.mark.parametrize("seed", range(4))
def test_a_half_empty_graph_is_settled_where_no_pair_is_cheaper(seed: int) -> None:
    """Prices as a card gives them, on a line but for their scatter: a line below them all settles little."""
    rng = random.Random(seed)
    drawn = tuple(rng.uniform(0.95, 1.05) * (1.4 + g.tokens / 150) for g in PLAN.graphs)
    prices = replace(
        Prices.of(PLAN, SLOW_EAGER),
        graph_ms=drawn,
        lookup=lookup.Lookup(PLAN.graphs, drawn.__getitem__),
        edges=edges(PLAN, drawn),
        pairs=Pairs.of(PLAN, drawn),
    )
    sizes = sizes_of(*[60] * 5)
    found, sure = search.one_step(sizes, prices)
    assert sure
    assert found[0] == pytest.approx(search.exact(sizes, prices)[0])


@pytest.mark.parametrize("spread", [(), (-1.0, 0.5, 0.5), (0.0, 3.0, -3.0, 0.0)])
def test_an_eager_run_by_bisection_costs_what_the_model_says(spread: tuple[float, ...]) -> None:
    model = replace(MODELLED, eager_floor_ms=4.0, eager_spread_ms=spread)
    eager, rng = EagerRun.of(model), random.Random(1)
    for patches in (1, 64, *(rng.randint(1, 40_000) for _ in range(100))):
        load = Load(patches=patches, items=rng.randint(1, 9), square=float(rng.randint(1, 10**8)))
        found = eager.ms(load.patches, load.items, load.square)
        assert found == pytest.approx(model.eager_ms(load))


@pytest.mark.parametrize("model", [MODELLED, SLOW_EAGER])
def test_no_contiguous_packing_is_cheaper(model: Costs) -> None:
    """Against every run left for eager, each walked anew."""
    prices = Prices.of(PLAN, model)
    for batch in batches(2, 60, most=9):
        sizes = sorted(lookup.size_of(item) for item in batch)
        held = [size for size in sizes if prices.lookup.find(size) >= 0]
        always = [size for size in sizes if size not in held]
        best = min(
            _walked(held[:i] + held[j:], prices, at=i)
            + prices.eager_ms(lookup.total([*always, *held[i:j]]))
            for i in range(len(held) + 1)
            for j in range(i, len(held) + 1)
        )
        assert search.contiguous(sizes, prices)[0] == pytest.approx(best)


def _walked(sizes: list[Size], prices: Prices, *, at: int) -> float:
    """Least price of items in contiguous bins, none of which spans a place."""
    best = [0.0] + [math.inf] * len(sizes)
    for end in range(1, len(sizes) + 1):
        for start in range(end):
            graph = prices.lookup.find(lookup.total(sizes[start:end]))
            if graph >= 0 and not start < at < end:
                best[end] = min(best[end], best[start] + prices.graph_ms[graph])
    return best[-1]


def test_items_that_no_graph_holds_run_eager_beside_a_run_of_others() -> None:
    _, bins, left = search.contiguous(sizes_of(64, 300, 5000), Prices.of(PLAN, SLOW_EAGER))
    assert 2 in left
    assert sorted(left + [i for _, members in bins for i in members]) == [0, 1, 2]
