"""Rows of static buffers: refuse what does not belong there, write end to end, lengthen."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.pixels import Affine
from encgraph.encoders.protocol import Input
from encgraph.errors import require


def weight_of(module: Any) -> Tensor:
    """First parameter of a module, which tells dtype and device."""
    weight = next(iter(module.parameters()), None)
    require(
        weight is not None,
        f"the module must have parameters to know its dtype by, got {type(module).__name__}",
    )
    assert weight is not None
    return weight  # type: ignore[no-any-return]


def wrong_floats(pixels: Tensor, *, or_raw: bool = False) -> str | None:
    """Why pixels cannot be taken: no floats, nor 8-bit where those may come raw, or with a gradient."""
    if not (pixels.is_floating_point() or (or_raw and pixels.dtype == torch.uint8)):
        return f"must have pixels of a float dtype, got {pixels.dtype}; scale and convert them"
    if pixels.requires_grad:
        return "must have pixels without gradient; detach them, only inference runs here"
    return None


def require_floats(pixels: Tensor, *, or_raw: bool = False) -> None:
    """Refuse pixels with which `wrong_floats` finds something wrong."""
    wrong = wrong_floats(pixels, or_raw=or_raw)
    if wrong:
        raise ValueError(wrong)


def require_sizes(value: Input, *, tokens: int) -> None:
    """Refuse an input whose item says other sizes than its tensor: rows are cut by the item's."""
    require(
        value.item.tokens == tokens,
        f"must be of {tokens} tokens by its tensor, got {value.item.tokens!r} in its sizes; "
        "make it with the encoder's `input`",
    )


Factors = Callable[[], Affine | None]
"""Gives what 8-bit pixels are normalised by."""


def _no_factors() -> None:
    return None


def copy_ends(rows: Tensor, sources: Sequence[Tensor], affine: Factors = _no_factors) -> None:
    """Write tensors end to end from row 0, without waiting.

    Few kernels where they are on the device and of one dtype; 8-bit ones are normalised by what
    `affine` gives, which is asked where there are some.
    What lies in pageable host memory is staged by the driver, which keeps the host busy but not the
    device waiting; give pinned or device tensors where that matters.

    Raises:
        ValueError: If they are more rows than there are; nothing is written then.
    """
    counts = [source.shape[0] for source in sources]  # len() of a tensor is a Python function
    total = sum(counts)
    if total > rows.shape[0]:
        raise ValueError(f"these buffers hold {rows.shape[0]} rows, got {total}; pack first")
    kinds, device = {source.dtype for source in sources}, rows.device
    if len(kinds) == 1 and all(source.device == device for source in sources):
        if rows.dtype in kinds:
            torch.cat(list(sources), out=rows[:total])
            return
        sources, counts = [torch.cat(list(sources))], [total]
    for source, count, end in zip(sources, counts, accumulate(counts), strict=True):
        _write(rows[end - count : end], source, affine)


def _write(rows: Tensor, source: Tensor, affine: Factors) -> None:
    """Write one tensor; what is converted is converted on the device, where that is quicker."""
    other = source.dtype != rows.dtype
    moved = source.to(rows.device, non_blocking=rows.is_cuda) if other else source
    factors = affine() if source.dtype == torch.uint8 else None
    if factors is not None:
        factors.write(rows, moved)
    else:
        copy(rows, moved)


def copy(rows: Tensor, source: Tensor) -> None:
    """Copy a tensor; on a card without waiting, on the host only once it is there to be read."""
    rows.copy_(source, non_blocking=rows.is_cuda)


def lengthened(rows: Tensor, count: int) -> Tensor:
    """Rows with zeros appended up to a count: a budget that is no whole number of slots."""
    if len(rows) == count:
        return rows
    return torch.cat((rows, rows.new_zeros(count - len(rows), *rows.shape[1:])))
