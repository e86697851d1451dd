"""Packed texts inside a graph: where each row belongs, its position, and pooling row by row.

Shape legend: P token ids of a capacity, M max items, N items, L token ids of one, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from encgraph.encoders import metadata
from encgraph.encoders.protocol import Input

Pooling = Literal["cls", "mean", "none"]
POOLINGS = ("cls", "mean", "none")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segmented:
    """Packed token ids with where each text lies."""

    ids_P: Tensor
    """Token ids; 0 in padding."""
    offsets_M1: Tensor
    """int32 first row of each text; unused slots repeat the total."""
    item_P: Tensor
    """Text of each row; M in padding."""
    position_P: Tensor
    """Row within its text; 0 in padding."""


def segmented(ids_P: Tensor, lengths_M1: Tensor) -> Segmented:
    """Locate packed texts on the device; static shapes, no host synchronization.

    Args:
        ids_P: int64 token ids; rows past the total may hold anything.
        lengths_M1: int32 lengths, 0 in unused slots and always in the last.
    """
    ends_M1 = lengths_M1.cumsum(0, dtype=torch.int32)
    offsets_M1 = ends_M1 - lengths_M1
    rows_P = torch.arange(len(ids_P), device=ids_P.device, dtype=torch.int32)
    # The last slot holds nothing, so its first row is the total, where padding begins.
    item_P = metadata.owner(ends_M1, rows_P)
    live_P = rows_P < offsets_M1[-1]
    position_P = torch.where(live_P, rows_P - offsets_M1.index_select(0, item_P), 0)
    return Segmented(
        ids_P=torch.where(live_P, ids_P, 0),
        offsets_M1=offsets_M1,
        item_P=item_P,
        position_P=position_P.long(),
    )


def pooled_rows(rows_PH: Tensor, where: Segmented, pooling: Pooling) -> Tensor:
    """Pool packed rows text by text: (M, H), or all rows where there is no pooling.

    The mean is a product with a matrix of zeros and ones, in float32: no atomics, so the same texts
    give the same bits. What is not finite is added apart, since zero times it would spread to the other
    texts; added to zeros, it gives the same in any order. Rows of unused slots are meaningless.
    """
    if pooling == "none":
        return rows_PH
    starts_M = where.offsets_M1[:-1]
    if pooling == "cls":
        return rows_PH.index_select(0, starts_M.clamp(max=len(rows_PH) - 1))
    slots_M = torch.arange(len(starts_M), device=rows_PH.device, dtype=torch.int32)
    belongs_MP = (slots_M[:, None] == where.item_P[None]).float()
    counts_M = (where.offsets_M1[1:] - starts_M).clamp(min=1)
    full_PH = rows_PH.float()
    finite_PH = full_PH.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    rest_M1H = full_PH.new_zeros(len(starts_M) + 1, full_PH.shape[1])
    rest_M1H.index_add_(0, where.item_P, full_PH - finite_PH)
    return (belongs_MP @ finite_PH + rest_M1H[:-1]) / counts_M[:, None]


def padded(inputs: Sequence[Input], filler: int) -> tuple[Tensor, Tensor]:
    """Token ids (N, L) padded at the end, and the mask of the real ones."""
    ids = [value.pixels.long() for value in inputs]
    ones = [torch.ones_like(text) for text in ids]
    return (
        pad_sequence(ids, batch_first=True, padding_value=filler),
        pad_sequence(ones, batch_first=True),
    )
