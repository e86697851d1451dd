"""Gemma 3: SigLIP without its head at 896 pixels, then average pooling and a projection.

Crops of pan and scan are images of their own, so an item is always one slot.
"""

import math
from typing import Any

from torch import Tensor, nn
from transformers import Gemma3Config, SiglipVisionModel
from transformers.models.gemma3.modeling_gemma3 import Gemma3MultiModalProjector

from encgraph.encoders import fixed, saved
from encgraph.encoders.fixed_family import FixedFamily, saved_size
from encgraph.sizes import EncoderSize


class Gemma3Features(nn.Module):
    """Vision tower and projector of a Gemma 3 model, without its text model."""

    def __init__(self, config: Gemma3Config) -> None:
        super().__init__()
        self.vision_tower = SiglipVisionModel(config.vision_config)
        self.multi_modal_projector = Gemma3MultiModalProjector(config)

    @classmethod
    def of(cls, model: Any) -> "Gemma3Features":
        """Those of a whole model, parameters shared."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.vision_tower = model.vision_tower
        made.multi_modal_projector = model.multi_modal_projector
        return made.train(model.training)

    def forward(self, pixels_N: Tensor) -> Tensor:
        """Features (N, tokens, out) of (N, 3, S, S) images."""
        features: Tensor = self.multi_modal_projector(self.vision_tower(pixels_N).last_hidden_state)
        return features


def config_of(size: EncoderSize) -> Gemma3Config:
    """Config of tower and projector at a size; of the text model only the width counts."""
    return Gemma3Config(
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "num_hidden_layers": size.depth,
            "num_attention_heads": size.heads,
            "image_size": math.isqrt(size.rule.max_pixels),
            "patch_size": size.rule.patch,
            "vision_use_head": False,
            **dict(size.settings),
        },
        text_config={"model_type": "gemma3_text", "hidden_size": size.out},
        mm_tokens_per_image=size.rule.max_tokens,
    )


def size_of(config: Gemma3Config, files: saved.Files) -> EncoderSize:
    """Size of a saved model's tower and projector."""
    vision = config.vision_config
    side = vision.image_size // vision.patch_size
    return saved_size(
        vision,
        files,
        family="gemma3",
        resolution=vision.image_size,
        out=config.text_config.hidden_size,
        merge=side // math.isqrt(config.mm_tokens_per_image),
    )


FAMILY = FixedFamily(
    module_type=Gemma3Features,
    config_of=config_of,
    short={"vision_config.num_hidden_layers": 1},
    patches=fixed.whole,
    size_of=size_of,
    config_type=Gemma3Config,
    prefixes=("model.",),
    is_whole=True,
)
