import pytest
from planning_examples import MODELLED, SIZE, SLOW_EAGER, TARGET, images

from encgraph import budgets, packing, tradeoffs
from encgraph.records import FallbackReason, Load

PLAN = budgets.doubling(64, 1024, target=TARGET, items=8)
REQUESTS = [images(*tokens) for tokens in ((64,), (70, 200), (500, 64, 64), (900, 90), (130,))]


def test_break_even_is_eager_over_replay_and_leaves_out_what_does_not_fit() -> None:
    grid = tradeoffs.break_even(SLOW_EAGER, SIZE, tokens=[64, 256])
    load, graph = Load.of(images(64)), budgets.doubling(64, 256, target=TARGET, items=1).graphs[2]
    expected = SLOW_EAGER.eager_ms(load) / SLOW_EAGER.replay_ms(graph, load)
    assert grid.ratios[0][1] == pytest.approx(expected)
    assert grid.ratios[1][0] is None


def test_break_even_of_several_items_shares_the_tokens() -> None:
    one, four = (tradeoffs.break_even(MODELLED, SIZE, tokens=[256], items=n) for n in (1, 4))
    assert one.ratios[0][0] != four.ratios[0][0]


def test_every_decision_of_the_ascending_rule_follows_its_inequality() -> None:
    for batch in (images(64, 289, 90, 81, 361, 64), images(64, 182, 256, 462, 756)):
        decisions = tradeoffs.defers(batch, PLAN, costs=MODELLED)
        assert len(decisions) == len(batch) - 1
        for one in decisions:
            fewer = one.joint_budget is not None and (
                one.item_budget >= one.bin_budget
                and one.bin_budget + one.item_budget < one.joint_budget
            )
            assert one.closes == (one.joint_budget is None or fewer)
            assert (one.together_ms is None) == (one.joint_budget is None)


def test_no_rule_beats_the_optimum_and_the_loss_is_the_mean() -> None:
    found = tradeoffs.gaps(REQUESTS, PLAN, costs=SLOW_EAGER)
    assert {gap.rule for gap in found} == {*packing.PACKINGS, "all eager"} - {"cheapest"}
    for gap in found:
        assert len(gap.ratios) == 3
        assert min(gap.ratios) >= 1 - 1e-9
        assert list(gap.ratios) == sorted(gap.ratios)
    every = {gap.rule: gap.lost_ms for gap in found}
    batches = [batch for batch in REQUESTS if len(batch) > 1]
    pack = packing.packer(PLAN, SLOW_EAGER, rule="one_each")
    best = packing.packer(PLAN, SLOW_EAGER)
    lost = [
        packing.predicted_ms(pack(b), b, SLOW_EAGER) - packing.predicted_ms(best(b), b, SLOW_EAGER)
        for b in batches
    ]
    assert every["one_each"] == pytest.approx(sum(lost) / 3)


def test_gaps_without_a_request_of_several_items_are_refused() -> None:
    with pytest.raises(ValueError, match="gaps need a request of 2 to 6 items"):
        tradeoffs.gaps([images(64)], PLAN, costs=MODELLED)


def test_private_buffers_add_up_and_a_shared_slab_is_the_largest() -> None:
    shared = tradeoffs.memory(PLAN, MODELLED)
    private = tradeoffs.memory(PLAN, MODELLED, slabs="private")
    rows = [graph.patches for graph in PLAN.graphs]
    assert shared.slabs_bytes == MODELLED.row_bytes * max(rows)
    assert private.slabs_bytes == MODELLED.row_bytes * sum(rows)
    assert private.pool_bytes == shared.pool_bytes
    with pytest.raises(ValueError, match="slabs must be 'shared' or 'private', got 'own'"):
        tradeoffs.memory(PLAN, MODELLED, slabs="own")


def test_rules_are_judged_by_graphs_and_fitted_is_never_worse_on_what_it_saw() -> None:
    judged = tradeoffs.rules(REQUESTS, REQUESTS, target=TARGET, costs=SLOW_EAGER, max_graphs=3)
    assert {j.rule for j in judged} == {"eager", "doubling", "quantile", "fitted"}
    assert tradeoffs.pick(judged, "eager", 0).graphs == 0
    fitted = tradeoffs.pick(judged, "fitted", 3).prediction.mean_ms
    rest = [j.prediction.mean_ms for j in judged]
    assert fitted <= min(rest) * 1.0000001
    held = tradeoffs.ways_to_hold(judged, SLOW_EAGER)
    assert [sorted(mine) for mine in held.values()] == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises(ValueError, match="no plan of rule 'guessed'"):
        tradeoffs.pick(judged, "guessed", 3)


def test_fallback_reasons_count_items() -> None:
    requests = [images(5000), images(64, 5000)]
    found = tradeoffs.fallback_reasons(requests, PLAN, costs=SLOW_EAGER, rule="ascending")
    assert found == {FallbackReason.OVER_TOKENS: 2}


def test_every_balance_rule_is_simulated_and_shares_a_burst() -> None:
    burst = images(4000, 64, 64, 900)
    found = tradeoffs.balances([burst], SIZE, costs=MODELLED, ranks=(1, 2))
    assert [(s.rule, s.ranks) for s in found][:2] == [("round_robin", 1), ("round_robin", 2)]
    shared = tradeoffs.bursts(burst, 2, size=SIZE, costs=MODELLED)
    assert set(shared) == set(tradeoffs.BALANCES)
    assert all(len(one.rank_ms) == 2 for one in shared.values())
