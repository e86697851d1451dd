"""Packed pixels: say what is wrong with an input, write inputs end to end, cut outputs apart.

Shape legend: P patches, K patch width.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from encgraph.encoders.protocol import EncoderOutput, Input


def wrong(value: Input, *, width: int, merge: int) -> str | None:
    """What is wrong with an input for a tower of this patch width and merge, or None."""
    pixels, grid = value.pixels, value.grid
    if min(grid) < 1 or grid.h % merge or grid.w % merge:
        return f"must have a grid whose height and width divide by {merge}, got {tuple(grid)!r}"
    expected = (grid.t * grid.h * grid.w, width)
    if tuple(pixels.shape) != expected:
        return (
            f"must have pixels of shape {expected!r} for grid {tuple(grid)!r}, "
            f"got {tuple(pixels.shape)!r}"
        )
    if not pixels.is_floating_point():
        return f"must have pixels of a float dtype, got {pixels.dtype}; scale and convert them"
    if pixels.requires_grad:
        return "must have pixels without gradient; detach them, only inference runs here"
    return None


def copy_pixels(rows_PK: Tensor, inputs: Sequence[Input]) -> None:
    """Write items end to end from row 0, without waiting; one kernel where they are on the device.

    Pixels in pageable host memory are staged by the driver, which keeps the host busy but not the
    device waiting; give pinned or device tensors where that matters.
    """
    sources = [value.pixels for value in inputs]
    total = sum(len(source) for source in sources)
    if sources and all(s.device == rows_PK.device and s.dtype == rows_PK.dtype for s in sources):
        torch.cat(sources, out=rows_PK[:total])
        return
    ends = accumulate(len(source) for source in sources)
    for source, end in zip(sources, ends, strict=True):
        rows = rows_PK[end - len(source) : end]
        # Another dtype is converted on the device: on the host that takes longer than the copy.
        moved = source if source.dtype == rows.dtype else source.to(rows.device, non_blocking=True)
        rows.copy_(moved, non_blocking=True)


def cut(output: EncoderOutput, tokens: Sequence[int]) -> list[EncoderOutput]:
    """Cut packed rows into items of so many tokens each, in order; views."""
    ends = accumulate(tokens)
    return [output.rows(end - count, end) for count, end in zip(tokens, ends, strict=True)]
