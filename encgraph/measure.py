"""Time batches: steps as they happen, and systems against each other on the same requests.

Comparisons are interleaved: every request is run by every system before the next request, in an order
that turns each repeat, so that clocks, caches and neighbours disturb all alike. A request's time is
the median of its repeats; quantiles are taken over requests. Wall time includes one synchronize after
the batch, which is what a caller waits for.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch

from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.facts import Jitter
from encgraph.records import Step
from encgraph.results import Latency

Batch = TypeVar("Batch")
Execute = Callable[[Sequence[Input]], list[EncoderOutput]]


@dataclass(slots=True, kw_only=True, eq=False)
class Timed:
    """One observed step and its times."""

    step: Step
    wall_ms: float = 0.0
    """Host time inside the step; on a card that is the launch, not the work."""
    start_ms: float = 0.0
    """Host time from the making of the recorder to the start of the step."""
    _events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
    _first: "Timed | None" = None
    """The recorder's first step on a card; None for that step itself, and off CUDA."""

    @property
    def device_ms(self) -> float | None:
        """Time on the card's stream; None off CUDA. Synchronizes with the step's end."""
        if self._events is None:
            return None
        start, stop = self._events
        stop.synchronize()
        return float(start.elapsed_time(stop))

    @property
    def ms(self) -> float:
        """Device time where there is a card, else wall time."""
        device = self.device_ms
        return self.wall_ms if device is None else device

    @property
    def began_ms(self) -> float:
        """When the card's stream, else the host, began the step, since the recorder was made."""
        if self._events is None or self._first is None or self._first._events is None:
            return self.start_ms
        first, start = self._first._events[0], self._events[0]
        start.synchronize()
        return self._first.start_ms + float(first.elapsed_time(start))


@dataclass(slots=True)
class Recorder:
    """An observer that keeps every step with its times.

    Give it to a runner as `observe=recorder`; read `steps` afterwards.
    """

    device: torch.device
    steps: list[Timed] = field(default_factory=list)
    made_s: float = field(default_factory=time.perf_counter)
    """`time.perf_counter` when it was made: the origin of its steps' times."""
    _first: Timed | None = None

    def __call__(self, step: Step) -> AbstractContextManager[None]:
        """Time one step."""
        return self._time(step)

    @contextmanager
    def _time(self, step: Step) -> Iterator[None]:
        timed = Timed(step=step)
        if self.device.type == "cuda":
            timed._events = (event(), event())
            timed._events[0].record()
            timed._first = self._first
            self._first = self._first or timed
        start = time.perf_counter()
        timed.start_ms = (start - self.made_s) * 1e3
        yield
        timed.wall_ms = (time.perf_counter() - start) * 1e3
        if timed._events:
            timed._events[1].record()
        self.steps.append(timed)


def event() -> torch.cuda.Event:
    """A CUDA event that keeps the time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def wall_ms(run: Callable[[], object], device: torch.device) -> float:
    """Milliseconds from call to finished work, one synchronize after it."""
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return (time.perf_counter() - start) * 1e3


def synchronize(device: torch.device) -> None:
    """Wait for the device; nothing to wait for on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleaved(
    systems: Mapping[str, Execute],
    batches: Sequence[Sequence[Input]],
    *,
    device: torch.device,
    repeats: int = 5,
    warmups: int = 1,
    progress: Callable[[Sequence[int]], Sequence[int]] = lambda indices: indices,
) -> dict[str, list[Latency]]:
    """Time every batch by every system, interleaved.

    Args:
        systems: Name to a function that runs one batch.
        batches: The requests' inputs.
        device: Where the work happens.
        repeats: Timed runs of each pair, at least 1.
        warmups: Untimed runs of each pair before.
        progress: Wraps the batch indices, for a progress bar.

    Returns:
        For each system the wall time of each batch over its repeats, in order.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats!r}")
    found: dict[str, list[Latency]] = {name: [] for name in systems}
    names = list(systems)
    for index in progress(range(len(batches))):
        samples: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(-warmups, repeats):
            turn = (index + repeat) % len(names)
            for name in names[turn:] + names[:turn]:
                ms = wall_ms(partial(systems[name], batches[index]), device)
                if repeat >= 0:
                    samples[name].append(ms)
        for name in names:
            found[name].append(latency(samples[name], warmups=warmups))
    return found


def latency(samples_ms: Sequence[float], *, warmups: int = 1, clock: str = "wall") -> Latency:
    """Summarise times of one clock."""
    return Latency.of(samples_ms, clock=clock, warmups=warmups)


def jitter(
    execute: Callable[[Batch], object],
    replayed: Batch,
    fallback: Batch,
    *,
    device: torch.device,
    samples: int = 50,
) -> Jitter:
    """Time a replayed batch and one that falls back, each alone, then in turn.

    Clocks, caches and the allocator's state after an eager run all show in the difference.
    """
    replay, fall_back = partial(execute, replayed), partial(execute, fallback)
    replay()
    fall_back()
    replay_alone = [wall_ms(replay, device) for _ in range(samples)]
    fallback_alone = [wall_ms(fall_back, device) for _ in range(samples)]
    turns = [(wall_ms(fall_back, device), wall_ms(replay, device)) for _ in range(samples)]
    return Jitter(
        replay_alone_ms=tuple(replay_alone),
        replay_alternating_ms=tuple(ms for _, ms in turns),
        fallback_alone_ms=tuple(fallback_alone),
        fallback_alternating_ms=tuple(ms for ms, _ in turns),
    )
