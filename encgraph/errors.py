"""Errors that callers may want to catch; wrong arguments are plain ValueError or TypeError."""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral

MOST = 999_999_999
"""Largest number of anything a caller may ask for."""
MOST_REQUESTS = 1_000_000
"""Most requests of a traffic to draw or keep; a million takes some 500 MB."""
MOST_TOKENS = 10_000_000
"""Largest token budget to ask for."""
MOST_SEED = 2**63 - 1
"""Largest seed that numpy and torch both take."""
MOST_BYTES = 10**15
"""Most memory to ask for."""
MOST_GRAPHS = 128
"""Most graphs of a plan to ask for."""
DTYPES = ("bfloat16", "float16", "float32")
"""Of weights and activations, as a plan names them."""
ATTENTIONS = ("auto", "measured", "fa3", "flash", "cudnn", "loop", "sdpa", "own")
"""Kernels that a plan names; "own" are an encoder's."""


class CalibrationError(ValueError):
    """Too little was timed to fit costs to; whoever asked packs as before."""


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


def check_named(*, dtype: str, attention: str) -> None:
    """Refuse a dtype or an attention that a plan has no name for.

    Raises:
        ValueError: If there is none of that name; says which there are.
    """
    for what, name, known in (("dtype", dtype, DTYPES), ("attention", attention, ATTENTIONS)):
        require(name in known, f"{what} must be one of {', '.join(known)}, got {name!r:.40}")


def whole(name: str, value: object, *, least: int = 1, most: int = MOST) -> int:
    """A whole number within limits, as a plain integer; numpy's are taken, booleans are not.

    Raises:
        ValueError: If it is no such number; says which by name.

    >>> whole("items", 3)
    3
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        bound = (
            f"at most {most:,}" if number is not None and number > most else f"at least {least:,}"
        )
        kind = "a whole number of " if number is None else ""
        raise ValueError(f"{name} must be {kind}{bound}, got {value!r:.40}")
    return number


def settle(record: object, kind: str, names: Iterable[str], *, least: int = 1) -> None:
    """Make fields of a frozen record plain integers, or refuse the first that is no whole number.

    Raises:
        ValueError: If one is no such number; says which by name.
    """
    for name in names:
        value = getattr(record, name)
        if type(value) is not int or not least <= value <= MOST:
            object.__setattr__(record, name, whole(f"{name} of {kind}", value, least=least))
