"""The times to first token that docs/model_runner.md shows are those on record."""

import re
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
from encgraph.loads import Workload
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
    asked = loads.fitting(drawn, Workload(new_tokens=4)).requests
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


def whole(model, about):
    """The figures of what there is one line of: the capture of a part, a proof, the jitter."""
    [line] = [m for m in evidence.first_tokens(model) if m.strategy == about]
    return line.numbers


def of_both(counts, *figures):
    """Figures of each model at each of some numbers of requests, the first model's first."""
    return [figure(model, count) for model in MODELS for count in counts for figure in figures]


def of_way(way, name):
    return lambda model, count: mean(model, count, way, name)


def sooner(way):
    """Percent of eager's time to first token that a way saves."""
    first = "first_token_ms"
    return lambda m, n: 100 - 100 * mean(m, n, way, first) / mean(m, n, "eager", first)


def prefill_of_first_token(model, count):
    numbers = recorded(model, count)["cache_warm"].numbers
    return numbers["prefill_ms"] / numbers["first_token_ms"]


def span(values):
    return min(values), max(values)


def predictions(strategies_and_counts, model="qwen3-vl-8b"):
    """Mean predicted, of "greedy" as of `encgraph` packed by vLLM's rule."""
    return [
        predicted(model, n, "encgraph", "ascending" if name == "greedy" else None).mean_ms
        if name in ("encgraph", "greedy")
        else predicted(model, n, name).mean_ms
        for name, n in strategies_and_counts
    ]


def prefilled(model):
    """Tokens of the batches of sixteen: computed now, of the prompts, and padded to the longest."""
    now = real = padded = 0
    for batch in measured_batches(model, 16):
        lengths = [loads.tokens(asked) + Workload().text_tokens for asked in batch]
        groups = prefilling.groups(lengths)
        now += sum(len(rows) * max(lengths[row] for row in rows) for rows in groups)
        real += sum(lengths)
        padded += len(lengths) * max(lengths)
    return now, real, padded


def of_jitter(model):
    found = whole(model, first_token.JITTER)
    return [
        found[f"replay_{how}_{which}_ms"]
        for which in ("p50", "p99")
        for how in ("alone", "alternating")
    ]


def seconds(*parts):
    return [whole(model, part)["capture_s"] for model in MODELS for part in parts]


@pytest.mark.parametrize("table", ["first token", "encode"])
def test_a_table_has_both_models_at_every_concurrency(table):
    shown = [(model, int(count)) for model, count, _ in rows_of(table)]
    assert shown == [(model, count) for model in MODELS for count in COUNTS]


def test_the_commit_is_that_of_the_records():
    commits = {line.environment.commit[:7] for m in MODELS for line in evidence.first_tokens(m)}
    assert commits == set(re.findall(r"--seconds 125`\) at commit (\w+)", SAID))


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


WAYS = ("eager", "encoder_graphs")
ENCODE = (of_way("eager", "encode_ms"), of_way("encoder_graphs", "encode_ms"))
SHARE = (of_way("eager", "encode_share_ratio"), of_way("encoder_graphs", "encode_share_ratio"))
STEP = (of_way("eager", "decode_step_ms"), of_way("all_graphs", "decode_step_ms"))
FINDINGS = {
    "from {:.1f} to {:.1f} ms (8b: {:.1f} to {:.1f}), the first": lambda: of_both((1,), *ENCODE),
    "{:.0f} % sooner (8b: {:.0f} %), and": lambda: of_both((1,), sooner("encoder_graphs")),
    "goes from {:.2f} to {:.2f} (8b: {:.2f} to {:.2f})": lambda: of_both((1,), *SHARE),
    "{:.0f} and {:.0f} % sooner (8b: {:.0f} and {:.0f} %)": lambda: of_both(
        (4, 16), sooner("encoder_graphs")
    ),
    "({:.1f} against {:.1f} ms predicted)": lambda: predictions(
        [("eager_fused", 1), ("eager_varlen", 1)]
    ),
    "from {:.1f} to {:.1f} ms, graphs from there to {:.1f}": lambda: predictions(
        [("eager_varlen", 4), ("eager_fused", 4), ("encgraph", 4)]
    ),
    "at four ({:.1f} against {:.1f} ms)": lambda: predictions([("greedy", 4), ("eager_fused", 4)]),
    "sixteen ({:.1f} against {:.1f})": lambda: predictions([("greedy", 16), ("eager_fused", 16)]),
    "of one request from {:.1f} to {:.1f} ms (8b: {:.1f} to {:.1f})": lambda: of_both((1,), *STEP),
    "of sixteen from {:.1f} to {:.1f} (8b: {:.1f} to {:.1f})": lambda: of_both((16,), *STEP),
    "leaves {:.1f} to {:.1f} ms of encode": lambda: span(
        of_both(COUNTS, of_way("cache_warm", "encode_ms"))
    ),
    "{:.0f} to {:.0f} % sooner than `eager`": lambda: span(of_both(COUNTS, sooner("cache_warm"))),
    "{:.2f} to {:.2f} of it is prefill": lambda: span(of_both(COUNTS, prefill_of_first_token)),
    "{:,} tokens for {:,} of prompts; padded to its longest prompt each, {:,}": lambda: prefilled(
        MODELS[0]
    ),
    "its median goes from {:.0f} to {:.0f} ms and its slowest from {:.0f} to {:.0f};": lambda: (
        of_jitter(MODELS[0])
    ),
    "with 8b from {:.0f} to {:.0f} and from {:.0f} to {:.0f}": lambda: of_jitter(MODELS[1]),
    "{:.0f} items in each way": lambda: {
        whole(m, f"{w}/proven")["proven_items_count"] for m in MODELS for w in WAYS
    },
    "{:.2f} of what is allowed by `eager`, {:.2f} by graphs (8b: {:.2f} and {:.2f})": lambda: [
        whole(m, f"{w}/proven")["error_over_allowed_ratio"] for m in MODELS for w in WAYS
    ],
    "{:.1f} s for the encoder's graphs (8b: {:.1f})": lambda: seconds("encoder_graphs/encoder"),
    "{:.1f} s (8b: {:.1f}) when repeated": lambda: seconds("all_graphs/encoder"),
    "{:.1f} s (8b: {:.1f}) for the decoder's": lambda: seconds("all_graphs/decoder"),
}
"""Sentences of the list below the tables, and the figures that they hold."""
LIST = SAID.partition("<!-- /encode -->")[2].partition("## What it does not do")[0]


@pytest.mark.parametrize("sentence", FINDINGS)
def test_a_finding_has_the_figures_on_record(sentence):
    assert sentence.format(*FINDINGS[sentence]()) in LIST


def test_no_figure_of_the_findings_is_without_a_record():
    left = LIST
    for sentence, figures in FINDINGS.items():
        left = left.replace(sentence.format(*figures()), "")
    assert re.findall(r"(?<![\w-])\d[\d.,]*(?!\w)", left) == []


def test_graphs_are_slower_in_no_batch_and_decode_graphs_leave_the_first_token_alone():
    assert "in none of the batches is the encoder slower than `eager`" in LIST
    assert "within a fiftieth" in LIST
    for model in MODELS:
        for count in COUNTS:
            eager, graphs = (each(model, count, way) for way in ("eager", "encoder_graphs"))
            assert all(graphs[at] < eager[at] for at in eager)
            first = [
                mean(model, count, w, "first_token_ms") for w in ("encoder_graphs", "all_graphs")
            ]
            assert max(first) / min(first) < 1.02


def test_with_8b_a_fallback_is_slower_in_turn_as_well():
    assert "There the fallback is slower in turn as well" in LIST
    found = whole("qwen3-vl-8b", first_token.JITTER)
    assert found["fallback_alternating_p50_ms"] > found["fallback_alone_p50_ms"]
