"""Packed attention within a window around each row: sliding layers of text encoders.

Shape legend: P rows, H heads, D head width, S segments.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from encgraph.attention import flash, sdpa


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Where the segments of a packed sequence lie."""

    offsets_S1: Tensor
    """int32 first row of each, never decreasing; unused slots repeat the last."""
    longest: int
    """Rows of the longest, at least."""


def attend(  # noqa: PLR0913 - packed attention with a window
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    segments: Segments,
    *,
    scale: float,
    reach: int,
    out: Tensor | None = None,
) -> Tensor:
    """Attend to rows of the same segment at most `reach` away, the row itself included.

    FlashAttention-2 where that runs, else torch's scaled dot product under a mask; static shapes, no
    host synchronization.

    Args:
        q_PHD: Queries, any float dtype.
        k_PHD: Keys; rows past the last segment must be finite.
        v_PHD: Values; rows past the last segment must be finite.
        segments: Where segments lie.
        scale: Factor of the scores.
        reach: Rows seen on each side.
        out: (P, H, D) to write live rows into; other rows keep what they hold.

    Returns:
        `out`, or a new tensor with zeros in the rows past the last segment.
    """
    fast = flash.missing(q_PHD.device, q_PHD.dtype) is None
    compute = _flash if fast else _masked
    result_PHD = compute(q_PHD, k_PHD, v_PHD, segments, scale, reach)
    rows = torch.arange(len(q_PHD), device=q_PHD.device, dtype=torch.int32)
    return sdpa.keep_dead_rows(result_PHD, rows < segments.offsets_S1[-1], out)


def _flash(
    q_PHD: Tensor, k_PHD: Tensor, v_PHD: Tensor, segments: Segments, scale: float, reach: int
) -> Tensor:
    offsets, longest = segments.offsets_S1, segments.longest
    arguments = (q_PHD, k_PHD, v_PHD, offsets, offsets, longest, longest, 0.0, False, False)
    result: Tensor = torch.ops.aten._flash_attention_forward(
        *arguments, scale=scale, window_size_left=reach, window_size_right=reach
    )[0]
    return result


def _masked(
    q_PHD: Tensor, k_PHD: Tensor, v_PHD: Tensor, segments: Segments, scale: float, reach: int
) -> Tensor:
    """Query rows in blocks, each against the keys its rows can reach."""
    rows = torch.arange(len(q_PHD), device=q_PHD.device, dtype=torch.int32)
    segment_P = torch.searchsorted(segments.offsets_S1[1:], rows, right=True, out_int32=True)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_PHD, k_PHD, v_PHD))
    step = max(reach, sdpa.LEAST_ROWS)
    blocks = []
    for start in range(0, len(rows), step):
        mine = slice(start, start + step)
        seen = slice(max(0, start - reach), start + step + reach)
        mask = segment_P[mine, None] == segment_P[None, seen]
        mask &= (rows[mine, None] - rows[None, seen]).abs() <= reach
        blocks.append(
            scaled_dot_product_attention(
                q[:, :, mine], k[:, :, seen], v[:, :, seen], attn_mask=mask, scale=scale
            )
        )
    return torch.cat(blocks, dim=2)[0].transpose(0, 1)
