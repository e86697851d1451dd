"""Say how far a long measurement is: a bar on a terminal, else a line now and then with the time left."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

from encgraph.cli import output

EVERY_S = 30.0
"""Seconds between two lines of a log, at least."""
_LONG_S = 60.0
"""From here on a run on a CPU says before it starts how long it will be."""


def bar(values: Iterable[Any], about: str, *, weights: Sequence[float] = ()) -> Iterable[Any]:
    """Show progress on stderr.

    Args:
        values: What is done one after another.
        about: Name of the step.
        weights: How long each value takes beside the others; alike unless given.
    """
    if sys.stderr.isatty():
        return output.bar(values, about)
    return logged(values, about, weights=weights)


def logged(
    values: Iterable[Any],
    about: str,
    *,
    weights: Sequence[float] = (),
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Any]:
    """Pass values on; at most once in `every_s` write how many are done and the time left."""
    total = len(values) if isinstance(values, Sized) else None
    shares = weights if len(weights) == total else [1.0] * (total or 0)
    began = said = clock()
    for done, value in enumerate(values):
        now = clock()
        if done and now - said >= every_s:
            output.note(_said(about, done, shares, now - began))
            said = now
        yield value


def _said(about: str, done: int, shares: Sequence[float], spent_s: float) -> str:
    before, of = sum(shares[:done]), f" of {len(shares):,}" if shares else ""
    lead = f"{about}: {done:,}{of} done after {duration(spent_s)}"
    if not before:
        return lead
    return f"{lead}, about {duration(spent_s * sum(shares[done:]) / before)} left"


def duration(seconds: float) -> str:
    """Seconds, or from two minutes on minutes.

    >>> duration(59.6), duration(119), duration(330)
    ('60 s', '119 s', '6 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def log(text: str) -> None:
    """One line on stderr where there is no bar."""
    if not sys.stderr.isatty():
        output.note(text)


def forewarn(expected_s: float, *, largest: str, largest_s: float) -> None:
    """Before a run that will take long: about how long, what takes most of it, and what shortens it.

    Args:
        expected_s: Of the whole run.
        largest: The item that takes longest, in words.
        largest_s: What it takes of the run.
    """
    if expected_s > _LONG_S:
        output.note(
            f"this run takes about {duration(expected_s)} on this CPU, by two small items timed; the "
            f"largest item ({largest}) takes about {duration(largest_s)} of it; fewer requests "
            "(--count) or smaller photos take less, and a smaller --largest captures less"
        )
