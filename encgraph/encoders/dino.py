"""DINOv2, with and without registers, and DINOv3.

DINOv2 interpolates its position table to the resolution inside every forward, so a table edited in
place is seen. DINOv3 keeps the coordinates of its rotary positions in an `lru_cache`: filled during
a capture, the cache would hand memory of the graph's pool to eager calls; hit during one, the graph
would hold an address that the cache may give up. The face computes them inside the graph instead.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    DINOv3ViTConfig,
    DINOv3ViTModel,
)

from encgraph.encoders import faces, saved
from encgraph.encoders.fixed_family import FixedFamily, saved_size
from encgraph.sizes import EncoderSize


class UncachedRotary(nn.Module):
    """DINOv3's rotary positions of evaluation, computed anew in each forward."""

    def __init__(self, stock: Any) -> None:
        super().__init__()
        self.stock = faces.replaced(stock, "rope_embeddings")
        self.patch: int = stock.config.patch_size

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        """Cos and sin, (patches, head width), in the dtype of the pixels."""
        height, width = (side // self.patch for side in pixel_values.shape[-2:])
        axes = [_centers(count, pixel_values.device) for count in (height, width)]
        coordinates = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1) * 2 - 1
        angles = 2 * math.pi * coordinates[:, :, None] * self.stock.inv_freq[None, None, :]
        angles = angles.flatten(1, 2).tile(2)
        return angles.cos().to(pixel_values.dtype), angles.sin().to(pixel_values.dtype)


def _centers(count: int, device: torch.device) -> Tensor:
    """Centers of so many patches along a side of length 1."""
    return torch.arange(0.5, count, dtype=torch.float32, device=device) / count


def uncached(module: Any) -> Any:
    """Face of a DINOv3 module whose rotary positions come from no cache."""
    rotary = UncachedRotary(module.rope_embeddings)
    return faces.unaltered(faces.with_children(module, {"rope_embeddings": rotary}), module)


def config2_of(size: EncoderSize) -> Dinov2Config:
    """DINOv2's config at a size; the table keeps its own side whatever the resolution."""
    return Dinov2Config(**_shared(size), image_size=size.position_side * size.rule.patch)


def config2_registers_of(size: EncoderSize) -> Dinov2WithRegistersConfig:
    """The same with registers: all of the rule's prefix but the class token."""
    return Dinov2WithRegistersConfig(
        **_shared(size),
        image_size=size.position_side * size.rule.patch,
        num_register_tokens=size.rule.prefix - 1,
    )


def config3_of(size: EncoderSize) -> DINOv3ViTConfig:
    """DINOv3's config at a size."""
    return DINOv3ViTConfig(
        **_shared(size),
        intermediate_size=size.intermediate,
        image_size=math.isqrt(size.rule.max_pixels),
        num_register_tokens=size.rule.prefix - 1,
    )


def _shared(size: EncoderSize) -> dict[str, Any]:
    return {
        "hidden_size": size.hidden,
        "num_hidden_layers": size.depth,
        "num_attention_heads": size.heads,
        "patch_size": size.rule.patch,
        **dict(size.settings),
    }


def resolution_of(config: Any, files: saved.Files) -> int:
    """Pixels a side that the processor crops to, else those of the config."""
    crop = files.processor().get("crop_size", {})
    return int(crop.get("height", config.image_size)) if isinstance(crop, dict) else int(crop)


def size2_of(config: Any, files: saved.Files) -> EncoderSize:
    """Size of a saved DINOv2, with registers or without."""
    registers = config.num_register_tokens if config.model_type == "dinov2_with_registers" else 0
    return saved_size(
        config,
        files,
        family="dinov2-registers" if registers else "dinov2",
        resolution=resolution_of(config, files),
        prefix=1 + registers,
        intermediate=int(config.hidden_size * config.mlp_ratio),
    )


def size3_of(config: DINOv3ViTConfig, files: saved.Files) -> EncoderSize:
    """Size of a saved DINOv3."""
    return saved_size(
        config,
        files,
        family="dinov3",
        resolution=resolution_of(config, files),
        prefix=1 + config.num_register_tokens,
    )


DINOV2 = FixedFamily(
    module_type=Dinov2Model,
    config_of=config2_of,
    short={"num_hidden_layers": 1},
    size_of=size2_of,
    config_type=Dinov2Config,
    is_renamed=True,
)
DINOV2_REGISTERS = FixedFamily(
    module_type=Dinov2WithRegistersModel,
    config_of=config2_registers_of,
    short={"num_hidden_layers": 1},
    size_of=size2_of,
    config_type=Dinov2WithRegistersConfig,
    is_renamed=True,
)
DINOV3 = FixedFamily(
    module_type=DINOv3ViTModel,
    config_of=config3_of,
    short={"num_hidden_layers": 1},
    face=uncached,
    size_of=size3_of,
    config_type=DINOv3ViTConfig,
    is_renamed=True,
)
