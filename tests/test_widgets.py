import json

import plotly.graph_objects as go
import pytest
from helpers_time import least_seconds
from widget_examples import COSTS, FEW, SIZE, SMALL, TARGET, cells, images, made_traffic, trace

from encgraph import budgets, cards, packing, sizes, traffic, widgets
from encgraph.records import Item, Load, Modality
from encgraph.traffic import Traffic
from encgraph.widgets import verdicts
from encgraph.widgets.cases import Case
from encgraph.widgets.duels import frames
from encgraph.widgets.plots import Sketch


@pytest.fixture
def ruler() -> widgets.ruler.BudgetRuler:
    return widgets.budget_ruler(SMALL, COSTS, limits=FEW)


def test_the_ruler_shows_what_judging_the_plan_gives(ruler: widgets.ruler.BudgetRuler) -> None:
    ruler.count.value = 3
    held = ruler.case.held_out.requests
    expected = budgets.judge(held, ruler.plan, costs=COSTS)
    row = cells(ruler.table.value)[1]
    assert row[3] == f"{expected.mean_ms:.2f}"
    assert row[5] == f"{expected.latency.worst_ms:.2f}"
    assert row[6] == f"{expected.padding_ratio:.1%}"


def test_the_slowest_of_few_requests_is_not_called_p99(ruler: widgets.ruler.BudgetRuler) -> None:
    assert [row[4] for row in cells(ruler.table.value)[1:]] == ["", "", "", ""]
    assert "no p99: of fewer than 100" in ruler.note.value
    assert "mean and slowest: " in ruler.said.value
    view = widgets.break_even(COSTS, SMALL, limits=FEW)
    assert cells(view.table.value)[0][0] == "slowest of held-out requests"


def test_the_headline_has_p99_beside_the_mean_and_says_where_it_is_above_eager_s() -> None:
    requests = traffic.read("builtin:servegen", SIZE, count=2_000)
    ruler = widgets.budget_ruler(requests, cards.price(SIZE), limits=FEW)
    case = ruler.case
    mine = ruler.judged.prediction.latency
    assert cells(ruler.table.value)[1][4] == f"{mine.p99_ms:.2f}"
    assert f"p99: {mine.mean_ms:.2f} and {mine.p99_ms:.2f} ms with these" in ruler.said.value
    off, doubled = (case.judged(plan, pack="ascending") for plan in (case.off, case.doubling))
    above = doubled.prediction.latency.p99_ms - off.prediction.latency.p99_ms
    assert above > 1
    assert verdicts.verdict(case, doubled).endswith(f"is {above:.2f} ms above that without graphs")
    assert "above" not in verdicts.verdict(case, off)


def test_the_slider_takes_the_fitted_plan_for_that_many_graphs(
    ruler: widgets.ruler.BudgetRuler,
) -> None:
    fit = ruler.case.fit
    for count in range(5):
        ruler.count.value = count
        chosen = count == len(fit.best.plan.graphs)
        assert ruler.plan is (fit.best if chosen else fit.frontier[count]).plan
        assert ruler.plot.tokens == [g.tokens for g in ruler.plan.graphs]


def test_a_moved_handle_moves_its_budget_and_the_optimum_stays(
    ruler: widgets.ruler.BudgetRuler,
) -> None:
    ruler.count.value = 3
    before = cells(ruler.table.value)[2]
    moved = [70, *ruler.plot.tokens[1:]]
    ruler.plot.tokens = moved
    assert ruler.plan.token_budgets == tuple(sorted(set(moved)))
    assert [s.x0 for s in ruler.plot.figure.layout.shapes] == sorted(set(moved))
    assert cells(ruler.table.value)[2] == before
    ruler.count.value = 2
    assert ruler.plan is ruler.case.fit.frontier[2].plan


def test_other_than_as_many_handles_are_put_back(ruler: widgets.ruler.BudgetRuler) -> None:
    ruler.count.value = 3
    kept = list(ruler.plot.tokens)
    ruler.plot.tokens = kept[:2]
    assert ruler.plot.tokens == kept
    assert ruler.plan is ruler.fitted


def test_padding_is_drawn_where_it_falls(ruler: widgets.ruler.BudgetRuler) -> None:
    ruler.count.value = 1
    ruler.below.value = "rows computed"
    drawn = sum(trace(ruler.plot.figure, "padding").y)
    expected = 0
    pack = packing.packer(ruler.plan, COSTS)
    for request in ruler.case.held_out.requests:
        expected += sum(b.padding_tokens for b in pack(request).bins)
    assert drawn == pytest.approx(expected)


def test_a_ruler_on_modelled_costs_says_that_nothing_was_measured(
    ruler: widgets.ruler.BudgetRuler,
) -> None:
    assert "not measured on this card: modelled" in ruler.note.value


def test_ten_thousand_requests_redraw_fast_wherever_a_handle_is_dragged() -> None:
    ruler = widgets.budget_ruler(
        traffic.read("builtin:servegen", SIZE, count=10_000), cards.price(SIZE)
    )
    first, *rest = ruler.plot.tokens
    moves = [
        lambda tokens=tokens: ruler.plot.set_trait("tokens", tokens)
        for tokens in ([first + n, *rest] for n in range(1, 9))  # plans not packed before
    ]
    assert least_seconds(*moves) < 0.12


@pytest.mark.parametrize("make", [widgets.budget_ruler, lambda t, c: widgets.break_even(c, t)])
def test_an_empty_traffic_is_refused_with_a_way_out(make: object) -> None:
    empty = Traffic(name="none", source="none", encoder=SIZE.name, requests=())
    with pytest.raises(ValueError, match="'none' has no requests; read a source"):
        make(empty, COSTS)  # type: ignore[operator]


def test_one_request_is_fitted_and_judged_on_itself() -> None:
    lone = Traffic(name="one", source="one", encoder=SIZE.name, requests=(images(100, 200),))
    ruler = widgets.budget_ruler(lone, COSTS, limits=FEW)
    assert "since there is only one" in ruler.note.value


def test_a_duel_shows_each_rule_step_by_step_and_ends_at_its_packing() -> None:
    batch, plan = images(250, 60, 930, 4), budgets.doubling(64, 2048, target=TARGET)
    for rule in ("ascending", "first_fit_decreasing", "cheapest"):
        shown = frames(batch, plan, COSTS, rule)
        assert [len(f.order) for f in shown] == [0, 1, 2, 3, 4]
        whole = packing.packer(plan, COSTS, rule=rule)(batch)
        assert shown[-1].predicted_ms == pytest.approx(packing.predicted_ms(whole, batch, COSTS))


def test_a_defer_shows_its_inequality_and_what_it_is_worth() -> None:
    batch, plan = images(250, 60, 4), budgets.doubling(64, 512, target=TARGET)
    last = frames(batch, plan, COSTS, "ascending")[-1]
    apart = COSTS.replay_ms(plan.graphs[0], packing_load(60, 4))
    apart += COSTS.replay_ms(plan.graphs[2], packing_load(250))
    assert last.deferred
    assert "B(64) + B(250) = 64 + 256 < 512 = B(314)" in last.said
    assert f"predicted {apart:.2f} ms apart" in last.said


def packing_load(*tokens: int) -> object:
    return Load.of(images(*tokens))


def test_no_rule_beats_the_optimum_of_a_small_batch() -> None:
    duel = widgets.packing_duel(
        images(250, 60, 930, 4, 400), budgets.doubling(64, 2048, target=TARGET), COSTS
    )
    least = duel.found["cheapest"][-1].predicted_ms
    assert all(shown[-1].predicted_ms >= least - 1e-9 for shown in duel.found.values())
    assert "optimum over all partitions" in duel.table.value
    assert cells(duel.table.value)[0][0] == "rule, at the end"
    assert duel.lanes.lanes[2]["title"].endswith("the optimum")


def test_a_duel_refuses_an_empty_or_mixed_batch() -> None:
    plan = budgets.doubling(64, 512, target=TARGET)
    with pytest.raises(ValueError, match="at least one item"):
        widgets.packing_duel((), plan, COSTS)
    clip = Item(modality=Modality.VIDEO, tokens=64, patches=256)
    with pytest.raises(ValueError, match="one modality"):
        widgets.packing_duel((*images(64), clip), plan, COSTS)


def test_two_hundred_budgets_and_many_items_do_not_break_an_explorer() -> None:
    plan = TARGET.plan([sizes.capacity(64 + 8 * n, SIZE.rule, items=4) for n in range(200)])
    case = Case.of(made_traffic(40, most=40), COSTS, limits=FEW)
    ruler = widgets.ruler.BudgetRuler(case)
    ruler._show(plan)
    assert len(ruler.plot.figure.layout.shapes) == 200
    assert len(widgets.memory_strata(plan, COSTS).held) == 200
    duel = widgets.packing_duel(images(*range(64, 164)), plan, COSTS)
    assert duel.step.max == 32


def test_a_saved_explorer_keeps_its_tables_escaped() -> None:
    odd = Traffic(name="<b>odd", source="x", encoder=SIZE.name, requests=SMALL.requests)
    bundle = widgets.budget_ruler(odd, COSTS, limits=FEW)._repr_mimebundle_()
    assert "&lt;b&gt;odd" in bundle["text/html"] and "<b>odd" not in bundle["text/html"]
    assert "no graphs: eager" in bundle["text/html"]
    assert bundle["text/plain"].startswith("<BudgetRuler: budget ruler: 80 requests")


def test_filling_in_a_sketch_keeps_the_rest_and_leaves_the_sketch_alone() -> None:
    bar = go.Bar(uid="bar", x=[1], marker={"color": "red"})
    sketch = Sketch(go.Figure([bar, go.Bar(uid="other", y=[5])], layout={"height": 90}))
    filled = sketch.filled({"bar": {"y": [2], "marker": {"opacity": 0.5}}}, {"width": 70})
    drawn = go.Figure(filled)
    assert (drawn.data[0].x, drawn.data[0].y, drawn.data[1].y) == ((1,), (2,), (5,))
    assert (drawn.data[0].marker.color, drawn.data[0].marker.opacity) == ("red", 0.5)
    assert (drawn.layout.height, drawn.layout.width) == (90, 70)
    again = go.Figure(sketch.filled({}, {}))
    assert again.data[0].y is None and again.data[0].marker.opacity is None


def test_drawings_carry_a_description_and_controls_a_label(
    ruler: widgets.ruler.BudgetRuler,
) -> None:
    assert "token budgets" in ruler.plot.label
    assert ruler.count.description and ruler.below.description
    assert json.loads(ruler.plot.drawn)["data"]
