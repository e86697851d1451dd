"""The times to first token that docs/model_runner.md shows are those on record."""

import re
import statistics
from functools import cache
from pathlib import Path

import pytest
import torch

from encgraph import (
    budgets,
    cards,
    evidence,
    first_token,
    loads,
    sizes,
    strategies,
    systems,
    traffic,
)
from encgraph.loads import Load
from encgraph.model_runner import prefilling

PAGE = (Path(__file__).parents[1] / "docs" / "model_runner.md").read_text(encoding="utf-8")
SAID = " ".join(PAGE.split())
MODELS = ("qwen3-vl-2b", "qwen3-vl-8b")
COUNTS = (1, 4, 16)
COLUMNS = (
    ("eager", "first_token_ms"),
    ("encoder_graphs", "first_token_ms"),
    ("all_graphs", "first_token_ms"),
    ("cache_warm", "first_token_ms"),
    ("eager", "encode_ms"),
    ("encoder_graphs", "encode_ms"),
    ("eager", "decode_step_ms"),
    ("all_graphs", "decode_step_ms"),
)


def rows_of(table):
    """Model, requests a batch and the rest of each row of a marked table."""
    inside = PAGE.partition(f"<!-- {table} -->")[2].partition(f"<!-- /{table} -->")[0]
    return re.findall(r"^\| `([\w-]+)` \| (\d+) \| (.+) \|$", inside, re.M)


@cache
def recorded(model, count):
    """The line over all batches of each way."""
    return {
        line.strategy: line
        for line in first_token.summaries(evidence.first_tokens(model))
        if line.numbers["concurrency_count"] == count
    }


def mean(model, count, way, name):
    """A mean over batches."""
    return recorded(model, count)[way].numbers[name]


def each(model, count, way):
    """Encode of each batch of a way, by the batch's number."""
    return {
        line.request: line.numbers["encode_ms"]
        for line in evidence.first_tokens(model)
        if line.strategy == way and line.request is not None
        if line.numbers["concurrency_count"] == count
    }


def alone(model, about):
    """The figures of a line that there is one of."""
    [line] = [m for m in evidence.first_tokens(model) if m.strategy == about]
    return line.numbers


@cache
def setting(model):
    """As benchmarks/time_to_first_token.py sets it on a card, but for the device."""
    size = sizes.named(model)
    return systems.Setting(
        size=size,
        device=torch.device("cpu"),
        dtype=torch.bfloat16,
        backend="reference",
        costs=cards.price(size),
        priced=systems.prices(size, on="h200"),
        fit_on=traffic.read("builtin:servegen", size, count=2000, seed=1).requests,
        largest=4096,
    )


def measured_batches(model, count):
    """The requests of each batch on record."""
    drawn = traffic.read("builtin:servegen", sizes.named(model), count=64)
    asked = loads.fitting(drawn, Load(new_tokens=4)).requests
    return [asked[at * count : (at + 1) * count] for at in each(model, count, "eager")]


@cache
def predicted(model, count, strategy, pack=None):
    """What recorded costs say of a strategy's encoder for the batches on record."""
    given, chosen = setting(model), strategies.named(strategy)
    batches = [
        [item for asked in batch for item in asked] for batch in measured_batches(model, count)
    ]
    return budgets.judge(
        batches,
        systems.plan(chosen, given),
        costs=given.price(chosen),
        pack=pack or chosen.packing,
    )


def is_fused_on_record(model):
    return bool(cards.bodies(sizes.named(model), "h200", compiled=True, fused=True))


def encode_row(model, count):
    """A row of the encoder's table, after model and requests a batch."""
    graphs = predicted(model, count, "encgraph")
    fused = f"{predicted(model, count, 'eager_fused').mean_ms:,.1f}"
    return [
        f"{mean(model, count, 'eager', 'encode_ms'):,.1f}",
        f"{predicted(model, count, 'eager_varlen').mean_ms:,.1f}",
        fused if is_fused_on_record(model) else "not on record",
        f"{mean(model, count, 'encoder_graphs', 'encode_ms'):,.1f}",
        f"{graphs.mean_ms:,.1f}",
        f"{graphs.replay_rate:.0%}".replace("%", " %"),
        f"{predicted(model, count, 'encgraph', 'ascending').mean_ms:,.1f}",
    ]


def sooner(model, count, way="encoder_graphs"):
    """Percent of eager's time to first token that a way saves."""
    first = [mean(model, count, name, "first_token_ms") for name in (way, "eager")]
    return f"{1 - first[0] / first[1]:.0%}".removesuffix("%")


@pytest.mark.parametrize("table", ["first token", "encode"])
def test_a_table_has_both_models_at_every_concurrency(table):
    shown = [(model, int(count)) for model, count, _ in rows_of(table)]
    assert shown == [(model, count) for model in MODELS for count in COUNTS]


@pytest.mark.parametrize("row", rows_of("first token"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_row_is_its_record(row):
    model, count, rest = row
    batches, *times = rest.split(" | ")
    found = recorded(model, int(count))
    assert {line.latency.samples for line in found.values()} == {int(batches)}
    assert times == [f"{found[way].numbers[name]:,.1f}" for way, name in COLUMNS]


@pytest.mark.parametrize("row", rows_of("encode"), ids=lambda row: f"{row[0]}-{row[1]}")
def test_what_the_encoder_takes_is_as_measured_and_as_recorded_costs_say(row):
    model, count, rest = row
    assert rest.split(" | ") == encode_row(model, int(count))


def both(name, count, *ways):
    """A figure of each way, for one model and then the other."""
    return [[mean(model, count, way, name) for way in ways] for model in MODELS]


def of_graphs():
    """What encoder graphs are said to give."""
    small, large = both("encode_ms", 1, "encoder_graphs", "eager")
    one, other = both("encode_share_ratio", 1, "eager", "encoder_graphs")
    yield f"({small[0]:.1f} instead of {small[1]:.1f} ms; 8b: {large[0]:.1f} of {large[1]:.1f})"
    yield f"comes {sooner(MODELS[0], 1)} % sooner (8b: {sooner(MODELS[1], 1)} %)"
    yield f"goes from {one[0]:.2f} to {one[1]:.2f} (8b: {other[0]:.2f} to {other[1]:.2f})"
    for count, word in ((4, "four"), (16, "sixteen")):
        saved, too = (sooner(model, count) for model in MODELS)
        yield f"{saved} % sooner at {word} (8b: {too} %)"


def of_the_body():
    """What recorded costs are said to tell apart, for 8b."""
    model = MODELS[1]
    plain, fused, graphs = (
        [predicted(model, count, name).mean_ms for count in COUNTS]
        for name in ("eager_varlen", "eager_fused", "encgraph")
    )
    greedy = [predicted(model, count, "encgraph", "ascending").mean_ms for count in COUNTS]
    yield f"({fused[0]:.1f} against {plain[0]:.1f} ms)"
    yield f"the body takes eager from {plain[1]:.1f} to {fused[1]:.1f} ms, graphs to {graphs[1]:.1f}"
    yield f"({greedy[1]:.1f} against {fused[1]:.1f} ms at four, {greedy[2]:.1f} against {fused[2]:.1f} at"


def of_the_rest():
    """Decode steps, cache, prefill, jitter, capture and proof."""
    small, large = (
        (mean(model, 1, "eager", "decode_step_ms"), mean(model, 1, "all_graphs", "decode_step_ms"))
        for model in MODELS
    )
    yield f"from {small[0]:.1f} to {small[1]:.1f} ms (8b: {large[0]:.1f} to {large[1]:.1f})"
    last = [mean(MODELS[1], 16, way, "decode_step_ms") for way in ("eager", "all_graphs")]
    yield f"from {last[0]:.1f} to {last[1]:.1f} for sixteen of 8b"
    warm = [recorded(model, count)["cache_warm"].numbers for model in MODELS for count in COUNTS]
    left = [numbers["encode_ms"] for numbers in warm]
    yield f"leaves {min(left):.1f} to {max(left):.1f} ms of encode"
    saved = [int(sooner(model, count, "cache_warm")) for model in MODELS for count in COUNTS]
    yield f"{min(saved)} to {max(saved)} % sooner than eager"
    prefill = [numbers["prefill_ms"] / numbers["first_token_ms"] for numbers in warm]
    yield f"is prefill, {min(prefill):.2f} to {max(prefill):.2f} of it"
    for model, said in zip(MODELS, ("{} a prompt that replays", "{} for 8b"), strict=True):
        found = alone(model, first_token.JITTER)
        p99, p50 = (
            "from {:.0f} to {:.0f}".format(
                *(found[f"replay_{how}_{which}_ms"] for how in ("alone", "alternating"))
            )
            for which in ("p99", "p50")
        )
        yield said.format(f"p99 {p99} ms, median {p50}," if model == MODELS[0] else f"{p99} and {p50}")
    first, again = (
        [alone(model, f"{way}/encoder")["capture_s"] for model in MODELS]
        for way in ("encoder_graphs", "all_graphs")
    )
    yield f"Capture: {first[0]:.1f} s (8b: {first[1]:.1f})"
    yield f"{again[0]:.1f} s (8b: {again[1]:.1f}) for the next"
