"""Traces of a run and of torch's profiler against every rule of the Trace Event Format that a viewer relies on.

Source:
    Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import copy
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import batch, plan, tiny

from encgraph import profilers, traces
from encgraph.measure import Recorder
from encgraph.runner import EncoderRunner

REQUIRED = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    "B": {"name", "ts", "pid", "tid"},
    "E": {"ts", "pid", "tid"},
    "M": {"name", "pid", "args"},
    "s": {"name", "id", "ts", "pid", "tid"},
    "t": {"name", "id", "ts", "pid", "tid"},
    "f": {"name", "id", "ts", "pid", "tid"},
    "i": {"name", "ts", "pid", "tid"},
    "C": {"name", "ts", "pid", "args"},
}
"""Fields of each phase; a phase of none of these is no event that we write."""
METADATA = {
    "process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"
}  # fmt: skip
ROUNDING_US = 1.0
"""Clocks of a card resolve about a microsecond."""
Event = dict[str, Any]


def broken(trace: dict[str, Any]) -> list[str]:
    """Every rule that a trace breaks."""
    events: list[Event] = trace["traceEvents"]
    found = [f"{event.get('ph')} lacks {lacks(event)}" for event in events if lacks(event)]
    if found:
        return found
    for event in events:
        if any(not isinstance(event.get(key, 0), int | float) for key in ("ts", "dur")):
            found.append(f"a time is no number: {event}")
        elif event.get("dur", 0) < 0 or (event["ph"] != "M" and event["ts"] < 0):
            found.append(f"a time is negative: {event}")
        if event["ph"] == "M" and event["name"] not in METADATA:
            found.append(f"metadata of no known name: {event}")
    return found or crossed(events) + unmatched(events) + unpaired(events)


def lacks(event: Event) -> set[str]:
    """Fields that an event should have and has not; its phase if that is unknown."""
    return REQUIRED.get(event.get("ph", ""), {"a known phase"}) - event.keys()


def by_thread(events: Sequence[Event], phases: str) -> list[list[Event]]:
    """Events of each thread, by start, the longest first."""
    threads: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in phases:
            threads[event["pid"], event["tid"]].append(event)
    order = {"E": 1}
    return [
        sorted(mine, key=lambda e: (e["ts"], -e.get("dur", 0), order.get(e["ph"], 0)))
        for mine in threads.values()
    ]


def crossed(events: Sequence[Event]) -> list[str]:
    """Complete events of a thread that overlap and yet do not nest: a viewer cannot stack them."""
    found = []
    for mine in by_thread(events, "X"):
        open_until: list[float] = []
        for event in mine:
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"] + ROUNDING_US:
                open_until.pop()
            if open_until and end > open_until[-1] + ROUNDING_US:
                found.append(f"crosses its parent's end: {event}")
            open_until.append(end)
    return found


def unpaired(events: Sequence[Event]) -> list[str]:
    """Begins without an end, or ends without a begin, on a thread."""
    found = []
    for mine in by_thread(events, "BE"):
        depth = 0
        for event in mine:
            depth += 1 if event["ph"] == "B" else -1
            if depth < 0:
                found.append(f"ends nothing: {event}")
                depth = 0
        found += [f"{depth} begun and never ended"] if depth else []
    return found


def unmatched(events: Sequence[Event]) -> list[str]:
    """Flows that do not start once before they finish, or bind to no slice of their thread.

    A launch whose kernels the profiler did not see starts torch's "ac2g" flow and never finishes it:
    viewers draw no arrow.
    """
    flows: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            flows[event.get("cat"), event["id"]].append(event)
    found = []
    for key, steps in flows.items():
        kinds = [e["ph"] for e in sorted(steps, key=lambda e: (e["ts"], "stf".index(e["ph"])))]
        if key[0] == "ac2g" and kinds == ["s"]:
            continue
        if kinds[:1] != ["s"] or kinds.count("s") != 1 or kinds[-1:] != ["f"]:
            found.append(f"flow {key} is {''.join(kinds)}")
    slices = {(e["pid"], e["tid"]) for e in events if e["ph"] in "XB"}
    adrift = [e for steps in flows.values() for e in steps if (e["pid"], e["tid"]) not in slices]
    return found + [f"flow on a thread without slices: {event}" for event in adrift]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One run, as its own trace and as torch's profile, read back from their files."""
    folder = tmp_path_factory.mktemp("traces")
    encoder = tiny()
    recorder = Recorder(encoder.spec.device)
    with EncoderRunner(encoder=encoder, plan=plan(16, 64), backend="reference") as runner:
        runner.observe = profilers.several(profilers.nvtx(), recorder)
        with profilers.torch_profile(folder / "profile.json"):
            runner.capture()
            runner.execute(batch([(12, 12), (40, 40)], encoder))
    traces.perfetto(recorder.steps, folder / "steps.json")
    return {p.stem: read(p) for p in sorted(folder.glob("*.json"))}


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


@pytest.mark.parametrize("name", ["steps", "profile"])
def test_a_trace_keeps_every_rule_of_the_format(
    name: str, written: dict[str, dict[str, Any]]
) -> None:
    trace = written[name]
    named = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(title.startswith(traces.PREFIX) for title in named) >= 4
    assert broken(trace) == []


def test_operators_of_a_profile_lie_inside_their_step(written: dict[str, dict[str, Any]]) -> None:
    slices = [e for e in written["profile"]["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in slices if e["name"].startswith(f"{traces.PREFIX}replay")]
    assert steps
    for step in steps:
        inner = [
            e
            for e in slices
            if e["tid"] == step["tid"] and step["ts"] < e["ts"] < step["ts"] + step["dur"]
        ]
        assert any(e["name"].startswith("aten::") for e in inner)


SLICE = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0.0, "dur": 10.0}
FLOW = {"name": "f", "cat": "c", "id": 1, "pid": 1, "tid": 1}
BROKEN = {
    "lacks": [SLICE, {"ph": "X", "name": "b"}],
    "phase": [{**SLICE, "ph": "?"}],
    "negative": [{**SLICE, "dur": -1.0}],
    "no number": [{**SLICE, "ts": "0"}],
    "crosses": [SLICE, {**SLICE, "ts": 5.0}],
    "never ended": [{**SLICE, "ph": "B"}],
    "ends nothing": [{**SLICE, "ph": "E"}],
    "flow": [SLICE, {**FLOW, "ph": "s", "ts": 1.0}],
    "without slices": [SLICE, {**FLOW, "ph": "s", "ts": 1.0}, {**FLOW, "ph": "f", "ts": 2.0, "tid": 2}],
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_each_rule_finds_what_breaks_it(what: str) -> None:
    assert any(what in said for said in broken({"traceEvents": copy.deepcopy(BROKEN[what])}))
