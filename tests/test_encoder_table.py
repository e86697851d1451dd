"""The table of all families: fills itself, resumes, keeps failures; and the page is made of it."""

import argparse
import importlib
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BertModel

from encgraph import sizes, store
from encgraph.checks import suite
from encgraph.encoders import registry, text_families

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = (
        "encoder_table",
        "encoder_docs",
        "encoder_rows",
        "encoder_speeds",
        "encoder_workers",
    )
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
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
        assert choice.length <= size.rule.max_tokens


@pytest.mark.parametrize("family", sorted(registry.FAMILIES))
def test_every_family_passes_all_checks_that_apply_and_is_timed(family, run):
    checks, capture, *speeds = run("--only", family)
    assert checks.numbers["failed_count"] == 0
    assert checks.numbers["passed_count"] >= 19
    assert checks.numbers["passed_parity_count"] == 1
    assert checks.numbers["parity_worst_error_ratio"] <= checks.numbers["parity_tolerance_ratio"]
    assert checks.numbers["passed_count"] + checks.numbers["not_run_count"] == len(
        suite.CHECK_NAMES
    )
    assert capture.memory.slabs_bytes > 0
    assert capture.numbers["graphs_count"] == 3
    ours = [row for row in speeds if row.strategy == "encgraph"]
    assert [row.numbers["items_count"] for row in ours] == [1, 8, 32]
    assert [row.load.items for row in ours] == [1, 8, 32]
    assert [row.numbers["replays_count"] for row in ours] == [1, 1, 1]
    for row in ours:
        assert row.numbers["proven_items_count"] == row.load.items
        assert row.numbers["error_over_allowed_ratio"] <= 1
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
    older = replace(first[0], environment=replace(first[0].environment, transformers="5.0.0"))
    store.write(tmp_path / "cpu" / "encoders.jsonl", [older, *first[1:]])
    run("--only", "clip", "--list-missing")
    assert capsys.readouterr().out.splitlines() == ["clip checks"]


def test_a_family_out_of_time_is_a_failed_row_with_why_and_the_rest_goes_on(run, tmp_path):
    rows = run("--only", "clip,bert", "--time-limit-s", "0.001")
    assert [(row.encoder, row.strategy) for row in rows] == [
        ("bert-tiny", "checks"),
        ("bert-tiny", "encgraph"),
        ("clip-tiny", "checks"),
        ("clip-tiny", "encgraph"),
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


def test_the_cheapest_family_comes_first(run, scripts, capsys):
    run("--list-missing")
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[::2]]
    assert sorted(listed) == sorted(registry.FAMILIES)
    flops = [scripts["encoder_rows"].Choice(f"{size}", 16).flops for size in map(tiny, listed)]
    assert flops == sorted(flops)


def tiny(family):
    return next(n for n, s in sizes.SIZES.items() if s.family == family and n.endswith("-tiny"))


def test_nothing_is_begun_without_time_and_what_is_left_is_said(run, capsys):
    assert run("--only", "clip,bert", "--seconds", "1") == ()
    assert capsys.readouterr().out == "out of time: 4 stages are left for the next run\n"


@pytest.mark.parametrize("stage", ["checks", "speed"])
@pytest.mark.parametrize("cut_short", [True, False])
def test_a_stage_cut_short_by_the_whole_time_leaves_no_row(scripts, tmp_path, stage, cut_short):
    script, rows = scripts["encoder_table"], scripts["encoder_rows"]
    given = script.parsed(["--tiny", "--out", str(tmp_path)])
    given = argparse.Namespace(**vars(given) | {"time_limit_s": 1e-3})
    table = rows.Table(given=given, environment=script.meters.environment("float32", "cpu"))
    script.filled(table, "bert", stage, cut_short=cut_short, ends_s=0.0)
    assert table.file.is_file() != cut_short
    assert (("bert", stage) in table.missing()) == cut_short


def test_a_call_that_never_comes_back_is_noticed_from_another_thread(scripts):
    noticed = threading.Event()
    with scripts["encoder_table"].coming_back(1e-3, noticed.set):
        assert noticed.wait(30)
    late = threading.Event()
    with scripts["encoder_table"].coming_back(60, late.set):
        pass
    assert not late.is_set()


def test_a_system_without_room_for_a_batch_is_left_out(scripts):
    def too_large(batch):
        raise torch.OutOfMemoryError("a mask of 2 TiB")

    assert not scripts["encoder_speeds"].runs(too_large, [])
    assert scripts["encoder_speeds"].runs(lambda batch: [], [])


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
    assert "19 of 19" in made["clip"]
    assert made["clip"].count("x |") == 3
    assert "| not run | - | not run |" in made["siglip"]


def test_the_page_links_tests_and_pages_that_exist(scripts):
    docs = scripts["encoder_docs"]
    for _, test in docs.LAYOUTS.values():
        assert (BENCHMARKS.parent / test).is_file()
    assert set(docs.LAYOUTS) == {size.layout for size in sizes.SIZES.values()}


def test_an_eager_that_cannot_run_a_batch_is_a_failed_row_and_the_others_are_timed(
    monkeypatch, run
):
    class Narrow(BertModel):
        """The untouched module holds no batch of over 8 texts."""

        def forward(self, **given):
            if "attention_mask" in given and len(given["input_ids"]) > 8:
                raise RuntimeError("mask too large")
            return super().forward(**given)

    family = replace(text_families.BERT, module_type=Narrow)
    families = {**registry.FAMILIES, "bert": replace(registry.FAMILIES["bert"], build=family.build)}
    monkeypatch.setattr(registry, "FAMILIES", families)
    rows = run("--only", "bert", "--stages", "speed")
    [failed] = [row for row in rows if row.numbers.get("failed_count")]
    assert (failed.strategy, failed.load.items, failed.latency) == ("eager_stock", 32, None)
    timed = {row.strategy: row for row in rows if row.latency and row.load.items == 32}
    assert timed.keys() == {"encgraph", "eager"}
    assert timed["encgraph"].numbers["speedup_ratio"] == (
        timed["eager"].latency.p50_ms / timed["encgraph"].latency.p50_ms
    )


def test_a_wrong_answer_is_not_timed(scripts, monkeypatch, run, tmp_path):
    class Wrong(BertModel):
        """Gives zeros, but where the untouched module is asked."""

        def forward(self, **given):
            made = super().forward(**given)
            packed = "cu_seq_lens_q" in given
            made.last_hidden_state.mul_(0.0 if packed else 1.0)
            return made

    family = replace(text_families.BERT, module_type=Wrong)
    families = {**registry.FAMILIES, "bert": replace(registry.FAMILIES["bert"], build=family.build)}
    monkeypatch.setattr(registry, "FAMILIES", families)
    rows = run("--only", "bert", "--stages", "speed")
    assert [row.numbers.get("failed_count") for row in rows] == [None, 1]
    assert not any(row.latency for row in rows)
    assert (
        "ParityError: encgraph: item 0 differs" in (tmp_path / "cpu" / "encoders.txt").read_text()
    )


def test_workers_check_first_and_what_is_timed_follows(run, capfd):
    rows = run("--only", "clip,bert,siglip", "--workers", "2")
    stages = ["checks" if row.strategy == "checks" else "speed" for row in rows]
    assert stages == sorted(stages)
    assert {row.encoder for row in rows[:3]} == {"bert-tiny", "clip-tiny", "siglip-tiny"}
    assert all(row.numbers["failed_count"] == 0 for row in rows[:3])
    assert sum("speedup_ratio" in row.numbers for row in rows) == 9
    told = capfd.readouterr().out
    assert told.count("checks: ") == 3 and told.count("speed: ") == 3


def test_what_workers_leave_is_checked_last(scripts, run, monkeypatch, tmp_path):
    dying = tmp_path / "dying.py"
    dying.write_text("raise SystemExit(1)")
    monkeypatch.setattr(scripts["encoder_workers"], "SCRIPT", dying)
    rows = run("--only", "clip,bert", "--workers", "2")
    stages = ["checks" if row.strategy == "checks" else "speed" for row in rows]
    assert stages[-2:] == ["checks", "checks"] and set(stages[:-2]) == {"speed"}


def test_workers_that_hang_are_ended(scripts, monkeypatch, tmp_path, capsys):
    script, pids = scripts["encoder_workers"], tmp_path / "pids"
    hanging = tmp_path / "hanging.py"
    hanging.write_text(
        f"import os, time\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')\ntime.sleep(600)"
    )
    monkeypatch.setattr(script, "SCRIPT", hanging)
    given = scripts["encoder_table"].parsed(["--tiny", "--workers", "2"])
    script.check(given, ["clip", "bert"], seconds=1.0, grace_s=1.0)
    assert "checks take too long" in capsys.readouterr().out
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_stages_that_there_are_not_are_refused(run, capsys):
    with pytest.raises(SystemExit):
        run("--stages", "speeds")
    assert "--stages takes checks and speed, got 'speeds'" in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "expected"), [(1, [3]), (2, [2, 1]), (9, [1, 1, 1])])
def test_families_go_to_workers_by_turns(scripts, workers, expected):
    made = scripts["encoder_workers"].parts(["bert", "clip", "siglip"], workers)
    assert [len(part) for part in made] == expected
    assert sorted(family for part in made for family in part) == ["bert", "clip", "siglip"]
