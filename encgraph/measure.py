"""Time batches: steps as they happen, and systems against each other on the same requests.

Comparisons are interleaved: every request is run by every system before the next request, in an order
that turns with each repeat and each request, so that clocks, caches and neighbours disturb all alike. A
request's time is the median of its repeats; quantiles are taken over requests. Wall time includes one
synchronize after the batch, which is what a caller waits for.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch

from encgraph import meters
from encgraph.encoders.protocol import Execute, Input
from encgraph.facts import Jitter
from encgraph.records import Step
from encgraph.results import Latency

_Batch = TypeVar("_Batch")


@dataclass(slots=True, kw_only=True, eq=False)
class ObservedStep:
    """One observed step and its times."""

    step: Step
    wall_ms: float = 0.0
    """Host time inside the step; on a card that is the launch, not the work."""
    start_ms: float = 0.0
    """Host time from the making of the recorder to the start of the step."""
    _began: torch.cuda.Event | None = None
    _ended: torch.cuda.Event | None = None
    _first: "ObservedStep | None" = None
    """The recorder's first step on a card; None for that step itself, and off CUDA."""

    @property
    def device_ms(self) -> float | None:
        """Time on the card's stream; None off CUDA. Synchronizes with the step's end."""
        if self._began is None or self._ended is None:
            return None
        self._ended.synchronize()
        return float(self._began.elapsed_time(self._ended))

    @property
    def ms(self) -> float:
        """Device time where there is a card, else wall time."""
        device = self.device_ms
        return self.wall_ms if device is None else device

    @property
    def began_ms(self) -> float:
        """When the card's stream, else the host, began the step, since the recorder was made."""
        if self._began is None or self._first is None or self._first._began is None:
            return self.start_ms
        self._began.synchronize()
        return self._first.start_ms + float(self._first._began.elapsed_time(self._began))


@dataclass(slots=True)
class Recorder:
    """An observer that keeps every step with its times.

    Give it to a runner as `observe=recorder`; read `steps` afterwards.
    """

    device: torch.device
    steps: list[ObservedStep] = field(default_factory=list)
    made_s: float = field(default_factory=time.perf_counter)
    """`time.perf_counter` when it was made: the origin of its steps' times."""
    _first: ObservedStep | None = None

    def __call__(self, step: Step) -> AbstractContextManager[None]:
        """Time one step."""
        return self._time(step)

    @contextmanager
    def _time(self, step: Step) -> Iterator[None]:
        timed = ObservedStep(step=step)
        if self.device.type == "cuda":
            timed._began = meters.event(self.device)
            timed._first = self._first
            self._first = self._first or timed
        start = time.perf_counter()
        timed.start_ms = (start - self.made_s) * 1e3
        yield
        timed.wall_ms = (time.perf_counter() - start) * 1e3
        if timed._began is not None:
            timed._ended = meters.event(self.device)
        self.steps.append(timed)


def turns(
    names: Iterable[str], *, index: int, repeats: int, warmups: int = 1
) -> Iterator[tuple[str, bool]]:
    """Systems in the order in which one request is run by them, and whether a run counts.

    Over twice as many rounds as systems each stands in every place twice and follows each other one
    equally often; a request begins one round after the request before it.

    Args:
        names: The systems.
        index: The request's.
        repeats: Rounds that count.
        warmups: Rounds before them.

    Source:
        E. J. Williams, Experimental designs balanced for the estimation of residual effects of
        treatments, Australian Journal of Scientific Research 2, 1949.

    >>> [name for name, _ in turns("abcd", index=0, repeats=1, warmups=0)]
    ['a', 'b', 'd', 'c']
    """
    known = list(names)
    count = len(known)
    steps = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(count)]
    for repeat in range(-warmups, repeats):
        turn = index + repeat
        forward = [known[(turn + step) % count] for step in steps]
        for name in forward if turn // count % 2 == 0 else reversed(forward):
            yield name, repeat >= 0


def interleaved(
    systems: Mapping[str, Execute],
    batches: Sequence[Sequence[Input]],
    *,
    device: torch.device,
    repeats: int = 5,
    warmups: int = 1,
    first: int = 0,
) -> dict[str, list[Latency]]:
    """Time every batch by every system, interleaved.

    Args:
        systems: Name to a function that runs one batch.
        batches: The requests' inputs.
        device: Where the work happens.
        repeats: Timed runs of each pair, at least 1.
        warmups: Untimed runs of each pair before.
        first: Index of the first batch among all that are compared, from which the order follows.

    Returns:
        For each system the wall time of each batch over its repeats, in order.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats!r}")
    found: dict[str, list[Latency]] = {name: [] for name in systems}
    for index, batch in enumerate(batches, first):
        samples: dict[str, list[float]] = {name: [] for name in systems}
        for name, counts in turns(systems, index=index, repeats=repeats, warmups=warmups):
            ms = meters.wall_ms(partial(systems[name], batch), device)
            if counts:
                samples[name].append(ms)
        for name, times in samples.items():
            found[name].append(latency(times, warmups=warmups))
    return found


def latency(samples_ms: Sequence[float], *, warmups: int = 1, clock: str = "wall") -> Latency:
    """Summarise times of one clock."""
    return Latency.of(samples_ms, clock=clock, warmups=warmups)


def jitter(
    execute: Callable[[_Batch], object],
    replayed: _Batch,
    fallback: _Batch,
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
    clock = partial(meters.wall_ms, on=device)
    replay_alone = [clock(replay) for _ in range(samples)]
    fallback_alone = [clock(fall_back) for _ in range(samples)]
    in_turn = [(clock(fall_back), clock(replay)) for _ in range(samples)]
    return Jitter(
        replay_alone_ms=tuple(replay_alone),
        replay_alternating_ms=tuple(ms for _, ms in in_turn),
        fallback_alone_ms=tuple(fallback_alone),
        fallback_alternating_ms=tuple(ms for ms, _ in in_turn),
    )
