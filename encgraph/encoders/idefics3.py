"""Idefics3 and SmolVLM: a SigLIP-like tower over full tiles, and the connector into the text model.

A tile is always whole, so every patch is real: the face computes the positions of a full tile inside
the graph and attends without a mask. The stock tower asks a mask of ones whether all of it is true,
which waits for the device in warm-up and takes another path under capture.

Tiles that the processor pads to fill a batch are no items here; leave them out.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, Idefics3Config, SmolVLMConfig
from transformers.models.idefics3.modeling_idefics3 import (
    Idefics3Connector,
    Idefics3VisionTransformer,
)
from transformers.models.smolvlm.modeling_smolvlm import SmolVLMConnector, SmolVLMVisionTransformer

from encgraph.encoders import faces, fixed, saved
from encgraph.encoders.fixed_family import FixedFamily, saved_size
from encgraph.published import tiles
from encgraph.sizes import EncoderSize

ONE_HEAD = {"num_attention_heads": 1, "num_key_value_heads": 1}
"""A head count that any width divides by; the text model is never built."""
UNMASKED = "encgraph_unmasked"
"""Attention of a name for which transformers makes no mask."""


class TileFeatures(nn.Module):
    """Vision tower and connector of an Idefics3 or SmolVLM model, without its text model."""

    def __init__(self, vision_model: Any, connector: Any) -> None:
        super().__init__()
        self.vision_model = vision_model
        self.connector = connector

    def forward(self, pixels_N: Tensor) -> Tensor:
        """Features (N, tokens, out) of (N, 3, S, S) tiles."""
        # Some releases of transformers make a missing mask on the host and copy it.
        patch = self.vision_model.patch_size
        sides = (pixels_N.shape[2] // patch, pixels_N.shape[3] // patch)
        real = torch.ones((len(pixels_N), *sides), dtype=torch.bool, device=pixels_N.device)
        made = self.vision_model(pixels_N, patch_attention_mask=real)
        features: Tensor = self.connector(made.last_hidden_state)
        return features


class FullTileEmbeddings(nn.Module):
    """Patch and position embeddings of tiles without a masked patch, in static shapes."""

    def __init__(self, stock: Any) -> None:
        super().__init__()
        self.stock = faces.replaced(stock, "vision_model.embeddings")

    def forward(self, pixel_values: Tensor, patch_attention_mask: Tensor) -> Tensor:
        """Embed (N, 3, S, S) as (N, P, H); the mask is not read."""
        patches = self.stock.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
        side: int = self.stock.num_patches_per_side
        row = _positions(pixel_values.shape[-2] // self.stock.patch_size, side, pixel_values.device)
        column = _positions(
            pixel_values.shape[-1] // self.stock.patch_size, side, pixel_values.device
        )
        table = self.stock.position_embedding((row[:, None] * side + column).flatten())
        embedded: Tensor = patches + table
        return embedded


def _positions(count: int, side: int, device: torch.device) -> Tensor:
    """Row of a table of `side` for each of `count` patches, rounded as the stock tower rounds."""
    step = 1.0 / torch.full((), count, device=device, dtype=torch.float32)
    bounds = torch.arange(1 / side, 1.0, 1 / side, device=device, dtype=torch.float32)
    at = torch.arange(count, device=device, dtype=torch.float32) * step
    return torch.bucketize(at.clamp(max=1.0 - 1e-6), bounds, right=True)


def full_tiles(module: Any) -> Any:
    """Face of `TileFeatures` whose tower takes every patch as real."""
    AttentionInterface.register(UNMASKED, _unmasked)
    tower = faces.with_attention(module.vision_model, UNMASKED)
    embeddings = FullTileEmbeddings(module.vision_model.embeddings)
    tower = faces.with_children(tower, {"embeddings": embeddings})
    return faces.unaltered(faces.with_children(module, {"vision_model": tower}), module)


def _unmasked(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **given: Any,
) -> tuple[Tensor, None]:
    assert attention_mask is None, "a full tile has no mask"
    out = scaled_dot_product_attention(query, key, value, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def idefics3_of(size: EncoderSize) -> Idefics3Config:
    """Config of tower and connector at a size; of the text model only the width counts."""
    return Idefics3Config(
        vision_config=_vision(size, "idefics3_vision"),
        text_config={"model_type": "llama", "hidden_size": size.out, **ONE_HEAD},
        scale_factor=size.rule.merge,
    )


def smolvlm_of(size: EncoderSize) -> SmolVLMConfig:
    """The same of SmolVLM."""
    return SmolVLMConfig(
        vision_config=_vision(size, "smolvlm_vision"),
        text_config={"model_type": "llama", "hidden_size": size.out, **ONE_HEAD},
        scale_factor=size.rule.merge,
    )


def _vision(size: EncoderSize, kind: str) -> dict[str, Any]:
    return {
        "model_type": kind,
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.depth,
        "num_attention_heads": size.heads,
        "image_size": math.isqrt(size.rule.max_pixels),
        "patch_size": size.rule.patch,
        **dict(size.settings),
    }


def _idefics3(config: Idefics3Config) -> TileFeatures:
    return TileFeatures(Idefics3VisionTransformer(config.vision_config), Idefics3Connector(config))


def _smolvlm(config: SmolVLMConfig) -> TileFeatures:
    return TileFeatures(SmolVLMVisionTransformer(config.vision_config), SmolVLMConnector(config))


def size_of(config: Any, files: saved.Files) -> EncoderSize:
    """Size of a saved model's tower and connector; its processor's file may say how images are cut."""
    size = saved_size(
        config.vision_config,
        files,
        family=config.model_type,
        resolution=config.vision_config.image_size,
        out=config.text_config.hidden_size,
        merge=config.scale_factor,
    )
    processor = files.processor()
    if processor.get("do_image_splitting") is False:
        return size
    return replace(size, rule=tiles.tiled(size.rule, "edge_tiles", _along_an_edge(processor)))


def _along_an_edge(processor: Mapping[str, Any]) -> int:
    """Tiles of the longer side by a processor's file, or by the processors' default."""
    edge = processor.get("size", {}).get("longest_edge")
    tile = processor.get("max_image_size", {}).get("longest_edge")
    return -(-edge // tile) if edge and tile else tiles.EDGE_TILES


IDEFICS3 = FixedFamily(
    module_type=_idefics3,
    config_of=idefics3_of,
    short={"vision_config.num_hidden_layers": 1},
    patches=fixed.whole,
    face=full_tiles,
    size_of=size_of,
    config_type=Idefics3Config,
    prefixes=("model.",),
    is_whole=True,
)
SMOLVLM = FixedFamily(
    module_type=_smolvlm,
    config_of=smolvlm_of,
    short={"vision_config.num_hidden_layers": 1},
    patches=fixed.whole,
    face=full_tiles,
    size_of=size_of,
    config_type=SmolVLMConfig,
    prefixes=("model.",),
    is_whole=True,
)
