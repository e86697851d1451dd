"""What `plan` says of what is judged: how sure it is, of which block, what was fitted; and the same in JSON."""

import json
import re
from pathlib import Path

import pytest
from helpers_cli import error, invoke, passes, photos, read_json

from encgraph.cli.expecting import LEAST_OF_RANGE

LARGE = ("--encoder", "qwen3-vl-8b")
FOR_VLLM = (*LARGE, "--for", "vllm")
MIXED = [*[(640, 480)] * 12, *[(300 + 60 * n, 1900 - 70 * n) for n in range(15)], (3000, 4000)]


def table(folder: Path, *sides: tuple[int, int]) -> Path:
    path = folder / "small.csv"
    path.write_text("width,height\n" + "".join(f"{w},{h}\n" for w, h in sides))
    return path


def told(*arguments: object) -> str:
    """All a command says, in one line."""
    return " ".join(invoke(*arguments).output.split())


@pytest.mark.parametrize("options", [("--method", "doubling"), ("--max-graphs", "0")])
def test_nothing_is_called_fitted_where_nothing_was(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = told("plan", table(tmp_path, *MIXED), *FOR_VLLM, "--export", "vllm", *options)
    assert "no budget is fitted; judged on 14 of 28 requests (seed 0)" in said
    assert "fitted on" not in said
    assert "so fitted" not in said
    assert "this plan 1" in said or "this plan 2" in said


def test_all_requests_of_a_list_judge_what_is_not_fitted(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"requests": [[[16, 16]], [[16, 32]]], "fit_tokens": [64]}))
    said = told("plan", file, *LARGE, "--method", "doubling")
    assert "traffic: no budget is fitted; judged on 2 requests" in said
    assert (
        "figures are of 2 requests; other requests would move them: too few to say how far" in said
    )


def test_figures_of_few_requests_have_a_range_that_other_seeds_fall_into(tmp_path: Path) -> None:
    plan = ("plan", table(tmp_path, *MIXED * 2), *FOR_VLLM, "--seed")
    said = told(*plan, 0)
    assert "figures are of 28 requests; another --seed would move them: the plan's mean" in said
    found = re.search(r"the plan's mean is ([\d.]+) ms \(([\d.]+) to ([\d.]+)\)", said)
    assert found is not None
    value, low, high = map(float, found.groups())
    assert low < value < high
    means = [read_json(*plan, seed)["prediction"]["latency"]["mean_ms"] for seed in range(6)]
    assert max(means) > 1.2 * min(means)
    assert sum(low <= mean <= high for mean in means) >= 5
    verdicts = re.findall(r"mean ([\d.]+)x as fast \((?:slower; )?([\d.]+) to ([\d.]+)\)", said)
    assert len(verdicts) == 3  # the defaults, graphs off, and graphs off on a quick host
    assert all(float(low) <= float(at) <= float(high) for at, low, high in verdicts)


def test_too_few_requests_have_no_range_and_many_need_none(tmp_path: Path) -> None:
    few = told("plan", table(tmp_path, *MIXED[:LEAST_OF_RANGE]), *LARGE)
    assert (
        "figures are of 5 requests; another --seed would move them: too few to say how far" in few
    )
    assert " to 1." not in few
    many = told("plan", "builtin:coco", "--count", "200", *LARGE)
    assert "another --seed" not in many


@pytest.mark.parametrize("body", ["fused", "compiled"])
def test_every_row_says_of_which_block_it_is_where_not_all_are_of_one(body: str) -> None:
    said = told("plan", "builtin:coco", "--count", "60", *LARGE, "--body", body)
    for name in (
        f"this plan ({body} block) ",
        "vLLM's defaults (doubling, plain block) ",
        f"graphs off (eager, {body} block) ",
        f"graphs off, quick host ({body} block) ",
        "against vLLM's defaults (plain block): ",
        f"against leaving graphs off ({body} block): ",
    ):
        assert name in said
    assert "block" not in told("plan", "builtin:coco", "--count", "60", *LARGE)


def test_json_has_what_was_left_out_and_every_note_that_people_read(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (640, 480), (320, 320), (1200, 900))
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden").write_text("")
    plan = ("plan", folder, *FOR_VLLM, "--largest", "120")
    found = read_json(*plan)
    assert [Path(one["path"]).name for one in found["skipped"]] == ["notes.txt"]
    assert "hidden files and folders, left out: 1" in found["notes"]
    lines = passes(*plan).splitlines()
    shown = [line.removeprefix("note: ") for line in lines if line.startswith("note: ")]
    assert set(shown) <= set(found["notes"])
    assert "the graphs of the flags are predicted" in " ".join(found["notes"])


def test_json_for_vllm_has_the_flags_and_the_budgets_that_are_exported(tmp_path: Path) -> None:
    source = table(tmp_path, *[(640, 480)] * 5, *[(300, 400)] * 5, *MIXED[12:20])
    found = read_json("plan", source, *FOR_VLLM)
    exported = invoke("plan", source, *FOR_VLLM, "--export", "vllm").stdout
    value = json.loads(exported.strip().partition(" ")[2].strip("'"))
    assert found["flags"]["config"] == value
    assert found["flags_of"] == "plan"
    judged, budgets = (
        [graph["tokens"] for graph in made["plan"]["graphs"]] for made in (found, found["exported"])
    )
    assert budgets == value["encoder_cudagraph_token_budgets"] != judged
    plain, as_json = tmp_path / "plain.json", tmp_path / "json.json"
    passes("plan", source, *FOR_VLLM, "-o", plain)
    read_json("plan", source, *FOR_VLLM, "-o", as_json)
    assert plain.read_bytes() == as_json.read_bytes()
    old = read_json("plan", source, *FOR_VLLM, "--engine-version", "0.19")
    assert "encoder_cudagraph_max_images_per_batch" in old["flags"]["config"]
    assert read_json("plan", source, *LARGE)["flags"] is None


def test_an_encoder_for_which_vllm_has_no_graphs_has_no_flags_and_a_note(tmp_path: Path) -> None:
    plan = ("plan", table(tmp_path, *MIXED), "--encoder", "siglip-tiny", "--for", "vllm")
    found = read_json(*plan)
    assert found["flags"] is None
    said = "vLLM has no encoder graphs for 'siglip-tiny', so that there are no flags"
    assert said in found["notes"] and f"note: {said}" in passes(*plan)
    assert "vLLM has no encoder graphs for 'siglip-tiny'" in error(*plan, "--export", "vllm")


def test_json_has_a_p99_where_the_table_has_one(tmp_path: Path) -> None:
    few = read_json("plan", table(tmp_path, *MIXED), *LARGE)
    many = read_json("plan", "builtin:coco", "--count", "200", *LARGE)
    for found, is_there in ((few, False), (many, True)):
        predictions = [found[name] for name in ("prediction", "doubling", "eager")]
        for prediction in [*predictions, *found["quick"].values()]:
            assert (prediction["latency"]["p99_ms"] is not None) == is_there
            assert "by_request_ms" not in prediction


def test_a_traffic_of_few_has_no_p99_in_its_table_or_its_json(tmp_path: Path) -> None:
    source = table(tmp_path, *MIXED[:2])
    said = passes("traffic", source, *LARGE)
    header, *rows = [line.split() for line in said.splitlines()[1:5]]
    at = header.index("p99") - len(header)
    assert [row[at] for row in rows] == ["-"] * 3
    assert "no p99: of fewer than 100 it is the largest" in said
    assert read_json("traffic", source, *LARGE)["summary"]["tokens_per_item"]["p99"] is None
    assert "no p99" not in passes("traffic", "builtin:coco", "--count", "100", *LARGE)
