import random
from dataclasses import replace

import pytest
from planning_examples import (
    MODELLED,
    SLOW_EAGER,
    TARGET,
    batches,
    clip,
    images,
    indices,
    optimum_ms,
    plan,
)

from encgraph import packing, sizes
from encgraph.costs import Costs
from encgraph.records import DIMENSIONS, Capacity, FallbackReason, Item, Load, Plan

DOUBLING = plan(64, 128, 256, 512, 1024)
TWO_CAPS = plan(64, 128, 200, 256, 384, 512, 768, 1024, 1280, few=4)
EXTREMES = {
    "tokens": Item(tokens=101, patches=10, longest_segment=1),
    "patches": Item(tokens=1, patches=401, longest_segment=1),
    "segments": Item(tokens=1, patches=20, segments=9, longest_segment=3),
    "longest_segment": Item(tokens=1, patches=250, segments=2, longest_segment=201),
    "frames": Item(tokens=1, patches=20, frames=9),
}
NARROW = Capacity(tokens=100, patches=400, items=3, segments=8, longest_segment=200, frames=8)


def packers(planned: Plan) -> dict[str, packing.Packer]:
    return {rule: packing.packer(planned, SLOW_EAGER, rule=rule) for rule in packing.PACKINGS}


@pytest.mark.parametrize("rule", packing.PACKINGS)
@pytest.mark.parametrize("planned", [DOUBLING, TWO_CAPS, TARGET.plan([NARROW]), TARGET.plan([])])
def test_every_index_occurs_once_and_no_capacity_is_exceeded(rule: str, planned: Plan) -> None:
    pack = packers(planned)[rule]
    rng = random.Random(1)
    clips = [tuple(clip(rng.randint(1, 12), 64) for _ in range(4)) for _ in range(20)]
    for batch in batches(0, 80, most=9) + clips + [()]:
        packed = pack(batch)
        assert indices(packed) == list(range(len(batch)))
        for bin in packed.bins:
            assert bin.capacity == planned.graphs[bin.graph]
            assert bin.load == Load.of(batch[i] for i in bin.items)
            assert bin.capacity.holds(bin.load)


@pytest.mark.parametrize("rule", ["ascending", "first_fit_decreasing", "one_each"])
def test_a_bin_takes_the_smallest_graph_that_holds_it(rule: str) -> None:
    pack = packers(TWO_CAPS)[rule]
    for batch in batches(2, 60, most=8):
        for bin in pack(batch).bins:
            assert bin.graph == packing.smallest(TWO_CAPS, bin.load)


def test_cheapest_takes_the_graph_with_the_least_replay_time() -> None:
    for batch in batches(3, 60, most=8):
        for bin in packing.cheapest(batch, TWO_CAPS, costs=SLOW_EAGER).bins:
            holding = [g for g in TWO_CAPS.graphs if g.holds(bin.load)]
            assert bin.capacity == min(holding, key=SLOW_EAGER.capacity_ms)


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("rule", packing.PACKINGS)
def test_every_capacity_is_checked(name: str, rule: str) -> None:
    item = EXTREMES[name]
    packed = packers(TARGET.plan([NARROW]))[rule]([item])
    assert not packed.bins
    assert packed.fallback[0].reason is DIMENSIONS[name]


@pytest.mark.parametrize("rule", ["ascending", "first_fit_decreasing"])
@pytest.mark.parametrize(
    "item",
    [
        Item(tokens=60, patches=60),
        Item(tokens=1, patches=250, segments=2),
        Item(tokens=20, patches=20),
        Item(tokens=1, patches=20, segments=5),
        Item(tokens=1, patches=20, frames=5),
    ],
)
def test_a_sum_over_any_capacity_splits_the_batch(rule: str, item: Item) -> None:
    packed = packers(TARGET.plan([NARROW]))[rule]([item] * 4)
    assert len(packed.bins) >= 2
    assert not packed.fallback


@pytest.mark.parametrize("rule", packing.PACKINGS)
def test_a_fallback_always_has_a_reason(rule: str) -> None:
    over = images(64, 3000)
    reasons = [f.reason for f in packers(DOUBLING)[rule](over).fallback]
    assert FallbackReason.OVER_TOKENS in reasons
    none = packers(TARGET.plan([]))[rule](over)
    assert [f.reason for f in none.fallback] == [FallbackReason.NO_GRAPHS] * 2


def test_the_reason_is_of_the_graph_nearest_to_holding_the_item() -> None:
    planned = TARGET.plan(
        [
            sizes.capacity(64, TARGET.size.rule, items=4),
            sizes.capacity(256, TARGET.size.rule, items=4, longest_segment=100),
        ]
    )
    packed = packing.ascending(images(100), planned)
    assert packed.fallback[0].reason is FallbackReason.OVER_LONGEST_SEGMENT


def test_eager_that_is_predicted_faster_is_chosen_and_said() -> None:
    packed = packing.cheapest(images(600), plan(16384), costs=MODELLED)
    assert [f.reason for f in packed.fallback] == [FallbackReason.EAGER_IS_FASTER]
    assert not packing.ascending(images(600), plan(16384)).fallback


def test_items_join_an_eager_run_that_is_paid_for_anyway() -> None:
    packed = packing.cheapest(images(64, 3000), DOUBLING, costs=MODELLED)
    assert {f.item: f.reason for f in packed.fallback} == {
        0: FallbackReason.EAGER_IS_FASTER,
        1: FallbackReason.OVER_TOKENS,
    }


def test_ascending_defers_an_item_that_would_double_the_budget() -> None:
    batch = images(250, 60, 4)
    assert [b.token_budget for b in packing.ascending(batch, DOUBLING).bins] == [64, 256]
    together = packing.ascending(batch, DOUBLING, defer=False)
    assert [b.token_budget for b in together.bins] == [512]


def test_ascending_does_not_defer_small_items_flooding_a_large_bin() -> None:
    flood = packing.ascending(images(*[50] * 5), plan(50, 100, 200, 1000))
    assert [b.items for b in flood.bins] == [(0, 1, 2, 3, 4)]


@pytest.mark.parametrize("planned", [DOUBLING, TWO_CAPS, plan(256, items=2)])
@pytest.mark.parametrize("model", [MODELLED, SLOW_EAGER])
def test_cheapest_is_the_brute_force_optimum_for_few_items(planned: Plan, model: Costs) -> None:
    for batch in [*batches(4, 30, most=4), images(64, 64, 169, 256, 700)]:
        packed = packing.cheapest(batch, planned, costs=model)
        assert packing.predicted_ms(packed, batch, model) == pytest.approx(
            optimum_ms(batch, planned, model)
        )


@pytest.mark.parametrize("most", [6, 12, 60])
def test_cheapest_is_never_predicted_slower_than_the_others(most: int) -> None:
    for planned in (DOUBLING, TWO_CAPS, plan(300, 1000, items=3)):
        made = packers(planned)
        for model in (MODELLED, SLOW_EAGER):
            made["cheapest"] = packing.packer(planned, model)
            for batch in batches(most, 25, most=most):
                times = {
                    rule: packing.predicted_ms(pack(batch), batch, model)
                    for rule, pack in made.items()
                }
                eager = model.request_ms + model.eager_ms(Load.of(batch))
                assert times["cheapest"] <= min(*times.values(), eager) + 1e-9


def test_one_bin_is_kept_only_when_no_split_can_beat_it() -> None:
    # Launches that cost nothing make splits free, so the shortcut must not fire.
    curve = replace(SLOW_EAGER.dense, patches=(1, 65536), ms=(0.001, 65.536))
    free = replace(SLOW_EAGER, dense=curve, step_ms=0.0, block_ms=0.0)
    batch = images(64, 250)
    packed = packing.cheapest(batch, DOUBLING, costs=free)
    assert sorted(b.token_budget for b in packed.bins) == [64, 256]


def test_smallest_prefers_few_items_within_a_budget() -> None:
    planned = plan(128, items=32, few=4)
    assert packing.smallest(planned, Load.of(images(60, 60))) == 0
    assert packing.smallest(planned, Load.of(images(*[20] * 6))) == 1
    assert packing.smallest(planned, Load.of(images(200))) is None


def test_a_wrong_packing_name_lists_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"packing must be one of \['ascending'.*got 'best'"):
        packing.packer(DOUBLING, rule="best")
    with pytest.raises(ValueError, match="needs costs"):
        packing.packer(DOUBLING)


@pytest.mark.parametrize("rule", packing.PACKINGS)
def test_a_batch_of_no_items_is_refused_by_what_came(rule: str) -> None:
    with pytest.raises(TypeError, match=r"batch must be a sequence of Items, got \[1, 2\]"):
        packers(DOUBLING)[rule]([1, 2])


def test_cheapest_without_costs_says_where_they_come_from() -> None:
    with pytest.raises(ValueError, match="needs costs, got None; load or model them first"):
        packing.cheapest(images(64), DOUBLING, costs=None)


def test_a_packing_prices_its_own_batch_alone():
    batch, other = images(64, 64, 128), images(64, 128, 128)
    packed = packing.ascending(batch, DOUBLING)
    assert packing.predicted_ms(packed, batch, MODELLED) > 0
    for wrong in (batch[:2], batch + batch, other):
        with pytest.raises(ValueError, match="must be of this batch"):
            packing.predicted_ms(packed, wrong, MODELLED)


def test_costs_of_another_encoder_price_neither_packing_nor_memory():
    theirs = replace(MODELLED, encoder="qwen3-vl-2b")
    assert DOUBLING.encoder != "qwen3-vl-2b"
    for priced in (theirs.memory, lambda plan: packing.cheapest(images(64), plan, costs=theirs)):
        with pytest.raises(ValueError, match="costs must be of"):
            priced(DOUBLING)
    assert replace(theirs, encoder=None).memory(DOUBLING) == MODELLED.memory(DOUBLING)
