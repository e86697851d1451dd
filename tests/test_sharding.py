"""The simulator: bounds hold, bytes are right, and the rules come out in the order they should."""

from itertools import product

import pytest
from test_balance import COSTS, SIZE, items, random_items

from encgraph import balance, codec, sharding
from encgraph.balance import Assignment
from encgraph.sharding import Simulated

REQUESTS = [random_items(seed) for seed in range(20)]


@pytest.mark.parametrize("rule", balance.RULES)
@pytest.mark.parametrize("ranks", [1, 2, 7, 64])
def test_no_rule_beats_the_lower_bound(rule, ranks):
    found = sharding.simulate(REQUESTS, ranks, size=SIZE, costs=COSTS, rule=rule)
    assert found.over_bound_ratio >= 1
    assert found.worst_over_bound_ratio >= found.over_bound_ratio
    assert 0 <= found.idle_ratio < 1
    assert found.uneven_bytes <= found.padded_bytes
    assert found.speedup <= ranks + 1e-9


def test_not_even_the_best_assignment_beats_the_lower_bound():
    for seed in range(15):
        batch = random_items(seed, most=7)
        owners = product(range(3), repeat=len(batch))
        best = min(
            max(balance.exact_ms([batch[i] for i in mine], COSTS) for mine in shared.ranks)
            for shared in (Assignment.of("any", own, 3) for own in owners)
        )
        assert sharding.lower_bound_ms(batch, 3, costs=COSTS) <= best


def test_one_rank_waits_for_nobody_and_gathers_nothing():
    found = sharding.simulate(REQUESTS, 1, size=SIZE, costs=COSTS)
    assert found.idle_ratio == pytest.approx(0)
    assert found.latency.mean_ms == pytest.approx(found.one_rank_ms)
    assert (found.padded_bytes, found.uneven_bytes) == (0, 0)


def test_weighing_by_time_beats_not_weighing():
    mean = {
        rule: sharding.simulate(REQUESTS, 4, size=SIZE, costs=COSTS, rule=rule).latency.mean_ms
        for rule in balance.RULES
    }
    assert mean["longest_first"] < mean["round_robin"]
    assert mean["longest_first"] < mean["count"]


def test_a_rank_price_of_ones_own_is_used():
    found = sharding.simulate(
        [items(1, 1, 1)], 2, size=SIZE, costs=COSTS, rule="count", rank_ms=lambda mine: len(mine)
    )
    assert found.latency.worst_ms == 2
    assert found.one_rank_ms == 3
    assert found.idle_ratio == pytest.approx(0.25)


def test_gathered_bytes_count_each_row_to_each_other_rank():
    assert sharding.gather_bytes([5, 0, 1], 8) == sharding.GatherBytes(
        padded_bytes=3 * 2 * 5 * 8, uneven_bytes=2 * 6 * 8
    )
    assert sharding.gather_bytes([0, 0], 8) == sharding.GatherBytes(padded_bytes=0, uneven_bytes=0)
    assert sharding.token_bytes(SIZE) == 4096 * 4 * 2


def test_an_empty_request_takes_no_time():
    one = sharding.burst([], 3, rule=balance.tokens, costs=COSTS, token_bytes=2)
    assert (one.makespan_ms, one.bound_ms, one.idle_ratio, one.over_bound_ratio) == (0, 0, 0, 1)


def test_a_simulation_goes_through_json():
    found = sharding.simulate(REQUESTS, 2, size=SIZE, costs=COSTS)
    assert codec.loads(Simulated, codec.dumps(found)) == found
    assert "modelled" in found.source


@pytest.mark.parametrize("ranks", [0, 65])
def test_ranks_out_of_range_are_refused(ranks):
    with pytest.raises(ValueError, match=rf"ranks must be within 1\.\.64, got {ranks}"):
        sharding.simulate(REQUESTS, ranks, size=SIZE, costs=COSTS)


def test_no_requests_are_refused():
    with pytest.raises(ValueError, match="at least 1 request"):
        sharding.simulate([], 2, size=SIZE, costs=COSTS)


def test_bursts_keep_order_and_drop_the_rest():
    whole = sharding.bursts_of([items(1, 2), items(3), items(4, 5)], 2)
    assert [[item.tokens for item in one] for one in whole] == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="a burst must have at least 1 item"):
        sharding.bursts_of([], 0)
