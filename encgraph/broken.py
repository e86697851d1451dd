"""Undo what a broken capture leaves behind, so that the process can go on.

CUDA invalidates a capture in which something happens that it forbids, a synchronisation above all. Before
2.14.1 torch then leaves its allocator recording: that pool takes no capture any more, the general pool gives
nothing back to the driver. Since 2.13, to reset one graph frees what cuBLAS works in on the stream it was
captured on, which all other graphs of that stream go on using (its issue 193402).
"""

from contextlib import suppress

import torch

RESET_TAKES_ALL = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Whether a graph that is reset or dropped takes the workspace from all others of its stream."""
_LOST: list[torch.cuda.CUDAGraph] = []
"""Graphs that were left recording: torch's allocator of pinned memory goes on pointing at them."""


def abandon(
    recorded: torch.cuda.CUDAGraph, pool: tuple[int, int], device: torch.device, *, keep: bool
) -> bool:
    """Drop a graph whose capture failed, and end what an invalidated capture left begun.

    Args:
        recorded: The graph that was not made.
        pool: What it was captured into.
        device: Where the capture was; a card.
        keep: Whether the caller keeps the graph, for what `RESET_TAKES_ALL` says.

    Returns:
        Whether it was left begun: nothing can be captured into that pool again.
    """
    if not keep:
        with suppress(RuntimeError):
            recorded.reset()
    index = device.index or 0
    try:
        torch._C._cuda_endAllocateToPool(index, pool)
    except RuntimeError:  # it never began, or was ended in order
        return False
    _LOST.append(recorded)
    with suppress(RuntimeError):
        torch._C._cuda_releasePool(index, pool)
    return True


def recover(device: torch.device) -> None:
    """Free the random generator, which believes it is still capturing, and what the pool held.

    Call it once the error is gone, whose frames hold what the forward allocated, and the graph that
    was not made, which holds the pool.

    Args:
        device: Where the capture was; a card.
    """
    generator = torch.cuda.default_generators[device.index or 0]
    generator.graphsafe_set_state(generator.clone_state())
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
