import pytest
from helpers_time import least_seconds
from widget_examples import COSTS, SIZE, SMALL, cells, images, trace

from encgraph import balance, cards, sharding, traffic, widgets
from encgraph.widgets.shards import MOST_ITEMS, Sharding, sampled

BATCH = images(250, 60, 930, 64, 64, 196, 2000, 100)


@pytest.fixture
def view() -> Sharding:
    return widgets.sharding([BATCH], SIZE, COSTS)


def test_bars_are_what_each_rank_is_predicted_to_take(view: Sharding) -> None:
    for ranks in (1, 3, 8, 16):
        view.ranks.value = ranks
        shared = balance.longest_first(BATCH, ranks, costs=COSTS)
        expected = [balance.exact_ms([BATCH[i] for i in mine], COSTS) for mine in shared.ranks]
        assert list(trace(view.plot.figure, "busy").y) == pytest.approx(expected)
        waiting = trace(view.plot.figure, "idle").y
        assert [a + b for a, b in zip(expected, waiting, strict=True)] == pytest.approx(
            [max(expected)] * ranks
        )


def test_every_rule_gives_what_simulating_it_gives() -> None:
    view = widgets.sharding(SMALL.requests, SIZE, COSTS)
    for rule in balance.RULES:
        view.rule.value = rule
        expected = sharding.simulate(SMALL.requests, 4, size=SIZE, costs=COSTS, rule=rule)
        row = cells(view.table.value)[2]
        assert view.simulated == expected
        assert row[1] == f"{expected.latency.mean_ms:.2f}"
        assert row[3:5] == [f"{expected.over_bound_ratio:.3f}", f"{expected.idle_ratio:.0%}"]


def test_the_row_of_a_burst_holds_bound_and_both_gathers(view: Sharding) -> None:
    bound = sharding.lower_bound_ms(BATCH, 4, costs=COSTS)
    tokens = balance.longest_first(BATCH, 4, costs=COSTS).tokens(BATCH)
    moved = sharding.gather_bytes(tokens, sharding.token_bytes(SIZE))
    row = cells(view.table.value)[1]
    assert row[2] == f"{bound:.2f}"
    assert row[6] == f"{moved.padded_bytes / 2**20:,.2f}"
    assert row[7] == f"{moved.uneven_bytes / 2**20:,.2f}"
    assert moved.padded_bytes > moved.uneven_bytes


def test_regrouping_makes_bursts_of_so_many_items() -> None:
    view = widgets.sharding(SMALL.requests, SIZE, COSTS)
    view.burst.value = view.burst.max
    view.group.value = "32 items"
    assert view.bursts == list(sharding.bursts_of(SMALL.requests, 32))
    assert view.burst.max == len(view.bursts) and view.burst.value <= view.burst.max
    assert len(view.shared.owners) == 32


def test_a_sample_says_what_it_leaves_out() -> None:
    kept, said = sampled([images(64)] * 4000)
    assert len(kept) == 1000
    assert said == "one rank's time by an exact fit; simulated 1,000 of 4,000 bursts, evenly spaced"
    [cut], said = sampled([images(*[64] * 3000)])
    assert len(cut) == MOST_ITEMS and said.endswith("of a larger one the first 1,000 items")


def test_ranks_of_ten_thousand_requests_move_fast() -> None:
    requests = traffic.read("builtin:servegen", SIZE, count=10_000).requests
    view = widgets.sharding(requests, SIZE, cards.price(SIZE))
    moves = [lambda ranks=ranks: view.ranks.set_trait("value", ranks) for ranks in (2, 8, 16)]
    assert least_seconds(*moves) < 0.12


@pytest.mark.parametrize("requests", [[], [()]])
def test_sharding_without_items_is_refused(requests: list[tuple[()]]) -> None:
    with pytest.raises(ValueError, match="at least one request with an item, got none"):
        widgets.sharding(requests, SIZE, COSTS)
