"""Packed attention on a CPU: one scaled dot product a segment, inside one operator.

The offsets are read by the kernel, as a card's kernels read theirs: to the forward this is one opaque
call of static shape, whose work is the sum of the squared segments rather than rows times longest.

Shape legend: P patches, H heads, D head width, S segments.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops this attention here, or None."""
    return None if device.type == "cpu" else f"loop needs a CPU, got device {str(device)!r}"


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
    """Attend within segments; see `sdpa.attend` for the arguments. `longest` is not needed."""
    if out is None:
        out = torch.zeros_like(q_PHD, memory_format=torch.contiguous_format)
    _packed(q_PHD, k_PHD, v_PHD, offsets_S1, scale, out)
    return out


@torch.library.custom_op("encgraph::packed_attention", mutates_args=("out",), device_types="cpu")
def _packed(
    q_PHD: Tensor, k_PHD: Tensor, v_PHD: Tensor, offsets_S1: Tensor, scale: float, out: Tensor
) -> None:
    with torch._C.DisableTorchFunction():
        for start, stop in pairwise(offsets_S1.tolist()):
            if stop > start:
                q, k, v = (x[start:stop].transpose(0, 1)[None] for x in (q_PHD, k_PHD, v_PHD))
                result = scaled_dot_product_attention(q, k, v, scale=scale)
                out[start:stop] = result[0].transpose(0, 1)
