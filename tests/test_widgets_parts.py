import json
from dataclasses import replace
from typing import Any

import pytest
from comm.base_comm import BaseComm
from helpers_time import least_seconds
from widget_examples import COSTS, FEW, SIZE, SMALL, TARGET, cells, trace

from encgraph import budgets, cards, codec, datadir, export, sizes, traces, traffic, widgets
from encgraph.facts import TimedStep
from encgraph.kernels import Kernel
from encgraph.records import FallbackReason, Load, Modality, Plan, Route, Step
from encgraph.widgets.cases import Case
from encgraph.widgets.fastest import CHOICES, choice
from encgraph.widgets.linked import Explorer, flags
from encgraph.widgets.strata import added


def test_shared_strata_add_up_to_the_plan_s_memory() -> None:
    plan = budgets.doubling(64, 1024, target=TARGET)
    shared = added(plan, COSTS, sharing=True)
    whole = COSTS.memory(plan)
    assert sum(m.total_bytes for m in shared) == whole.total_bytes
    assert sum(m.total_bytes for m in added(plan, COSTS, sharing=False)) > whole.total_bytes


def test_switching_sharing_off_redraws_the_private_bytes() -> None:
    strata = widgets.memory_strata(budgets.doubling(64, 256, target=TARGET), COSTS)
    before = list(trace(strata.plot.figure, "pool").y)
    strata.sharing.value = False
    after = list(trace(strata.plot.figure, "pool").y)
    assert before[:2] == [0, 0] and all(n > 0 for n in after)
    assert "no capture on record" in strata.note.value


def test_measured_captures_are_drawn_beside_their_prediction() -> None:
    points = cards.recorded(SIZE, "h200")
    priced = cards.price(SIZE)
    strata = widgets.memory_strata(budgets.doubling(64, 256, target=TARGET), priced, points)
    by_tokens = {m.capacity.tokens: m.memory for m in strata.captures if m.capacity}
    measured = trace(strata.measured.figure, "pool-measured").y
    assert list(measured) == [m.pool_bytes / 2**20 for m in by_tokens.values() if m]
    predicted = trace(strata.measured.figure, "slabs-predicted").y
    largest = strata.captures[-1].capacity
    assert largest is not None
    only = Plan(graphs=(largest,), encoder=SIZE.name)
    assert predicted[-1] == priced.memory(only).slabs_bytes / 2**20


def test_the_measured_row_is_what_the_record_says_of_the_body_that_was_priced() -> None:
    lines = (datadir.root() / "measurements/h200/curve-qwen3-vl-8b.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["route"] == "capture"]
    alone = [row for row in rows if row["capacity"]]  # the others are of several graphs
    plain = [row for row in alone if row["attention"] == "fa3" and not row["compiled"]]
    largest = max(plain, key=lambda row: (row["capacity"]["tokens"], row["capacity"]["items"]))
    held = [largest["memory"][f"{part}_bytes"] / 2**20 for part in ("slabs", "pool", "driver")]

    plan = budgets.doubling(64, 256, target=TARGET)
    strata = widgets.memory_strata(plan, cards.price(SIZE), cards.recorded(SIZE, "h200"))
    assert strata.agreement is not None
    strata.check.value = len(strata.captures) - 1
    title, predicted, measured, off = cells(strata.agreement.value)
    assert title[0].startswith(f"{largest['capacity']['tokens']:,} tokens")
    assert measured[1:] == [f"{mib:,.0f}" for mib in (*held, sum(held))]
    priced = float(predicted[-1].replace(",", ""))
    assert off[-1] == f"{priced / sum(held) - 1:+.1%}"
    assert abs(priced / sum(held) - 1) < 0.05


def test_strata_are_checked_at_budgets_of_the_plan_where_they_are_on_record() -> None:
    priced, points = cards.price(SIZE), cards.recorded(SIZE, "h200")
    strata = widgets.memory_strata(budgets.doubling(64, 256, target=TARGET), priced, points)
    assert strata.agreement is not None
    known = {m.capacity.tokens for m in strata.captures if m.capacity}
    assert {64, 128, 256} < known
    assert strata.check.label == "256 tokens, 8 items (a budget of the plan)"
    for name, at in strata.check.options:
        strata.check.value = at
        title, _, measured, _ = cells(strata.agreement.value)
        memory = strata.captures[at].memory
        assert memory is not None
        assert title[0] == f"{name}, alone, MiB"
        assert measured[-1] == f"{memory.total_bytes / 2**20:,.0f}"
    elsewhere = TARGET.plan([sizes.capacity(70, SIZE.rule, items=2)])
    strata.plan = elsewhere
    assert strata.check.label == f"{max(known):,} tokens, 64 items (not in the plan)"
    assert strata.check.label in strata.agreement.value


def test_the_legend_of_the_map_has_the_colours_of_the_map() -> None:
    drawn = trace(widgets.break_even(COSTS, SMALL, limits=FEW).map.figure, "map")
    assert drawn.opacity is None  # a legend of a map has none
    assert all(colour.startswith("#") for _, colour in drawn.colorscale)


def test_the_break_even_map_agrees_with_the_costs() -> None:
    case = Case.of(SMALL, COSTS, limits=FEW)
    assert CHOICES[choice(case, 64, 64, 1)] == "replay"
    assert CHOICES[choice(case, 64, 3000, 1)] == "eager"  # one item cannot be split
    capacity = sizes.capacity(64, SIZE.rule, items=1)
    half = Load(tokens=64, patches=256, items=1, square=256.0**2)
    both = Load(tokens=128, patches=512, items=2, square=2 * 256.0**2)
    wins = 2 * COSTS.replay_ms(capacity, half) <= COSTS.eager_ms(both)
    assert CHOICES[choice(case, 64, 128, 2)] == ("split" if wins else "eager")


def test_the_percentile_is_read_off_the_predictions() -> None:
    view = widgets.break_even(COSTS, SMALL, limits=FEW)
    view.percentile.value = 50
    expected = budgets.judge(view.case.held_out.requests, view.plan, costs=COSTS)
    assert cells(view.table.value)[1][1] == f"{expected.latency.p50_ms:.2f}"
    view.laid.value = "vLLM's doubling"
    rows = set(trace(view.map.figure, "traffic").y)
    assert rows <= set(view.case.doubling.token_budgets)


def timed(route: Route, ms: float, *, budget: int | None = None, request: int = 0) -> TimedStep:
    reason = FallbackReason.OVER_TOKENS if route is Route.FALLBACK else None
    step = Step(
        route=route, modality=Modality.IMAGE, items=1, real_tokens=60, token_budget=budget,
        reason=reason,
    )  # fmt: skip
    return TimedStep(step=step, ms=ms, request=request)


def test_a_timeline_lays_steps_end_to_end() -> None:
    view = widgets.timeline(
        [
            timed(Route.REPLAY, 4.0, budget=80),
            timed(Route.FALLBACK, 6.0),
            timed(Route.EAGER, 1, request=1),
        ]
    )
    bars = view.plot.figure.data
    assert [(b.base[0], b.x[0]) for b in bars] == [(0, 3), (3, 1), (4, 6)]
    view.batch.value = 2
    assert len(view.plot.figure.data) == 1
    assert view.plot.label.startswith("1 step, 1.00 ms")
    with pytest.raises(ValueError, match="at least one request"):
        widgets.timeline([])


def kernel(timed_step: TimedStep, number: int, **fields: object) -> Kernel:
    given = {"name": "gemm", "ms": 0.5, "start_ms": 2.0, "module": "blocks.0.mlp", "on_card": True}
    title = traces.title(timed_step.step)
    return Kernel(step=number, title=title, **{**given, **fields})


def test_a_timeline_shows_fill_and_the_kernels_of_each_step() -> None:
    steps = [timed(Route.REPLAY, 4.0, budget=80), timed(Route.FALLBACK, 6.0)]
    capture = kernel(steps[0], 0, module=None)
    kernels = [
        replace(capture, title="encgraph capture 80 tokens, 1 item"),
        kernel(steps[0], 1),
        kernel(steps[0], 1, name="<norm>", start_ms=2.5, ms=0.25, module=None),
        kernel(steps[1], 2, start_ms=7.0),
    ]
    view = widgets.timeline(steps, kernels)
    lanes = [b for b in view.plot.figure.data if b.name.startswith("kernels")]
    assert [list(lane.base) for lane in lanes] == [[0, 0.5], [4]]
    assert [list(lane.x) for lane in lanes] == [[0.5, 0.25], [0.5]]
    assert [(row[4], row[6]) for row in cells(view.table.value)[1:]] == [("75%", "2"), ("", "1")]
    assert cells(view.modules.value)[1:] == [
        ["blocks.0.mlp", "2", "1 ms"],
        ["&lt;norm&gt;", "1", "0.25 ms"],
    ]
    assert "<norm>" not in view.plot.drawn
    with pytest.raises(ValueError, match="kernels of 1 for 2 steps"):
        widgets.timeline(steps, kernels[:3])
    with pytest.raises(ValueError, match="must be of the same steps, got 'encgraph replay"):
        widgets.timeline(steps[::-1], kernels)


def test_the_explorer_s_parts_follow_the_ruler() -> None:
    linked = widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW)
    linked.ruler.count.value = 1
    plan = linked.ruler.plan
    assert linked.duel.plan == linked.breakeven.plan == linked.memory.plan == linked.plan == plan
    assert codec.loads(Plan, linked.result.json.value) == plan
    assert len(linked.memory.held) == 1


def counts(linked: Explorer) -> list[int]:
    """Every other position of the slider."""
    return [n for n in range(len(linked.ruler.case.fit.frontier)) if n != linked.ruler.count.value]


def test_moving_the_slider_packs_nothing_even_after_many_drags() -> None:
    linked = widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW)
    first, *rest = linked.ruler.plot.tokens
    for moved in range(1, 40):
        linked.ruler.plot.tokens = [first + moved, *rest]
    known = linked.ruler.case._known
    packed = list(known)
    for count in counts(linked):
        linked.ruler.count.value = count
        assert list(known) == packed
    linked.ruler.plot.tokens = [tokens + 1 for tokens in linked.ruler.plot.tokens]
    assert list(known) != packed  # so packing would have been seen


class Page(BaseComm):
    """What a page is told: the traits in each message."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        super().__init__()

    def publish_msg(self, msg_type: str, data: Any = None, **rest: Any) -> None:
        if msg_type == "comm_msg":
            self.told.append(sorted(data["state"]))


def test_a_move_sends_every_drawing_once_and_none_that_did_not_change() -> None:
    linked = widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW)
    follow = (linked.ruler.plot, linked.breakeven.map, linked.breakeven.latency, linked.memory.plot)
    for plot in (*follow, linked.sharding.plot):
        plot.comm = Page()
    linked.ruler.count.value = 1
    assert linked.ruler.plot.comm.told.pop(0) == ["tokens"]
    for plot in follow:
        [told] = plot.comm.told
        assert "drawn" in told
    assert linked.sharding.plot.comm.told == []


def test_ten_thousand_requests_redraw_fast_in_every_part() -> None:
    linked = widgets.explorer(traffic.read("builtin:servegen", SIZE, count=10_000), SIZE)
    moves = [
        lambda count=count: linked.ruler.count.set_trait("value", count) for count in counts(linked)
    ]
    assert least_seconds(*moves) < 0.04


def test_the_explorer_gives_flags_under_vllm_s_own_rules() -> None:
    linked = widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW)
    assert "choose 'plan for' vllm" in linked.result.flags.value
    linked.engine.value = "vllm"
    assert linked.result.flags.value == export.vllm(linked.plan).command_line
    assert len({g.items for g in linked.plan.graphs}) <= 1


def test_a_plan_that_vllm_cannot_express_says_so_instead_of_flags() -> None:
    graphs = [sizes.capacity(n, SIZE.rule, items=i) for n, i in ((64, 1), (128, 2))]
    assert flags(TARGET.plan(graphs)).startswith("no flags: vLLM has one item cap")


def test_the_explorer_refuses_traffic_of_another_encoder() -> None:
    with pytest.raises(ValueError, match=r"read for 'qwen3-vl-8b'.*read it again"):
        widgets.explorer(SMALL, sizes.named("qwen3-vl-2b"))
