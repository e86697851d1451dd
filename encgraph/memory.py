"""Read what the card's memory holds: allocator, private pools and driver apart.

Driver bytes are what the device lost beyond the allocator's own growth, read with the allocator's
cache emptied on both sides. On a device without CUDA every reading is None or zero.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from encgraph.results import Memory

Pool = Any
"""A graph pool's handle: a pair of integers that torch types as opaque."""


@dataclass(slots=True)
class Peak:
    """Highest allocator use inside a block above what was there before, in bytes."""

    bytes: int | None = None


@dataclass(slots=True)
class Growth:
    """What a block added to a private pool and to the driver, in bytes."""

    memory: Memory | None = None


@contextmanager
def peak(device: torch.device) -> Iterator[Peak]:
    """Measure the allocator's peak over a block; stays None off CUDA."""
    found = Peak()
    if device.type != "cuda":
        yield found
        return
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    yield found
    found.bytes = torch.cuda.max_memory_allocated(device) - before


@contextmanager
def growth(device: torch.device, pool: Pool) -> Iterator[Growth]:
    """Measure what a block adds to a pool and to the driver; synchronizes and empties caches."""
    found = Growth()
    pool_before, outside_before = pool_bytes(pool), outside_allocator(device)
    yield found
    found.memory = Memory(
        slabs_bytes=0,
        pool_bytes=pool_bytes(pool) - pool_before,
        driver_bytes=max(0, outside_allocator(device) - outside_before),
    )


def pool_bytes(pool: Pool) -> int:
    """Bytes reserved by a private pool."""
    segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    mine = [s for s in segments if tuple(s["segment_pool_id"]) == tuple(pool)]
    return sum(int(segment["total_size"]) for segment in mine)


def used_bytes(device: torch.device) -> int:
    """Device bytes in use by anyone, with the allocator's cache emptied; 0 off CUDA."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def outside_allocator(device: torch.device) -> int:
    """Device bytes in use that the allocator did not reserve: context, libraries, graphs."""
    return used_bytes(device) - torch.cuda.memory_reserved(device)
