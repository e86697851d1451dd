"""Read what the card's memory holds: allocator, private pools and driver apart.

Driver bytes are what the device lost beyond the allocator's own growth, read with the allocator's
cache emptied on both sides. On a device without CUDA every such reading is None or zero.
`check_room` predicts what a capture takes, and refuses what the device cannot hold: studies and systems
ask it before they capture, a runner does not.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from encgraph import costs
from encgraph.encoders.protocol import Encoder
from encgraph.errors import CaptureError
from encgraph.records import Capacity, Plan
from encgraph.results import Memory
from encgraph.sizes import EncoderSize

MODELLED_ELEMENT_BYTES = 2
"""Of an element, as `costs.modelled` counts."""
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


def free_bytes(device: torch.device) -> int | None:
    """Bytes that could still be allocated on a device, its allocator's idle ones among them; None
    where nobody says."""
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    known = Path("/proc/meminfo")
    lines = known.read_text(encoding="ascii").splitlines() if known.is_file() else []
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    if {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def check_room(
    encoder: Encoder,
    plan: Plan,
    size: EncoderSize,
    *,
    slabs: str,
    free: Callable[[torch.device], int | None] = free_bytes,
) -> None:
    """Refuse graphs that the memory of their device cannot hold, before any is made.

    Slabs go by their shapes; the pool by arithmetic, since a curve may be of another device.

    Args:
        encoder: What would be captured.
        plan: Of budgets; none need nothing.
        size: The encoder's.
        slabs: "shared" or "private", as `graphs.capture` takes it.
        free: Bytes that a device has left; where it says None, all is taken to fit.

    Raises:
        CaptureError: If they are predicted to take more than is left.
    """
    if not plan.graphs:
        return
    spec, largest = encoder.spec, plan.largest()
    a_patch = costs.modelled(size).pool_bytes_per_patch / MODELLED_ELEMENT_BYTES
    pool = a_patch * spec.dtype.itemsize * largest.patches
    held = [largest] if slabs == "shared" else plan.graphs
    needed = pool + (slab := sum(_static_bytes(encoder, capacity) for capacity in held))
    left = free(spec.device)
    if left is not None and needed > left:
        raise CaptureError(
            f"budgets of up to {largest.tokens:,} tokens need about {needed / 2**20:,.0f} MiB on "
            f"{spec.device.type} (slabs {slab / 2**20:,.0f} MiB, pool {pool / 2**20:,.0f} MiB), "
            f"{left / 2**20:,.0f} MiB are free; plan smaller or fewer budgets"
        )


def _static_bytes(encoder: Encoder, capacity: Capacity) -> int:
    """Static inputs and output rows of one capacity."""
    spec = encoder.spec
    shapes = encoder.buffers(capacity, torch.device("meta"), spec.dtype)
    rows = spec.rows(capacity) * sum(spec.widths) * spec.dtype.itemsize
    return rows + sum(shape.nbytes for shape in shapes.values())
