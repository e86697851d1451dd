"""A second face of a transformers vision tower: its parameters, another attention and patch embedding.

The tower itself stays untouched, as the stock oracle. The face is made of shallow copies of the few
modules that must differ; everything that holds a parameter is shared, so an edit in place or a
parameter bound anew is seen through both.
"""

import copy
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.functional import linear

from encgraph.encoders import faces
from encgraph.encoders.metadata import Metadata
from encgraph.encoders.protocol import Buffers


class Faces(NamedTuple):
    """What of a tower is run in its place."""

    eager: Any
    captured: Any
    """May be given positions ready made."""


class LinearPatchEmbed(nn.Module):
    """A patch embedding as one matrix product, by a view of the convolution's weight.

    With the kernel equal to the stride, the convolution of a flattened patch is this product.
    """

    def __init__(self, proj: nn.Conv2d | nn.Conv3d) -> None:
        super().__init__()
        faces.replaced(proj, "patch_embed.proj")
        if not proj.weight.is_contiguous():
            raise ValueError(
                f"the patch embedding's weight must be contiguous, got strides "
                f"{proj.weight.stride()!r}; call .contiguous() on it"
            )
        self.proj = proj

    def forward(self, pixels_PK: Tensor) -> Tensor:
        """Embed (P, K) flattened patches as (P, H)."""
        weight_HK = self.proj.weight.view(self.proj.out_channels, -1)
        return linear(pixels_PK.to(weight_HK.dtype), weight_HK, self.proj.bias)


class ReadyPositions(nn.Module):
    """Stands in for the position table: what it is given are the interpolated rows already."""

    def forward(self, rows_PH: Tensor) -> Tensor:
        """Return (P, 1, H): one tap a patch."""
        return rows_PH[:, None]


class ReadyRotary(nn.Module):
    """Stands in for the rotary embedding: what it is given is (cos, sin) already."""

    def forward(self, hidden_PH: Tensor, cos_sin: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return cos and sin as they came."""
        return cos_sin


def face(tower: Any, *, attention: str) -> Any:
    """Make the second face of a tower.

    Args:
        tower: A transformers tower with `patch_embed.proj` and `blocks[i].attn.config`; left as it
            is.
        attention: Name registered with transformers, for the face only.
    """
    config = attention_config(tower.config, attention)
    blocks = nn.ModuleList(with_config(block, "attn", config) for block in tower.blocks)
    embed = LinearPatchEmbed(faces.replaced(tower.patch_embed, "patch_embed").proj)
    shown = faces.with_children(tower, {"patch_embed": embed, "blocks": blocks})
    shown.config = config
    return shown


def attention_config(config: Any, attention: str) -> Any:
    """Copy of a config that names another attention."""
    copied = copy.copy(config)
    copied._attn_implementation = attention
    return copied


def with_config(block: Any, attention: str, config: object) -> Any:
    """Shallow copy of a block whose attention module of that name has another config."""
    attn = faces.with_children(getattr(block, attention), {})
    attn.config = config
    return faces.with_children(block, {attention: attn})


def with_ready_positions(shown: Any) -> Any:
    """A face that is given position rows as `interp_indices` and (cos, sin) as `position_ids`."""
    return faces.with_children(
        shown, {"pos_embed": ReadyPositions(), "rotary_pos_emb": ReadyRotary()}
    )


def arguments(made: Metadata) -> dict[str, Any]:
    """The keyword arguments under which transformers' towers take metadata."""
    return {
        "interp_indices": made.interp_indices,
        "interp_weights": made.interp_weights,
        "position_ids": made.position_ids,
        "cu_seqlens": made.offsets,
    }


def ready_arguments(buffers: Buffers) -> dict[str, Any]:
    """The same for a face whose positions come in ready made."""
    return {
        "interp_indices": buffers["positions"],
        "interp_weights": buffers["positions"].new_ones(1, 1),
        "position_ids": (buffers["cos"], buffers["sin"]),
        "cu_seqlens": buffers["offsets"],
    }
