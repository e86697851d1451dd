"""The commands that run an encoder: `run`, `bench`, `record`, `check`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers_cli import TINY, error, invoke, passes, photos, read_json

from encgraph import codec, sizes, store
from encgraph.cli import sources
from encgraph.encoders import compiling
from encgraph.facts import Report
from encgraph.records import FallbackReason, Plan, Route
from encgraph.traffic import Traffic

SIDES = ((64, 64), (256, 320), (320, 256))
REFERENCE = (*TINY, "--backend", "reference")
RULE = sizes.named("qwen3-vl-tiny").rule


def report(out: Path) -> Report:
    return codec.loads(Report, (out / "report.json").read_text())


def plan_file(path: Path, *budgets: int) -> Path:
    plan = Plan(
        graphs=tuple(sizes.capacity(b, RULE, items=2) for b in budgets), encoder="qwen3-vl-tiny"
    )
    path.write_text(codec.dumps(plan))
    return path


def test_run_proves_every_item_and_writes_both_reports(tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", *SIDES), tmp_path / "out"
    said = passes("run", folder, *REFERENCE, "--out", out)
    found = report(out)
    assert found.complete
    assert found.parity is not None
    assert found.parity.passed
    assert found.parity.items == len(SIDES)
    assert found.latencies is not None
    assert found.latencies.ours_wall.samples == len(SIDES)
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    starts = (
        "Right? Yes",
        "Faster than eager?",
        "Memory for graphs:",
        "Replay rate:",
        "error ratio",
    )
    lines = said.splitlines()
    for line, start in zip(lines, (*starts, "What to change:"), strict=False):
        assert line.startswith(start)
    assert [f"written: {out / name}" for name in ("report.json", "report.html")] == lines[6:]


def test_run_on_a_cpu_predicts_a_card_for_the_encoder_that_tiny_stands_in_for(
    tmp_path: Path,
) -> None:
    folder = photos(tmp_path / "photos", *SIDES)
    found = read_json("run", folder, *REFERENCE, "--out", tmp_path)
    prediction = found["prediction"]
    assert (prediction["card"], prediction["encoder"]) == ("H200", "qwen3-vl-8b")
    assert prediction["ours"]["clock"] == "predicted"
    assert prediction["eager"] and prediction["doubling"]
    assert found["encoder"]["dtype"] == "float32"
    assert any("stands in" in note for note in found["notes"])
    assert len(report(tmp_path).prediction.times) == len(SIDES)  # type: ignore[union-attr]


@pytest.mark.parametrize("strategy", ["trtllm", "sglang_exact"])
def test_a_packing_that_no_model_speaks_of_is_not_predicted(tmp_path: Path, strategy: str) -> None:
    folder = photos(tmp_path / "photos", *SIDES)
    found = read_json("run", folder, *REFERENCE, "--strategy", strategy, "--out", tmp_path)
    assert found["prediction"] is None
    assert found["parity"]["items"] == len(SIDES)


def test_the_slabs_that_are_predicted_are_those_of_the_strategy(tmp_path: Path) -> None:
    shown = {}
    for name in ("vllm", "encgraph_plain"):
        run = ("run", "builtin:coco", "--count", "2", *REFERENCE, "--strategy", name)
        file = plan_file(tmp_path / "plan.json", 256, 512)
        found = read_json(*run, "--plan", file, "--out", tmp_path)
        shown[name] = found["prediction"]["memory"]["slabs_bytes"]
    assert shown["vllm"] == pytest.approx(1.5 * shown["encgraph_plain"])


def test_run_says_which_backend_it_takes(tmp_path: Path) -> None:
    result = invoke("run", photos(tmp_path / "p", (64, 64)), *TINY, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    backend = "cuda" if torch.cuda.is_available() else "reference"
    assert result.stderr.startswith(f"backend {backend} on ")


def test_run_keeps_the_command_line_in_the_report(tmp_path: Path) -> None:
    folder = photos(tmp_path / "two words", (64, 64))
    passes("run", folder, *REFERENCE, "--out", tmp_path)
    said = report(tmp_path).command
    assert said.startswith("encgraph run ")
    assert f"'{folder}'" in said


def test_run_takes_a_plan_made_before(tmp_path: Path) -> None:
    folder, file = photos(tmp_path / "p", *SIDES), tmp_path / "plan.json"
    passes("plan", folder, *TINY, "--method", "doubling", "--largest", "128", "-o", file)
    passes("run", folder, *REFERENCE, "--plan", file, "--out", tmp_path)
    assert report(tmp_path).plan.token_budgets == (64, 128)


def test_an_item_over_every_budget_falls_back_and_the_report_says_so(tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", 64)
    folder = photos(tmp_path / "photos", *SIDES)
    said = passes("run", folder, *REFERENCE, "--plan", file, "--out", tmp_path)
    found = report(tmp_path)
    assert [(f.reason, f.items) for f in found.fallbacks] == [(FallbackReason.OVER_TOKENS, 2)]
    assert [s.step.route for s in found.steps].count(Route.REPLAY) == 1
    assert found.parity is not None
    assert found.parity.passed
    assert "2 fell back: tokens over every budget" in said
    assert any("raise the largest token budget" in r for r in found.recommendations)


def test_a_strategy_without_graphs_runs_eager(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64))
    passes("run", folder, *REFERENCE, "--strategy", "eager_varlen", "--out", tmp_path)
    assert {s.step.route for s in report(tmp_path).steps} == {Route.EAGER}


def test_a_built_in_profile_is_run_in_a_small_draw_and_fitted_on_another(tmp_path: Path) -> None:
    size = sizes.named("qwen3-vl-tiny")
    drawn = sources.read("builtin:servegen", size, count=None, seed=0)
    given = sources.to_run(drawn, size, seed=0)
    assert len(given.traffic.requests) == sources.CPU_COUNT
    assert len(given.fit_on) == sources.FIT_COUNT
    assert "other draws" in given.traffic.notes[-1]


def test_a_damaged_image_is_left_out_and_said_not_fatal(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (300, 300))
    whole = (folder / "001.png").read_bytes()
    (folder / "001.png").write_bytes(whole[: len(whole) // 2])
    (folder / "000.txt").write_text("no image")
    said = passes("run", folder, *REFERENCE, "--out", tmp_path)
    found = report(tmp_path)
    assert [Path(s.path).name for s in found.traffic.skipped] == ["001.png", "000.txt"]
    [line] = [line for line in said.splitlines() if line.startswith("left out: ")]
    assert line.startswith(f"left out: 2, the first {str(folder / '001.png')!r} (cannot be ")
    assert len(found.traffic.request_tokens) == 1


def test_a_request_with_a_damaged_image_is_left_out_whole_and_counted(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (64, 64))
    (folder / "001.png").write_bytes(b"\x89PNG")
    item = sizes.item(sizes.image_grid(64, 64, RULE), RULE)
    traffic = Traffic(
        name="chat",
        source="chat.jsonl",
        encoder="qwen3-vl-tiny",
        requests=((item, item), (item,), (item,)),
        paths=(
            (str(folder / "000.png"), str(folder / "001.png")),
            (str(folder / "001.png"),),
            (str(folder / "000.png"),),
        ),
    )
    left = sources.decodable(traffic, sizes.named("qwen3-vl-tiny"))
    assert left.paths == ((str(folder / "000.png"),),)
    assert left.requests == ((item,),)
    assert len(left.skipped) == 1
    assert left.notes == (
        "incomplete requests, left out: 1 (with 1 items that could be read)",
        "requests of which no item could be read, left out: 1",
    )


def test_a_bench_on_a_cpu_names_host_memory_and_a_single_request(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", *SIDES[:2])
    (folder / "002.png").write_bytes(b"")
    bench = ("bench", folder, *REFERENCE, "--out", tmp_path, "--largest", "128")
    said = passes(*bench, "--strategies", "encgraph_plain")
    assert f"left out: 1, the first {str(folder / '002.png')!r} (empty file (0 bytes))" in said
    assert "host memory: slabs of qwen3-vl-tiny on the CPU, not what a card takes" in said
    assert "traffic: 1 request; " in said
    assert "1 request: its one time is mean, p50 and worst at once" in said
    assert "no p99: of fewer than 100 it is the slowest" in said


def test_a_run_whose_budgets_knew_the_requests_says_so_beside_the_headline(tmp_path: Path) -> None:
    folder, known = photos(tmp_path / "photos", *SIDES), "budgets fitted on these very requests"
    run = ("run", folder, *REFERENCE, "--out", tmp_path)
    [faster] = [line for line in passes(*run).splitlines() if line.startswith("Faster")]
    assert known in faster
    assert known not in passes(*run, "--plan", plan_file(tmp_path / "plan.json", 64))


def test_a_run_that_replays_nothing_claims_no_replay(tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", 64)
    folder = photos(tmp_path / "photos", *SIDES[1:])
    said = passes("run", folder, *REFERENCE, "--plan", file, "--out", tmp_path)
    assert said.startswith("Right? Eager only")
    assert "no item was replayed, so no replay was checked" in said
    assert "this run proves the results of eager only" in said


def test_a_strategy_measured_anew_under_another_attention_takes_the_place_of_the_old(
    tmp_path: Path,
) -> None:
    folder = photos(tmp_path / "photos", *SIDES, (64, 128))
    bench = ("bench", folder, *REFERENCE, "--out", tmp_path, "--strategies", "eager_varlen")
    file = Path(read_json(*bench)["file"])
    store.write(file, [replace(m, attention="fa3") for m in store.read(file)])
    passes(*bench)
    assert {m.attention for m in store.read(file)} == {"loop"}


def test_bench_fits_on_another_source_if_told(tmp_path: Path) -> None:
    measured, other = photos(tmp_path / "a", (64, 64)), photos(tmp_path / "b", *SIDES)
    command = ("bench", measured, *REFERENCE, "--fit-on", other, "--largest", "128")
    said = passes(*command, "--strategies", "encgraph_plain", "--out", tmp_path)
    assert f"budgets fitted on {other}, 3 requests" in said
    assert "seed" not in said.split("budgets fitted on")[1].split("\n")[0]
    read = sources.read(str(measured), sizes.named("qwen3-vl-tiny"), count=None, seed=0)
    noted = sources.to_compare(
        read, sizes.named("qwen3-vl-tiny"), fit_on=read, seed=0
    ).traffic.notes
    assert noted[-1].endswith("1 requests: the very requests that are measured")


def test_a_plan_of_another_body_than_the_strategy_runs_is_said(tmp_path: Path) -> None:
    file = plan_file(tmp_path / "plan.json", 64)
    file.write_text(file.read_text().replace('"compiled": false', '"compiled": true'))
    folder = photos(tmp_path / "photos", (64, 64))
    passes(
        "run", folder, *REFERENCE, "--plan", file, "--strategy", "encgraph_plain", "--out", tmp_path
    )
    assert (
        "made for a compiled block; strategy 'encgraph_plain'" in report(tmp_path).traffic.notes[-1]
    )


def test_record_writes_the_points_of_a_curve(tmp_path: Path) -> None:
    command = ("record", *REFERENCE, "--largest", "64", "--samples", "1", "--out", tmp_path)
    found = read_json(*command)
    points = store.load(None, "curve-qwen3-vl-tiny", root=tmp_path)
    assert len(points) == found["points"]
    assert {m.route for m in points} == {Route.CAPTURE, Route.REPLAY, Route.EAGER}


def test_check_gives_a_line_a_check_and_passes() -> None:
    said = passes("check", *REFERENCE).splitlines()
    assert {line.split()[1] for line in said} == {"passed"}
    assert {"audit", "parity", "poison", "ownership"} < {line.split()[0] for line in said}


def test_check_takes_a_body_of_a_published_size_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    said = passes("check", *REFERENCE, "--body", "fused").splitlines()
    assert {line.split()[1] for line in said} == {"passed"}
    other = ("check", "--encoder", "siglip-tiny", "--backend", "reference", "--body", "compiled")
    assert "compiled must be left out for this encoder" in error(*other)
    assert "--body is for a published size" in error("check", "--encoder", "a:b", "--body", "fused")


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.cuda)])
def test_run_on_a_card_measures_memory(tmp_path: Path, backend: str) -> None:
    folder = photos(tmp_path / "photos", *SIDES)
    found = read_json("run", folder, *TINY, "--backend", backend, "--out", tmp_path)
    assert found["memory"]["slabs_bytes"] > 0
    assert json.dumps(found["prediction"]) == "null"


def test_what_is_no_plan_says_how_to_make_one(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text('[{"width": 640, "height": 480}, {"width": 64, "height": 48}]')
    said = error("run", photos(tmp_path / "photos", (64, 64)), *REFERENCE, "--plan", file)
    assert (
        "not a valid Plan: expected an object, got [{'width': 640, 'height': 480}, {'width'" in said
    )
    assert f"; make it with `encgraph plan SOURCE --encoder {TINY[1]} -o " in said
