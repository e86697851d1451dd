"""InternVL: InternViT over tiles of one image, pixel shuffle, and the projector into the text model.

An item is one tile or several stacked, the thumbnail among them. Class tokens are dropped before the
shuffle, as the published models do.
"""

import math
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from transformers import InternVLConfig, InternVLVisionModel
from transformers.models.internvl.modeling_internvl import InternVLMultiModalProjector

from encgraph.encoders import fixed, saved
from encgraph.encoders.fixed_family import FixedFamily, saved_size
from encgraph.published import tiles
from encgraph.sizes import EncoderSize


class InternVLFeatures(nn.Module):
    """Vision tower and projector of an InternVL model, without its text model."""

    def __init__(self, config: InternVLConfig) -> None:
        super().__init__()
        self.config = config
        self.vision_tower = InternVLVisionModel(config.vision_config)
        self.multi_modal_projector = InternVLMultiModalProjector(config)

    @classmethod
    def of(cls, model: Any) -> "InternVLFeatures":
        """Those of a whole model, parameters shared."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.config = model.config
        made.vision_tower = model.vision_tower
        made.multi_modal_projector = model.multi_modal_projector
        return made.train(model.training)

    def forward(self, pixels_N: Tensor) -> Tensor:
        """Features (N, tokens, out) of (N, 3, S, S) tiles."""
        patches = self.vision_tower(pixels_N).last_hidden_state[:, 1:]
        shuffle = shuffled(patches, self.config.downsample_ratio)
        features: Tensor = self.multi_modal_projector(shuffle)
        return features


def shuffled(patches_NPH: Tensor, ratio: float) -> Tensor:
    """Blocks of patches side by side: (N, P, H) to (N, P ratio^2, H / ratio^2).

    Source:
        `InternVLModel.pixel_shuffle` of transformers, on a square.
    """
    count, positions, width = patches_NPH.shape
    side, block = math.isqrt(positions), round(1 / ratio)
    small = side // block
    blocks = patches_NPH.view(count, small, block, small, block * width)
    return blocks.transpose(2, 3).reshape(count, small * small, block * block * width)


def config_of(size: EncoderSize) -> InternVLConfig:
    """Config of tower and projector at a size; of the text model only the width counts."""
    resolution = math.isqrt(size.rule.max_pixels)
    return InternVLConfig(
        vision_config={
            "model_type": "internvl_vision",
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "num_hidden_layers": size.depth,
            "num_attention_heads": size.heads,
            "image_size": [resolution, resolution],
            "patch_size": [size.rule.patch, size.rule.patch],
            **dict(size.settings),
        },
        text_config={"model_type": "qwen2", "hidden_size": size.out},
        downsample_ratio=1 / size.rule.merge,
    )


def size_of(config: InternVLConfig, files: saved.Files) -> EncoderSize:
    """Size of a saved model's tower and projector; its processor's file may say how images are cut."""
    size = saved_size(
        config.vision_config,
        files,
        family="internvl",
        resolution=config.vision_config.image_size[0],
        out=config.text_config.hidden_size,
        merge=round(1 / config.downsample_ratio),
        prefix=1,
    )
    most = files.processor().get("max_patches", tiles.RATIO_TILES)
    return replace(size, rule=tiles.tiled(size.rule, "ratio_tiles", most))


FAMILY = FixedFamily(
    module_type=InternVLFeatures,
    config_of=config_of,
    short={"vision_config.num_hidden_layers": 1},
    patches=fixed.whole,
    size_of=size_of,
    config_type=InternVLConfig,
    prefixes=("model.",),
    is_whole=True,
)
