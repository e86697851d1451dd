"""Time one encoder, replayed and eager, into the points that `curves` fits.

`recording` makes them of a card for keeps; `calibrating` makes a few of the graphs a runner holds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf

from encgraph import curves, meters, sizes
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Encoder, Input
from encgraph.graphs import GraphSet
from encgraph.records import Capacity, Load, Route
from encgraph.results import Environment, Latency, Measurement
from encgraph.sizes import EncoderSize

SLOW_MS = 100.0
"""Calls longer than this are steady enough for three samples."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """One encoder under the clock."""

    encoder: Encoder
    size: EncoderSize
    environment: Environment
    samples: int = 9
    most_ms: float = inf
    """Time a point may take beyond two calls."""

    def point(self, route: Route, **fields: object) -> Measurement:
        """One line of the curve."""
        spec = self.encoder.spec
        return Measurement(
            experiment=curves.experiment(self.size.name),
            encoder=self.size.name,
            environment=self.environment,
            attention=spec.attention,
            compiled=spec.compiled,
            fused=spec.fused,
            route=route,
            **fields,  # type: ignore[arg-type]
        )

    def loads(self, tokens: int, items: int) -> Iterator[list[Input]]:
        """Full with as few segments as can be, with 4 and 16 times as many where they fit, and one
        smallest item; of slots, which are all computed whatever is in them, full and with one."""
        rule = self.size.rule
        low, few = rule.min_tokens, -(-tokens // rule.max_tokens)
        if rule.slot_tokens:
            low, few = rule.slot_tokens, tokens // rule.slot_tokens
        for parts in (few, 4 * few, 16 * few):
            if parts <= items and tokens // parts >= low:
                yield self.inputs(tokens // parts, parts)
        if tokens > low:
            yield self.inputs(low, 1)

    def inputs(self, tokens: int, count: int) -> list[Input]:
        """So many equal items of at most so many tokens each."""
        is_packed = self.size.layout == "packed"
        grid = sizes.near_square_grid(_fitting(tokens) if is_packed else tokens, self.size.rule)
        spec = self.encoder.spec
        return inputs.synthetic(
            [grid] * count, size=self.size, device=spec.device, dtype=spec.dtype, seed=0
        )

    def replay(self, made: GraphSet, capacity: Capacity, batch: list[Input]) -> Measurement:
        """Device time of a bare replay where there is a card, else wall time."""
        latency = self.device(self._bare(made, capacity, batch))
        return self.point(Route.REPLAY, capacity=capacity, load=load_of(batch), latency=latency)

    def execute(
        self, made: GraphSet, capacity: Capacity, batch: list[Input], run: Callable[[], object]
    ) -> Measurement:
        """Wall time of a whole execute that replays, beside the device time of the replay."""
        wall = self.wall(run)
        device_ms = self.device(self._bare(made, capacity, batch)).p50_ms
        return self.point(
            Route.REPLAY,
            capacity=capacity,
            load=load_of(batch),
            latency=wall,
            numbers={"device_ms": device_ms},
        )

    def _bare(self, made: GraphSet, capacity: Capacity, batch: list[Input]) -> Callable[[], object]:
        """A replay as the runner makes it, which knows the sizes by then."""
        items = [self.encoder.item_spec(value) for value in batch]
        return partial(made.replay, capacity, batch, items=items)

    def eager(self, batch: list[Input]) -> Measurement:
        """Wall time of an eager run, launches included."""
        latency = self.wall(partial(self.encoder.eager, batch))
        return self.point(Route.EAGER, load=load_of(batch), latency=latency)

    def device(self, run: Callable[[], object]) -> Latency:
        """Device milliseconds of a call where there is a card, else wall."""
        on_card = self.encoder.spec.device.type == "cuda"
        return self._timed(run, meters.device if on_card else meters.wall)

    def wall(self, run: Callable[[], object]) -> Latency:
        """Wall milliseconds of a call."""
        return self._timed(run, meters.wall)

    def _timed(self, run: Callable[[], object], timed: Callable[..., Latency]) -> Latency:
        """Warm up twice; as many samples as asked for and fit in, few of what is slow.

        Where one must do, it is the second call.
        """
        run()
        on = self.encoder.spec.device
        once = timed(run, on, samples=1)
        most = self.samples if once.p50_ms < SLOW_MS else min(3, self.samples)
        fit = min(most, self.most_ms // once.p50_ms)
        return timed(run, on, samples=int(fit)) if fit > 1 else once


def load_of(batch: list[Input]) -> Load:
    """What a batch asks of a replay."""
    return Load.of(value.item for value in batch)


def _fitting(tokens: int) -> int:
    """Largest square not above a token count, so that a near-square grid cannot exceed it."""
    root = int(tokens**0.5)
    return root * (tokens // root)
