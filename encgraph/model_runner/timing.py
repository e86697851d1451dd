"""Time the stages of one batch of requests, the device synchronized around each, or do nothing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from encgraph.model_runner.facts import StageTimes


class Stopwatch:
    """Wall times of the stages of one batch; off, it neither waits nor records."""

    def __init__(self, device: torch.device, *, on: bool) -> None:
        self._device, self._on = device, on
        self._stages: dict[str, float] = {}
        self._decode: list[float] = []
        self._first = 0.0
        self._start = self._now()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; its name is the field of `StageTimes` without the unit."""
        start = self._now()
        yield
        self._stages[name] = self._now() - start

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time one decode step."""
        start = self._now()
        yield
        self._decode.append(self._now() - start)

    def first_token(self) -> None:
        """Note that the first token is on the host."""
        self._first = self._now() - self._start

    @property
    def times(self) -> StageTimes | None:
        """What was timed; None when off."""
        if not self._on:
            return None
        return StageTimes(
            preprocessing_ms=self._stages["preprocessing"],
            encode_ms=self._stages["encode"],
            scatter_ms=self._stages["scatter"],
            prefill_ms=self._stages["prefill"],
            first_token_ms=self._first,
            decode_ms=tuple(self._decode),
        )

    def _now(self) -> float:
        """Milliseconds, all work of the device done; 0 when off."""
        if not self._on:
            return 0.0
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter() * 1e3
