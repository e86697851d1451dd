"""Packed attention by torch's scaled dot product under a mask: any device and dtype, no fast path.

Shape legend: P patches, H heads, D head width, S segments.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

LEAST_ROWS = 256
"""Query rows computed at once; fewer would spend the time on calls."""


def attend(  # noqa: PLR0913 - the one signature of packed attention
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    offsets_S1: Tensor,
    longest: int,
    *,
    scale: float,
    out: Tensor | None = None,
) -> Tensor:
    """Attend within segments; static shapes, no host synchronization.

    Query rows go in blocks, each against the keys a segment of at most `longest` can reach, so the
    cost is rows x longest. Rows past the last segment attend among themselves, which keeps them
    finite where a fully masked row would not be.

    Args:
        q_PHD: Queries, any float dtype.
        k_PHD: Keys; rows past the last segment must be finite.
        v_PHD: Values; rows past the last segment must be finite.
        offsets_S1: int32 first row of each segment, never decreasing; unused slots repeat the last.
        longest: Rows of the longest segment, at least.
        scale: Factor of the scores.
        out: (P, H, D) to write live rows into; other rows keep what they hold.

    Returns:
        `out`, or a new tensor with zeros in the rows past the last segment.
    """
    step = max(longest, LEAST_ROWS)
    return in_blocks(q_PHD, k_PHD, v_PHD, offsets_S1, longest, scale=scale, out=out, step=step)


def in_blocks(  # noqa: PLR0913 - the one signature of packed attention
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    offsets_S1: Tensor,
    longest: int,
    *,
    scale: float,
    out: Tensor | None = None,
    step: int = LEAST_ROWS,
) -> Tensor:
    """`attend` with so many query rows at once: few need little memory and many calls."""
    rows = torch.arange(q_PHD.shape[0], device=q_PHD.device, dtype=torch.int32)
    segment_P = torch.searchsorted(offsets_S1[1:], rows, right=True, out_int32=True)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_PHD, k_PHD, v_PHD))
    blocks = []
    for start in range(0, len(rows), step):
        mine = slice(start, start + step)
        seen = slice(max(0, start - longest), start + step + longest)
        mask = segment_P[mine, None] == segment_P[None, seen]
        blocks.append(
            scaled_dot_product_attention(
                q[:, :, mine], k[:, :, seen], v[:, :, seen], attn_mask=mask, scale=scale
            )
        )
    result_PHD = torch.cat(blocks, dim=2)[0].transpose(0, 1)
    live_P = rows < offsets_S1[-1]
    return keep_dead_rows(result_PHD, live_P, out)


def keep_dead_rows(result_PHD: Tensor, live_P: Tensor, out: Tensor | None) -> Tensor:
    """Write live rows into `out`, or zero the others where there is none."""
    live_P11 = live_P[:, None, None]
    if out is None:
        return torch.where(live_P11, result_PHD, 0.0)
    return out.copy_(torch.where(live_P11, result_PHD, out))
