"""Fit a cost model to the very graphs a runner holds: a few timed replays and eager runs after capture.

A recorded curve speaks of a card in general; this speaks of these graphs, this driver and this host, so
that replay, split or eager is decided by what was seen here. Loads are those of `points`: full with
few and with many segments, half full, almost empty; eager on a ladder of loads. All of it is under one
time limit, so what fixes the fit comes first: every load of the largest graph, which tells live loads
from padding where both are large; every other graph full; eager of every size, the largest with many
segments too. Without those there is no calibration: fewer leave more unknowns than points. Where even
the largest eager run waited for its host, larger loads follow until one keeps the device busy, of up to
eight times the largest graph's load: they are what falls back, and no graph's load says what they take. Outputs do not change: a replay's
buffers are written anew, and each fill clears what the last one left.
"""

import math
import statistics
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, islice, zip_longest

import torch

from encgraph import curves, meters, packing, rows, sizes
from encgraph.costs import Costs
from encgraph.curves import Kernels
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import CalibrationError, require
from encgraph.exact import ExactSet
from encgraph.graphs import GraphSet
from encgraph.points import Recording, load_of
from encgraph.records import Capacity, Route
from encgraph.results import Measurement
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize

LIMIT_S = 10.0
"""Enough for 16 graphs on a card; on a CPU large graphs get one sample a load."""
RUNG = 2.0
"""Largest ratio of one size of eager loads to the next."""
BUSY = 2.0
"""An eager run that takes so many times the fastest waits for the device, not for its host."""
DOUBLINGS = 3
"""Of the largest graph's load, at most, until eager is busy."""
SEVERAL = 4
"""Small items of an execute that is timed for what the host adds to each."""
_SAMPLES = 5
POINTS = 12
"""Points beside the four of a capacity, about."""
Job = Callable[[], Measurement]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Jobs:
    """What to time, in this order."""

    telling: Sequence[Job]
    """Without which there is no fit."""
    further: Sequence[Job]
    """What makes it better."""


def calibrate(
    runner: EncoderRunner, size: EncoderSize, *, limit_s: float = LIMIT_S, samples: int = _SAMPLES
) -> Costs:
    """Time what a runner has captured, and let it pack by the least predicted time from then on.

    Args:
        runner: With graphs of a plan captured.
        size: Its encoder's, of the packed layout.
        limit_s: Seconds after which nothing more is begun.
        samples: Timed runs a point, at most; the median counts.

    Returns:
        The costs that the runner now packs by; `source` says they were measured at capture.

    Raises:
        ValueError: If there is nothing to calibrate, or the layout is another.
        CalibrationError: If the limit is too short for what fixes a fit. In either case the runner
            packs as before.
    """
    require(
        size.layout == "packed",
        f"calibration is of packed image grids, got {size.name!r} of the {size.layout!r} layout; "
        "record its curve and plan by that",
    )
    until_s = time.perf_counter() + limit_s
    made = _calibrated(runner, size)
    spec = runner.encoder.spec
    recording = Recording(
        encoder=runner.encoder,
        size=size,
        environment=meters.environment(spec.dtype, spec.device),
        samples=samples,
        most_ms=1e3 * limit_s / (POINTS + 4 * len(made.graphs)),
    )
    jobs, points = _jobs(recording, made), list[Measurement]()
    larger = _larger(recording, made, points)
    for job in chain(jobs.telling, larger, jobs.further):
        if time.perf_counter() >= until_s:
            break
        try:
            with runner.turn():  # the jobs write into the slabs that replays of other threads use
                points.append(job())
        except torch.OutOfMemoryError:
            if len(points) < len(jobs.telling):
                raise
            larger.close()
    _check(jobs, points, limit_s)
    costs = _fitted(recording, made, points)
    runner.pack_by(partial(packing.packer, costs=costs, rule="cheapest"))
    return costs


def _check(jobs: Jobs, points: Sequence[Measurement], limit_s: float) -> None:
    if len(points) < len(jobs.telling):
        raise CalibrationError(
            f"calibration must time the {len(jobs.telling)} replays and eager runs that fix a fit, "
            f"got {len(points)} in {limit_s!r} s; raise its limit or capture fewer and smaller graphs"
        )


def tried(
    runner: EncoderRunner, size: EncoderSize, *, otherwise: Costs, limit_s: float = LIMIT_S
) -> Costs:
    """Calibrate, or where the time was too short keep the costs a runner packs by, and say so.

    Args:
        runner: With graphs of a plan captured.
        size: Its encoder's, of the packed layout.
        otherwise: What it packs by until now.
        limit_s: Seconds after which nothing more is begun.
    """
    try:
        return calibrate(runner, size, limit_s=limit_s)
    except CalibrationError as refused:
        warnings.warn(f"{refused}; packs by costs {otherwise.source}", stacklevel=2)
        return replace(otherwise, source=f"{otherwise.source}; not calibrated: {refused}")


def _calibrated(runner: EncoderRunner, size: EncoderSize) -> GraphSet:
    made = runner.graphs
    require(
        made is not None and made.is_captured and not isinstance(made, ExactSet),
        "calibration needs graphs of a plan, captured; capture first, and leave exact layouts alone",
    )
    assert made is not None
    return made


def _jobs(recording: Recording, made: GraphSet) -> Jobs:
    """What to time; where that is too little for a fit, again."""
    plan = made.captured_plan
    loads = [[(graph, batch) for batch in _loads(recording, graph)] for graph in plan.graphs[::-1]]
    loads = [batches for batches in loads if batches]
    require(
        bool(loads),
        f"calibration needs a graph that holds the smallest item of {recording.size.name!r}, "
        f"{recording.size.rule.min_tokens} tokens, got budgets {plan.token_budgets!r}",
    )
    largest, *others = loads
    full, *rest = zip_longest(*others) if others else [()]
    replays, more = [
        [partial(recording.replay, made, *one) for one in chosen if one is not None]
        for chosen in ([*largest, *full], chain(*rest))
    ]
    eagers, apart = (
        [partial(recording.eager, batch) for batch in batches]
        for batches in _ladder(recording, plan.largest())
    )
    return Jobs(
        telling=[
            *_at_least(curves.LEAST_EAGERS, [*eagers, *apart[:1]]),
            *_at_least(curves.LEAST_REPLAYS, replays),
            *_executes(recording, made),
        ],
        further=[*more, *apart[1:]],
    )


def _at_least(count: int, jobs: Sequence[Job]) -> Iterator[Job]:
    return islice(cycle(jobs), max(count, len(jobs)))


def _loads(recording: Recording, capacity: Capacity) -> list[list[Input]]:
    """Full with few and with several segments, almost empty, half full; as far as they differ."""
    low, tokens = recording.size.rule.min_tokens, capacity.tokens
    tried = [
        *_split(recording, tokens, capacity),
        *_split(recording, low, capacity)[:1],
        *_split(recording, tokens // 2, capacity)[:1],
    ]
    return _distinct(tried)


def _ladder(recording: Recording, largest: Capacity) -> tuple[list[list[Input]], list[list[Input]]]:
    """Eager loads of as few items as can be, largest first; and those of more, which no graph limits."""
    rule = recording.size.rule
    low, ratio = rule.min_tokens, largest.tokens / rule.min_tokens
    steps = max(1, math.ceil(math.log(max(1.0, ratio), RUNG)))
    roomy = sizes.capacity(largest.tokens, rule, items=max(1, largest.tokens // low))
    rungs = [round(low * ratio ** (n / steps)) for n in reversed(range(steps + 1))]
    split = [_split(recording, tokens, roomy) for tokens in rungs]
    few = _distinct([batches[0] for batches in split if batches])
    return few, _distinct([batch for batches in split for batch in batches[1:]])


def _larger(recording: Recording, made: GraphSet, points: Sequence[Measurement]) -> Generator[Job]:
    """Eager runs beyond the largest graph, each twice the last, while the largest so far waits for the host."""
    rule, tokens = recording.size.rule, made.captured_plan.largest().tokens
    for _ in range(DOUBLINGS):
        seen = {
            m.load: m.latency.p50_ms
            for m in points
            if m.route is Route.EAGER and m.load and m.latency
        }
        most = max(load.patches for load in seen)
        if min(ms for load, ms in seen.items() if load.patches > 0.9 * most) > BUSY * min(
            seen.values()
        ):
            return
        tokens *= 2
        roomy = sizes.capacity(tokens, rule, items=max(1, tokens // rule.min_tokens))
        for batch in _split(recording, tokens, roomy):
            yield partial(recording.eager, batch)


def _distinct(batches: Sequence[list[Input]]) -> list[list[Input]]:
    return list({load_of(batch): batch for batch in batches}.values())


def _split(recording: Recording, tokens: int, capacity: Capacity) -> list[list[Input]]:
    """Equal items of so many tokens in all: as few as a capacity allows, and up to four times as many."""
    rule = recording.size.rule
    most = min(rule.max_tokens, max(1, capacity.longest_segment // rule.merge_area))
    few = min(-(-tokens // most), capacity.items)
    several = min(4 * few, capacity.items, tokens // rule.min_tokens)
    batches = [
        recording.inputs(min(most, tokens // parts), parts)
        for parts in dict.fromkeys((few, max(few, several)))
        if tokens // parts >= rule.min_tokens
    ]
    return [batch for batch in batches if capacity.holds(load_of(batch))]


def _executes(recording: Recording, made: GraphSet) -> Iterator[Job]:
    """Replays of one and of several small items with their copies, for what the host adds.

    By the smallest graph that holds them, since the card's own time is taken off.
    """
    low, graphs = recording.size.rule.min_tokens, made.captured_plan.graphs
    several = max(min(graph.items, graph.tokens // low, SEVERAL) for graph in graphs)
    for batch in (recording.inputs(low, count) for count in (1, max(1, several))):
        graph = next((graph for graph in graphs if graph.holds(load_of(batch))), None)
        if graph is not None:
            run = partial(_owned, made, graph, batch)
            yield partial(recording.execute, made, graph, batch, run)


def _owned(made: GraphSet, capacity: Capacity, batch: Sequence[Input]) -> list[EncoderOutput]:
    spec = made.encoder.spec
    counts = [spec.rows(value.item) for value in batch]
    return rows.one_copy(made.replay(capacity, batch), counts, spec.widths)


def _fitted(recording: Recording, made: GraphSet, points: Sequence[Measurement]) -> Costs:
    """The fit of `curves`, with eager's curve, host time and bytes as they were seen here.

    What the host adds was seen of one replay, so it is a step's, and eager's own is in its wall time.
    """
    eagers = [m for m in points if m.route is Route.EAGER]
    replays = [m for m in points if m.route is Route.REPLAY and "device_ms" not in m.numbers]
    kernels = Kernels.of(points[0])
    fit = curves.fit(points, recording.size, kernels)
    dense, square = curves.eager_curve(eagers)
    fastest = min((m.latency for m in eagers if m.latency), key=lambda latency: latency.p50_ms)
    runs = (fastest.p10_ms, fastest.p50_ms, fastest.p90_ms)
    floor, held, plan = statistics.fmean(runs), made.memory, made.captured_plan
    machine, on_card = recording.environment, recording.encoder.spec.device.type == "cuda"
    return replace(
        fit,
        source=(
            f"measured at capture on {machine.gpu if on_card else machine.cpu}, "
            f"torch {machine.torch}, {kernels.about}, {machine.utc[:10]}, "
            f"{len(replays)} replays and {len(eagers)} eager runs"
        ),
        step_ms=fit.request_ms,
        request_ms=0.0,
        eager_dense=dense,
        eager_square_ms=square,
        eager_item_ms=0.0,
        eager_floor_ms=floor,
        eager_spread_ms=tuple(ms - floor for ms in runs),
        pool_bytes_per_patch=held.pool_bytes / plan.largest().patches,
        driver_bytes_per_graph=held.driver_bytes / len(plan.graphs),
    )
