"""How large an item checks try alone: the largest legal one, or the largest that there is time for.

Sizes double from the smallest legal one. Beyond those that every check tries anyway, one is tried only
where the time of the one before it, by the square of their sizes, leaves it within `REACH_S`.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from encgraph.encoders.protocol import Encoder, Input
from encgraph.records import Capacity

REACH_S = 1.0
"""Seconds that one forward and one untouched forward of an item may take together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Sizes of single items that are tried, of all that are legal."""

    tokens: tuple[int, ...]
    """Rising."""
    low: int
    """Tokens of the smallest legal item."""
    most: int
    """Tokens of the largest legal item."""
    is_cut: bool
    """Whether larger ones would take too long, or more memory than there is."""

    @property
    def largest(self) -> int:
        """Tokens of the largest item tried."""
        return self.tokens[-1]

    @property
    def legal(self) -> str:
        """Which sizes are legal, and why the largest of them was not tried."""
        if self.low == self.most:
            return "the one legal size"
        why = (
            "larger ones are too slow or too large here"
            if self.is_cut
            else "no larger ones were given"
        )
        untried = "" if self.largest >= self.most else f"; {why}"
        return f"of {self.low:,} to {self.most:,} that are legal{untried}"

    @property
    def said(self) -> str:
        """Which sizes were tried of which."""
        return f"alone items of {', '.join(f'{n:,}' for n in self.tokens)} tokens, {self.legal}"


def reach(low: int, most: int, *, free: int, seconds: Callable[[int], float]) -> Reach:
    """Sizes to try.

    Args:
        low: Tokens of the smallest legal item.
        most: Tokens of the largest.
        free: Tokens up to which no size is timed.
        seconds: How long an item of so many tokens takes, infinite where there is no room for it; asked
            again where that is long, since the first time holds whatever runs once.

    >>> reach(1, 64, free=8, seconds=lambda tokens: 0.0).tokens
    (1, 2, 4, 8, 16, 32, 64)
    >>> reach(1, 64, free=8, seconds=lambda tokens: tokens / 16).legal
    'of 1 to 64 that are legal; larger ones are too slow or too large here'
    """
    tried, spent_s = list[int](), math.inf
    for tokens in _doubled(low, most):
        if tokens > free and tried:
            allowed_s = REACH_S * (tried[-1] / tokens) ** 2
            if spent_s > allowed_s:
                spent_s = min(seconds(tried[-1]) for _ in range(2))
            spent_s = seconds(tokens) if spent_s <= allowed_s else math.inf
            if spent_s == math.inf:
                return Reach(tokens=tuple(tried), low=low, most=most, is_cut=True)
        tried.append(tokens)
    return Reach(tokens=tuple(tried), low=low, most=most, is_cut=False)


def _doubled(low: int, most: int) -> Iterator[int]:
    while low < most:
        yield low
        low *= 2
    yield most


def is_short_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory, on a card or on a CPU."""
    on_cpu = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)


def forward_s(encoder: Encoder, capacity: Capacity, batch: Sequence[Input]) -> float:
    """How long a batch takes in `forward` and untouched together; infinite where memory is short.

    The float32 oracle has to find room as well, but is not timed.
    """
    try:
        made = encoder.buffers(capacity, encoder.spec.device, encoder.spec.dtype)
        encoder.fill(made, batch)
        began = time.perf_counter()
        with torch.inference_mode():
            outputs = [encoder.forward(made, capacity), *encoder.stock().eager(batch)]
        for output in outputs:
            output.main[:1].cpu()  # waits for the device
        spent_s = time.perf_counter() - began
        if encoder.spec.device.type != "cpu":  # where memory is scarce and the oracle quick
            with torch.inference_mode():
                encoder.oracle().eager(batch)
    except Exception as error:
        if is_short_of_memory(error):
            return math.inf
        raise
    return spent_s
