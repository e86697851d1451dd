"""Record an encoder's cost curve on this machine: the raw points that `curves` fits.

Four kinds of points, all of one encoder, attention and body:

* capture: seconds and bytes of each capacity, captured alone, so that driver bytes are a graph's own;
* replay: device time of a capacity under several live loads (one long segment, a few, many, almost
  empty), since padding, attention and empty blocks cost differently;
* eager: wall time of the best eager forward on the same loads, launches included;
* execute: wall time of the whole runner beside its device time, for what the host adds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from encgraph import curves, graphs, meters, sizes
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Encoder, Input
from encgraph.graphs import GraphSet
from encgraph.records import Capacity, Load, Plan, Route
from encgraph.results import Environment, Latency, Measurement
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize

TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CAPS = (8, 64)
SLOW_MS = 100.0
"""Calls longer than this are steady enough for three samples."""
Progress = Callable[[Sequence[int]], Iterable[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """One encoder under the clock."""

    encoder: Encoder
    size: EncoderSize
    environment: Environment
    samples: int = 9

    def point(self, route: Route, **fields: object) -> Measurement:
        """One line of the curve."""
        spec = self.encoder.spec
        return Measurement(
            experiment=curves.experiment(self.size.name),
            encoder=self.size.name,
            environment=self.environment,
            attention=spec.attention,
            compiled=spec.compiled,
            route=route,
            **fields,  # type: ignore[arg-type]
        )

    def loads(self, tokens: int, items: int) -> Iterator[list[Input]]:
        """Full with 1, 4 and 16 segments where they fit, and one smallest item."""
        low = self.size.rule.min_tokens
        for parts in (1, 4, 16):
            if parts <= items and tokens // parts >= low:
                yield self._inputs(tokens // parts, parts)
        if tokens > low:
            yield self._inputs(low, 1)

    def _inputs(self, tokens: int, count: int) -> list[Input]:
        grid = sizes.near_square_grid(_fitting(tokens), self.size.rule)
        spec = self.encoder.spec
        return inputs.synthetic(
            [grid] * count, size=self.size, device=spec.device, dtype=spec.dtype, seed=0
        )


def _fitting(tokens: int) -> int:
    """Largest square not above a token count, so that a near-square grid cannot exceed it."""
    root = int(tokens**0.5)
    return root * (tokens // root)


def record(
    encoder: Encoder,
    size: EncoderSize,
    *,
    tokens: Sequence[int] = TOKENS,
    backend: str = "cuda",
    samples: int = 9,
    progress: Progress = lambda budgets: budgets,
) -> list[Measurement]:
    """Record the curve of one encoder as it is configured.

    Args:
        encoder: On the device to measure.
        size: Its published size.
        tokens: Budgets to capture, each with few and many items.
        backend: "cuda"; "reference" gives a curve of that backend on this machine.
        samples: Timed runs a point; the median counts.
        progress: Wraps the budgets, for a progress bar.

    Returns:
        Raw points; write them with `store.write`.
    """
    environment = meters.environment(str(encoder.spec.dtype).removeprefix("torch."))
    recording = Recording(encoder=encoder, size=size, environment=environment, samples=samples)
    points: list[Measurement] = []
    for budget in progress(tokens):
        for items in CAPS:
            capacity = sizes.capacity(budget, size.rule, items=min(items, budget))
            points += _captured(recording, capacity, backend)
        points += _eager(recording, budget)
    return points + _executes(recording, backend)


def _captured(recording: Recording, capacity: Capacity, backend: str) -> list[Measurement]:
    plan = Plan(graphs=(capacity,), encoder=recording.size.name)
    with graphs.capture(recording.encoder, plan, backend=backend) as made:
        [graph] = made.graphs
        points = [
            recording.point(
                Route.CAPTURE,
                capacity=capacity,
                memory=made.memory,
                numbers={"capture_s": graph.seconds},
            )
        ]
        for batch in recording.loads(capacity.tokens, capacity.items):
            load = Load.of(value.item for value in batch)
            if capacity.holds(load):
                latency = _device(recording, partial(made.replay, capacity, batch))
                points.append(
                    recording.point(Route.REPLAY, capacity=capacity, load=load, latency=latency)
                )
    return points


def _device(recording: Recording, run: Callable[[], object]) -> Latency:
    """Device milliseconds of a call where there is a card, else wall."""
    timed = meters.device if recording.encoder.spec.device.type == "cuda" else meters.wall
    return timed(run, samples=_enough(recording, run))


def _wall(recording: Recording, run: Callable[[], object]) -> Latency:
    return meters.wall(run, samples=_enough(recording, run))


def _enough(recording: Recording, run: Callable[[], object]) -> int:
    """Warm up twice; as many samples as asked for, but few of what takes long."""
    run()
    once_ms = meters.wall(run, samples=1).p50_ms
    return recording.samples if once_ms < SLOW_MS else min(3, recording.samples)


def _eager(recording: Recording, budget: int) -> list[Measurement]:
    points = []
    for batch in recording.loads(budget, max(CAPS)):
        points.append(
            recording.point(
                Route.EAGER,
                load=Load.of(value.item for value in batch),
                latency=_wall(recording, partial(recording.encoder.eager, batch)),
            )
        )
    return points


def _executes(recording: Recording, backend: str) -> list[Measurement]:
    """Whole executes of 1 to 16 items in one replay: wall beside device time."""
    capacity = sizes.capacity(1024, recording.size.rule, items=16)
    plan = Plan(graphs=(capacity,), encoder=recording.size.name)
    points = []
    with EncoderRunner(encoder=recording.encoder, plan=plan, backend=backend) as runner:
        runner.capture()
        made = runner.graphs
        assert isinstance(made, GraphSet)
        for count in (1, 4, 8, 16):
            batch = recording._inputs(64, count)
            wall = _wall(recording, partial(runner.execute, batch))
            device_ms = _device(recording, partial(made.replay, capacity, batch)).p50_ms
            points.append(
                recording.point(
                    Route.REPLAY,
                    capacity=capacity,
                    load=Load.of(value.item for value in batch),
                    latency=wall,
                    numbers={"device_ms": device_ms},
                )
            )
    return points
