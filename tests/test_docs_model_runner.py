"""The times to first token that docs/model_runner.md shows are those on record."""

import re
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
TABLE = PAGE.partition("<!-- first token -->")[2].partition("<!-- /first token -->")[0]
ROWS = re.findall(r"^\| `([\w-]+)` \| (\d+) \| (\d+) \| (.+) \|$", TABLE, re.M)
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


SIZE = sizes.named("qwen3-vl-2b")


def first_of_sixteen():
    """The first batch of sixteen requests that was measured."""
    drawn = traffic.read("builtin:servegen", SIZE, count=64)
    return loads.fitting(drawn, Load()).requests[:16]


def test_what_prefill_computes_of_the_first_sixteen_is_what_is_said():
    lengths = [loads.tokens(request) + Load().text_tokens for request in first_of_sixteen()]
    padded = len(lengths) * max(lengths)
    assert f"({padded:,} tokens computed for {sum(lengths):,} in the first batch" in SAID
    groups = prefilling.groups(lengths)
    now = sum(len(rows) * max(lengths[row] for row in rows) for rows in groups)
    assert f"{now:,} tokens in {('no', 'one', 'two', 'three')[len(groups)]} runs there" in SAID


def test_recorded_costs_said_beforehand_what_the_greedy_rule_loses():
    setting = systems.Setting(
        size=SIZE,
        device=torch.device("cpu"),
        dtype=torch.bfloat16,
        backend="reference",
        costs=cards.price(SIZE),
        fit_on=traffic.read("builtin:servegen", SIZE, count=2000, seed=1).requests,
        largest=4096,
    )
    plan = systems.plan(strategies.ENCGRAPH_PLAIN, setting)
    drawn = traffic.read("builtin:servegen", SIZE, count=64).requests
    batches = [[item for r in drawn[at : at + 16] for item in r] for at in range(0, 64, 16)]
    eager = systems.plan(strategies.EAGER_VARLEN, setting)
    greedy, none = (
        budgets.judge(batches, made, costs=setting.costs, pack="ascending").mean_ms
        for made in (plan, eager)
    )
    assert f"({greedy:.0f} against {none:.0f} ms for sixteen)" in SAID


def test_the_table_has_both_models_at_every_concurrency():
    shown = {(model, int(count)) for model, count, *_ in ROWS}
    assert shown == {
        (model, int(line.numbers["concurrency_count"]))
        for model in ("qwen3-vl-2b", "qwen3-vl-8b")
        for line in first_token.summaries(evidence.first_tokens(model))
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_row_is_its_record(row):
    model, count, batches, times = row
    found = {
        line.strategy: line
        for line in first_token.summaries(evidence.first_tokens(model))
        if line.numbers["concurrency_count"] == int(count)
    }
    assert {line.latency.samples for line in found.values()} == {int(batches)}
    assert times.split(" | ") == [f"{found[way].numbers[name]:,.1f}" for way, name in COLUMNS]
