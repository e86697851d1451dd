"""Rotary embedding of queries and keys in one pass over the packed product.

A vision block projects to (P, 3, H, D) and rotates two thirds of it. Compiled code does that in a kernel
for queries and one for keys, each working out for every element where its partner lies. Here one
kernel reads both once, pair by pair, and writes both once. Values stay where they are: packed
attention takes them by stride.

`rotate` is an operator, `encgraph::rotate`, that torch.compile takes as it is; `reference` is what it
computes, and what runs off a card.

Shape legend: P patches, H heads, D head width.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 512
"""Pairs of one program."""


def reference(qkv_P3HD: Tensor, cos_PD: Tensor, sin_PD: Tensor) -> Tensor:
    """Rotate in float32, one pass an operation; see `rotate`."""
    qk_2PHD = qkv_P3HD[:, :2].transpose(0, 1).float()
    low, high = qk_2PHD.chunk(2, dim=-1)
    turned_2PHD = torch.cat((-high, low), dim=-1)
    cos_P1D, sin_P1D = cos_PD[:, None].float(), sin_PD[:, None].float()
    return (qk_2PHD * cos_P1D + turned_2PHD * sin_P1D).to(qkv_P3HD.dtype).contiguous()


@torch.library.custom_op("encgraph::rotate", mutates_args=())
def rotate(qkv_P3HD: Tensor, cos_PD: Tensor, sin_PD: Tensor) -> Tensor:
    """Rotate queries and keys by their positions.

    Args:
        qkv_P3HD: Packed product, contiguous; D is even.
        cos_PD: Cosines of each patch, float32.
        sin_PD: Sines of each patch, float32.

    Returns:
        (2, P, H, D), queries then keys, in the product's dtype.

    Source:
        `apply_rotary_pos_emb_vision` of transformers: pairs are (i, i + D / 2), computed in float32.
    """
    if qkv_P3HD.device.type != "cuda":
        return reference(qkv_P3HD, cos_PD, sin_PD)
    return launch(qkv_P3HD, cos_PD, sin_PD)


@rotate.register_fake
def _(qkv_P3HD: Tensor, cos_PD: Tensor, sin_PD: Tensor) -> Tensor:
    patches, _, heads, width = qkv_P3HD.shape
    return qkv_P3HD.new_empty(2, patches, heads, width)


def launch(qkv_P3HD: Tensor, cos_PD: Tensor, sin_PD: Tensor) -> Tensor:
    """Run the kernel on the current stream; see `rotate`."""
    patches, _, heads, width = qkv_P3HD.shape
    assert qkv_P3HD.is_contiguous(), qkv_P3HD.stride()
    out_2PHD = qkv_P3HD.new_empty(2, patches, heads, width)
    pairs = patches * heads * (width // 2)
    if pairs:
        grid = (-(-pairs // BLOCK),)
        _kernel()[grid](
            qkv_P3HD,
            cos_PD.contiguous(),
            sin_PD.contiguous(),
            out_2PHD,
            pairs,
            HEADS=heads,
            HALF=width // 2,
            BLOCK=BLOCK,
        )
    return out_2PHD


@cache
def _kernel() -> Any:
    """Define the kernel: Triton comes with torch's builds for cards and is asked for here only."""
    from encgraph.encoders import rotating_kernel

    return rotating_kernel.rotate_pairs
