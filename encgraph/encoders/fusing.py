"""The block of a Qwen vision tower with its passes joined where no compiler joins them.

What torch.compile makes of the block as it stands leaves passes over memory that need not be:

* the GELU between the two products of the feed-forward part: here it is the epilogue of the first;
* the second residual addition, and the next block's first norm, which lies in another call: here a
  block ends with the norm of the one that follows, so that a compiler joins the two.

Rotary of queries and keys stays the compiler's: a kernel of our own for both at once was measured and
gained nothing (`rotary_kernel` beside `gelu_in_product` in `inside-qwen3-vl-8b`).

The parameters are the block's own, read at every run; nothing is derived from them. `unfit` says whether
blocks have this shape; parity with the untouched tower is proven by the same checks as for all bodies.

Shape legend: P patches, H heads, D head width, W hidden width.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from transformers.activations import GELUTanh
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

_Attend = Callable[..., tuple[Tensor, None]]


@torch.library.custom_op("encgraph::linear_gelu", mutates_args=())
def linear_gelu(rows_PW: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Product, bias and tanh GELU; on a card one kernel of cuBLASLt.

    Source:
        `torch._addmm_activation`, whose GELU is the tanh form; elsewhere the same in two operations.
    """
    if rows_PW.device.type != "cuda":
        return gelu(linear(rows_PW, weight, bias), approximate="tanh")
    return torch._addmm_activation(bias, rows_PW, weight.t(), use_gelu=True)


@linear_gelu.register_fake
def _(rows_PW: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return rows_PW.new_empty(rows_PW.shape[0], weight.shape[0])


FITTING = (
    "Qwen2VLVisionBlock",
    "Qwen2_5_VLVisionBlock",
    "Qwen3VLVisionBlock",
    "Qwen3VLMoeVisionBlock",
    "Glm4vVisionBlock",
)
"""Blocks of transformers that this body was written after."""
FUSED_FAMILIES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "glm4v")
"""Families whose towers repeat such a block."""


def unfit(blocks: Iterable[Any]) -> str | None:
    """What keeps blocks from this body, or None.

    Args:
        blocks: Modules of one class.
    """
    for block in blocks:
        name = type(block).__name__
        if name not in FITTING or not type(block).__module__.startswith("transformers."):
            return f"a block must be one of {FITTING}, got {name}"
        for part, module in block.named_modules():
            if module._forward_hooks or module._forward_pre_hooks:
                return f"{part or name!r} has forward hooks, which this body might pass by"
            if "forward" in vars(module):
                return f"{part or name!r} has a forward of its own, which this body might pass by"
        for part in (block.attn, block.mlp):
            if not type(part).__module__.startswith("transformers."):
                return f"{type(part).__name__} runs in it, which this body would pass by"
    return None


def body(  # noqa: PLR0913 - what the tower hands to a block, and three things more
    block: Any,
    following: nn.Module,
    hidden_PW: Tensor,
    normed_PW: Tensor,
    *,
    attend: _Attend,
    cu_seqlens: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    **given: Any,
) -> tuple[Tensor, Tensor]:
    """Run one block.

    Args:
        block: Whose parameters are used.
        following: The norm that the next block begins with.
        hidden_PW: Residual stream.
        normed_PW: The block's own first norm of it.
        attend: Attention as transformers calls it; see `attention_of`.
        cu_seqlens: Offsets of the segments.
        position_embeddings: Cosines and sines, (P, D) each.
        given: The rest of what the tower hands on: the longest segment, the slab of the outputs.

    Returns:
        The residual stream after the block, and `following` of it.
    """
    q, k, v = _rotated(block.attn, normed_PW, position_embeddings)
    out, _ = attend(
        block.attn,
        q,
        k,
        v,
        attention_mask=None,
        scaling=block.attn.scaling,
        cu_seq_lens_q=cu_seqlens,
        max_length_q=given["max_seqlen"],
        attention_output=given.get("attention_output"),
    )
    hidden_PW = hidden_PW + block.attn.proj(out.reshape(hidden_PW.shape))
    hidden_PW = hidden_PW + _fed(block.mlp, block.norm2(hidden_PW))
    return hidden_PW, following(hidden_PW)


def attention_of(block: Any) -> _Attend:
    """The attention that a block's config names, looked up once."""
    found: _Attend = ALL_ATTENTION_FUNCTIONS[block.attn.config._attn_implementation]
    return found


def _rotated(attn: Any, normed_PW: Tensor, cos_sin: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Queries, keys and values, (1, H, P, D) each, strided as they are."""
    qkv_P3HD = attn.qkv(normed_PW).view(len(normed_PW), 3, attn.num_heads, -1)
    q_PHD, k_PHD = rotate(qkv_P3HD, *cos_sin).unbind(0)
    return [x.transpose(0, 1).unsqueeze(0) for x in (q_PHD, k_PHD, qkv_P3HD[:, 2])]


def rotate(qkv_P3HD: Tensor, cos_PD: Tensor, sin_PD: Tensor) -> Tensor:
    """Rotate queries and keys by their positions, in float32.

    Args:
        qkv_P3HD: Packed product; D is even.
        cos_PD: Cosines of each patch.
        sin_PD: Sines of each patch.

    Returns:
        (2, P, H, D), queries then keys, in the product's dtype.

    Source:
        `apply_rotary_pos_emb_vision` of transformers: pairs are (i, i + D / 2).
    """
    qk_2PHD = qkv_P3HD[:, :2].transpose(0, 1).float()
    low, high = qk_2PHD.chunk(2, dim=-1)
    turned_2PHD = torch.cat((-high, low), dim=-1)
    cos_P1D, sin_P1D = cos_PD[:, None].float(), sin_PD[:, None].float()
    return (qk_2PHD * cos_P1D + turned_2PHD * sin_P1D).to(qkv_P3HD.dtype).contiguous()


def _fed(mlp: Any, normed_PW: Tensor) -> Tensor:
    """The feed-forward part; with two products and a tanh GELU between, the latter in the first."""
    first = getattr(mlp, "linear_fc1", None)
    # Exactly a Linear: an adapter or a quantized product has a weight too, and more.
    if type(first) is nn.Linear and type(mlp.act_fn) is GELUTanh:
        fed: Tensor = mlp.linear_fc2(linear_gelu(normed_PW, first.weight, first.bias))
        return fed
    whole: Tensor = mlp(normed_PW)
    return whole
