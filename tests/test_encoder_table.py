"""The table of all families: fills itself, resumes, keeps failures; and the page is made of it."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from encgraph import sizes, store
from encgraph.checks import suite
from encgraph.encoders import registry

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("encoder_table", "encoder_docs", "encoder_rows")
    yield {name: importlib.import_module(name) for name in names}
    for name in (*names, "encoder_speeds"):
        sys.modules.pop(name, None)


@pytest.fixture
def run(scripts, tmp_path):
    def ran(*more):
        scripts["encoder_table"].main(["--tiny", "--samples", "2", "--out", str(tmp_path), *more])
        file = tmp_path / "cpu" / "encoders.jsonl"
        return store.read(file) if file.is_file() else ()

    return ran


def test_every_family_has_a_real_size_and_no_other_is_named(scripts):
    choices = scripts["encoder_rows"].CHOICES
    assert set(choices) == set(registry.FAMILIES)
    for family, choice in choices.items():
        size = sizes.named(choice.size)
        assert size.family == family
        assert not size.name.endswith("-tiny")
        assert choice.length <= size.rule.max_tokens or size.rule.pooled


@pytest.mark.parametrize("family", sorted(registry.FAMILIES))
def test_every_family_passes_all_checks_that_apply_and_is_timed(family, run):
    checks, capture, *speeds = run("--only", family)
    assert checks.numbers["failed_count"] == 0
    assert checks.numbers["passed_count"] >= 20
    assert checks.numbers["passed_parity_count"] == 1
    assert checks.numbers["parity_worst_error_ratio"] <= checks.numbers["parity_tolerance_ratio"]
    assert checks.numbers["passed_count"] + checks.numbers["not_run_count"] == len(suite.NAMES)
    assert capture.memory.slabs_bytes > 0
    assert capture.numbers["graphs_count"] == 3
    ours = [row for row in speeds if row.strategy == "encgraph"]
    assert [row.numbers["items_count"] for row in ours] == [1, 8, 32]
    assert [row.load.items for row in ours] == [1, 8, 32]
    assert [row.numbers["replays_count"] for row in ours] == [1, 1, 1]
    for row in ours:
        rivals = [
            r.latency.p50_ms for r in speeds if r.load == row.load and r.strategy != "encgraph"
        ]
        assert len(rivals) == 2
        assert row.numbers["speedup_ratio"] == min(rivals) / row.latency.p50_ms


def test_what_is_there_is_skipped_and_what_is_not_is_listed(run, capsys, tmp_path):
    first = run("--only", "clip")
    assert run("--only", "clip") == first
    capsys.readouterr()
    run("--only", "clip,bert", "--list-missing")
    assert capsys.readouterr().out.splitlines() == ["bert checks", "bert speed"]
    older = replace(first[0], environment=replace(first[0].environment, transformers="5.17.0"))
    store.write(tmp_path / "cpu" / "encoders.jsonl", [older, *first[1:]])
    run("--only", "clip", "--list-missing")
    assert capsys.readouterr().out.splitlines() == ["clip checks"]


def test_a_family_out_of_time_is_a_failed_row_with_why_and_the_rest_goes_on(run, tmp_path):
    rows = run("--only", "clip,bert", "--time-limit-s", "0.001")
    assert [(row.encoder, row.strategy) for row in rows] == [
        ("clip-tiny", "checks"),
        ("clip-tiny", "encgraph"),
        ("bert-tiny", "checks"),
        ("bert-tiny", "encgraph"),
    ]
    assert [row.numbers["failed_count"] for row in rows] == [1, 1, 1, 1]
    said = (tmp_path / "cpu" / "encoders.txt").read_text()
    assert said.count("took longer than the 0.001 s it may") == 4
    assert "clip-tiny checks: OutOfTime" in said


def test_a_family_that_breaks_is_a_failed_row_and_the_next_is_measured(
    run, scripts, monkeypatch, tmp_path
):
    def broken(size, **options):
        raise RuntimeError(f"no weights for {size.name}")

    families = dict(registry.FAMILIES)
    families["clip"] = replace(families["clip"], build=broken)
    monkeypatch.setattr(registry, "FAMILIES", families)
    rows = run("--only", "clip,bert")
    failed = {row.encoder for row in rows if row.numbers.get("failed_count")}
    assert failed == {"clip-tiny"}
    assert any(row.encoder == "bert-tiny" and row.latency for row in rows)
    assert (
        "RuntimeError: no weights for clip-tiny" in (tmp_path / "cpu" / "encoders.txt").read_text()
    )


def test_an_unknown_family_is_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--only", "clip,vit")
    assert "--only takes families of" in capsys.readouterr().err


def test_the_page_of_encoders_is_current(scripts):
    docs = scripts["encoder_docs"]
    assert docs.PAGE.read_text(encoding="utf-8") == docs.page(docs.recorded()), (
        "run python benchmarks/encoder_docs.py"
    )


def test_the_page_shows_what_was_measured_and_says_what_was_not(scripts, run):
    docs = scripts["encoder_docs"]
    size = scripts["encoder_rows"].CHOICES["clip"].size
    rows = [replace(row, encoder=size) for row in run("--only", "clip")]
    made = {
        line.split(" | ")[0].removeprefix("| "): line
        for line in docs.page(rows).partition("What is proven where")[2].splitlines()
    }
    assert "not run" not in made["clip"]
    assert "21 of 21" in made["clip"]
    assert made["clip"].count("x |") == 3
    assert "| not run | - | not run |" in made["siglip"]


def test_the_page_links_tests_and_pages_that_exist(scripts):
    docs = scripts["encoder_docs"]
    for _, test in docs.LAYOUTS.values():
        assert (BENCHMARKS.parent / test).is_file()
    assert set(docs.LAYOUTS) == {size.layout for size in sizes.SIZES.values()}
