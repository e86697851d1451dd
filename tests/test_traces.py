"""The trace of a run against the rules of the Trace Event Format, and the command that writes it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import batch, plan, tiny
from helpers_cli import TINY, error, passes, photos, read_json

from encgraph import codec, traces
from encgraph.facts import Report, TimedStep
from encgraph.measure import Recorder
from encgraph.records import FallbackReason, Load, Modality, Route, Step
from encgraph.runner import EncoderRunner
from encgraph.traces import TRACKS, Event


def malformed(event: Event) -> bool:
    return (
        event.get("ph") not in ("X", "M")
        or not all(isinstance(event.get(key), int) for key in ("pid", "tid"))
        or not (isinstance(event.get("name"), str) and isinstance(event.get("args"), dict))
        or any(event.get(key, -1) < 0 for key in ("ts", "dur") if event["ph"] == "X")
    )


def problems(trace: dict[str, object]) -> list[str]:
    """What breaks the Trace Event Format, or would draw two steps over one another."""
    found = [f"malformed: {event}" for event in trace["traceEvents"] if malformed(event)]
    last, ends = -1.0, {}
    for event in complete(trace) if not found else ():
        if event["ts"] < last:
            found.append(f"out of order: {event}")
        if event["ts"] < ends.get(event["tid"], 0) - 1e-6:
            found.append(f"overlaps: {event}")
        last, ends[event["tid"]] = event["ts"], event["ts"] + event["dur"]
    named = {e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    return found + [f"track {tid} has no name" for tid in set(ends) - named]


def complete(trace: dict[str, object]) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def step(route: Route, tokens: int = 60, budget: int | None = None) -> Step:
    reason = FallbackReason.OVER_TOKENS if route is Route.FALLBACK else None
    return Step(
        route=route, modality=Modality.IMAGE, items=2, real_tokens=tokens, token_budget=budget,
        reason=reason,
    )  # fmt: skip


def recorded() -> Recorder:
    encoder = tiny()
    recorder = Recorder(encoder.spec.device)
    with EncoderRunner(
        encoder=encoder, plan=plan(16, 64), backend="reference", observe=recorder
    ) as runner:
        runner.capture()
        for _ in range(3):
            runner.execute(batch([(12, 12), (40, 40)], encoder))
    return recorder


def test_a_recorded_run_is_a_valid_trace_on_a_track_a_route(tmp_path: Path) -> None:
    recorder = recorded()
    path = traces.perfetto(recorder.steps, tmp_path / "run.json", requests=[0, 0, 1, 1, 2, 2])
    trace = json.loads(path.read_text())
    assert problems(trace) == []
    events = complete(trace)
    assert len(events) == len(recorder.steps) == 8
    routes = [timed.step.route for timed in recorder.steps]
    assert [event["tid"] for event in events] == [TRACKS[route] for route in routes]
    assert [event["args"].get("request") for event in events] == [None, None, 0, 0, 1, 1, 2, 2]
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"capture", "replay", "fallback"}


def test_a_trace_keeps_the_times_that_were_recorded() -> None:
    recorder = recorded()
    for timed, event in zip(recorder.steps, complete(traces.events(recorder.steps)), strict=True):
        assert event["ts"] == pytest.approx(timed.start_ms * 1e3, abs=1e-2)
        assert event["dur"] == pytest.approx(timed.ms * 1e3, abs=1e-2)
    starts = [timed.began_ms for timed in recorder.steps]
    assert starts == sorted(starts)
    assert starts[0] > 0


def test_a_fallback_has_its_reason_in_its_arguments_and_its_name() -> None:
    [event] = complete(traces.events([TimedStep(step=step(Route.FALLBACK), ms=1.0, request=4)]))
    reason = str(FallbackReason.OVER_TOKENS)
    assert event["args"]["reason"] == reason
    assert event["args"]["request"] == 4
    assert event["name"].endswith(f", {reason}")


def test_several_reasons_are_all_in_the_name_and_in_the_arguments() -> None:
    loads = {
        FallbackReason.OVER_TOKENS: Load(items=1, tokens=50),
        FallbackReason.OVER_FRAMES: Load(items=2, tokens=10),
    }
    mixed = replace(step(Route.FALLBACK), items=3, reasons=loads)
    [event] = complete(traces.events([TimedStep(step=mixed, ms=1.0)]))
    assert event["name"].endswith("frames over every budget (2); tokens over every budget (1)")
    assert event["args"]["reasons"] == {str(r): load.items for r, load in loads.items()}


def test_a_report_s_steps_lie_end_to_end() -> None:
    routes = (Route.REPLAY, Route.FALLBACK, Route.EAGER, Route.REPLAY)
    steps = [
        TimedStep(step=step(r, budget=80 if r is Route.REPLAY else None), ms=0.1) for r in routes
    ]
    trace = traces.events(steps)
    assert problems(trace) == []
    assert [event["ts"] for event in complete(trace)] == pytest.approx([0, 100, 200, 300])
    assert complete(trace)[0]["args"]["fill_ratio"] == 0.75
    assert "end to end" in trace["otherData"]["times"]


def test_the_validator_sees_what_is_wrong() -> None:
    good = complete(traces.events([TimedStep(step=step(Route.EAGER), ms=1.0)]))[0]
    for change in ({"ph": "Q"}, {"tid": "x"}, {"ts": -1.0}, {"args": None}):
        [problem] = problems({"traceEvents": [{**good, **change}]})
        assert problem.startswith("malformed")
    assert problems({"traceEvents": [{**good, "tid": 9}]}) == ["track 9 has no name"]
    twice = {"traceEvents": [good, {**good, "ts": good["ts"] + 1}]}
    assert any("overlaps" in problem for problem in problems(twice))


def test_no_step_is_a_valid_trace(tmp_path: Path) -> None:
    path = traces.perfetto([], tmp_path / "none.json")
    assert problems(json.loads(path.read_text())) == []


def test_a_trace_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trace '.*missing.*' cannot be written"):
        traces.perfetto([], tmp_path / "missing" / "run.json")


def test_titles_say_budget_items_and_fill() -> None:
    assert traces.title(step(Route.REPLAY, budget=64)) == (
        "encgraph replay 64 tokens, 2 items, 94 % full"
    )
    assert traces.title(step(Route.EAGER)) == "encgraph eager 60 tokens, 2 items"
    assert traces.title(step(Route.CAPTURE, 0, 64)) == "encgraph capture 64 tokens, 2 items"


def test_run_writes_the_trace_of_its_steps(tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "photos", (64, 64), (256, 320)), tmp_path / "out"
    arguments = ("run", folder, *TINY, "--backend", "reference", "--out", out)
    file = tmp_path / "new" / "run.json"
    said = passes(*arguments, "--trace", file)
    assert said.splitlines()[-1] == f"written: {file}"
    trace = json.loads(file.read_text())
    assert problems(trace) == []
    report = codec.loads(Report, (out / "report.json").read_text())
    executed = [e for e in complete(trace) if e["tid"] != TRACKS[Route.CAPTURE]]
    assert [e["name"] for e in executed] == [traces.title(t.step) for t in report.steps]
    assert [e["args"]["request"] for e in executed] == [t.request for t in report.steps]
    assert len(complete(trace)) == len(executed) + len(report.plan.graphs)
    assert read_json(*arguments, "--trace", file)["trace"] == str(file)


def test_run_refuses_a_trace_that_is_a_folder_before_it_runs(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", (64, 64))
    said = error("run", folder, *TINY, "--out", tmp_path / "out", "--trace", tmp_path)
    assert said == f"output {str(tmp_path)!r} is a folder; name a file"
    assert not (tmp_path / "out" / "report.json").exists()
