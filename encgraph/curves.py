"""Fit a cost model to what was recorded on a card: replays, eager runs, whole executes, bytes.

The recorded points stay raw in `data/measurements/<gpu>/curve-<encoder>.jsonl`; the fit is done anew each
time, so a better model needs no new recording. Coefficients come from least squares on relative
errors, one unknown a captured capacity for the dense part; negative ones are set to zero and the
rest fitted again. `check` says how far the fit is from its own points.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

import numpy as np

from encgraph.costs import BLOCK_PATCHES, Costs, Curve, row_bytes
from encgraph.errors import require
from encgraph.records import Capacity, Load, Route
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize

LEAST_REPLAYS, LEAST_EAGERS = 4, 3
"""Points without which there is no fit."""
BOUND = 1.15
"""Eager within this ratio of its fastest waits for its host."""
Terms = Callable[[Measurement], Sequence[float]]


def experiment(encoder: str) -> str:
    """Name of the experiment that holds an encoder's curve."""
    return f"curve-{encoder}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What a curve is of, and what two systems must share to be compared."""

    attention: str
    compiled: bool
    fused: bool = False

    @classmethod
    def of(cls, measurement: Measurement) -> Self:
        """Kernels of one point."""
        m = measurement
        return cls(attention=m.attention, compiled=m.compiled, fused=m.fused)

    @property
    def about(self) -> str:
        """For people: "fa3 attention, compiled"."""
        body = ", compiled and fused" if self.fused else ", compiled" if self.compiled else ""
        return f"{self.attention} attention{body}"


def recorded(measurements: Sequence[Measurement]) -> list[Kernels]:
    """Kernels that have replays on record, in order of appearance."""
    return list(dict.fromkeys(Kernels.of(m) for m in measurements if m.route is Route.REPLAY))


def fit(measurements: Sequence[Measurement], size: EncoderSize, kernels: Kernels) -> Costs:
    """Fit the cost model of one encoder, attention and body.

    Args:
        measurements: The curve's points; other kernels' are ignored.
        size: The encoder.
        kernels: Attention and body.

    Raises:
        ValueError: If there are too few points for these kernels; says which are on record.
    """
    mine = [m for m in measurements if Kernels.of(m) == kernels]
    replays = [m for m in mine if m.route is Route.REPLAY and not _whole(m)]
    eagers = [m for m in mine if m.route is Route.EAGER]
    require(
        len(replays) >= LEAST_REPLAYS and len(eagers) >= LEAST_EAGERS,
        f"no curve of {size.name} with {kernels!r} on record; there is {recorded(measurements)!r}",
    )
    dense, (square, patch, block) = _fit_replays(replays)
    eager = _fit_eager(
        eagers, lambda load: dense.at(load.patches) + square * load.square + patch * load.patches
    )
    request, item = _fit_host([m for m in mine if _whole(m)])
    held = _fit_bytes([m for m in mine if m.route is Route.CAPTURE])
    environment = replays[0].environment
    return Costs(
        source=(
            f"recorded on {environment.gpu or 'the CPU'}, torch {environment.torch}, {kernels.about}, "
            f"{environment.utc[:10]}, {len(replays)} replays and {len(eagers)} eager runs"
        ),
        recorded=True,
        encoder=size.name,
        gpu=environment.gpu,
        dense=dense,
        square_ms=square,
        patch_ms=patch,
        block_ms=block,
        item_ms=item,
        request_ms=request,
        eager_dense=_scaled(dense, eager.ratio, patch),
        eager_square_ms=eager.ratio * square,
        eager_item_ms=item,
        eager_floor_ms=eager.floor_ms,
        eager_spread_ms=eager.spread_ms,
        row_bytes=row_bytes(size),
        pool_bytes_per_patch=held.pool_per_patch,
        pool_bytes_per_graph=held.pool_per_graph,
        driver_bytes_per_graph=held.driver_per_graph,
    )


def _whole(measurement: Measurement) -> bool:
    """Whether a point times a whole execute rather than a bare replay."""
    return "device_ms" in measurement.numbers


def _time(measurement: Measurement) -> float:
    assert measurement.latency is not None
    return measurement.latency.p50_ms


def _load(measurement: Measurement) -> Load:
    assert measurement.load is not None
    return measurement.load


def _capacity(measurement: Measurement) -> Capacity:
    assert measurement.capacity is not None
    return measurement.capacity


def _blocks(measurement: Measurement) -> float:
    capacity = _capacity(measurement)
    return capacity.segments * ceil(capacity.longest_segment / BLOCK_PATCHES)


def _nonnegative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares without negative coefficients: drop the most negative, solve again."""
    kept = np.ones(matrix.shape[1], dtype=bool)
    found = np.zeros(matrix.shape[1], dtype=np.float64)
    while kept.any():
        solved, *_ = np.linalg.lstsq(matrix[:, kept], target, rcond=None)
        if (solved >= 0).all():
            found[kept] = solved
            break
        kept[np.flatnonzero(kept)[int(solved.argmin())]] = False
    return found


def _solve(points: Sequence[Measurement], knots: Sequence[int], terms: Terms) -> np.ndarray:
    """Fit one unknown a knot (patches) and one a term, on relative errors."""
    rows = []
    for point in points:
        at = _capacity(point).patches
        rows.append([float(at == knot) for knot in knots] + list(terms(point)))
    matrix, times = np.array(rows), np.array([_time(point) for point in points])
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-30)
    found: np.ndarray = _nonnegative(matrix / times[:, None] / scale, np.ones(len(points)))
    unscaled: np.ndarray = found / scale
    return unscaled


def _fit_replays(replays: Sequence[Measurement]) -> tuple[Curve, tuple[float, float, float]]:
    knots = sorted({_capacity(m).patches for m in replays})
    solved = _solve(replays, knots, lambda m: (_load(m).square, _load(m).patches, _blocks(m)))
    dense = np.maximum.accumulate(solved[: len(knots)])
    square, patch, block = (float(x) for x in solved[len(knots) :])
    return Curve(patches=tuple(knots), ms=tuple(float(x) for x in dense)), (square, patch, block)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Eager:
    """Eager relative to replay: how much slower once the card is busy, and its floor before."""

    ratio: float
    floor_ms: float
    spread_ms: tuple[float, ...]


def _fit_eager(eagers: Sequence[Measurement], replay_ms: Callable[[Load], float]) -> _Eager:
    """Split eager runs by what a replay of the very load would take, and take medians.

    Far below the fastest eager run the host's launches are all that is timed, and they scatter
    widely. Far above it the card is busy and eager follows the replay's curve at a fixed ratio.
    """
    fastest = min(_time(m) for m in eagers)
    bound = [m for m in eagers if replay_ms(_load(m)) < 0.7 * fastest]
    busy = [_time(m) / replay_ms(_load(m)) for m in eagers if replay_ms(_load(m)) > 1.5 * fastest]
    seen = [m.latency for m in bound if m.latency]
    runs = [ms for one in seen for ms in (one.p10_ms, one.p50_ms, one.p90_ms)] or [fastest]
    floor = statistics.fmean(runs)
    return _Eager(
        ratio=statistics.median(busy) if busy else 1.0,
        floor_ms=floor,
        spread_ms=tuple(sorted(ms - floor for ms in runs)),
    )


def eager_curve(eagers: Sequence[Measurement]) -> tuple[Curve, float]:
    """Eager's own curve, where so few capacities were timed that the replays' says nothing of it.

    What took hardly longer than the fastest waited for its host and says nothing of the card, but for
    the largest, which took at most that. Below what is left the card's time is taken to shrink with the
    patches; the floor of `Costs` stands above it.

    Args:
        eagers: Eager runs of several sizes, some with few and with many segments.

    Returns:
        Milliseconds against patches, and milliseconds a patch squared of a live segment.
    """
    bound, large = BOUND * min(map(_time, eagers)), 0.8 * max(_load(m).patches for m in eagers)
    busy = [m for m in eagers if _time(m) > bound or _load(m).patches > large]
    knots: list[int] = []
    for patches in sorted({_load(m).patches for m in busy}, reverse=True):
        if not knots or patches < 0.8 * knots[0]:
            knots.insert(0, patches)
    at = [_load(m).patches for m in busy]
    squares, times = (np.array([f(m) for m in busy]) for f in (lambda m: _load(m).square, _time))
    columns = [np.interp(at, knots, share) for share in np.eye(len(knots))]
    matrix = np.column_stack([*columns, squares / squares.max()]) / times[:, None]
    if np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        matrix[:, -1] = 0.0  # no two loads tell segments from patches: the curve takes all of it
    *dense, square = _nonnegative(matrix, np.ones(len(busy)))
    rising = [float(x) for x in np.maximum.accumulate(dense)]
    ms = {1: rising[0] / knots[0]} | dict(zip(knots, rising, strict=True))
    return Curve(patches=tuple(ms), ms=tuple(ms.values())), float(square / squares.max())


def _scaled(dense: Curve, ratio: float, patch: float) -> Curve:
    """The replay's curve at eager's ratio, every patch live."""
    times = zip(dense.patches, dense.ms, strict=True)
    return Curve(
        patches=dense.patches, ms=tuple(ratio * (ms + patch * patches) for patches, ms in times)
    )


def _fit_host(executes: Sequence[Measurement]) -> tuple[float, float]:
    """Wall time beyond the card's, as so much a batch and so much an item."""
    if len(executes) < 2:
        return 0.0, 0.0
    extra = np.array([max(0.0, _time(m) - m.numbers["device_ms"]) for m in executes])
    matrix = np.array([[1.0, float(_load(m).items)] for m in executes])
    request, item = _nonnegative(matrix, extra)
    return float(request), float(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bytes:
    """What graphs hold beside their slabs."""

    pool_per_patch: float
    pool_per_graph: float
    driver_per_graph: float


def _fit_bytes(captures: Sequence[Measurement]) -> _Bytes:
    """The pool's bytes a patch from captures alone; what a further graph adds from many together.

    A capture alone may take a block of the driver's that serves several, or none at all: without a
    capture of many, the mean over those alone is all there is.
    """
    alone = [(m, m.memory) for m in captures if m.memory and m.capacity]
    rates = [held.pool_bytes / p for m, held in alone if (p := _capacity(m).patches) >= 1024]
    rate = statistics.median(rates) if rates else 0.0
    many = [(m.numbers, m.memory) for m in captures if m.memory and not m.capacity]
    if not many:
        driver = statistics.fmean(held.driver_bytes for _, held in alone) if alone else 0.0
        return _Bytes(pool_per_patch=rate, pool_per_graph=0.0, driver_per_graph=driver)
    numbers, held = many[-1]
    further = held.pool_bytes - rate * numbers["patches_count"]
    return _Bytes(
        pool_per_patch=rate,
        pool_per_graph=max(0.0, further) / max(1.0, numbers["graphs_count"] - 1),
        driver_per_graph=held.driver_bytes / numbers["graphs_count"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """How far a fit is from the points it was made of."""

    points: int
    mean_error_ratio: float
    worst_error_ratio: float


def check(costs: Costs, measurements: Sequence[Measurement], kernels: Kernels) -> Fitness:
    """Compare predicted and recorded replays."""
    errors = [
        abs(costs.replay_ms(_capacity(m), _load(m)) - costs.item_ms * _load(m).items - _time(m))
        / _time(m)
        for m in measurements
        if m.route is Route.REPLAY and Kernels.of(m) == kernels and not _whole(m)
    ]
    return Fitness(
        points=len(errors),
        mean_error_ratio=statistics.fmean(errors),
        worst_error_ratio=max(errors),
    )
