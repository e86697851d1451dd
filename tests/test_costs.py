"""The cost model: floors that a card was measured against, monotone, linear between points."""

import math
import statistics
from dataclasses import fields, replace
from itertools import pairwise

import pytest

from encgraph import cards, costs, sizes, store
from encgraph.costs import Costs, Curve
from encgraph.records import DIMENSIONS, Capacity, Item, Load, Plan, Route
from encgraph.sizes import QWEN3_VL_RULE, SIZES

EIGHT_B = SIZES["qwen3-vl-8b"]
MODELLED = costs.modelled(EIGHT_B)
BUDGETS = (64, 256, 1024, 4096, 16384)


def one_image(patches: int) -> Load:
    return Load.of([Item(tokens=patches // 4, patches=patches)])


def capacity(tokens: int, *, items: int = 8, longest_segment: int = 0) -> Capacity:
    return sizes.capacity(tokens, QWEN3_VL_RULE, items=items, longest_segment=longest_segment)


def measured_over_modelled() -> dict[str, list[float]]:
    """What 19 encoders took on an H200 over the model, of eager runs and of replays."""
    found: dict[str, list[float]] = {"eager": [], "encgraph": []}
    for m in store.read(store.root() / "measurements" / "h200" / "encoders.jsonl"):
        if m.strategy not in found or m.load is None or m.latency is None:
            continue
        load, model = m.load, costs.modelled(SIZES[m.encoder])
        held = Capacity(**{name: max(1, getattr(load, name)) for name in DIMENSIONS})
        ms = model.eager_ms(load) if m.strategy == "eager" else model.replay_ms(held, load)
        found[m.strategy].append(m.latency.p50_ms / ms)
    return found


def test_the_model_is_neither_above_nor_below_what_encoders_took_on_a_card() -> None:
    for ratios in measured_over_modelled().values():
        assert len(ratios) == 3 * 19
        assert 0.9 < statistics.median(ratios) < 1.1
        assert 1 / costs.MODEL_WITHIN < min(ratios) <= max(ratios) < costs.MODEL_WITHIN


def test_on_a_quick_host_eager_takes_no_longer_and_large_loads_as_long() -> None:
    for kernels in cards.kernels(EIGHT_B, "h200"):
        mean = cards.price(EIGHT_B, attention=kernels.attention, compiled=kernels.compiled)
        quick = mean.on_quick_host()
        runs = sorted(mean.eager_floor_ms + off for off in mean.eager_spread_ms)
        assert runs[0] <= quick.eager_floor_ms < mean.eager_floor_ms
        assert sum(ms < quick.eager_floor_ms for ms in runs) <= len(runs) / 10
        assert quick.eager_ms(one_image(1024)) < mean.eager_ms(one_image(1024))
        assert quick.eager_ms(one_image(32760)) == pytest.approx(mean.eager_ms(one_image(32760)))
    assert MODELLED.on_quick_host() == MODELLED


@pytest.mark.parametrize(("patches", "ms"), [(1024, 1.34), (4096, 7.3), (16384, 61.0)])
def test_the_arithmetic_floor_is_the_one_the_card_was_measured_against(
    patches: int, ms: float
) -> None:
    assert costs.floor_ms(EIGHT_B, one_image(patches)) == pytest.approx(ms, rel=0.01)


def test_the_floor_follows_the_rate_and_the_segments() -> None:
    whole, halves = one_image(4096), Load.of([Item(tokens=512, patches=2048)] * 2)
    assert costs.floor_ms(EIGHT_B, whole, tflops=395) == pytest.approx(
        2 * costs.floor_ms(EIGHT_B, whole, tflops=790)
    )
    saved = costs.flops(EIGHT_B, whole) - costs.flops(EIGHT_B, halves)
    assert saved == pytest.approx(EIGHT_B.depth * 4 * EIGHT_B.hidden * 4096**2 / 2)


def test_a_curve_is_linear_between_points_and_beyond_the_last_two() -> None:
    curve = Curve(patches=(100, 200, 400), ms=(1.0, 3.0, 4.0))
    assert [curve.at(p) for p in (100, 150, 200, 300, 400)] == [1.0, 2.0, 3.0, 3.5, 4.0]
    assert curve.at(600) == 5.0
    assert curve.at(1) == 1.0
    assert Curve(patches=(5,), ms=(2.0,)).at(999) == 2.0


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_larger_capacity_never_costs_less(name: str) -> None:
    model, load = costs.modelled(SIZES[name]), one_image(256)
    for low, high in pairwise(BUDGETS):
        assert model.replay_ms(capacity(low), load) < model.replay_ms(capacity(high), load)
    few, many = capacity(1024, items=2), capacity(1024, items=64)
    assert model.capacity_ms(few) < model.capacity_ms(many)
    bounded = capacity(1024, items=8, longest_segment=128)
    assert model.capacity_ms(bounded) < model.capacity_ms(capacity(1024, items=8))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_larger_load_never_costs_less(name: str) -> None:
    model = costs.modelled(SIZES[name])
    loads = [one_image(p) for p in (4, 64, 256, 1024, 4096, 16384, 65536)]
    eager = [model.eager_ms(load) for load in loads]
    replay = [model.load_ms(load) for load in loads]
    assert eager == sorted(eager)
    assert replay == sorted(replay)
    assert eager[0] >= model.eager_floor_ms
    assert eager[-1] > 2 * model.eager_floor_ms


def test_eager_of_nothing_is_free_and_a_replay_is_capacity_plus_load() -> None:
    load, graph = one_image(1000), capacity(512)
    assert MODELLED.eager_ms(Load()) == 0.0
    assert MODELLED.replay_ms(graph, load) == pytest.approx(
        MODELLED.capacity_ms(graph) + MODELLED.load_ms(load)
    )


def test_no_replay_is_predicted_below_the_arithmetic_floor() -> None:
    for budget in BUDGETS:
        load = one_image(4 * budget)
        assert MODELLED.replay_ms(capacity(budget), load) > costs.floor_ms(EIGHT_B, load)


def test_memory_of_an_empty_plan_is_nothing() -> None:
    assert MODELLED.memory(Plan(graphs=(), encoder="qwen3-vl-8b")).total_bytes == 0


def test_slabs_and_pool_follow_the_largest_capacity_and_the_driver_every_graph() -> None:
    one = Plan(graphs=(capacity(1024),), encoder="qwen3-vl-8b")
    two = Plan(graphs=(capacity(64), capacity(1024)), encoder="qwen3-vl-8b")
    costly = replace(MODELLED, driver_bytes_per_graph=1000.0)
    alone, both = costly.memory(one), costly.memory(two)
    assert alone.slabs_bytes == costs.row_bytes(EIGHT_B) * 4096
    assert (both.slabs_bytes, both.pool_bytes) == (alone.slabs_bytes, alone.pool_bytes)
    assert (alone.driver_bytes, both.driver_bytes) == (1000, 2000)


def test_a_row_of_the_slabs_is_pixels_attention_and_a_share_of_the_outputs() -> None:
    values = 1536 + 1152 + 4 * 4096 / 4
    assert costs.row_bytes(EIGHT_B) == 2 * values
    assert costs.row_bytes(EIGHT_B, element_bytes=4) == 4 * values


def test_arithmetic_says_that_it_is_modelled() -> None:
    assert not MODELLED.recorded
    assert "modelled" in MODELLED.source


@pytest.mark.parametrize("encoder", ["qwen3-vl-2b", "qwen3-vl-4b", "qwen3-vl-8b", "qwen3-vl-32b"])
def test_arithmetic_of_the_pool_is_near_what_plain_towers_took(encoder: str) -> None:
    a_patch = costs.modelled(SIZES[encoder]).pool_bytes_per_patch
    taken = [
        line.memory.pool_bytes / line.capacity.patches
        for line in store.load("h200", f"curve-{encoder}")
        if line.route is Route.CAPTURE and not line.compiled
        if line.capacity is not None and line.capacity.tokens >= 512 and line.memory is not None
    ]
    assert len(taken) >= 10
    assert all(0.9 < a_patch / bytes_taken < 1.15 for bytes_taken in taken)


NUMBERS = [field.name for field in fields(Costs) if field.type in (int, float)]
NO_COSTS = [math.nan, math.inf, -math.inf, -1.0]


@pytest.mark.parametrize("wrong", NO_COSTS)
def test_what_is_no_cost_is_refused_by_its_field(wrong: float) -> None:
    assert {"square_ms", "eager_floor_ms", "row_bytes", "driver_bytes_per_graph"} <= {*NUMBERS}
    for name in NUMBERS:
        assert replace(MODELLED, **{name: 0})
        with pytest.raises(ValueError, match=rf"^{name} of costs must be finite and at least 0"):
            replace(MODELLED, **{name: wrong})


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_scatter_may_be_negative_but_is_finite_and_no_run_takes_less_than_nothing(
    wrong: float,
) -> None:
    floor = MODELLED.eager_floor_ms
    assert replace(MODELLED, eager_spread_ms=(-floor, floor))
    for scatter in (wrong, -1.1 * floor):
        with pytest.raises(ValueError, match="eager_spread_ms of costs must be finite and at l"):
            replace(MODELLED, eager_spread_ms=(0.0, scatter))


@pytest.mark.parametrize("wrong", NO_COSTS)
def test_a_curve_of_what_is_no_time_or_no_number_of_patches_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"^ms of a curve must be finite and at least 0"):
        Curve(patches=(1, 2), ms=(1.0, wrong))
    with pytest.raises(ValueError, match=r"^patches of a curve must be"):
        Curve(patches=(wrong, 2), ms=(1.0, 2.0))


@pytest.mark.parametrize(
    ("patches", "ms"),
    [
        ((), ()),
        ((1,), (1.0, 2.0)),
        ((2, 2), (1.0, 2.0)),
        ((4, 2), (1.0, 2.0)),
        ((2, 4), (2.0, 1.0)),
    ],
)
def test_points_that_are_no_curve_are_refused(
    patches: tuple[int, ...], ms: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="curve must"):
        Curve(patches=patches, ms=ms)


def test_every_recorded_curve_and_every_modelled_cost_is_accepted() -> None:
    priced = [
        cards.price(size, on=card, attention=kernels.attention, compiled=c, fused=f)
        for size in SIZES.values()
        for card in cards.known()
        for c, f in ((False, False), (True, False), (True, True))
        for kernels in cards.bodies(size, card, compiled=c, fused=f)
    ]
    assert any(found.recorded for found in priced)
    assert all(costs.modelled(size).eager_floor_ms > 0 for size in SIZES.values())
