"""Bad input ends in one clear line, exit status 1, and nothing lost."""

import os
import sys
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
import torch
from helpers_cli import TINY, error, invoke, passes, photos, read_json
from helpers_interrupt import interrupted

from encgraph import codec, sizes
from encgraph.cli import options, output
from encgraph.cli.app import app
from encgraph.facts import Report
from encgraph.records import SCHEMA, Plan

ROOT = Path(__file__).parents[1]
SMALL = ("builtin:servegen", "--count", "50")
REFERENCE = (*TINY, "--backend", "reference")
RULE = sizes.named("qwen3-vl-tiny").rule


def table(folder: Path, text: str) -> Path:
    path = folder / "sizes.csv"
    path.write_text(text)
    return path


def plan_text(*budgets: int, encoder: str = "qwen3-vl-tiny", **changed: object) -> str:
    """Text of a plan, whose fields may be what no `Plan` allows."""
    values = codec.encode(Plan(graphs=(), encoder=encoder))
    capacities = [codec.encode(sizes.capacity(b, RULE, items=1)) for b in budgets]
    return codec.dumps(values | {"graphs": capacities} | changed)


def refused(folder: Path, text: str) -> str:
    """What `run` says of a plan file; it must say so before it writes anything."""
    (folder / "plan.json").write_text(text)
    source, out = photos(folder / "photos", (64, 64)), folder / "out"
    said = error("run", source, *REFERENCE, "--plan", folder / "plan.json", "--out", out)
    assert not out.exists()
    return said


def test_a_plan_whose_limits_contradict_each_other_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, plan_text(300).replace('"patches": 1200', '"patches": 10'))
    assert "a budget of 300 tokens needs 1,200 patches, the plan says 10; make it with" in said
    said = refused(tmp_path, plan_text(300).replace('"tokens": 300', '"tokens": "300"'))
    assert "must be a whole number, got '300'" in said


def test_every_number_asked_for_has_an_upper_bound_which_is_said() -> None:
    asked = [
        (command.callback.__name__, f"--{name.replace('_', '-')}", option.max)
        for command in app.registered_commands
        for name, hint in get_type_hints(command.callback, include_extras=True).items()
        if get_origin(hint) is Annotated
        for kind, option in [get_args(hint)[:2]]
        if kind in (int, int | None) and option.parser is None
    ]
    assert {"--count", "--largest", "--seed", "--samples"} <= {option for _, option, _ in asked}
    for name, option, most in asked:
        assert most is not None, (name, option)
        shown = invoke(name, "builtin:servegen", *TINY, option, "9" * 20)
        assert shown.exit_code == 2, (name, option)
        assert str(most) in shown.stderr, (name, option, shown.stderr)


def test_more_memory_than_there_is_is_refused() -> None:
    shown = invoke("plan", *SMALL, *TINY, "--memory", "9" * 400)
    assert shown.exit_code == 2
    assert "must be at most 1000TB" in shown.stderr


def test_a_folder_without_images_is_said(tmp_path: Path) -> None:
    assert "holds no image that can be read; it is empty" in error("plan", tmp_path, *TINY)
    (tmp_path / "readme.txt").write_text("hello")
    assert "1 skipped, the first:" in error("run", tmp_path, *REFERENCE, "--out", tmp_path / "out")


def test_a_source_that_does_not_exist_is_said_with_what_may_be_given() -> None:
    said = error("traffic", "servegen", *TINY)
    assert "'servegen' does not exist" in said
    assert "did you mean 'builtin:servegen'" in said
    assert "did you mean 'builtin:servegen'" in error("traffic", "builtin:servgen", *TINY)


def test_unreadable_empty_and_extreme_images_are_skipped_with_their_reasons(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (1, 1), (2, 600), (30_000, 200), (200, 30_000), (1, 228))
    (folder / "zero.jpg").write_bytes(b"")
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n but no more")
    found = read_json("traffic", folder, *TINY)
    reasons = {Path(s["path"]).name: s["reason"] for s in found["skipped"]}
    assert sorted(reasons) == ["001.png", "004.png", "broken.png", "zero.jpg"]
    assert "aspect ratio must be at most 200, got 300.0" in reasons["001.png"]
    assert "got 228.0" in reasons["004.png"]
    assert reasons["zero.jpg"] == "empty file (0 bytes)"
    assert found["summary"]["items"] == 3


def test_one_pixel_is_encoded_and_a_skipped_file_is_in_the_report(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (1, 1), (1, 228))
    said = passes("run", folder, *REFERENCE, "--out", tmp_path)
    report = codec.loads(Report, (tmp_path / "report.json").read_text())
    assert "left out: 1, the first " in said
    assert "aspect ratio" in said
    assert report.traffic.item_tokens == (64,)
    assert [Path(s.path).name for s in report.traffic.skipped] == ["001.png"]
    assert "001.png" in (tmp_path / "report.html").read_text()


def test_ten_thousand_files_are_read_and_planned_for(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (256, 320))
    for index in range(2, 10_000):
        os.link(folder / f"{index % 2:03}.png", folder / f"{index:05}.png")
    found = read_json("plan", folder, *TINY, "--max-graphs", "2")
    assert found["plan"]["graphs"][-1]["tokens"] == 80
    assert found["parts"].startswith("fitted on 5,000 requests, judged on the other 5,000")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("width\n64\n", "column 'height' is missing"),
        ("width,height\n64,-3\n", "line 2: height must be a whole number of at least 1, got '-3'"),
        (
            "width,height\n64,nan\n",
            "line 2: height must be a whole number of at least 1, got 'nan'",
        ),
        ("tokens\nnan\n", "line 2: tokens must be a whole number of at least 1, got 'nan'"),
        ("width,height,arrival_s\n64,64,nan\n", "line 2: arrival_s must be seconds"),
        ("", "the file is empty"),
    ],
)
def test_a_malformed_table_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in error("plan", table(tmp_path, text), *TINY)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    assert error("plan", "", *TINY).startswith("source must be a folder of images")
    (tmp_path / "sizes.xlsx").write_text("")
    assert "source must be a folder of images" in error("plan", tmp_path / "sizes.xlsx", *TINY)


def test_budgets_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, plan_text(128, 64))
    assert "token budgets must be strictly increasing, got [128, 64]" in said


def test_budgets_under_one_item_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, plan_text(32, 64))
    assert "has budgets [32], under the smallest item of 'qwen3-vl-tiny', 64 tokens" in said


def test_more_items_than_a_budget_has_tokens_are_refused(tmp_path: Path) -> None:
    text = plan_text(64).replace('"items": 1', '"items": 65')
    assert "a budget of 64 tokens cannot hold 65 items" in refused(tmp_path, text)


def test_a_plan_for_another_encoder_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, plan_text(64, encoder="qwen3-vl-8b"))
    assert "is for encoder 'qwen3-vl-8b', got --encoder 'qwen3-vl-tiny'" in said
    assert "encgraph plan SOURCE --encoder qwen3-vl-tiny" in said


def test_a_plan_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, plan_text(64, schema=SCHEMA + 1, novel=True))
    assert f"schema {SCHEMA + 1} is newer than this release reads ({SCHEMA}); upgrade" in said


@pytest.mark.parametrize("text", ["", "{", '{"graphs": [], "encoder": NaN}', "[1]", "\ufeff"])
def test_a_corrupt_plan_is_refused_by_name(tmp_path: Path, text: str) -> None:
    assert "plan.json'" in refused(tmp_path, text)


def test_a_missing_plan_is_said(tmp_path: Path) -> None:
    said = error("run", *SMALL, *REFERENCE, "--plan", tmp_path / "no.json", "--out", tmp_path)
    assert "no.json' cannot be read" in said


@pytest.mark.parametrize("method", ["fitted", "doubling", "quantile"])
def test_memory_too_small_for_the_graphs_is_said(method: str) -> None:
    said = error("plan", *SMALL, *TINY, "--memory", "1KiB", "--method", method)
    assert "1,024" in said or "1024" in said
    assert "raise it" in said
    assert "--memory" in said
    assert "max_bytes" not in said


def test_a_message_of_the_library_names_the_option_of_the_command() -> None:
    memory = error("plan", *SMALL, *TINY, "--memory", "1KiB")
    assert memory.startswith("--memory must be at least ")
    assert memory.endswith("raise it or leave graphs off with --max-graphs 0")
    flags = ("plan", *SMALL, "--encoder", "qwen3-vl-8b", "--export", "vllm")
    assert error(*flags, "--engine-version", "new").startswith("--engine-version must look like")
    assert error("plan", *SMALL, *TINY, "--on", "b300").startswith("--on must be h200, got 'b300'")
    assert error("plan", *SMALL, *TINY, "--on", "B300").startswith("--on must be h200, got 'b300'")
    assert error("record", *REFERENCE, "--attention", "x").startswith("--attention must be")
    assert error("figures", "--check", "nowhere.json").startswith("--check must name a manifest")
    full = "budgets need 9 MiB; plan smaller or fewer budgets"
    assert options.spoken(full, {"largest": "--largest"}).endswith("budgets with --largest")
    assert options.failed(OSError(28, "No space left on device")) == "No space left on device"
    twice = error("bench", *SMALL, *TINY, "--strategies", "eager,eager")
    assert twice == "--strategies must be named once each, got 'eager' twice"


@pytest.mark.parametrize("command", ["plan", "run", "bench"])
def test_a_largest_budget_under_every_item_is_said(command: str) -> None:
    said = error(command, *SMALL, *TINY, "--largest", "10")
    assert said.startswith("--largest must be at least 64 tokens, the smallest item of 'qwen3-vl")


def test_no_request_under_the_largest_budget_is_said(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (512, 512))
    said = error("plan", folder, *TINY, "--method", "quantile", "--largest", "64")
    assert said.startswith("no request has at most the 64 tokens that --largest allows; raise it")


def test_a_bench_without_graphs_is_refused_with_what_measures_them_off() -> None:
    said = error("bench", *SMALL, *TINY, "--max-graphs", "0")
    assert said.startswith("--max-graphs must be at least 1 to compare graphs, got 0; to measure")
    assert "eager_varlen among --strategies" in said


def test_more_graphs_than_allowed_are_said() -> None:
    said = error("plan", *SMALL, *TINY, "--method", "doubling", "--max-graphs", "3")
    assert "makes 8 graphs, --max-graphs allows 3; raise it" in said


@pytest.mark.parametrize("command", ["traffic", "plan", "run", "bench"])
def test_a_misspelt_encoder_gets_the_nearest_names_and_where_all_are(command: str) -> None:
    said = error(command, *SMALL, "--encoder", "qwen3vl-8b")
    assert "got 'qwen3vl-8b'; did you mean 'qwen3-vl-8b' or '" in said
    assert said.endswith("? `encgraph encoders` lists them all")
    assert said.count("'") == 8


def test_an_unknown_card_or_strategy_is_said_with_those_there_are(tmp_path: Path) -> None:
    for command in (("run", "--strategy"), ("bench", "--strategies")):
        said = error(command[0], *SMALL, *REFERENCE, command[1], "vlm", "--out", tmp_path)
        assert "got 'vlm'; did you mean 'vllm'?" in said
        assert said.startswith(f"{command[1]} must be ")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
@pytest.mark.parametrize("command", ["run", "bench", "record", "check"])
def test_cuda_without_a_card_is_said_with_the_way_out(command: str) -> None:
    source = SMALL if command in ("run", "bench") else ()
    said = error(command, *source, *TINY, "--backend", "cuda")
    assert said.startswith("backend 'cuda' needs an NVIDIA GPU, torch sees none; use --backend")


@pytest.mark.parametrize("command", ["run", "bench", "record"])
def test_an_output_folder_that_cannot_be_written_is_said_before_any_work(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "file").write_text("")
    source = ("builtin:nowhere",) if command != "record" else ()
    said = error(command, *source, *REFERENCE, "--out", tmp_path / "file" / "out")
    assert "cannot be written: Not a directory; choose another" in said


def test_a_folder_is_made_with_its_first_file(tmp_path: Path) -> None:
    made, kept = tmp_path / "new" / "out", tmp_path / "kept"
    kept.mkdir()
    assert (output.folder(made), output.folder(kept)) == (made, kept)
    assert list(tmp_path.iterdir()) == [kept]
    error("run", "builtin:nowhere", *REFERENCE, "--out", made)
    assert not made.parent.exists()
    output.write(made / "report.json", "{}")
    assert (made / "report.json").read_text() == "{}"


def test_an_interrupt_before_the_first_request_leaves_no_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "encgraph", "bench", "builtin:coco", "--count", "400"]
    command += [*REFERENCE, "--out", str(tmp_path / "out")]
    status, _, said = interrupted(command, at=rb"backend reference on the CPU")
    assert status == 130, said
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_cannot_be_written_is_said_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = error("plan", "nowhere", *TINY, "-o", tmp_path / "file" / "plan.json")
    assert said == f"output folder {str(tmp_path / 'file')!r} is a file; choose another"
    assert "is a folder; name a file" in error("plan", "nowhere", *TINY, "-o", tmp_path)


def test_an_interrupt_writes_the_partial_report_and_exits_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "encgraph", "run", "builtin:coco", "--count", "400"]
    command += [*REFERENCE, "--out", str(tmp_path)]
    status, said, _ = interrupted(command, at=rb"verify:.* [1-9]\d*/400")
    assert status == 130
    report = codec.loads(Report, (tmp_path / "report.json").read_text())
    assert (report.complete, report.interrupted) == (False, "interrupted during execute")
    assert 0 < len({s.request for s in report.steps}) < 400
    assert "interrupted during execute; the report has what was there" in said
    assert "interrupted" in (tmp_path / "report.html").read_text()
