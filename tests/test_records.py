"""Records refuse contradictions when they are built, and add up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from encgraph import codec, sizes
from encgraph.attention import choose
from encgraph.errors import ATTENTIONS
from encgraph.fitting.shapes import Target
from encgraph.records import (
    DIMENSIONS,
    SCHEMA,
    Bin,
    Capacity,
    Fallback,
    FallbackReason,
    Item,
    Load,
    Modality,
    Packing,
    Plan,
    Route,
    Step,
)

CAPACITY = Capacity(tokens=128, patches=512, items=4, segments=6, longest_segment=300, frames=6)
CLIP = Item(modality=Modality.VIDEO, tokens=30, patches=120, segments=3, frames=3)
IMAGE = Item(tokens=64, patches=256)


def changed(**fields: int) -> Capacity:
    values = {name: getattr(CAPACITY, name) for name in DIMENSIONS}
    return Capacity(**{**values, **fields})


def step(route: Route, **fields: Any) -> Step:
    return Step(route=route, modality=Modality.IMAGE, items=1, real_tokens=64, **fields)


CONTRADICTIONS: dict[str, tuple[Callable[[], object], str]] = {
    "no tokens": (lambda: Item(tokens=0, patches=4), "tokens of an item must be at least 1, got 0"),
    "no patches": (
        lambda: Item(tokens=1, patches=0),
        "patches of an item must be at least 1, got 0",
    ),
    "no segment": (
        lambda: Item(tokens=1, patches=4, segments=0),
        "segments of an item must be at least 1, got 0",
    ),
    "no frame": (
        lambda: Item(tokens=1, patches=4, frames=-1),
        "frames of an item must be at least 1, got -1",
    ),
    "empty budget": (lambda: changed(tokens=0), "tokens of a capacity must be at least 1, got 0"),
    "no item": (lambda: changed(items=0), "items of a capacity must be at least 1, got 0"),
    "items over tokens": (lambda: changed(items=129), "128 tokens cannot hold 129 items"),
    "descending": (
        lambda: Plan(graphs=(CAPACITY, changed(tokens=64)), encoder="e"),
        r"strictly increasing, got \[128, 64\]",
    ),
    "same graph twice": (
        lambda: Plan(graphs=(CAPACITY, CAPACITY), encoder="e"),
        r"strictly increasing, got \[128, 128\]",
    ),
    "a reason too few": (
        lambda: Plan(graphs=(CAPACITY, changed(tokens=256)), encoder="e", reasons=("why",)),
        "one reason a graph, got 1 for 2",
    ),
    "newer plan": (
        lambda: Plan(graphs=(), encoder="e", schema=SCHEMA + 1),
        f"schema {SCHEMA + 1} is newer than this release reads",
    ),
    "largest of nothing": (lambda: Plan(graphs=(), encoder="e").largest(), "without graphs"),
    "empty bin": (
        lambda: Bin(items=(), graph=0, capacity=CAPACITY, load=Load()),
        "at least one item",
    ),
    "overfull bin": (
        lambda: Bin(items=(0,), graph=0, capacity=CAPACITY, load=Load(tokens=129)),
        "tokens over every budget",
    ),
    "replay without budget": (lambda: step(Route.REPLAY), "replay step has token_budget None"),
    "eager with budget": (lambda: step(Route.EAGER, token_budget=64), "eager step has"),
    "fallback without reason": (lambda: step(Route.FALLBACK), "fallback step has reason None"),
    "replay with reason": (
        lambda: step(Route.REPLAY, token_budget=64, reason=FallbackReason.NO_GRAPHS),
        "replay step has reason",
    ),
    "reasons without the first": (
        lambda: step(
            Route.FALLBACK,
            reason=FallbackReason.OVER_TOKENS,
            reasons={FallbackReason.OVER_FRAMES: Load(items=1)},
        ),
        "a step of 1 items for .* has reasons",
    ),
    "reasons of other items": (
        lambda: step(
            Route.FALLBACK,
            reason=FallbackReason.OVER_TOKENS,
            reasons={FallbackReason.OVER_TOKENS: Load(items=2)},
        ),
        "a step of 1 items for .* has reasons",
    ),
    "reasons of an eager step": (
        lambda: step(Route.EAGER, reasons={FallbackReason.OVER_TOKENS: Load(items=1)}),
        "has reasons",
    ),
    "budget under tokens": (
        lambda: step(Route.REPLAY, token_budget=63),
        "63 is under 64 real tokens",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_is_refused_with_its_value(name: str) -> None:
    build, message = CONTRADICTIONS[name]
    with pytest.raises(ValueError, match=message):
        build()


FIELDS = (
    "tokens",
    "patches",
    "segments",
    "longest_segment",
    "frames",
    "width",
    "height",
    "request",
)


@pytest.mark.parametrize("value", [float("nan"), 1.5, True, "3", 10**40, -1], ids=repr)
@pytest.mark.parametrize("name", FIELDS)
def test_an_item_refuses_what_is_no_whole_number_in_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} of an item must be .*, got "):
        Item(**{"tokens": 64, "patches": 256, name: value})


@pytest.mark.parametrize("value", [float("nan"), 4.5, True, "4", 10**40, 0], ids=repr)
@pytest.mark.parametrize("name", DIMENSIONS)
def test_a_capacity_refuses_what_is_no_whole_number_in_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} of a capacity must be .*, got "):
        changed(**{name: value})


def test_whole_numbers_of_numpy_become_plain_ones() -> None:
    item = Item(tokens=np.int64(64), patches=np.int32(256), width=np.uint8(9))
    assert [type(value) for value in (item.tokens, item.patches, item.width)] == [int] * 3
    assert type(changed(items=np.int64(2)).items) is int


def test_records_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        IMAGE.tokens = 3  # type: ignore[misc]


def test_a_segment_length_not_given_is_the_share_of_the_patches_rounded_up() -> None:
    assert IMAGE.longest_segment == 256
    assert Item(tokens=10, patches=40, segments=3).longest_segment == 14


def test_attention_of_a_clip_is_quadratic_in_its_segments_only() -> None:
    assert IMAGE.square == 256**2
    assert CLIP.square == 3 * 40**2


def test_a_load_adds_sums_and_keeps_the_longest_segment() -> None:
    load = Load.of([CLIP, IMAGE, CLIP])
    assert load == Load(
        tokens=124,
        patches=496,
        items=3,
        segments=7,
        longest_segment=256,
        frames=7,
        square=2 * 3 * 40**2 + 256**2,
    )
    assert Load.of([]) == Load()


@pytest.mark.parametrize("name", DIMENSIONS)
def test_every_capacity_is_checked(name: str) -> None:
    full = Load(**{n: getattr(CAPACITY, n) for n in DIMENSIONS})
    assert CAPACITY.holds(full)
    assert CAPACITY.exceeded(full) is None
    over = Load(**{n: getattr(CAPACITY, n) + (n == name) for n in DIMENSIONS})
    assert not CAPACITY.holds(over)
    assert CAPACITY.exceeded(over) is DIMENSIONS[name]


def test_a_budget_may_have_two_item_caps_and_counts_once() -> None:
    few, many = changed(items=2), changed(items=8)
    plan = Plan(graphs=(few, many), encoder="e")
    assert plan.token_budgets == (128,)
    assert plan.largest() == many


def test_the_largest_capacity_is_elementwise() -> None:
    plan = Plan(graphs=(changed(items=8), changed(tokens=256, longest_segment=100)), encoder="e")
    assert plan.largest() == changed(tokens=256, items=8, longest_segment=300)


def test_a_plan_without_graphs_may_say_why_in_one_sentence() -> None:
    assert Plan(graphs=(), encoder="e", reasons=("eager is faster",)).token_budgets == ()


def test_padding_and_replay_rate_count_bins_and_fallback() -> None:
    bins = (
        Bin(items=(0,), graph=0, capacity=CAPACITY, load=Load.of([IMAGE])),
        Bin(items=(1, 2), graph=0, capacity=CAPACITY, load=Load.of([CLIP, CLIP])),
    )
    packing = Packing(bins=bins, fallback=(Fallback(item=3, reason=FallbackReason.OVER_TOKENS),))
    assert [b.padding_tokens for b in bins] == [64, 68]
    assert packing.real_tokens == 124
    assert packing.padding_ratio == pytest.approx(1 - 124 / 256)
    assert packing.replay_rate == 0.75
    assert (Packing(bins=()).padding_ratio, Packing(bins=()).replay_rate) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"attention": "zzz"}, "attention must be one of auto, .*fa3.*, got 'zzz'"),
        ({"dtype": "int8"}, "dtype must be one of bfloat16, float16, float32, got 'int8'"),
    ],
)
def test_a_plan_of_an_unknown_dtype_or_attention_is_refused_wherever_it_is_made(field, said):
    with pytest.raises(ValueError, match=said):
        Plan(graphs=(), encoder="qwen3-vl-8b", **field)
    with pytest.raises(ValueError, match=said):
        Target(size=sizes.named("qwen3-vl-8b"), **field)
    values = codec.encode(Plan(graphs=(), encoder="qwen3-vl-8b"))
    with pytest.raises(ValueError, match=said):
        codec.decode(Plan, values | field)


def test_every_attention_that_can_be_asked_for_is_one_that_a_plan_may_name():
    assert set(ATTENTIONS) == {"auto", "own", *choose.ATTENTION_NAMES}
