"""The times to first token that docs/model_runner.md shows are those on record."""

import re
from pathlib import Path

import pytest

from encgraph import evidence, first_token

PAGE = (Path(__file__).parents[1] / "docs" / "model_runner.md").read_text(encoding="utf-8")
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
