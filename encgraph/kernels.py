"""Read the kernels of a profile, each with the step that launched it and the module it belongs to.

They are read from the traces that torch's profiler exports. A kernel belongs to the step whose range
launched it; a replay launches all of its kernels at once, so their modules are known only where torch
annotated the nodes of the graph at capture.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encgraph.errors import require
from encgraph.traces import PREFIX, Event

GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on a card in a trace of torch's profiler."""
_LAUNCHES = ("cuda_runtime", "cuda_driver")
Annotations = Mapping[int, Sequence[Mapping[str, Any] | str]]
"""What torch noted for each node of a graph, by the node's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of a profile and what it belongs to."""

    name: str
    ms: float
    start_ms: float | None
    """Since its step began on the host; None outside of every step."""
    step: int | None
    """Which step of the trace launched it, by time, captures included; None outside of every step."""
    title: str | None
    """Name of that step; see `traces.title`."""
    module: str | None
    """Module or innermost range it ran in; None where nothing was recorded."""
    on_card: bool
    """False for an operator on the CPU, which stands for a kernel where there is no card."""
    stream: int | None = None
    """Stream of the card; None on a CPU."""


def from_trace(
    trace: Mapping[str, Any] | Path | str, *, annotations: Annotations | None = None
) -> tuple[Kernel, ...]:
    """Kernels of an exported profile by start, each with its step and, where known, its module.

    Args:
        trace: What torch's profiler exported, or the file it is in.
        annotations: What torch noted for the nodes of graphs; see `profilers.kernels`.

    Returns:
        Kernels by start. Without a card, the outermost CPU operators instead.

    Raises:
        ValueError: If it is no such trace.
    """
    complete = [e for e in _read(trace) if e.get("ph") == "X"]
    launched = {
        e["args"]["correlation"]: e
        for e in complete
        if e.get("cat") in _LAUNCHES and "correlation" in e.get("args", {})
    }
    work = [e for e in complete if e.get("cat") in GPU_WORK]
    on_card = bool(work)
    work = work or list(_outermost([e for e in complete if e.get("cat") == "cpu_op"]))
    starts = [launched.get(e.get("args", {}).get("correlation")) if on_card else e for e in work]
    ranges = sorted((e for e in complete if e.get("cat") == "user_annotation"), key=_outer_first)
    number = {id(e): n for n, e in enumerate(filter(_is_step, ranges))}
    inside = _enclosing(ranges, [e for e in starts if e is not None])
    found = []
    for event, start in zip(work, starts, strict=True):
        around = inside.get(id(start), [])
        found.append(_kernel(event, around, number, on_card=on_card, noted=annotations or {}))
    return tuple(kernel for _, kernel in sorted(found, key=lambda pair: pair[0]))


def _read(trace: Mapping[str, Any] | Path | str) -> list[Event]:
    try:
        whole = trace if isinstance(trace, Mapping) else json.loads(Path(trace).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"trace {str(trace)!r} cannot be read: {error}") from error
    require(
        isinstance(whole, Mapping) and isinstance(whole.get("traceEvents"), list),
        "a trace must have traceEvents, as torch's profiler exports it; got none",
    )
    listed: list[Event] = whole["traceEvents"]
    return listed


def _is_step(event: Event) -> bool:
    return str(event["name"]).startswith(PREFIX)


def _outer_first(event: Event) -> tuple[float, float]:
    return event["ts"], -event["dur"]


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _outermost(operators: Sequence[Event]) -> Iterator[Event]:
    """Operators that no other one runs: their times add up."""
    ends: dict[object, float] = {}
    for event in sorted(operators, key=_outer_first):
        if event["ts"] >= ends.get(event["tid"], 0.0):
            ends[event["tid"]] = _end(event)
            yield event


def _enclosing(ranges: Sequence[Event], points: Iterable[Event]) -> dict[int, list[Event]]:
    """Ranges around the start of each point, on its thread, outermost first; one sweep."""
    around: dict[int, list[Event]] = {}
    opened: dict[object, list[Event]] = {}
    ordered = [(*_outer_first(e), 0, e) for e in ranges] + [(e["ts"], 1.0, 1, e) for e in points]
    for at, _, is_point, event in sorted(ordered, key=lambda entry: entry[:3]):
        stack = opened.setdefault(event["tid"], [])
        while stack and _end(stack[-1]) <= at:
            stack.pop()
        if is_point:
            around[id(event)] = list(stack)
        else:
            stack.append(event)
    return around


def _kernel(
    event: Event,
    around: Sequence[Event],
    number: Mapping[int, int],
    *,
    on_card: bool,
    noted: Annotations,
) -> tuple[float, Kernel]:
    arguments = event.get("args", {})
    steps = [e for e in around if _is_step(e)]
    named = [e for e in around if not _is_step(e)]
    step = steps[-1] if steps else None
    module = _noted(noted.get(arguments.get("graph node id", 0), ()))
    return event["ts"], Kernel(
        name=event["name"],
        ms=event["dur"] / 1e3,
        start_ms=None if step is None else (event["ts"] - step["ts"]) / 1e3,
        step=None if step is None else number[id(step)],
        title=None if step is None else step["name"],
        module=module or (named[-1]["name"] if named else None),
        on_card=on_card,
        stream=arguments.get("stream") if on_card else None,
    )


def _noted(notes: Sequence[Mapping[str, Any] | str]) -> str | None:
    """The innermost scope: torch keeps it first, and keeps plain text under "str"."""
    for note in notes:
        if isinstance(note, str):
            return note
        if "str" in note:
            return str(note["str"])
    return None
