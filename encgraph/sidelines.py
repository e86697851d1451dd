"""Measure what latency alone does not show: jitter between routes, and host time before the launch."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch

from encgraph import measure
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner

Routes = tuple[int, int]
"""Replays and eager runs of one request."""
HOST_ITEMS = 8
"""Items of the batch whose host time is reported."""


@dataclass(slots=True)
class _Stamp:
    """Stands where a graph is and notes when it would be launched."""

    at: float | None = None

    def replay(self) -> None:
        """Note the first launch of a batch."""
        if self.at is None:
            self.at = time.perf_counter()


def before_launch_us(
    runner: EncoderRunner, batch: Sequence[Input], *, samples: int = 50
) -> float | None:
    """Host time of `execute` from its call to its first graph launch, median in microseconds.

    Nothing is launched: the graphs are put back afterwards, and outputs are whatever the slabs hold.

    Args:
        runner: With graphs captured.
        batch: What to execute.
        samples: Timed calls, after three that are not counted.

    Returns:
        Microseconds, or None if no graph holds anything of the batch.
    """
    stamp = _Stamp()
    found: list[float] = []
    with _stamped(runner, stamp):
        for _ in range(samples + 3):
            stamp.at = None
            measure.synchronize(runner.encoder.spec.device)
            start = time.perf_counter()
            runner.execute(batch)
            if stamp.at is None:
                return None
            found.append((stamp.at - start) * 1e6)
    return statistics.median(found[3:])


@contextmanager
def _stamped(runner: EncoderRunner, stamp: _Stamp) -> Iterator[None]:
    made = runner.graphs.graphs if runner.graphs else []
    kept = [(graph, graph.graph) for graph in made]
    try:
        for graph in made:
            graph.graph = cast(torch.cuda.CUDAGraph, stamp)
        yield
    finally:
        for graph, own in kept:
            graph.graph = own


def jitter_numbers(
    runner: EncoderRunner,
    batches: Sequence[Sequence[Input]],
    routes: Sequence[Routes],
    *,
    samples: int,
) -> dict[str, float]:
    """Medians of a replayed and an eager request, each alone and in turn with the other.

    The requests are those of middle size that were all replayed and all eager; where none ran eager,
    the replayed one's own eager run alternates with it. Nothing replayed gives nothing.
    """
    replayed = _middle([b for b, (r, e) in zip(batches, routes, strict=True) if r and not e])
    eager = _middle([b for b, (r, e) in zip(batches, routes, strict=True) if e and not r])
    if replayed is None:
        return {}
    other = replayed if eager is None else eager
    turned = list(other)  # its own object, by which the two are told apart

    def execute(batch: Sequence[Input]) -> list[EncoderOutput]:
        alone = batch is turned and eager is None
        return runner.encoder.eager(batch) if alone else runner.execute(batch)

    device = runner.encoder.spec.device
    found = measure.jitter(execute, replayed, turned, device=device, samples=samples)
    return {
        "jitter_replay_alone_ms": statistics.median(found.replay_alone_ms),
        "jitter_replay_alternating_ms": statistics.median(found.replay_alternating_ms),
        "jitter_eager_alone_ms": statistics.median(found.fallback_alone_ms),
        "jitter_eager_alternating_ms": statistics.median(found.fallback_alternating_ms),
    }


def host_numbers(
    runner: EncoderRunner,
    small: Sequence[Input],
    batches: Sequence[Sequence[Input]],
    routes: Sequence[Routes],
) -> dict[str, float]:
    """Host time before the launch of a batch of small items, or of the replayed request most like it.

    Args:
        runner: With graphs captured.
        small: `HOST_ITEMS` small items.
        batches: The requests, for graphs that would not take those items.
        routes: How each request ran.
    """
    replayed = [
        b for b, (replays, eager) in zip(batches, routes, strict=True) if replays and not eager
    ]
    replayed.sort(key=lambda batch: abs(len(batch) - len(small)))
    for batch in (small, *replayed[:1]):
        us = before_launch_us(runner, batch)
        if us is not None:
            return {"before_launch_us": us, "before_launch_items_count": float(len(batch))}
    return {}


def _middle(batches: Sequence[Sequence[Input]]) -> Sequence[Input] | None:
    ordered = sorted(batches, key=lambda batch: sum(value.item.tokens for value in batch))
    return ordered[len(ordered) // 2] if ordered else None


def counted(observed: dict[str, int], before: dict[str, Any]) -> Routes:
    """Replays and eager runs since an earlier copy of the counts."""
    steps = {
        route: observed.get(f"{route}_steps", 0) - before.get(f"{route}_steps", 0)
        for route in ("replay", "fallback", "eager")
    }
    return steps["replay"], steps["fallback"] + steps["eager"]
