"""Name the steps of a run, and write them as a trace that Perfetto opens.

The format is Chrome's Trace Event Format: complete events ("X") in microseconds on one track a route,
metadata events ("M") that name the tracks.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import encgraph
from encgraph.facts import TimedStep
from encgraph.records import Route, Step

PREFIX = "encgraph "
"""What the name of every step begins with."""
TRACKS = {route: number for number, route in enumerate(Route, 1)}
"""Track (thread id) of each route."""
Event = dict[str, Any]


class Kept(Protocol):
    """A step that a `measure.Recorder` kept."""

    @property
    def step(self) -> Step:
        """What ran."""

    @property
    def ms(self) -> float:
        """How long it took."""

    @property
    def began_ms(self) -> float:
        """When it began, since the recorder was made."""


def title(step: Step) -> str:
    """Name a step for people who look at a profile.

    >>> from encgraph.records import Modality
    >>> made = {"modality": Modality.IMAGE, "items": 3, "real_tokens": 448}
    >>> title(Step(route=Route.REPLAY, token_budget=512, **made))
    'encgraph replay 512 tokens, 3 items, 88 % full'
    """
    parts = [
        f"{PREFIX}{step.route} {step.token_budget or step.real_tokens} tokens",
        f"{step.items} item{'' if step.items == 1 else 's'}",
    ]
    if step.route is Route.REPLAY and step.token_budget:
        parts.append(f"{100 * step.real_tokens / step.token_budget:.0f} % full")
    if step.reason is not None:
        parts.append(why_eager(step))
    return ", ".join(parts)


def why_eager(step: Step) -> str:
    """Every reason of a fallback, most items first, with their number where there are several."""
    ranked = sorted(step.reasons.items(), key=lambda pair: (-pair[1].items, pair[0]))
    return "; ".join(f"{reason} ({load.items})" for reason, load in ranked) or step.reason or ""


def perfetto(
    steps: Iterable[Kept | TimedStep], path: Path | str, *, requests: Sequence[int | None] = ()
) -> Path:
    """Write steps as a trace for ui.perfetto.dev.

    Args:
        steps: Of one runner, in order: a recorder's, at the times it kept, or a report's, which kept
            none and are laid end to end.
        path: File to write.
        requests: Request of each step that is no capture, in order; may stop early.

    Returns:
        The path.

    Raises:
        ValueError: If the file cannot be written.
    """
    path = Path(path)
    text = json.dumps(events(steps, requests=requests), allow_nan=False)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"trace {str(path)!r} cannot be written: {error.strerror}; choose another"
        ) from error
    return path


def events(
    steps: Iterable[Kept | TimedStep], *, requests: Sequence[int | None] = ()
) -> dict[str, Any]:
    """The trace of `perfetto`, as the value that is written as JSON."""
    listed = list(steps)
    found = sorted(_complete(listed, iter(requests)), key=lambda event: event["ts"])
    laid = any(isinstance(timed, TimedStep) for timed in listed)
    return {
        "traceEvents": [*_tracks({event["tid"] for event in found}), *found],
        "displayTimeUnit": "ms",
        "otherData": {
            "encgraph": encgraph.__version__,
            "times": "durations recorded, laid end to end" if laid else "recorded",
        },
    }


def _tracks(used: set[int]) -> Iterator[Event]:
    """Names of the process and of each track, in the order of the routes."""
    common = {"ph": "M", "pid": 1, "ts": 0}
    yield {**common, "name": "process_name", "tid": 0, "args": {"name": "encgraph"}}
    for route, tid in TRACKS.items():
        if tid in used:
            named = {**common, "tid": tid}
            yield {**named, "name": "thread_name", "args": {"name": str(route)}}
            yield {**named, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _complete(steps: Sequence[Kept | TimedStep], requests: Iterator[int | None]) -> Iterator[Event]:
    """One event a step; whole nanoseconds, so that rounding never makes two of a track overlap."""
    ends = dict.fromkeys(TRACKS, 0)
    laid_ns = 0
    for timed in steps:
        step, dur_ns = timed.step, int(timed.ms * 1e6)
        if isinstance(timed, TimedStep):
            start_ns, request = laid_ns, timed.request
        else:
            # event clocks of a card resolve about a microsecond: a step may seem to begin too soon
            start_ns, request = max(int(timed.began_ms * 1e6), ends[step.route]), None
        laid_ns = ends[step.route] = start_ns + dur_ns
        if step.route is not Route.CAPTURE and request is None:
            request = next(requests, None)
        yield {
            "ph": "X",
            "cat": "encgraph",
            "name": title(step),
            "pid": 1,
            "tid": TRACKS[step.route],
            "ts": start_ns / 1e3,
            "dur": dur_ns / 1e3,
            "args": _told(step, request),
        }


def _told(step: Step, request: int | None) -> dict[str, Any]:
    told = {
        "modality": str(step.modality),
        "items": step.items,
        "real_tokens": step.real_tokens,
        "token_budget": step.token_budget,
        "fill_ratio": step.real_tokens / step.token_budget
        if step.route is Route.REPLAY and step.token_budget
        else None,
        "reason": None if step.reason is None else str(step.reason),
        "reasons": {str(reason): load.items for reason, load in step.reasons.items()} or None,
        "request": request,
    }
    return {name: value for name, value in told.items() if value is not None}
