"""No option is silently without effect, and what is wrong is said before torch is loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_cli import TINY, error, invoke, passes, photos, read_json

from encgraph import codec, exporting, papers
from encgraph.records import Plan

ROOT = Path(__file__).parents[1]
BUILTIN = ("builtin:servegen", "--count", "4")
EAGER = ("--strategies", "eager,eager_varlen")
IDLE = {
    "run, budgets beside a plan": ("run --largest", "--plan", "p.json", "--largest", "64"),
    "run, budgets of eager": ("run --largest", "--strategy", "eager", "--largest", "64"),
    "run, a plan for eager": ("run --plan", "--strategy", "eager", "--plan", "p.json"),
    "run, a plan for exact graphs": (
        "run --plan", "--strategy", "sglang_exact", "--plan", "p.json",
    ),
    "run, times for no packing by times": ("run --calibrate", "--strategy", "vllm", "--calibrate"),
    "bench, strategies of the first token": (
        "bench --strategies", "--first-token", "--strategies", "vllm",
    ),
    "bench, times of the first token": ("bench --calibrate", "--first-token", "--calibrate"),
    "bench, requests a batch of the rest": ("bench --concurrency", "--concurrency", "2"),
    "bench, budgets of eager": ("bench --largest", *EAGER, "--largest", "64"),
    "bench, graphs of eager": ("bench --max-graphs", *EAGER, "--max-graphs", "3"),
    "bench, graphs of vllm": ("bench --max-graphs", "--strategies", "vllm", "--max-graphs", "3"),
    "bench, times for no packing by times": (
        "bench --calibrate", "--strategies", "vllm", "--calibrate",
    ),
    "plan, a release without flags": ("plan --engine-version", "--engine-version", "0.33"),
    "plan, a release beside JSON": (
        "plan --engine-version", "--engine-version", "0.33", "--export", "json",
    ),
    "plan, another engine's flags": ("plan --for", "--for", "encgraph", "--export", "vllm"),
    "figures, a folder": ("figures --out", "--check", "m.json", "--out", "f"),
    "figures, formats": ("figures --html-only", "--check", "m.json", "--html-only"),
}  # fmt: skip
"""By what is asked: the command and its option without effect, and the arguments."""


@pytest.mark.parametrize("case", IDLE)
def test_an_option_without_effect_is_refused_by_name(case: str) -> None:
    (command, option), arguments = IDLE[case][0].split(), IDLE[case][1:]
    source = () if command == "figures" else (*BUILTIN, *TINY)
    said = error(command, *source, *arguments)
    assert said.startswith(f"{option} has no effect with")
    assert said.endswith(("; leave one of them out", ", or leave it out"))


def test_an_option_that_needs_another_says_which_to_add(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64))
    said = error("traffic", folder, *TINY, "--seed", "3")
    assert said.startswith("--seed has no effect without --count on a source that is read whole")
    assert said.endswith("; add --count, or leave it out")
    assert invoke("traffic", folder, *TINY, "--seed", "3", "--count", "1").exit_code == 0
    assert invoke("traffic", *BUILTIN, *TINY, "--seed", "3").exit_code == 0
    for command, option, needed in (
        (("bench", "--concurrency", "1,4"), "--concurrency", "--first-token"),
        (("plan", "--engine-version", "0.33"), "--engine-version", "--export vllm"),
    ):
        said = error(command[0], *BUILTIN, *TINY, *command[1:])
        assert said.startswith(f"{option} has no effect without {needed}")
        assert said.endswith(f"; add {needed}, or leave it out")


def test_a_default_is_nobodys_wish_and_an_option_with_effect_is_taken(tmp_path: Path) -> None:
    found = read_json("plan", *BUILTIN, *TINY, "--max-graphs", "0")
    assert codec.decode(Plan, found["plan"]).graphs == ()
    flags = ("plan", *BUILTIN, "--encoder", "qwen3-vl-8b", "--export", "vllm")
    assert invoke(*flags, "--engine-version", "0.33", "--for", "vllm").exit_code == 0


def test_a_check_of_figures_answers_in_json_when_asked(tmp_path: Path) -> None:
    made = papers.catalogue("h200")
    written = exporting.write(made, tmp_path, pictures=(), progress=lambda values, _: values)
    found = read_json("figures", "--check", written.manifest)
    assert found == {"manifest": str(written.manifest), "figures": len(made)}


def wrong(folder: Path) -> list[tuple[str, ...]]:
    """Commands that cannot be right, whatever machine they run on."""
    file, plan = folder / "file", folder / "plan.json"
    file.write_text("")
    plan.write_text(codec.dumps(Plan(graphs=(), encoder="qwen3-vl-8b")))
    one = str(photos(folder / "one", (64, 64)))
    reference = (*TINY, "--backend", "reference", "--calibrate")
    found: list[tuple[str, ...]] = []
    for command, strategy in (("run", "--strategy"), ("bench", "--strategies")):
        found += [
            (command, "builtin:servegen", "--encoder", "nope"),
            (command, "builtin:servegen", *TINY, strategy, "nope"),
            (command, "builtin:servegen", *TINY, "--largest", "1"),
            (command, "builtin:servegen", *TINY, "--out", str(file)),
            (command, "builtin:servegen", *reference),
            (command, "builtin:nope", *TINY, "--out", str(folder)),
            (command, str(folder / "nowhere"), *TINY, "--out", str(folder)),
            (command, str(plan), *TINY, "--out", str(folder)),
        ]
    return [
        *found,
        ("run", "builtin:servegen", *TINY, "--plan", str(plan)),
        ("run", "builtin:servegen", *TINY, "--out", str(folder), "--trace", str(plan)),
        ("bench", one, *TINY, "--out", str(folder)),
        ("bench", one, *TINY, "--fit-on", "nowhere", "--out", str(folder)),
        ("bench", one, *TINY, "--max-graphs", "0"),
        ("bench", one, *TINY, "--first-token", "--concurrency", "none"),
        ("bench", one, "--encoder", "clip-tiny", "--first-token", "--out", str(folder)),
        ("record", *TINY, "--out", str(file)),
        ("record", "--encoder", "nope"),
        ("check", "--encoder", "nope"),
    ]


def test_what_is_wrong_on_every_machine_is_said_before_torch_is_loaded(tmp_path: Path) -> None:
    commands = wrong(tmp_path)
    code = (
        "import json, sys; from typer.testing import CliRunner; from encgraph.cli.app import app\n"
        "for command in json.load(sys.stdin):\n"
        "    result = CliRunner().invoke(app, command)\n"
        "    loaded = sorted({'torch', 'transformers'} & set(sys.modules))\n"
        "    print(json.dumps([result.exit_code, result.stderr.startswith('error: '), loaded]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(commands), capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    pairs = zip(commands, found, strict=True)
    assert [pair for pair in pairs if pair[1] != [1, True, []]] == []


def test_figures_of_what_has_no_records_to_draw_say_what_is_missing(tmp_path: Path) -> None:
    said = error("figures", "--on", "cpu", "--out", tmp_path / "out")
    assert said.startswith("no figure can be drawn of card 'cpu', of which there is only near-fl")
    assert said.endswith("what `encgraph record` or `encgraph bench` measured there")
    assert not (tmp_path / "out").exists()


def test_the_help_of_figures_says_where_they_go() -> None:
    assert "[default: figures]" in " ".join(passes("figures", "--help").split())
