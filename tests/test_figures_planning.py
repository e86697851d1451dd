from dataclasses import replace

import pytest
import report_examples as examples
from planning_examples import MODELLED, SIZE, SLOW_EAGER, TARGET, images, plan
from test_readings import LINES, line

from encgraph import budgets, figures, packing, tradeoffs
from encgraph.records import Load, Route
from encgraph.results import Latency, Measurement, Memory

PLAN = budgets.doubling(64, 256, target=TARGET, items=4)
BATCH = images(60, 70, 200, 5000)
BENCH = [
    line("vllm", 4, repeats_count=5, arithmetic_floor_ms=1),
    line("encgraph", 2, repeats_count=5, arithmetic_floor_ms=1),
    *LINES[3:],
    line("encgraph", 4, request=0),
    line("encgraph", 3, request=1),
]


def test_regimes_and_requests_are_drawn_by_strategy() -> None:
    (bars,) = figures.regimes_compared(BENCH).data
    assert list(bars.y) == [1, 2]
    clouds = figures.latency_against_tokens(BENCH).data
    assert {cloud.name: list(cloud.y) for cloud in clouds} == {"vllm": [8, 9], "encgraph": [3, 4]}
    with pytest.raises(ValueError, match=r"strategies must be on record, .* got \['eager'\]"):
        figures.latency_against_tokens(BENCH, strategies=["eager"])


def test_speedups_pair_each_request_with_itself_and_are_sorted() -> None:
    (curve,) = figures.speedups(BENCH, of="encgraph", over="vllm").data
    assert list(curve.y) == [2.0, 3.0]
    assert list(curve.x) == [0.5, 1.0]


def test_a_bin_is_drawn_as_its_items_and_its_padding_up_to_the_budget() -> None:
    packed = packing.ascending(BATCH, PLAN)
    drawn = figures.bins_of_batch({"ascending": packed}, BATCH)
    rows = list(zip(*(bar.x for bar in drawn.data), strict=True))
    assert [sum(row) for row in rows] == [*(b.token_budget for b in packed.bins), 5000]
    told = {text for bar in drawn.data for text in bar.customdata}
    assert {"60", "padding", "eager 5,000"} <= told
    assert {text for bar in drawn.data for text in bar.text} == (told - {"padding"}) | {""}


def test_a_ruler_counts_every_real_token_once_by_what_it_goes_through() -> None:
    requests = [images(64), images(100), images(200), images(5000), images(60, 70, 300)]
    routed = budgets.routed(requests, PLAN, costs=SLOW_EAGER, pack="ascending")
    real, padding, eager, marks = figures.budget_ruler(routed).data
    total = sum(routed.tokens)
    assert total == 64 + 100 + 200 + 5000 + 430
    assert sum(eager.y) * total == pytest.approx(5000 + 300)
    assert sum(real.y) * total == pytest.approx(64 + 100 + 200 + 130)
    assert sum(padding.y) * total == pytest.approx(sum(routed.padding)) == 28 + 56 + 62 + 0
    assert [x for x in marks.x if x is not None][::2] == [64, 128, 256]


def test_a_ruler_draws_as_eager_what_fits_a_budget_and_is_faster_eager() -> None:
    routed = budgets.routed([images(300)], plan(8192), costs=SLOW_EAGER)
    _, _, eager, _ = figures.budget_ruler(routed).data
    assert sum(eager.y) == 1


def test_break_even_is_even_at_the_middle_of_its_colours() -> None:
    grid = tradeoffs.break_even(SLOW_EAGER, SIZE, tokens=[64, 8192])
    (heat,) = figures.break_even_map(grid, tokens=[50, 60, 100]).data
    assert (heat.zmin, heat.zmax) == (-2, 2)
    assert heat.z[1][0] is None
    assert "67%" in figures.break_even_map(grid, tokens=[50, 60, 100]).layout.yaxis.ticktext[0]


def test_rules_are_lines_over_graphs_with_eager_across() -> None:
    requests = [images(64), images(200), images(130, 64)]
    judged = tradeoffs.rules(requests, requests, target=TARGET, costs=SLOW_EAGER, max_graphs=2)
    drawn = figures.latency_by_graphs(judged)
    assert {trace.name for trace in drawn.data} == {"doubling", "quantile", "fitted"}
    eager = tradeoffs.pick(judged, "eager", 0).prediction.mean_ms
    assert drawn.layout.shapes[0].y0 == pytest.approx(eager)
    assert all(max(t.y) <= 1 for t in figures.padding_by_graphs(judged).data)
    gaps = tradeoffs.gaps(requests, PLAN, costs=SLOW_EAGER)
    assert all(min(bar.y) >= 1 for bar in figures.optimality_gap(gaps).data)


def test_memory_by_graphs_is_in_mib() -> None:
    memory = Memory(slabs_bytes=2**20, pool_bytes=2**20, driver_bytes=0)
    (drawn,) = figures.memory_by_graphs({"shared": {3: memory}}).data
    assert (list(drawn.x), list(drawn.y)) == ([3], [2.0])


def point(route: Route, tokens: int, ms: float, *, budget: int = 0) -> Measurement:
    (item,) = images(tokens)
    return Measurement(
        experiment="curve-qwen3-vl-8b",
        encoder="qwen3-vl-8b",
        environment=examples.environment(),
        route=route,
        capacity=examples.capacity(budget) if budget else None,
        load=Load.of([item]),
        latency=Latency.of([ms, 2 * ms], clock="wall"),
    )


def test_replays_are_told_apart_by_how_full_they_are_and_scatter_is_a_ratio() -> None:
    points = [
        point(Route.REPLAY, 64, 3, budget=512),
        point(Route.REPLAY, 512, 5, budget=512),
        point(Route.EAGER, 64, 14),
    ]
    drawn = {trace.name: trace for trace in figures.replay_cost(points, MODELLED).data}
    assert list(drawn["nearly empty"].y) == [3]
    assert list(drawn["full, one item"].y) == [5]
    assert list(drawn["eager"].x) == [64]
    assert [list(t.y) for t in figures.spread(points).data] == [[2, 2], [2]]


def test_a_burst_shows_every_rank_below_no_bound() -> None:
    shared = tradeoffs.bursts(images(4000, 64, 900), 2, size=SIZE, costs=MODELLED)
    drawn = figures.burst_loads(shared)
    assert len(drawn.data) == 2
    slowest = [max(bar.y[i] for bar in drawn.data) for i in range(len(shared))]
    assert min(slowest) >= drawn.layout.shapes[0].y0 - 1e-6


def test_a_source_stands_below_a_figure_escaped() -> None:
    drawn = figures.sourced(figures.ladder(BENCH, over="vllm"), "a <b> card")
    assert drawn.layout.title.text == "a &lt;b&gt; card"
    assert drawn.layout.title.y < 0.1


def test_nothing_to_draw_is_refused() -> None:
    for draw in (figures.ladder, figures.regimes_compared, figures.latency_against_tokens):
        with pytest.raises(ValueError, match="need"):
            draw([])
    with pytest.raises(ValueError, match="at least one packed item"):
        figures.bins_of_batch({}, [])
    with pytest.raises(ValueError, match="at least one request"):
        figures.budget_ruler(replace(budgets.routed([BATCH], PLAN, costs=SLOW_EAGER), tokens=()))
