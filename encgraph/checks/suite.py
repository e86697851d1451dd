"""All checks of one encoder, in the order in which an adapter is written; each gives one line.

A check that cannot be run yet, because a method is missing or nothing was captured, says so. One that
breaks off is failed, with the line of the encoder's code that broke it; others that the same error
breaks refer to it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial

from encgraph.checks import (
    audit,
    bad_inputs,
    checked,
    conformance,
    edits,
    fallbacks,
    ownership,
    places,
    poison,
    reaching,
    running,
    stale,
)
from encgraph.checks.checked import Checked, Unjudged
from encgraph.checks.subject import Subject
from encgraph.encoders import protocol
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
    "fallback": (fallbacks.check, (*FILLED, "eager", "stock", "oracle")),
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
    "edited_weight": edits.edited_weight,
    **{name: partial(stale.refused, name) for name in stale.CHANGES},
    "swapped_module": stale.swapped_module,
}
"""Checks of a captured runner; each needs the whole protocol."""
CHECK_NAMES = ("methods", *STATIC, "capture", *RUNNING)
PROOFS = ("forward", "parity")
"""What proves that answers are right, eager and replayed; no encoder lacks what these need."""
UNSTEADY = "no check before this one failed, so answers change from call to call"
"""What is said of wrong answers that a check sees which judges something else."""


def run(subject: Subject) -> Iterator[Checked]:
    """Run every check.

    Args:
        subject: The encoder and how to make inputs for it.

    Yields:
        One outcome a name of `CHECK_NAMES`, in that order.
    """
    tried = _Tried()
    yield tried.run("methods", partial(conformance.methods, subject.encoder))
    lacking = protocol.missing(subject.encoder)
    for name, (check, needs) in STATIC.items():
        absent = [need for need in needs if need in lacking]
        why = f"needs {', '.join(absent)}" if absent else ""
        yield checked.not_run(name, why) if why else tried.run(name, partial(check, subject))
    if lacking:
        for name in ("capture", *RUNNING):
            yield checked.not_run(name, f"needs {', '.join(lacking)}")
    else:
        yield from _captured(subject, tried)


def unproven(found: Iterable[Checked]) -> dict[str, str]:
    """Why the checks that prove right answers were not run, by name; empty if each was.

    >>> unproven([checked.not_run("parity", "no memory"), checked.not_run("clips", "images alone")])
    {'parity': 'right answers were not proven: no memory'}
    """
    return {
        one.name: f"right answers were not proven: {'; '.join(one.detail)}"
        for one in found
        if one.name in PROOFS and one.passed is None
    }


def _captured(subject: Subject, tried: "_Tried") -> Iterator[Checked]:
    """Capture, and check the runner if that worked."""
    with ExitStack() as stack:
        try:
            runner = stack.enter_context(subject.runner())
        except Exception as error:
            yield tried.broke("capture", error)
            for name in RUNNING:
                yield checked.not_run(name, "nothing was captured")
            return
        yield tried.run("capture", partial(running.capture, runner))
        for name, check in RUNNING.items():
            yield tried.run(name, partial(check, subject, runner))


class _Tried:
    """Checks run so far: one cause breaks many, and is explained once."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}
        self.has_failed = False

    def run(self, name: str, check: Callable[[], Checked]) -> Checked:
        """The outcome; a check that breaks off as an earlier one did is not run, and says which.

        One that saw wrong answers where none has failed fails itself.
        """
        found = self._outcome(name, check)
        if isinstance(found, Unjudged) and not self.has_failed:
            why = found.detail[0].removeprefix(checked.UNJUDGED)
            found = checked.of(name, [f"{why}; {UNSTEADY}"], said="")
        self.has_failed |= found.passed is False
        return found

    def _outcome(self, name: str, check: Callable[[], Checked]) -> Checked:
        try:
            return check()
        except Exception as error:
            if reaching.is_short_of_memory(error):
                return checked.not_run(name, "there is too little memory for it here")
            return self.broke(name, error)

    def broke(self, name: str, error: Exception) -> Checked:
        """The outcome of a check that an error ended."""
        said = str(error) if isinstance(error, CaptureError) else places.told(error)
        first = self.broken.setdefault(said, name)
        if first != name:
            return checked.not_run(name, f"broke off as {first} did")
        return checked.of(name, [said], said="")
