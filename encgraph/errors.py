"""Errors that callers may want to catch; wrong arguments are plain ValueError or TypeError."""


class CaptureError(RuntimeError):
    """A budget could not be captured; the rest of the set stays usable."""


class StaleBufferError(RuntimeError):
    """A tensor that a graph holds has moved, or a borrowed output was overwritten by a later replay."""


class ParityError(RuntimeError):
    """An output is farther from eager than its tolerance allows; names the first item that differs."""


def require(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)
