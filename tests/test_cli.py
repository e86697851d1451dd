"""The commands that need no torch, what all commands share, and the plan that a person reads."""

import json
import os
import resource
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from helpers_cli import TINY, error, invoke, passes, photos, read_json

import encgraph
from encgraph import codec, strategies
from encgraph.cli import glossary, options, output
from encgraph.records import Plan

ROOT = Path(__file__).parents[1]
COMMANDS = ("doctor", "encoders", "traffic", "plan", "run", "bench", "record", "check")
HEAVY = {"torch", "transformers", "plotly"}
SMALL = ("builtin:servegen", "--count", "200")


def python(code: str) -> str:
    """Run code in a fresh interpreter."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from encgraph.cli.app import app; "
        "said = CliRunner().invoke(app, ['--help']).stdout; "
        f"print([c for c in {COMMANDS!r} if c not in said], {HEAVY!r} & set(sys.modules))"
    )
    assert python(code).strip() == "[] set()"


def children_seconds() -> float:
    """CPU seconds of every process waited for so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_takes_less_than_half_a_second() -> None:
    spent = [children_seconds()]
    for _ in range(3):
        command = [sys.executable, "-m", "encgraph", "--help"]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        spent.append(children_seconds())
    assert min(after - before for before, after in pairwise(spent)) < 0.5


def test_planning_commands_import_no_torch(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (64, 96))
    code = (
        "import sys; from typer.testing import CliRunner; from encgraph.cli.app import app\n"
        "for a in (['encoders'], ['traffic'], ['plan']):\n"
        f"    more = [] if a == ['encoders'] else [{str(folder)!r}, *{TINY!r}]\n"
        "    result = CliRunner().invoke(app, a + more)\n"
        "    assert result.exit_code == 0, result.output\n"
        f"print({HEAVY!r} & set(sys.modules))"
    )
    assert python(code).strip() == "set()"


def test_help_on_a_narrow_terminal_is_whole() -> None:
    for columns in ("40", "80"):
        ran = subprocess.run(
            [sys.executable, "-m", "encgraph", "bench", "--help"],
            capture_output=True, text=True, check=True, cwd=ROOT,
            env={**os.environ, "COLUMNS": columns},
        )  # fmt: skip
        assert "\u2026" not in ran.stdout
        assert "--max-graphs" in ran.stdout
        words = [line.strip() for line in ran.stdout.splitlines()]
        assert "eager: run without graphs" in words


def test_version_is_said_and_usage_errors_exit_2() -> None:
    assert passes("--version").strip() == encgraph.__version__
    assert invoke("plan").exit_code == 2
    assert invoke("plan", *SMALL, *TINY, "--for", "sglang").exit_code == 2
    result = invoke("plan", *SMALL, *TINY, "--memory", "much")
    assert result.exit_code == 2
    assert "512MiB" in result.stderr
    assert invoke("plan", *SMALL, *TINY, "--max-graphs", "-1").exit_code == 2


def test_a_shell_completes_encoder_names() -> None:
    words = {
        "_ENCGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": "encgraph plan --encoder qwen3-vl-t",
    }
    ran = subprocess.run(
        [sys.executable, "-c", "from encgraph.cli.app import main; main()"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **words, "COMP_CWORD": "3"},
    )
    assert ran.stdout.split() == ["qwen3-vl-tiny"]


def test_errors_keep_their_traceback_when_asked() -> None:
    result = invoke("--traceback", "plan", "nowhere", *TINY)
    assert isinstance(result.exception, ValueError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512MiB", 2**29), ("1GiB", 2**30), ("1.5 kB", 1500), ("4096", 4096), ("2tb", 2 * 10**12)],
)
def test_bytes_are_read_in_either_system(text: str, expected: int) -> None:
    assert options.num_bytes(text) == expected


def test_doctor_says_what_is_used_and_what_is_missing() -> None:
    found = read_json("doctor")
    assert found["environment"]["encgraph"] == encgraph.__version__
    names = [a["name"] for a in found["attention"]]
    assert {"fa3", "flash", "cudnn", "loop", "measured", "sdpa"} == set(names)
    assert found["used"] in names
    assert (found["environment"]["gpu"] is None) == (found["backend"] == "reference")
    assert f"{found['used']}" in passes("doctor")


def test_encoders_are_listed_with_their_rule() -> None:
    found = {one["size"]["name"]: one for one in read_json("encoders")}
    assert (found["qwen3-vl-8b"]["min_tokens"], found["qwen3-vl-8b"]["max_tokens"]) == (64, 16384)
    said = passes("encoders")
    assert "576.4 M" in said
    assert " 508.9 K" in said
    assert " 0.0 " not in said
    [bert] = [line.split() for line in said.splitlines() if line.startswith("bert-tiny ")]
    assert bert[-2:] == ["1-64", "none"]
    assert bert[-3] == "K"  # a token of text has no side in pixels


def test_traffic_is_summed_up_with_what_was_skipped(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (256, 256), (512, 512))
    (folder / "notes.txt").write_text("no image")
    found = read_json("traffic", folder, *TINY)
    assert found["summary"]["tokens_per_request"]["max"] == 256
    assert [s["path"] for s in found["skipped"]] == [str(folder / "notes.txt")]
    said = passes("traffic", folder, *TINY)
    assert "2 requests, 2 items" in said
    one = photos(tmp_path / "one", (256, 256))
    assert "1 request, 1 item\n" in passes("traffic", one, *TINY)
    assert "1 request, 1 item\n" in passes("plan", one, *TINY)
    assert "notes.txt: not an image" in said


def test_a_plan_gives_each_budget_its_reason_and_a_prediction_beside_the_alternatives() -> None:
    said = passes("plan", *SMALL, "--encoder", "qwen3-vl-8b")
    found = read_json("plan", *SMALL, "--encoder", "qwen3-vl-8b")
    budgets = [graph["tokens"] for graph in found["plan"]["graphs"]]
    assert budgets
    assert all(reason.partition(": ")[2] in said for reason in found["plan"]["reasons"])
    for row in ("this plan", "vLLM's defaults", "graphs off (eager)"):
        assert row in said
    assert f"{found['prediction']['latency']['p99_ms']:.2f}" in said
    assert "fitted on 100 requests, judged on the other 100" in said
    assert found["costs"] in said
    assert found["recorded"] or "modelled" in said


def test_a_plan_file_is_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "new" / "plan.json"
    found = read_json("plan", *SMALL, *TINY, "-o", file)
    assert codec.loads(Plan, file.read_text()) == codec.decode(Plan, found["plan"])


def test_flags_of_vllm_stand_alone_on_stdout() -> None:
    result = invoke("plan", *SMALL, "--encoder", "qwen3-vl-8b", "--for", "vllm", "--export", "vllm")
    assert result.exit_code == 0, result.output
    flag, _, value = result.stdout.strip().partition(" ")
    assert flag == "--compilation-config"
    assert "cudagraph_mm_encoder" in json.loads(value.strip("'"))
    assert (
        "expected under vLLM's packing: budgets so fitted, on a part of the requests,"
        in result.stderr
    )
    assert "against leaving graphs off" in result.stderr


def test_a_plan_for_vllm_has_one_item_cap_and_stays_within_its_default_range() -> None:
    plan = read_json("plan", "builtin:mix", "--count", "200", *TINY, "--for", "vllm")["plan"]
    assert len({graph["items"] for graph in plan["graphs"]}) == 1
    assert max(graph["tokens"] for graph in plan["graphs"]) <= 8192


def test_a_plan_that_vllm_cannot_express_is_refused(tmp_path: Path) -> None:
    said = error("plan", *SMALL, *TINY, "--export", "vllm", "--engine-version", "0.9")
    assert "no encoder graphs" in said or "--for vllm" in said


def test_an_exported_plan_is_json_on_stdout() -> None:
    plan = codec.loads(Plan, passes("plan", *SMALL, *TINY, "--export", "json"))
    assert plan.encoder == "qwen3-vl-tiny"


@pytest.mark.parametrize("method", ["doubling", "quantile"])
def test_other_methods_plan_too(method: str) -> None:
    found = read_json("plan", *SMALL, *TINY, "--method", method, "--max-graphs", "9")
    assert 1 <= len(found["plan"]["graphs"]) <= 9
    if method == "doubling":
        assert found["plan"]["graphs"][-1]["tokens"] == 8192


@pytest.mark.parametrize("method", ["fitted", "doubling", "quantile"])
def test_no_graphs_is_a_plan_that_says_who_asked_for_it(method: str) -> None:
    command = ("plan", *SMALL, *TINY, "--max-graphs", "0", "--method", method)
    assert read_json(*command)["plan"]["graphs"] == []
    said = passes(*command)
    assert "the plan: graphs are off, as --max-graphs 0 asks" in said
    assert "expected: graphs are off, as --max-graphs 0 asks; raise it" in said


def test_one_request_is_fitted_and_judged_on_and_said_so(tmp_path: Path) -> None:
    said = passes("plan", photos(tmp_path / "one", (64, 64)), *TINY)
    assert "same request, since there is only one" in said


def test_a_request_list_brings_its_own_requests_to_fit_on(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    file.write_text(
        json.dumps({"requests": [[[16, 16]], [[16, 32]]], "fit_tokens": [64, 128, 128]})
    )
    assert "the list's 3 requests for fitting, judged on its 2" in passes("plan", file, *TINY)


def test_a_log_gets_no_bar_and_one_line_a_long_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(output.bar([1, 2], "read")) == [1, 2]
    assert capsys.readouterr().err == ""
    assert list(output.logged(range(1000), "verify", long_s=0)) == list(range(1000))
    assert capsys.readouterr().err == "verify: 1 of 1,000 done after 0 s\n"


@pytest.mark.parametrize("command", ["run", "bench"])
def test_help_names_every_strategy_with_what_it_is(command: str) -> None:
    said = passes(command, "--help")
    for strategy in strategies.STRATEGIES.values():
        assert f"{strategy.name}: {strategy.about}" in said
    assert ("ladder: the " in said) == (command == "bench")


def test_tables_say_what_their_words_mean_and_json_does_not() -> None:
    command = ("plan", *SMALL, *TINY)
    lines = passes(*command).splitlines()
    for columns, words in (("budget, tokens", ("budget", "fill")), ("predicted", ("padding",))):
        at = next(n for n, line in enumerate(lines) if line.startswith(columns))
        under = next(n for n in range(at, len(lines)) if not lines[n + 1].strip())
        assert all(f"{word}: {glossary.WORDS[word]}" in lines[under] for word in words)
    assert glossary.WORDS["padding"] not in json.dumps(read_json(*command))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("traffic", ["atoms", "p50, p90, p99"]),
        ("plan", ["budget", "defer", "fill", "held out", "modelled", "tail smoothed"]),
        ("run", ["slab", "pool", "driver", "replay", "fallback", "error ratio", "poisoned"]),
        ("bench", ["defer", "padding", "replayed", "wall"]),
    ],
)
def test_help_explains_the_words_of_a_command(command: str, words: list[str]) -> None:
    said = passes(command, "--help")
    assert [word for word in words if f"{word}: {glossary.WORDS[word]}" not in said] == []


def timers() -> list[threading.Timer]:
    return [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_work_that_takes_long_says_so_once_and_short_work_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with output.working("fitting", long_s=60):
        waiting = timers()
    for timer in waiting:
        timer.join()
    assert waiting and capsys.readouterr().err == ""
    with output.working("fitting", long_s=0):
        for timer in timers():
            timer.join()
    assert capsys.readouterr().err == "fitting: not done after 0 s, going on\n"


@pytest.mark.parametrize("command", ["traffic", "plan"])
def test_help_says_what_a_source_may_be(command: str) -> None:
    said = passes(command, "--help")
    assert [line for line in glossary.SOURCES_READ if line not in said] == []
