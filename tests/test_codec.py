"""Records come back from JSON equal, and what is not such a record is refused by name."""

import json
from typing import Any

import pytest

from encgraph import codec, costs, sizes, strategies
from encgraph.records import (
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
from encgraph.results import Environment, Latency, Measurement, Memory

CAPACITY = Capacity(tokens=64, patches=256, items=2, segments=2, longest_segment=256, frames=2)
PLAN = Plan(graphs=(CAPACITY,), encoder="qwen3-vl-tiny", reasons=("p50 of the traffic: ≤ 64",))
LOAD = Load(tokens=60, patches=240, items=1, segments=1, longest_segment=240, square=57600.0)
FALLBACK = Fallback(item=1, reason=FallbackReason.OVER_ITEMS)
BIN = Bin(items=(0,), graph=0, capacity=CAPACITY, load=LOAD)
ENVIRONMENT = Environment(
    gpu=None,
    driver=None,
    cuda=None,
    cpu="two cores",
    python="3.11.7",
    torch="2.13.0",
    transformers="5.24.0",
    encgraph="0.1.0",
    commit="6b448c5",
    dtype="float32",
    utc="2026-11-29T12:00:00+00:00",
)
RECORDS: tuple[Any, ...] = (
    Item(modality=Modality.VIDEO, tokens=60, patches=240, segments=3, frames=3, width=640),
    LOAD,
    CAPACITY,
    PLAN,
    Plan(graphs=(), encoder="qwen3-vl-8b", reasons=("eager is faster",)),
    BIN,
    FALLBACK,
    Packing(bins=(BIN,), fallback=(FALLBACK,)),
    Step(route=Route.REPLAY, modality=Modality.IMAGE, items=1, real_tokens=60, token_budget=64),
    Step(
        route=Route.FALLBACK,
        modality=Modality.IMAGE,
        items=3,
        real_tokens=9,
        reason=FallbackReason.OVER_TOKENS,
        reasons={
            FallbackReason.OVER_TOKENS: Load(items=1, tokens=5),
            FallbackReason.EAGER_IS_FASTER: Load(items=2, tokens=4),
        },
    ),
    Latency.of([1.5, 2.25, 1e-9], clock="device", warmups=2),
    Memory(slabs_bytes=1, pool_bytes=2, driver_bytes=3),
    ENVIRONMENT,
    Measurement(experiment="bench", encoder="e", environment=ENVIRONMENT),
    Measurement(
        experiment="replay_curve",
        encoder="qwen3-vl-8b",
        environment=ENVIRONMENT,
        route=Route.REPLAY,
        capacity=CAPACITY,
        load=LOAD,
        latency=Latency.of([3.0], clock="wall"),
        memory=Memory(slabs_bytes=1, pool_bytes=2, driver_bytes=3, peak_bytes=4),
        numbers={"capture_s": 0.25},
    ),
    strategies.VLLM,
    sizes.TINY,
    costs.modelled(sizes.TINY),
)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_every_record_comes_back_equal(record: Any) -> None:
    line = codec.dumps(record)
    assert "\n" not in line
    again = codec.loads(type(record), line)
    assert again == record
    assert codec.loads(type(record), codec.dumps(again)) == again


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: type(r).__name__)
def test_keys_are_sorted_at_every_depth(record: Any) -> None:
    def check(pairs: list[tuple[str, Any]]) -> None:
        assert [k for k, _ in pairs] == sorted(k for k, _ in pairs)

    json.loads(codec.dumps(record), object_pairs_hook=check)


def test_enums_are_their_words_and_text_stays_readable() -> None:
    assert '"reason": "items over every budget"' in codec.dumps(FALLBACK)
    assert "≤" in codec.dumps(PLAN)


def test_a_number_that_is_not_finite_is_refused_both_ways() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.dumps(Load(square=float("nan")))
    for text in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ValueError, match=f"must be finite, got {text}"):
            codec.loads(Load, f'{{"square": {text}}}')


def test_an_unknown_field_is_refused_by_name() -> None:
    values = codec.encode(PLAN) | {"flavour": 1}
    with pytest.raises(ValueError, match=r"not a valid Plan: extra fields found .*flavour"):
        codec.decode(Plan, values)


def test_a_missing_field_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"not a valid Capacity: .*patches"):
        codec.decode(Capacity, {"tokens": 1})


def test_a_contradiction_in_a_file_keeps_its_own_words() -> None:
    values = codec.encode(PLAN)
    values["graphs"][0]["items"] = 65
    with pytest.raises(ValueError, match="64 tokens cannot hold 65 items"):
        codec.decode(Plan, values)


@pytest.mark.parametrize(
    "record", [PLAN, Measurement(experiment="x", encoder="e", environment=ENVIRONMENT)]
)
def test_a_newer_schema_is_named_before_its_new_fields(record: Any) -> None:
    values = codec.encode(record) | {"schema": SCHEMA + 1, "added_later": 1}
    with pytest.raises(ValueError, match=rf"schema {SCHEMA + 1} is newer .*upgrade encgraph"):
        codec.decode(type(record), values)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tokens", "300", "must be a whole number, got '300'"),
        ("tokens", 300.0, "must be a whole number, got 300.0"),
        ("tokens", True, "must be a whole number, got True"),
        ("tokens", None, "must be a whole number, got None"),
    ],
)
def test_a_number_is_not_made_of_something_else(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"not a valid Capacity: {message} @ \$\.{field}"):
        codec.decode(Capacity, codec.encode(CAPACITY) | {field: value})


def test_no_word_is_taken_for_a_number_or_a_claim_nor_a_number_for_a_word() -> None:
    with pytest.raises(ValueError, match="must be true or false, got 'no'"):
        codec.decode(Plan, codec.encode(PLAN) | {"compiled": "no"})
    with pytest.raises(ValueError, match="must be text, got 3"):
        codec.decode(Plan, codec.encode(PLAN) | {"encoder": 3})
    with pytest.raises(ValueError, match=r"must be a number, got '1\.5'"):
        codec.decode(Load, {"square": "1.5"})
    assert codec.decode(Load, {"square": 2}) == Load(square=2.0)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"plan"', "null"])
def test_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        codec.loads(Plan, text)
