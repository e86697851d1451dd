"""Rows of static buffers: refuse what does not belong there, write end to end, lengthen."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from encgraph.encoders.protocol import Input
from encgraph.errors import require


def require_floats(pixels: Tensor) -> None:
    """Refuse pixels that are no floats or want a gradient."""
    require(
        pixels.is_floating_point(),
        f"must have pixels of a float dtype, got {pixels.dtype}; scale and convert them",
    )
    require(
        not pixels.requires_grad,
        "must have pixels without gradient; detach them, only inference runs here",
    )


def require_sizes(value: Input, *, tokens: int) -> None:
    """Refuse an input whose item says other sizes than its tensor: rows are cut by the item's."""
    require(
        value.item.tokens == tokens,
        f"must be of {tokens} tokens by its tensor, got {value.item.tokens!r} in its sizes; "
        "make it with the encoder's `input`",
    )


def copy_ends(rows: Tensor, sources: Sequence[Tensor]) -> None:
    """Write tensors end to end from row 0, without waiting; one kernel where they are on the device."""
    total = sum(len(source) for source in sources)
    if sources and all(s.device == rows.device and s.dtype == rows.dtype for s in sources):
        torch.cat(list(sources), out=rows[:total])
        return
    ends = accumulate(len(source) for source in sources)
    for source, end in zip(sources, ends, strict=True):
        # Another dtype is converted on the device: on the host that takes longer than the copy.
        moved = source.to(rows.device, non_blocking=True)
        rows[end - len(source) : end].copy_(moved, non_blocking=True)


def lengthened(rows: Tensor, count: int) -> Tensor:
    """Rows with zeros appended up to a count: a budget that is no whole number of slots."""
    if len(rows) == count:
        return rows
    return torch.cat((rows, rows.new_zeros(count - len(rows), *rows.shape[1:])))
