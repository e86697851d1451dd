"""CLIP's vision tower: a class token before the patches; pooled, the normalised class token."""

from transformers import CLIPVisionConfig, CLIPVisionModel

from encgraph.encoders import saved
from encgraph.encoders.fixed_family import FixedFamily, saved_size
from encgraph.sizes import EncoderSize


def config_of(size: EncoderSize) -> CLIPVisionConfig:
    """The tower's config at a size; the class defaults are those of ViT-B/32."""
    return CLIPVisionConfig(
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.depth,
        num_attention_heads=size.heads,
        image_size=size.position_side * size.rule.patch,
        patch_size=size.rule.patch,
        **{"hidden_act": "quick_gelu", **dict(size.settings)},
    )


def size_of(config: CLIPVisionConfig, files: saved.Files) -> EncoderSize:
    """Size of a saved tower."""
    return saved_size(config, files, family="clip", resolution=config.image_size, prefix=1)


FAMILY = FixedFamily(
    module_type=CLIPVisionModel,
    config_of=config_of,
    short={"num_hidden_layers": 1},
    size_of=size_of,
    config_type=CLIPVisionConfig,
    prefixes=("vision_model.",),
)
