"""Requests that ran through the runner and through eager, compared by size.

Graphs win where launches dominate and may lose where padding does, so one speedup for a whole
traffic hides the answer; a regime holds the requests of like size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from encgraph.errors import require
from encgraph.records import Item

SIZE_EDGES = (512, 2048)
"""Tokens a request at which size regimes end; the last regime is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """One request through the runner and through eager, read by one clock."""

    request: int
    tokens: int
    items: int
    ours_ms: float
    eager_ms: float

    def __post_init__(self) -> None:
        times = (self.ours_ms, self.eager_ms)
        require(min(times) > 0, f"times of request {self.request!r} must be over 0, got {times!r}")


def times(
    requests: Sequence[Sequence[Item]], ours_ms: Sequence[float], eager_ms: Sequence[float]
) -> tuple[RequestTimes, ...]:
    """The times of requests, in their order."""
    return tuple(
        RequestTimes(
            request=index,
            tokens=sum(item.tokens for item in request),
            items=len(request),
            ours_ms=ours,
            eager_ms=eager,
        )
        for index, (request, ours, eager) in enumerate(
            zip(requests, ours_ms, eager_ms, strict=True)
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Requests of like size, compared."""

    over_tokens: int
    """Requests are larger than this."""
    max_tokens: int | None
    """Requests are at most this; None for the open regime."""
    times: tuple[RequestTimes, ...]
    """At least one."""

    @property
    def label(self) -> str:
        """The range of tokens in words of an axis."""
        if self.max_tokens is None:
            return f"over {self.over_tokens:,}"
        if self.over_tokens == 0:
            return f"up to {self.max_tokens:,}"
        return f"{self.over_tokens + 1:,} to {self.max_tokens:,}"

    @property
    def ours_ms(self) -> float:
        """Mean of the runner's times."""
        return math.fsum(t.ours_ms for t in self.times) / len(self.times)

    @property
    def eager_ms(self) -> float:
        """Mean of eager's times."""
        return math.fsum(t.eager_ms for t in self.times) / len(self.times)

    @property
    def speedup(self) -> float:
        """Eager's mean over the runner's mean; above 1 the runner is faster."""
        return self.eager_ms / self.ours_ms


def by_size(
    times: Sequence[RequestTimes], *, edges: Sequence[int] = SIZE_EDGES
) -> tuple[Regime, ...]:
    """Split requests into size regimes; a regime without requests is left out.

    Args:
        times: Requests in any order.
        edges: Tokens at which regimes end, increasing; the last regime is open.
    """
    limits: list[int | None] = [0, *edges, None]
    regimes = []
    for over, most in pairwise(limits):
        over = over or 0
        chosen = tuple(t for t in times if over < t.tokens <= (most or math.inf))
        if chosen:
            regimes.append(Regime(over_tokens=over, max_tokens=most, times=chosen))
    return tuple(regimes)
