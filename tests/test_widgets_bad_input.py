from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ipywidgets
import pytest
from helpers_time import least_seconds
from widget_examples import COSTS, FEW, SIZE, SMALL, TARGET, cells, images, made_traffic

from encgraph import cards, sizes, traffic, widgets
from encgraph.facts import TimedStep
from encgraph.records import Modality, Route, Step
from encgraph.traffic import Traffic
from encgraph.widgets.breakeven import COMPILED
from encgraph.widgets.panels import Panel
from encgraph.widgets.timelines import MOST_STEPS

EMPTY = Traffic(name="none", source="none", encoder=SIZE.name, requests=())
ONE = TARGET.plan([sizes.capacity(256, SIZE.rule, items=2)])
MANY = [
    TARGET.plan([sizes.capacity(64 + 8 * n + more, SIZE.rule, items=4) for n in range(200)])
    for more in range(3)
]
PLANNED: dict[str, Callable[[Any], Panel]] = {
    "break-even": lambda plan: widgets.break_even(COSTS, SMALL, plan=plan, limits=FEW),
    "duel": lambda plan: widgets.packing_duel(images(64, 196, 930), plan, COSTS),
    "strata": lambda plan: widgets.memory_strata(plan, COSTS),
}
PRICED: dict[str, Callable[[], Panel]] = {
    **{name: lambda make=make: make(ONE) for name, make in PLANNED.items()},
    "ruler": lambda: widgets.budget_ruler(SMALL, COSTS, limits=FEW),
    "sharding": lambda: widgets.sharding(SMALL.requests, SIZE, COSTS),
    "explorer": lambda: widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW),
}


def chosen(control: Any, *values: Any) -> list[Callable[[], object]]:
    """Moves of a control to one value after the other."""
    return [lambda value=value: control.set_trait("value", value) for value in values]


def dragged(linked: Any) -> list[Callable[[], object]]:
    """Moves of the first handle to places where it was not before."""
    first, *rest = linked.ruler.plot.tokens
    return [
        lambda more=more: linked.ruler.plot.set_trait("tokens", [first + more, *rest])
        for more in (1, 2, 3)
    ]


def test_an_explorer_of_empty_traffic_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match="'none' has no requests; read a source"):
        widgets.explorer(EMPTY, SIZE, costs=COSTS)


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "ruler": (lambda x: widgets.budget_ruler(x, COSTS), "traffic must be a Traffic, got list"),
    "break-even": (lambda x: widgets.break_even(COSTS, x), "traffic must be a Traffic, got list"),
    "costs": (lambda x: widgets.budget_ruler(SMALL, x), "costs must be Costs, got list"),
    "limits": (
        lambda x: widgets.budget_ruler(SMALL, COSTS, limits=x),
        "limits must be Limits, got list",
    ),
    "explorer": (lambda x: widgets.explorer(x, SIZE), "traffic must be a Traffic, got list"),
    "size": (lambda x: widgets.explorer(SMALL, x), "size must be an EncoderSize, got list"),
    "plan": (lambda x: widgets.break_even(COSTS, SMALL, plan=x), "plan must be a Plan, got list"),
    "duel": (lambda x: widgets.packing_duel([x], ONE, COSTS), "sequence of items, got one that"),
    "duel's plan": (
        lambda x: widgets.packing_duel(images(64), x, COSTS),
        "plan must be a Plan, got list",
    ),
    "strata": (lambda x: widgets.memory_strata(x, COSTS), "plan must be a Plan, got list"),
    "sharding": (
        lambda x: widgets.sharding([[x]], SIZE, COSTS),
        "a request must be a sequence of items, got one that holds list",
    ),
    "a traffic for requests": (
        lambda _: widgets.sharding(SMALL, SIZE, COSTS),  # type: ignore[arg-type]
        "requests must be a sequence of requests, got Traffic; a traffic has them",
    ),
    "timeline": (lambda x: widgets.timeline([x]), "steps must be of type TimedStep, got list"),
    "stale state": (lambda x: widgets.stale_state([x]), "must be a Microscope, got list"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_of_another_type_is_refused_in_words(what: str) -> None:
    make, said = WRONG[what]
    with pytest.raises(ValueError, match=said):
        make([])


def held(*counts: int) -> Traffic:
    """A traffic of requests of so many items."""
    one = images(64)
    return replace(EMPTY, name="huge", requests=tuple(one * count for count in counts))


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((3, 50_000), "at most 1,000 items, got 50,000 in one of traffic 'huge'; split it"),
        ([900] * 30, "must have at most 20,000 in all to be explored, got 27,000"),
    ],
)
def test_what_is_too_large_to_be_packed_is_refused_at_once(counts: list[int], said: str) -> None:
    huge = held(*counts)
    for make in (
        lambda: widgets.budget_ruler(huge, COSTS),
        lambda: widgets.break_even(COSTS, huge),
        lambda: widgets.explorer(huge, SIZE, costs=COSTS),
    ):
        with pytest.raises(ValueError, match=said):
            make()


def test_a_request_of_as_many_items_as_are_explored_is_shown() -> None:
    assert widgets.budget_ruler(held(1, 1_000), COSTS, limits=FEW).tables()


def test_a_batch_of_very_many_steps_is_cut_and_says_so() -> None:
    step = Step(
        route=Route.REPLAY, modality=Modality.IMAGE, items=1, real_tokens=60, token_budget=80
    )
    view = widgets.timeline([TimedStep(step=step, ms=0.5, request=0)] * 100_000)
    said = "the first 100 of 100,000 steps, 50000.00 ms, end to end: 50.00 ms of them"
    assert said in view.table.value and view.plot.label == said
    assert len(cells(view.table.value)) == 1 + MOST_STEPS
    assert len(view.plot.figure.data) == 2 * MOST_STEPS  # each with its share of padding


def test_the_explorer_says_that_it_fits_while_it_does() -> None:
    linked = widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW)
    assert linked.busy.value == ""
    told: list[tuple[str, bool]] = []
    before = linked.ruler
    linked.busy.observe(lambda c: told.append((c["new"], linked.ruler is before)), "value")
    linked.engine.value = "vllm"
    (fitting, still), (done, replaced) = told
    assert fitting.startswith("fitting graphs for vllm") and still
    assert done == "" and not replaced


@pytest.mark.parametrize("name", PRICED)
def test_without_a_measurement_an_explorer_says_what_predicts(name: str) -> None:
    said = " ".join(PRICED[name]().tables())
    assert "costs not measured on this card: modelled from arithmetic" in said


def test_an_encoder_without_a_curve_is_explored_by_arithmetic() -> None:
    size = sizes.named("qwen3-vl-tiny")
    assert not cards.recorded(size, "h200")
    linked = widgets.explorer(replace(made_traffic(20), encoder=size.name), size, limits=FEW)
    assert "no curve of qwen3-vl-tiny is on record for h200" in " ".join(linked.tables())
    assert COMPILED not in linked.breakeven.laid.options


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_of_one_budget_is_shown(name: str) -> None:
    view = PLANNED[name](ONE)
    assert view.plan == ONE and all(view.tables())


@pytest.mark.parametrize(
    ("name", "most"), [("break-even", 0.03), ("duel", 0.025), ("strata", 0.013)]
)
def test_two_hundred_budgets_redraw_at_once(name: str, most: float) -> None:
    view = PLANNED[name](ONE)
    assert least_seconds(*[lambda plan=plan: view.set_trait("plan", plan) for plan in MANY]) < most


def test_a_hundred_thousand_items_move_within_half_a_second() -> None:
    requests = traffic.read("builtin:servegen", SIZE, count=59_000)
    assert len(requests.items) > 100_000
    linked = widgets.explorer(requests, SIZE, limits=FEW)
    assert least_seconds(*chosen(linked.ruler.count, 2, 1, 3)) < 0.25
    assert least_seconds(*dragged(linked)) < 0.45
    linked.breakeven.laid.value = COMPILED
    assert least_seconds(*chosen(linked.ruler.count, 2, 1)) < 0.25
    assert least_seconds(*chosen(linked.sharding.group, "32 items", "8 items")) < 0.1


def test_a_batch_of_a_hundred_thousand_items_is_cut_and_says_so() -> None:
    batch = images(*[64] * 100_000)
    duel = widgets.packing_duel(batch, MANY[0], COSTS)
    assert "the first 32 of 100,000 items" in duel.table.value
    shared = widgets.sharding([batch], SIZE, COSTS)
    assert "the first 1,000 items" in shared.note.value
    assert least_seconds(*chosen(shared.ranks, 7, 5, 9)) < 0.08


def test_the_linked_explorer_moves_within_its_time_on_ten_thousand_requests() -> None:
    """A move may take 0.15 s; one of the slider, which packs half as often as a handle's, 0.1 s."""
    requests = traffic.read("builtin:servegen", SIZE, count=10_000)
    linked = widgets.explorer(requests, SIZE)
    fewer = range(1, linked.ruler.count.value)
    assert least_seconds(*chosen(linked.ruler.count, *fewer)) < 0.1
    assert least_seconds(*chosen(linked.ruler.count, *fewer)) < 0.016  # packed before
    assert least_seconds(*dragged(linked)) < 0.15


def test_a_move_that_packs_nothing_is_drawn_at_once() -> None:
    linked = widgets.explorer(traffic.read("builtin:servegen", SIZE, count=10_000), SIZE)

    def round_of(n: int) -> None:
        linked.breakeven.items.value = 10 + n
        linked.breakeven.percentile.value = 50 + n
        linked.breakeven.laid.value = linked.breakeven.laid.options[n % 2]
        linked.ruler.below.value = linked.ruler.below.options[n % 2]
        linked.memory.sharing.value = n % 2 == 1
        linked.duel.batch.value = 2 + n
        linked.sharding.burst.value = 2 + n

    assert least_seconds(*[lambda n=n: round_of(n) for n in range(5)]) < 0.02


@pytest.mark.parametrize("name", PRICED)
def test_a_cell_run_twice_gives_the_same_and_closing_leaves_nothing(name: str) -> None:
    before = set(_alive())
    first, second = PRICED[name](), PRICED[name]()
    assert first.tables() == second.tables()
    second.close()
    assert all(first.tables())
    first.close()
    first.close()
    assert set(_alive()) <= before


def test_another_engine_leaves_no_part_of_the_one_before() -> None:
    linked = widgets.explorer(SMALL, SIZE, costs=COSTS, limits=FEW)
    gone, count = linked.ruler, len(_alive())
    linked.engine.value = "vllm"
    linked.engine.value = "encgraph"
    assert len(_alive()) == count
    seen = linked.plan
    gone.plan = ONE
    assert linked.plan == seen


def test_an_interrupted_move_leaves_the_handles_alive() -> None:
    ruler = widgets.budget_ruler(SMALL, COSTS, limits=FEW)

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    ruler.plot.observe(interrupt, "tokens")
    with pytest.raises(KeyboardInterrupt):
        ruler.count.value = 2
    ruler.plot.unobserve(interrupt, "tokens")
    ruler.count.value = 3
    ruler.plot.tokens = [70, *ruler.plot.tokens[1:]]
    assert 70 in ruler.plan.token_budgets


def test_compiled_costs_are_one_more_strategy() -> None:
    compiled = cards.price(SIZE, compiled=True)
    view = widgets.break_even(cards.price(SIZE), SMALL, limits=FEW, compiled=compiled)
    before = view.table.value
    view.laid.value = COMPILED
    assert ", compiled, " in view.note.value
    assert view.table.value != before and COMPILED in view.table.value
    view.laid.value = "this plan"
    assert view.table.value == before


def _alive() -> dict[str, Any]:
    return dict(ipywidgets.Widget.get_manager_state(drop_defaults=True)["state"])
