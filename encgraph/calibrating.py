"""Fit a cost model to the very graphs a runner holds: a few timed replays and eager runs after capture.

A recorded curve speaks of a card in general; this speaks of these graphs, this driver and this host, so
that replay, split or eager is decided by what was seen here. Loads are those of `points`: full with
few and with many segments, half full, almost empty; eager on a ladder of loads. The most telling come
first, since all of it is under one time limit. Outputs do not change: a replay's buffers are written
anew, and each fill clears what the last one left.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice, zip_longest

from encgraph import curves, meters, packing, rows
from encgraph.costs import Costs
from encgraph.curves import Kernels
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import require
from encgraph.exact import ExactSet
from encgraph.graphs import GraphSet
from encgraph.points import Recording, load_of
from encgraph.records import Capacity, Route
from encgraph.results import Measurement
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize

LIMIT_S = 10.0
"""Enough for 16 graphs on a card; on a CPU large graphs get one sample a load."""
RUNGS = 5
"""Sizes of eager loads, from the smallest item to the largest capacity."""
MOST_ITEMS = 16
SAMPLES = 5
POINTS = 12
"""Points beside the four of a capacity, about."""
Job = Callable[[], Measurement]


def calibrate(
    runner: EncoderRunner, size: EncoderSize, *, limit_s: float = LIMIT_S, samples: int = SAMPLES
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
        ValueError: If there is nothing to calibrate, the layout is another, or the limit is too short;
            the runner then packs as before.
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
    points: list[Measurement] = []
    for job in _jobs(recording, made):
        if time.perf_counter() >= until_s:
            break
        points.append(job())
    costs = _fitted(recording, made, points, limit_s)
    runner.pack_by(partial(packing.packer, costs=costs, rule="cheapest"))
    return costs


def _calibrated(runner: EncoderRunner, size: EncoderSize) -> GraphSet:
    made = runner.graphs
    require(
        made is not None and made.is_captured and not isinstance(made, ExactSet),
        "calibration needs graphs of a plan, captured; capture first, and leave exact layouts alone",
    )
    assert made is not None
    return made


def _jobs(recording: Recording, made: GraphSet) -> Iterator[Job]:
    """What to time, most telling first; where there is too little for a fit, again."""
    plan = made.captured_plan
    loads = [(graph, _loads(recording, graph)) for graph in plan.graphs]
    ranks = zip_longest(*([(graph, batch) for batch in batches] for graph, batches in loads))
    ranked = [one for rank in ranks for one in rank if one is not None]
    require(
        bool(ranked),
        f"calibration needs a graph that holds the smallest item of {recording.size.name!r}, "
        f"{recording.size.rule.min_tokens} tokens, got budgets {plan.token_budgets!r}",
    )
    replays: list[Job] = [partial(recording.replay, made, *one) for one in ranked]
    eagers: list[Job] = [partial(recording.eager, b) for b in _ladder(recording, plan.largest())]
    yield from _at_least(curves.LEAST_EAGERS, eagers[: curves.LEAST_EAGERS])
    yield from _at_least(curves.LEAST_REPLAYS, replays)
    yield from _executes(recording, made)
    yield from eagers[curves.LEAST_EAGERS :]


def _at_least(count: int, jobs: Sequence[Job]) -> Iterator[Job]:
    return islice(cycle(jobs), max(count, len(jobs)))


def _loads(recording: Recording, capacity: Capacity) -> list[list[Input]]:
    """Almost empty, full with few and with several segments, half full; as far as they differ."""
    low, tokens = recording.size.rule.min_tokens, capacity.tokens
    tried = [
        *_split(recording, low, capacity)[:1],
        *_split(recording, tokens, capacity),
        *_split(recording, tokens // 2, capacity)[:1],
    ]
    return list({load_of(batch): batch for batch in tried}.values())


def _ladder(recording: Recording, largest: Capacity) -> list[list[Input]]:
    """Eager loads: smallest, middle, largest, those between, then all with more segments."""
    low, ratio = recording.size.rule.min_tokens, largest.tokens / recording.size.rule.min_tokens
    rungs = [round(low * ratio ** (n / (RUNGS - 1))) for n in range(RUNGS)]
    middle = RUNGS // 2
    order = [rungs[0], rungs[middle], rungs[-1], *rungs[1:middle], *rungs[middle + 1 : -1]]
    split = [_split(recording, tokens, largest) for tokens in order]
    tried = [one for rank in zip_longest(*split) for one in rank if one is not None]
    return list({load_of(batch): batch for batch in tried}.values())


def _split(recording: Recording, tokens: int, capacity: Capacity) -> list[list[Input]]:
    """Equal items of so many tokens in all: as few as a capacity allows, and four times as many."""
    rule = recording.size.rule
    most = min(rule.max_tokens, max(1, capacity.longest_segment // rule.merge_area))
    few = min(-(-tokens // most), capacity.items)
    batches = [
        recording.inputs(min(most, tokens // parts), parts)
        for parts in (few, 4 * few)
        if parts <= capacity.items and tokens // parts >= rule.min_tokens
    ]
    return [batch for batch in batches if capacity.holds(load_of(batch))]


def _executes(recording: Recording, made: GraphSet) -> Iterator[Job]:
    """Replays of one and of several small items with their copies, for what the host adds."""
    low = recording.size.rule.min_tokens
    for graph in made.captured_plan.graphs[-1:]:
        for count in (1, min(graph.items, graph.tokens // low, MOST_ITEMS)):
            batch = recording.inputs(low, count)
            if graph.holds(load_of(batch)):
                run = partial(_owned, made, graph, batch)
                yield partial(recording.execute, made, graph, batch, run)


def _owned(made: GraphSet, capacity: Capacity, batch: Sequence[Input]) -> list[EncoderOutput]:
    spec = made.encoder.spec
    counts = [spec.rows(value.item) for value in batch]
    return rows.one_copy(made.replay(capacity, batch), counts, spec.widths)


def _fitted(
    recording: Recording, made: GraphSet, points: Sequence[Measurement], limit_s: float
) -> Costs:
    """The fit of `curves`, with eager's curve, host time and bytes as they were seen here.

    What the host adds was seen of one replay, so it is a step's, and eager's own is in its wall time.
    """
    eagers = [m for m in points if m.route is Route.EAGER]
    replays = [m for m in points if m.route is Route.REPLAY and "device_ms" not in m.numbers]
    require(
        len(replays) >= curves.LEAST_REPLAYS and len(eagers) >= curves.LEAST_EAGERS,
        f"calibration must time {curves.LEAST_REPLAYS} replays and {curves.LEAST_EAGERS} eager "
        f"runs, got {len(replays)} and {len(eagers)} in {limit_s!r} s; raise its limit or capture "
        "smaller graphs",
    )
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
