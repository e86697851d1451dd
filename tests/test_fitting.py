from dataclasses import replace
from itertools import combinations

import pytest
from planning_examples import MODELLED, SIZE, SLOW_EAGER, TARGET, images, traffic

from encgraph import budgets, packing, sizes
from encgraph.budgets import Limits
from encgraph.costs import Costs
from encgraph.records import Item, Load, Plan

REQUESTS = traffic(0, 300)
HELD_OUT = traffic(1, 300)


def mean_ms(requests: list[tuple[Item, ...]], plan: Plan, costs: Costs, pack: str) -> float:
    return budgets.judge(requests, plan, costs=costs, pack=pack).mean_ms


@pytest.mark.parametrize("costs", [MODELLED, SLOW_EAGER])
@pytest.mark.parametrize("limits", [Limits(), Limits(one_cap=True, pack="ascending")])
def test_fitted_never_costs_more_than_doubling_or_quantile_with_as_many_graphs(
    costs: Costs, limits: Limits
) -> None:
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=costs, limits=limits)
    rivals = [budgets.quantile(REQUESTS, count, target=TARGET) for count in range(1, 17)]
    rivals += [budgets.doubling(64, 64 * 2**k, target=TARGET) for k in range(1, 8)]
    for rival in rivals:
        mine = fit.frontier[len(rival.graphs)].plan
        assert len(mine.graphs) <= len(rival.graphs)
        assert mean_ms(REQUESTS, mine, costs, limits.pack) <= (
            mean_ms(REQUESTS, rival, costs, limits.pack) + 1e-9
        )


def test_the_frontier_is_judged_as_it_says() -> None:
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=SLOW_EAGER)
    assert len(fit.frontier) == 17
    for count, choice in enumerate(fit.frontier):
        assert len(choice.plan.graphs) <= count
        judged = budgets.judge(REQUESTS, choice.plan, costs=SLOW_EAGER)
        assert judged.mean_ms == pytest.approx(choice.prediction.mean_ms)
        assert judged.padding_ratio == pytest.approx(choice.prediction.padding_ratio)
    means = [choice.prediction.mean_ms for choice in fit.frontier]
    assert means == sorted(means, reverse=True)
    assert fit.best.prediction.mean_ms <= 1.005 * means[-1]
    fewer = fit.frontier[len(fit.best.plan.graphs) - 1]
    assert fewer.prediction.mean_ms > 1.005 * means[-1]


@pytest.mark.parametrize("seed", [0, 3])
def test_the_plan_chosen_is_never_better_than_the_frontier_has(seed: int) -> None:
    fit = budgets.fitted(traffic(seed, 600), target=TARGET, costs=SLOW_EAGER)
    means = [choice.prediction.mean_ms for choice in fit.frontier]
    assert means == sorted(means, reverse=True)
    assert means[len(fit.best.plan.graphs)] <= fit.best.prediction.mean_ms


def test_repacking_comes_close_to_the_true_optimum() -> None:
    requests = [images(64), images(64, 130), images(200), images(310, 64, 64), images(500)] * 2
    requests += [images(140, 140), images(90), images(260, 200)]
    tokens = sorted({sum(i.tokens for i in r) for r in requests} | {64, 130, 140, 200, 310, 260})
    limits = Limits(max_graphs=3, one_cap=True, items=3)
    fit = budgets.fitted(requests, target=TARGET, costs=SLOW_EAGER, limits=limits)
    for count in (1, 2, 3):
        best = min(
            mean_ms(
                requests,
                TARGET.plan([sizes.capacity(t, SIZE.rule, items=3) for t in chosen]),
                SLOW_EAGER,
                "cheapest",
            )
            for chosen in combinations(tokens, count)
        )
        found = fit.frontier[count].prediction.mean_ms
        assert found <= 1.02 * best, f"{count} graphs: {found:.3f} ms, optimum {best:.3f} ms"


@pytest.mark.parametrize("costs", [MODELLED, SLOW_EAGER])
def test_on_held_out_requests_fitted_is_no_worse_at_p99_than_doubling(costs: Costs) -> None:
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=costs)
    mine = budgets.judge(HELD_OUT, fit.best.plan, costs=costs)
    doubled = budgets.doubling(64, 8192, target=TARGET)
    theirs = budgets.judge(HELD_OUT, doubled, costs=costs)
    assert mine.latency.p99_ms <= theirs.latency.p99_ms
    assert mine.mean_ms < theirs.mean_ms


def test_a_large_graph_that_p99_needs_is_kept_though_the_mean_hardly_does() -> None:
    requests = [images(1024)] * 985 + [images(1100)] * 15
    alone = sizes.capacity(1100, SIZE.rule, items=1)
    replay_ms = MODELLED.replay_ms(alone, Load.of(images(1100)))
    costs = replace(MODELLED, eager_floor_ms=1.25 * replay_ms)
    fit = budgets.fitted(requests, target=TARGET, costs=costs)
    small = replace(fit.best.plan, graphs=fit.best.plan.graphs[:1], reasons=())
    without = budgets.judge(requests, small, costs=costs).latency
    least = fit.frontier[-1].prediction.latency
    assert without.mean_ms < 1.005 * least.mean_ms and without.p99_ms > 1.1 * least.p99_ms
    assert [graph.tokens for graph in fit.best.plan.graphs] == [1024, 1100]


def test_limits_are_kept() -> None:
    limits = Limits(max_graphs=5, max_bytes=100 * 2**20, largest=900)
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=SLOW_EAGER, limits=limits)
    assert len(fit.frontier) == 6
    assert fit.best.plan.graphs
    for choice in fit.frontier:
        assert SLOW_EAGER.memory(choice.plan).total_bytes <= 100 * 2**20
        assert all(g.tokens <= 900 for g in choice.plan.graphs)


def test_a_byte_limit_too_small_for_one_graph_says_the_smallest_that_works() -> None:
    with pytest.raises(
        ValueError, match=r"at least ([\d,]+) bytes for one graph of 64 tokens, got 9"
    ) as e:
        budgets.fitted(REQUESTS, target=TARGET, costs=MODELLED, limits=Limits(max_bytes=9))
    least = int(str(e.value).split()[5].replace(",", ""))
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=MODELLED, limits=Limits(max_bytes=least))
    assert [g.tokens for g in fit.frontier[1].plan.graphs] == [64]


def test_the_same_traffic_gives_the_same_plan_in_any_order() -> None:
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=SLOW_EAGER)
    again = budgets.fitted(REQUESTS, target=TARGET, costs=SLOW_EAGER)
    assert again == fit
    mirrored = budgets.fitted(REQUESTS[::-1], target=TARGET, costs=SLOW_EAGER)
    assert [c.plan.graphs for c in mirrored.frontier] == [c.plan.graphs for c in fit.frontier]


def test_weights_count_requests_that_often() -> None:
    twice = budgets.fitted([*REQUESTS[:50], *REQUESTS[:20]], target=TARGET, costs=SLOW_EAGER)
    weights = [2.0] * 20 + [1.0] * 30
    once = budgets.fitted(REQUESTS[:50], target=TARGET, costs=SLOW_EAGER, weights=weights)
    mine, theirs = once.frontier[4].prediction, twice.frontier[4].prediction
    assert mine.mean_ms == pytest.approx(theirs.mean_ms, rel=0.01)
    skewed = budgets.fitted(
        [images(64), images(999)],
        target=TARGET,
        costs=SLOW_EAGER,
        weights=[1, 0],
        limits=Limits(max_graphs=1),
    )
    assert [g.tokens for g in skewed.best.plan.graphs] == [64]


def test_no_graphs_is_the_answer_when_replays_never_pay() -> None:
    fit = budgets.fitted([images(16000), images(12000)], target=TARGET, costs=MODELLED)
    assert fit.best.plan.graphs == ()
    assert fit.best.plan.reasons


def test_an_engine_of_one_cap_gets_one_cap_and_worst_case_segments() -> None:
    for limits in (
        Limits(one_cap=True, pack="ascending"),
        Limits(items=8, pack="ascending"),
    ):
        fit = budgets.fitted(REQUESTS, target=TARGET, costs=SLOW_EAGER, limits=limits)
        for choice in fit.frontier[1:]:
            assert len({g.items for g in choice.plan.graphs}) == 1
            assert all(g.longest_segment == g.patches for g in choice.plan.graphs)
    assert fit.best.plan.graphs[0].items == 8


def test_every_graph_has_a_reason_and_is_reached() -> None:
    fit = budgets.fitted(REQUESTS, target=TARGET, costs=SLOW_EAGER)
    plan = fit.frontier[6].plan
    assert len(plan.reasons) == len(plan.graphs)
    pack = packing.packer(plan, SLOW_EAGER)
    used = {bin.graph for batch in REQUESTS for bin in pack(batch).bins}
    unused = {i for i, reason in enumerate(plan.reasons) if "kept for batches" in reason}
    assert used | unused == set(range(len(plan.graphs)))
    assert not used & unused
