"""Long commands: what they say while they run, and what Ctrl-C leaves of them."""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from helpers import TINY, plan, reference
from helpers_cli import TINY as ENCODER
from helpers_cli import error, invoke, photos
from helpers_interrupt import interrupted

from encgraph import (
    bench,
    cards,
    costs,
    first_token,
    readings,
    recording,
    sizes,
    store,
    strategies,
    study,
    traffic,
)
from encgraph.cli import pacing, recordings
from encgraph.loads import Workload
from encgraph.results import Interrupted
from encgraph.systems import Setting
from encgraph.ways import Graphed

REFERENCE = (*ENCODER, "--backend", "reference")


def setting() -> Setting:
    return reference(
        costs=costs.modelled(TINY),
        fit_on=traffic.read("builtin:coco", TINY, count=20, seed=4).requests,
        largest=256,
    )


def stopping(after: int) -> object:
    """A progress during whose value of that index somebody presses Ctrl-C."""

    def progress(values: Iterable[object], about: str) -> Iterator[object]:
        for index, value in enumerate(values):
            if index == after:
                raise KeyboardInterrupt
            yield value

    return progress


def run(*command: object) -> list[str]:
    """Words of a command for a process of its own."""
    return [sys.executable, "-m", "encgraph", *(str(word) for word in command)]


def test_a_log_says_now_and_then_how_much_is_done_and_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 0.0, 20.0, 40.0, 50.0])
    logged = pacing.logged(
        "abcd", "verify", weights=[1, 3, 4, 8], every_s=30, clock=lambda: next(times)
    )
    assert list(logged) == list("abcd")
    assert capsys.readouterr().err == "verify: 2 of 4 done after 40 s, about 2 min left\n"


def test_a_long_run_is_said_before_with_what_shortens_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pacing.forewarn(59, largest="'a.png', 900 tokens", largest_s=58)
    assert capsys.readouterr().err == ""
    pacing.forewarn(400, largest="'a.png', 900 tokens", largest_s=200)
    said = capsys.readouterr().err
    assert said.startswith("this run takes about 7 min on this CPU")
    assert "the largest item ('a.png', 900 tokens) takes about 3 min of it" in said
    assert all(way in said for way in ("--count", "--largest", "smaller photos"))


def test_a_run_lets_its_caller_forecast_before_anything_runs() -> None:
    expected: list[int] = []
    drawn = traffic.read("builtin:coco", TINY, count=1, seed=3)
    options = study.Procedure(
        command="run", repeats=1, expect=lambda eager, passes: expected.append(passes)
    )
    study.run(drawn, setting(), strategies.ENCGRAPH_PLAIN, options)
    assert expected == [2 + 2 * 2]  # verified beside eager, then warmed up and timed by both


def test_an_interrupted_bench_has_the_requests_before_it() -> None:
    drawn = traffic.read("builtin:coco", TINY, count=3, seed=3)
    chosen = [strategies.EAGER_VARLEN, strategies.ENCGRAPH_PLAIN]
    with pytest.raises(Interrupted) as stop:
        bench.run(drawn, chosen, setting(), repeats=1, progress=stopping(2))  # type: ignore[arg-type]
    for name, line in readings.summaries(stop.value.measured).items():
        requests = [m.request for m in stop.value.measured if m.strategy == name]
        assert [r for r in requests if r is not None] == [0, 1]
        assert line.latency is not None
        assert line.latency.samples == 2
    with pytest.raises(KeyboardInterrupt) as nothing:
        bench.run(drawn, chosen, setting(), repeats=1, progress=stopping(0))  # type: ignore[arg-type]
    assert not isinstance(nothing.value, Interrupted)


def test_an_interrupted_first_token_has_the_batches_before_it() -> None:
    drawn = traffic.read("builtin:coco", TINY, count=3, seed=3)
    load = Workload(concurrency=(1,), text_tokens=5, new_tokens=2, repeats=1, samples=2)
    with pytest.raises(Interrupted) as stop:
        first_token.run(
            drawn, setting(), graphed=Graphed(plan=plan(16)), load=load, progress=stopping(1)
        )  # type: ignore[arg-type]
    found = first_token.summaries(stop.value.measured)
    assert {m.strategy for m in found} == {"eager", "encoder_graphs", "all_graphs", "cache_warm"}
    assert {m.request for m in stop.value.measured if "first_token_ms" in m.numbers} == {None, 0}


def test_record_says_a_line_a_budget_and_which_it_leaves_out(tmp_path: Path) -> None:
    command = ("record", *REFERENCE, "--samples", "1", "--out", tmp_path)
    said = invoke(*command, "--largest", "64").stderr.splitlines()
    assert said[1] == "record: budget 64 done, 1 of 2, 5 points"
    assert recordings.budgets(None, on_card=False) == [64, 128, 256, 512, 1024]
    assert recordings.budgets(4096, on_card=False)[-1] == 4096
    assert recordings.budgets(None, on_card=True) == list(recording.TOKENS)
    small = error(*command, "--largest", "63")
    assert small == "--largest must be at least 64, the smallest budget that is recorded, got 63"


def test_an_interrupted_record_keeps_its_budgets_beside_the_whole_curve(tmp_path: Path) -> None:
    command = ("record", *REFERENCE, "--samples", "1", "--out", tmp_path)
    assert invoke(*command, "--largest", "64").exit_code == 0
    file = store.path(None, "curve-qwen3-vl-tiny", root=tmp_path)
    before = file.read_bytes()
    status, _, said = interrupted(run(*command), at=rb"record:.* 2/6")
    assert status == 130, said
    assert "budgets up to 1,024 tokens, as a CPU is slow; 2,048, 4,096" in said
    kept = store.read(file.with_name(f"{file.name}.unfinished"))
    assert {m.capacity.tokens for m in kept if m.capacity} >= {64, 128}
    assert f"interrupted; kept: {len(kept)} points of budgets 64, 128" in said
    assert file.read_bytes() == before
    assert store.experiments(None, root=tmp_path) == ("curve-qwen3-vl-tiny",)


@pytest.mark.parametrize(
    ("options", "at", "kept"),
    [
        (["--strategies", "eager_varlen"], rb"bench:.* [1-9]\d*/400", r"[1-9]\d* of 400 requests"),
        (
            ["--first-token", "--concurrency", "1", "--largest", "128"],
            rb"batches:.* [1-9]\d*/400",
            r"[1-9]\d* batch",
        ),
    ],
)
def test_an_interrupted_bench_keeps_what_it_timed(
    tmp_path: Path, options: list[str], at: bytes, kept: str
) -> None:
    command = ("bench", "builtin:coco", "--count", "400", *REFERENCE)
    status, _, said = interrupted(run(*command, *options, "--out", tmp_path), at=at)
    assert status == 130, said
    assert re.search(rf"interrupted; kept: {kept}", said)
    [file] = tmp_path.glob("measurements/cpu/*.jsonl.unfinished")
    assert any(m.request == 0 for m in store.read(file))
    assert not list(tmp_path.glob("measurements/cpu/*.jsonl"))


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_cpu_is_not_calibrated_by(tmp_path: Path, command: str) -> None:
    folder = photos(tmp_path / "photos", (64, 64), (64, 64))
    said = error(command, folder, *REFERENCE, "--calibrate", "--out", tmp_path)
    assert said.startswith("--calibrate needs --backend cuda: off a card")


def test_costs_are_of_one_encoder_on_one_card() -> None:
    recorded = cards.price(sizes.named("qwen3-vl-8b"), on="h200")
    assert recorded.are_of("qwen3-vl-8b", "NVIDIA H200")
    assert not recorded.are_of("qwen3-vl-tiny", "NVIDIA H200")
    assert not recorded.are_of("qwen3-vl-8b", "NVIDIA A100")
    assert not recorded.are_of("qwen3-vl-8b", None)
    assert not costs.modelled(sizes.named("qwen3-vl-8b")).are_of("qwen3-vl-8b", "NVIDIA H200")
