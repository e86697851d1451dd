"""Errors that callers may want to catch; wrong arguments are plain ValueError or TypeError."""

from collections.abc import Iterable
from difflib import get_close_matches


class CaptureError(RuntimeError):
    """A budget could not be captured; the rest of the set stays usable."""


class StaleBufferError(RuntimeError):
    """A tensor that a graph holds has moved, or a borrowed output was overwritten by a later replay."""


class ParityError(RuntimeError):
    """An output is farther from eager than its tolerance allows; names the first item that differs."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Ask whether one of up to three names that look alike was meant; empty if none does.

    >>> nearest("vlm", ["eager", "vllm"])
    "did you mean 'vllm'? "
    """
    near = get_close_matches(name.lower(), list(known), n=3)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


def require(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)
