"""Packed attention by the FlashAttention-2 kernels that ship with torch.

The operator is called itself, not `torch.nn.attention.varlen`, whose later releases choose cuDNN on
some cards by themselves: a measurement must name its kernel.

Shape legend: P patches, H heads, D head width, S segments.
"""

from functools import cache

import torch
from torch import Tensor

from encgraph.attention import sdpa


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops this attention here, or None."""
    if device.type != "cuda":
        return f"flash needs a CUDA card, got device {str(device)!r}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"flash needs float16 or bfloat16, got {dtype}"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "flash needs compute capability 8.0 or newer"
    return None


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
    """Attend within segments on the current stream; see `sdpa.attend` for the arguments.

    q, k and v are float16 or bfloat16 with a head width that divides by 8; heads may be strided.
    Query rows past `longest` in a segment are silently not computed.
    """
    if out is None:
        out = torch.zeros_like(q_PHD, memory_format=torch.contiguous_format)
    arguments = (q_PHD, k_PHD, v_PHD, offsets_S1, offsets_S1, longest, longest, 0.0, False, False)
    forward = torch.ops.aten._flash_attention_forward
    one_split = {"num_splits": 1} if "num_splits" in _accepted("_flash_attention_forward") else {}
    if _accepted("_flash_attention_forward_no_dropout_inplace"):
        torch.ops.aten._flash_attention_forward_no_dropout_inplace(
            out, *arguments, scale=scale, **one_split
        )
        return out
    if "out" in _accepted("_flash_attention_forward"):
        forward(*arguments, scale=scale, out=out, **one_split)
        return out
    result_PHD = forward(*arguments, scale=scale, **one_split)[0]
    rows = torch.arange(q_PHD.shape[0], device=q_PHD.device, dtype=torch.int32)
    return sdpa.keep_dead_rows(result_PHD, rows < offsets_S1[-1], out)


@cache
def _accepted(operator: str) -> frozenset[str]:
    """Arguments that this torch's operator takes; empty where there is no such operator."""
    packet = getattr(torch.ops.aten, operator, None)
    if packet is None:
        return frozenset()
    return frozenset(argument.name for argument in packet.default._schema.arguments)
