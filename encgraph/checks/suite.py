"""All checks of one encoder, in the order in which an adapter is written; each gives one line.

A check that cannot be run yet, because a method is missing or nothing was captured, says so. One that
breaks off is failed, with the line of the encoder's code that broke it.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from encgraph.checks import (
    audit,
    bad_inputs,
    checked,
    conformance,
    ownership,
    poison,
    running,
    stale,
    watching,
)
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.errors import CaptureError
from encgraph.runner import EncoderRunner

Static = Callable[[Subject], Checked]
Running = Callable[[Subject, EncoderRunner], Checked]

SIZED = ("spec", "module", "item_spec", "buffers")
FILLED = (*SIZED, "fill", "forward")
STATIC: dict[str, tuple[Static, tuple[str, ...]]] = {
    "buffers": (conformance.buffers, SIZED),
    "fill": (conformance.fill, FILLED),
    "audit": (audit.check, FILLED),
    "paths": (audit.paths, FILLED),
    "fallback": (conformance.fallback, ("spec", "item_spec", "eager", "stock", "oracle")),
    "forward": (conformance.forward, (*FILLED, "eager", "stock", "oracle")),
}
"""Checks that capture nothing, and the members of the protocol that each needs."""
RUNNING: dict[str, Running] = {
    "parity": running.parity,
    "clips": running.clips,
    "boundaries": running.boundaries,
    "last_row": running.last_row,
    "full_budget": running.full_budget,
    "poison": poison.check,
    "contagion": poison.contagion,
    "ownership": ownership.check,
    "borrowing": ownership.borrowing,
    "bad_inputs": bad_inputs.check,
    "edited_weight": stale.edited_weight,
    **{name: partial(stale.refused, name) for name in stale.CHANGES},
}
"""Checks of a captured runner; each needs the whole protocol."""
NAMES = ("methods", *STATIC, "capture", *RUNNING)


def run(subject: Subject) -> Iterator[Checked]:
    """Run every check.

    Args:
        subject: The encoder and how to make inputs for it.

    Yields:
        One outcome a name of `NAMES`, in that order.
    """
    yield conformance.methods(subject.encoder)
    lacking = conformance.missing(subject.encoder)
    for name, (check, needs) in STATIC.items():
        absent = [need for need in needs if need in lacking]
        why = f"needs {', '.join(absent)}" if absent else ""
        yield checked.not_run(name, why) if why else _tried(name, partial(check, subject))
    if lacking:
        for name in ("capture", *RUNNING):
            yield checked.not_run(name, f"needs {', '.join(lacking)}")
    else:
        yield from _captured(subject)


def _captured(subject: Subject) -> Iterator[Checked]:
    """Capture, and check the runner if that worked."""
    with ExitStack() as stack:
        try:
            runner = stack.enter_context(subject.runner())
        except Exception as error:
            said = str(error) if isinstance(error, CaptureError) else _broke(error)
            yield checked.of("capture", [said], said="")
            for name in RUNNING:
                yield checked.not_run(name, "nothing was captured")
            return
        yield running.capture(runner)
        for name, check in RUNNING.items():
            yield _tried(name, partial(check, subject, runner))


def _tried(name: str, check: Callable[[], Checked]) -> Checked:
    try:
        return check()
    except Exception as error:
        return checked.of(name, [_broke(error)], said="")


def _broke(error: Exception) -> str:
    """The error with the deepest line outside torch and the checks."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (watching.TORCH, watching.HERE)
    inside = [f for f in frames if not f.filename.startswith(ours)] or frames
    where = f"{inside[-1].filename}:{inside[-1].lineno} ({inside[-1].line})"
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first} at {where}"
