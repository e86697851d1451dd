"""Records of what was measured: times, bytes, where, and the one line of a results file.

Every figure the project shows is a `Measurement`, which cannot exist without its `Environment`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from encgraph.errors import require
from encgraph.records import SCHEMA, Capacity, Load, Route
from encgraph.tabular import Showing

UNITS = ("_ms", "_us", "_s", "_bytes", "_tokens", "_ratio", "_count", "_tflops", "_gbps")
CLOCKS = ("device", "wall", "predicted")
LEAST_OF_P99 = 100
"""Samples without which p99 is the slowest of them, and nothing to be called p99."""
Number = TypeVar("Number", int, float)
Numbers = npt.NDArray[Any]


def at_shares(
    values: Sequence[Number], shares: Sequence[float], weights: Sequence[float] = ()
) -> list[Number]:
    """For each share the smallest of the values with that share of all weight at or below it.

    The rule of numpy's "inverted_cdf", but for rounding: ten weights of 0.1 are nine tenths at the ninth.

    Args:
        values: At least one, in any order.
        shares: Each 0 to 1.
        weights: How often each value counts; once by default.

    >>> at_shares([4, 1, 3, 2], (0.5, 1))
    [2, 4]
    """
    require(len(values) > 0, "a quantile needs values, got none")
    counts = np.asarray(weights, float) if len(weights) else np.ones(len(values))
    return [values[place] for place in _places(np.asarray(values), counts, shares)]


def _places(values: Numbers, weights: Numbers, shares: Sequence[float]) -> Sequence[int]:
    """Where among the values is the one of each share."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    at = np.searchsorted(upto, np.asarray(shares) * upto[-1] * (1 - 1e-12))
    places: list[int] = order[np.minimum(at, len(order) - 1)].tolist()
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Times in milliseconds over samples, and which clock read them."""

    mean_ms: float
    p10_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    worst_ms: float
    samples: int
    """Those that count, each once whatever its weight."""
    warmups: int
    clock: str
    """"device" (events on the stream), "wall" (host clock, synchronized) or "predicted"."""

    def __post_init__(self) -> None:
        require(self.samples > 0, f"a latency needs samples, got {self.samples!r}")
        ordered = (self.p10_ms, self.p50_ms, self.p90_ms, self.p95_ms, self.p99_ms, self.worst_ms)
        require(list(ordered) == sorted(ordered), f"quantiles must not decrease, got {ordered!r}")
        require(self.clock in CLOCKS, f"clock must be one of {CLOCKS}, got {self.clock!r}")

    @classmethod
    def of(
        cls,
        samples_ms: Iterable[float],
        *,
        clock: str,
        warmups: int = 0,
        weights: Iterable[float] = (),
    ) -> Self:
        """Summarise samples in ms; a quantile is the smallest sample with that share at or below.

        Weights, if given, count each sample that often (samples of weight 0 are dropped).

        >>> Latency.of([1, 2, 3, 4], clock="wall").p50_ms
        2.0
        """
        # By arrays: planning sums up every request under dozens of plans.
        values = np.array(samples_ms if isinstance(samples_ms, Sequence) else [*samples_ms], float)
        counts = np.array(weights if isinstance(weights, Sequence) else [*weights], float)
        counts = counts if len(counts) else np.ones(len(values))
        require(
            len(values) == len(counts),
            f"weights must be one a sample, got {len(counts)} for {len(values)} samples",
        )
        values, counts = values[counts > 0], counts[counts > 0]
        require(len(values) > 0, "a latency needs samples, got none")
        places = _places(values, counts, (0.10, 0.50, 0.90, 0.95, 0.99))
        p10, p50, p90, p95, p99 = values[places].tolist()
        return cls(
            mean_ms=math.fsum((values * counts).tolist()) / math.fsum(counts.tolist()),
            p10_ms=p10,
            p50_ms=p50,
            p90_ms=p90,
            p95_ms=p95,
            p99_ms=p99,
            worst_ms=float(values.max()),
            samples=len(values),
            warmups=warmups,
            clock=clock,
        )

    @property
    def tail_ms(self) -> float | None:
        """What may be called p99: that of at least `LEAST_OF_P99` samples, else None."""
        return self.p99_ms if self.samples >= LEAST_OF_P99 else None

    @property
    def tail_name(self) -> str:
        """What to call `p99_ms`: of few samples it is the slowest."""
        return "slowest" if self.tail_ms is None else "p99"

    @property
    def tail_note(self) -> str:
        """Why there is no p99, for under a table; nothing where there is one."""
        few = f"no p99: of fewer than {LEAST_OF_P99} it is the slowest"
        return few if self.tail_ms is None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on the card that graphs cost, by what holds them; never one figure."""

    slabs_bytes: int
    """Static input, output and attention slabs."""
    pool_bytes: int
    """Private pool of the captures."""
    driver_bytes: int
    """Taken by the driver for the graphs themselves: device memory used minus allocator growth."""
    peak_bytes: int | None = None
    """Highest allocator use during capture above what was there before; None if not measured."""

    @property
    def total_bytes(self) -> int:
        """Slabs, pool and driver: what stays taken."""
        return self.slabs_bytes + self.pool_bytes + self.driver_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where and when something was measured."""

    gpu: str | None
    """Card name; None on a machine without one."""
    driver: str | None
    cuda: str | None
    cpu: str
    python: str
    torch: str
    transformers: str
    encgraph: str
    commit: str | None
    """Commit of the checkout; None for an installed package."""
    dtype: str
    utc: str
    """ISO 8601, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Showing):
    """What was measured, how, and where; cannot exist without an environment."""

    experiment: str
    """Name of the file it is kept in, such as "replay_curve"."""
    encoder: str
    environment: Environment
    strategy: str = "encgraph"
    attention: str = "auto"
    compiled: bool = False
    fused: bool = False
    """Whether the compiled block had its passes joined by hand."""
    traffic: str | None = None
    request: int | None = None
    """Index into the traffic; None where the figure is not a request's."""
    route: Route | None = None
    capacity: Capacity | None = None
    load: Load | None = None
    latency: Latency | None = None
    memory: Memory | None = None
    costs: str | None = None
    """Where the costs come from that were packed by; None where none were."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Further figures; each name ends in its unit."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        for name in self.numbers:
            require(name.endswith(UNITS), f"number {name!r} must end in one of {UNITS!r}")


class Interrupted(KeyboardInterrupt):
    """An interrupt that carries what was measured until then."""

    def __init__(self, measured: Sequence[Measurement]) -> None:
        super().__init__(f"interrupted with {len(measured):,} measurements made")
        self.measured = tuple(measured)
