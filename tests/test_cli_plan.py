"""What `plan` writes and where: no input is lost, and flags are for what is predicted fastest."""

import json
import re
from pathlib import Path

import pytest
import typer
from helpers_cli import TINY, error, invoke, passes, photos, read_json
from PIL import Image

from encgraph import codec, sizes
from encgraph import traffic as traffics
from encgraph.cli import planning, sources
from encgraph.cli.options import num_bytes
from encgraph.cli.planning import WantedPlan
from encgraph.records import Plan

LARGE = ("--encoder", "qwen3-vl-8b")
FLAGS = (*LARGE, "--export", "vllm")
SMALL = ("builtin:coco", "--count", "60")


def table(folder: Path, *sides: tuple[int, int]) -> Path:
    path = folder / "small.csv"
    path.write_text("width,height\n" + "".join(f"{w},{h}\n" for w, h in sides))
    return path


def test_a_plan_never_overwrites_its_source_or_another_file(tmp_path: Path) -> None:
    source = table(tmp_path, (100, 200), (300, 400))
    before = source.read_text()
    said = error("plan", source, *TINY, "-o", source)
    assert "small.csv' exists and is no plan, so it is not overwritten; name another" in said
    assert said.endswith(f"such as {str(tmp_path / 'small-plan.json')!r}")
    assert source.read_text() == before
    other = tmp_path / "list.json"
    other.write_text('{"requests": [[[16, 16]]]}')
    assert "exists and is no plan" in error("plan", source, *TINY, "-o", other)
    image = photos(tmp_path / "photos", (64, 64)) / "000.png"
    assert "exists and is no plan" in error("plan", tmp_path / "photos", *TINY, "-o", image)
    assert Image.open(image).size == (64, 64)


def test_a_trace_never_overwrites_another_file(tmp_path: Path) -> None:
    source, out = table(tmp_path, (64, 64)), tmp_path / "out"
    before = source.read_text()
    run = ("run", source, *TINY, "--backend", "reference", "--out", out, "--trace")
    said = error(*run, source)
    assert "small.csv' exists and is no trace, so it is not overwritten; name another" in said
    assert source.read_text() == before
    for _ in range(2):
        passes(*run, tmp_path / "trace.json")


@pytest.mark.parametrize("text", [None, "", "plan"])
def test_a_plan_is_written_anew_over_nothing_and_over_a_plan(
    tmp_path: Path, text: str | None
) -> None:
    source, file = table(tmp_path, (100, 200), (300, 400)), tmp_path / "plan.json"
    if text is not None:
        file.write_text(codec.dumps(Plan(graphs=(), encoder="old")) if text else "")
    passes("plan", source, *TINY, "-o", file)
    assert codec.loads(Plan, file.read_text()).encoder == "qwen3-vl-tiny"


@pytest.mark.parametrize("form", ["vllm", "json"])
def test_two_forms_on_one_stdout_are_refused(form: str) -> None:
    said = error("plan", *SMALL, *LARGE, "--export", form, "--json")
    assert said == (
        f"--json and --export both write on stdout, got --export {form}; give one of them: "
        "--for vllm --json has the flags too"
    )


def flags_of(said: str) -> dict[str, object]:
    """The value of the one flag that stdout may hold."""
    flag, _, value = said.strip().partition(" ")
    assert flag == "--compilation-config"
    found: dict[str, object] = json.loads(value.strip("'"))
    return found


def test_flags_are_fitted_on_all_requests_once_judged_on_some(tmp_path: Path) -> None:
    source = table(tmp_path, *[(640, 480)] * 3, *[(320, 320)] * 3)
    result = invoke("plan", source, *FLAGS, "-o", tmp_path / "plan.json")
    assert "what is exported is fitted on all 6 after that" in result.stderr
    assert "judged on the other 3" in result.stderr
    kept = codec.loads(Plan, (tmp_path / "plan.json").read_text())
    size = sizes.named("qwen3-vl-8b")
    wanted = WantedPlan(source=str(source), encoder="qwen3-vl-8b", engine="vllm")
    costs = planning.cards.price(size).with_private_slabs()
    everything = traffics.read(source, size).requests
    assert kept.graphs == planning.make(wanted, size, costs, everything).graphs


def unlucky(folder: Path) -> Path:
    """Three requests, of which the one held out has fewer tokens than the smallest budget fitted."""
    return table(folder, (100, 200), (300, 400), (640, 480))


def test_flags_of_a_single_request_are_of_the_very_plan_that_is_judged(tmp_path: Path) -> None:
    result = invoke("plan", table(tmp_path, (640, 480)), *FLAGS)
    said = " ".join(result.stderr.split())
    assert "this plan against vLLM's defaults" in said
    assert "fitted on a part" not in said
    assert "after that" not in said


def test_few_held_out_requests_have_no_p99_and_many_do(tmp_path: Path) -> None:
    few = passes("plan", table(tmp_path, *[(640, 480), (300, 400)] * 20), *LARGE)
    assert "no p99: of fewer than 100 it is the slowest" in few
    assert "p99 1." not in few
    many = " ".join(passes("plan", "builtin:coco", "--count", "400", *LARGE).split())
    assert "no p99" not in many
    assert re.search(r"mean \d\.\d\dx as fast, p99 \d\.\d\dx as fast, worst", many)


def test_flags_predicted_no_better_than_the_defaults_are_those_of_the_defaults(
    tmp_path: Path,
) -> None:
    result = invoke("plan", unlucky(tmp_path), *FLAGS)
    assert flags_of(result.stdout) == {"cudagraph_mm_encoder": True}
    said = " ".join(result.stderr.split())
    assert (
        "the flags turn graphs on with vLLM's default budgets, not the plan's: on held-out" in said
    )
    assert "budgets so fitted, on a part of the requests, against vLLM's defaults" in said
    assert "this plan" not in said


def test_limits_that_the_defaults_break_keep_the_plan_and_say_that_it_is_slower(
    tmp_path: Path,
) -> None:
    result = invoke("plan", unlucky(tmp_path), *FLAGS, "--memory", "1GiB")
    assert flags_of(result.stdout)["encoder_cudagraph_token_budgets"]
    said = " ".join(result.stderr.split())
    assert "predicted to be slower than vLLM's defaults, which are over the limits" in said


def test_flags_that_were_asked_for_are_kept() -> None:
    off = flags_of(passes("plan", *SMALL, *FLAGS, "--max-graphs", "0"))
    assert off == {"cudagraph_mm_encoder": False}
    doubling = flags_of(passes("plan", *SMALL, *FLAGS, "--method", "doubling"))
    assert doubling["encoder_cudagraph_token_budgets"] == [64 * 2**n for n in range(8)]


def test_a_release_newer_than_known_is_said_beside_the_flags() -> None:
    result = invoke("plan", *SMALL, *FLAGS, "--engine-version", "9.9")
    assert flags_of(result.stdout)["cudagraph_mm_encoder"] is True
    assert "vLLM 9.9 is newer than 0.33, the newest release known here" in result.stderr
    assert "newest release known" not in invoke("plan", *SMALL, *FLAGS).stderr


def test_help_says_which_flags_are_exported() -> None:
    said = passes("plan", "--help")
    assert "Flags are fitted on all requests once a plan fitted on some was judged" in said
    assert "or no graphs, are predicted to take no longer there, the flags are for that" in said


def test_a_name_too_long_for_a_file_is_cut() -> None:
    name = "x" * 3000
    for command in (("plan", name, *TINY), ("plan", *SMALL, *TINY, "-o", name)):
        said = error(*command)
        assert "File name too long" in said
        assert "Errno" not in said
        assert len(said) < 200


def test_strategies_that_are_not_there_point_to_the_help_of_the_command(tmp_path: Path) -> None:
    for command, option in (("bench", "--strategies"), ("run", "--strategy")):
        said = error(command, *SMALL, *TINY, option, "", "--out", tmp_path)
        assert said.endswith(f"`encgraph {command} --help` says what there is")


def test_texts_too_long_are_skipped_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text("tokens\n30\n8950\n40\n")
    found = read_json("traffic", file, "--encoder", "bge-m3")
    assert [skipped["path"] for skipped in found["skipped"]] == [f"{file}:3"]
    assert "bge-m3 takes at most 8,192 text tokens" in passes("plan", file, "--encoder", "bge-m3")


def test_an_image_damaged_behind_its_header_is_planned_for_and_skipped_where_it_is_run(
    tmp_path: Path,
) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (256, 256))
    damaged = sorted(folder.iterdir())[1]
    damaged.write_bytes(damaged.read_bytes()[:-64])
    size = sizes.named("qwen3-vl-tiny")
    found = traffics.read(folder, size)
    assert (len(found.requests), found.skipped) == (2, ())
    left = sources.decodable(found, size)
    assert len(left.requests) == 1
    assert "truncated" in left.skipped[0].reason
    assert left.notes == ("requests of which no item could be read, left out: 1",)


def test_an_image_too_large_to_decode_is_neither_planned_for_nor_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (256, 256))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    found = read_json("traffic", folder, "--encoder", "qwen3-vl-tiny")
    assert found["summary"]["requests"] == 1
    assert "too large: Pillow" in found["skipped"][0]["reason"]


def test_what_is_compared_is_priced_from_one_source():
    told = read_json(
        "plan",
        "builtin:coco",
        "--encoder",
        "qwen3-vl-4b",
        "--body",
        "fused",
        "--count",
        "60",
        "--json",
    )
    sources = {told[name]["source"] for name in ("prediction", "doubling", "eager")}
    assert [source.partition(":")[0] for source in sources] == ["modelled from arithmetic"]


def test_a_compiled_body_is_planned_by_its_own_costs_and_not_for_vllm():
    told = read_json("plan", *SMALL, *LARGE, "--body", "compiled", "--json")
    plain = read_json("plan", *SMALL, *LARGE, "--json")
    assert told["plan"]["compiled"] and "compiled" in told["costs"]
    assert told["doubling"] == plain["doubling"]  # vLLM's block stays as it is
    assert told["prediction"]["latency"]["mean_ms"] < plain["prediction"]["latency"]["mean_ms"]
    message = error("plan", *SMALL, *LARGE, "--body", "compiled", "--for", "vllm")
    assert "--for vllm captures the plain block, got --body compiled" in message


def test_the_memory_of_the_flags_is_of_the_plan_that_is_exported(tmp_path: Path) -> None:
    source = table(tmp_path, *[(640, 480)] * 3, *[(320, 320)] * 3, (1200, 900))
    result = invoke("plan", source, *FLAGS, "-o", tmp_path / "plan.json")
    kept = codec.loads(Plan, (tmp_path / "plan.json").read_text())
    costs = planning.cards.price(sizes.named("qwen3-vl-8b")).with_private_slabs()
    taken = f"{costs.memory(kept).total_bytes / 2**20:,.0f} MiB"
    said = " ".join(result.stderr.split())
    assert f"memory of the budgets listed above, fitted on all requests: {taken}" in said
    assert "the graphs of the flags are predicted to take" in said


def test_a_plan_slower_than_the_defaults_says_what_may_help(tmp_path: Path) -> None:
    said = " ".join(passes("plan", unlucky(tmp_path), *LARGE, "--for", "vllm").split())
    assert "note: this plan is predicted to be slower than vLLM's defaults on requests that" in said
    assert "vLLM's defaults (doubling)" in said


def test_bytes_without_a_whole_unit_name_the_units() -> None:
    with pytest.raises(typer.BadParameter, match=r"with a unit of B, KiB, MiB.*got '200M'"):
        num_bytes("200M")


def test_a_card_may_be_written_in_capitals() -> None:
    assert "NVIDIA H200" in passes("plan", *SMALL, *LARGE, "--on", "H200")


def test_what_is_no_manifest_and_no_function_is_named(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    for text in ("{}\n{}\n", "[]", "{}"):
        file.write_text(text)
        said = error("figures", "--check", file)
        assert "--check must name a manifest" in said and "chats.jsonl" in said
    for name in (":", "a:", ":b", "a b:c"):
        said = error("check", "--encoder", name)
        assert f"or module:function, got {name!r}" in said


def test_what_graphs_give_against_eager_is_said_of_a_quick_host_too() -> None:
    source = ("plan", "builtin:servegen", "--count", "200", *LARGE)
    said, found = " ".join(passes(*source).split()), read_json(*source)
    quick, plan = (found["quick"][of]["latency"]["mean_ms"] for of in ("eager", "plan"))
    assert plan < quick < found["eager"]["latency"]["mean_ms"]
    assert f"graphs off, quick host {quick:.2f}" in said
    assert f"; on a quick host mean {quick / plan:.2f}x as fast" in said


def test_modelled_costs_have_no_host_and_are_called_what_they_are() -> None:
    source = ("plan", "builtin:servegen", "--count", "200", "--encoder", "glm4v-9b")
    said = " ".join(passes(*source).split())
    assert "quick host" not in said
    assert (
        "note: modelled times rank plans; what 19 encoders were measured to take on an H200 was up to 2.5"
        in said
    )
