"""Hold the pool and the stream that graphs are captured into, and order replays on several streams."""

import weakref
from dataclasses import dataclass, field

import torch

from encgraph import broken, memory


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Home:
    """The pool and the stream that graphs are captured into; the allocator reuses blocks of one
    stream only, so they go together."""

    pool: memory.Pool
    stream: torch.cuda.Stream
    captured: int = 0
    """Graphs of the stream so far."""
    pooled: int = 0
    """Of these, in the pool."""
    retired: list[torch.cuda.CUDAGraph] = field(default_factory=list)
    """Graphs of the stream that are used no more and go with the last; see `broken.RESET_TAKES_ALL`."""

    def add(self) -> None:
        """Count a graph that was captured."""
        self.captured, self.pooled = self.captured + 1, self.pooled + 1

    def retire(self, recorded: torch.cuda.CUDAGraph | None) -> None:
        """Keep a graph that is used no more, where dropping it would take from others what they use."""
        if recorded is not None and broken.RESET_TAKES_ALL:
            self.retired.append(recorded)

    def abandon(self, recorded: torch.cuda.CUDAGraph, device: torch.device) -> None:
        """Go on after a failed capture, with a new pool where the old one takes none any more."""
        shares = self.captured > 0 and broken.RESET_TAKES_ALL
        if shares:
            self.retired.append(recorded)
        left = broken.abandon(recorded, self.pool, device, keep=shares)
        if left or not self.pooled:  # torch lets nobody into a pool that its last graph has left
            self.pool, self.pooled = torch.cuda.graph_pool_handle(), 0
        broken.recover(device)


_IDLE: dict[int, list[torch.cuda.Stream]] = {}
"""Streams whose graphs are gone, by device."""


def new_home(device: torch.device) -> Home:
    """A new pool, and a stream that no graph alive was captured on.

    A stream keeps the workspace that cuBLAS took for it, some 32 MiB that graphs of it hold on to.
    So it is used again, once its graphs are gone, rather than a new one with one more workspace.
    """
    idle = _IDLE.setdefault(device.index or 0, [])
    stream = idle.pop() if idle else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    home = Home(pool=torch.cuda.graph_pool_handle(), stream=stream)
    weakref.finalize(home, idle.append, stream).atexit = False
    return home


def followed(before: torch.cuda.Stream | None, device: torch.device) -> torch.cuda.Stream | None:
    """Let the current stream wait for the one of the call before.

    Args:
        before: What this gave last time; None at first.
        device: Whose current stream; off CUDA there is none.
    """
    if device.type != "cuda":
        return None
    # By number: asked for the current device's, torch first asks the driver for all devices.
    current = torch.cuda.current_stream(device.index)
    if before is not None and before != current:
        current.wait_stream(before)
    return current
