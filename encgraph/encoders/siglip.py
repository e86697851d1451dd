"""SigLIP's vision tower, and SigLIP 2's of fixed resolution, which is the same module.

Outputs are the patches, or under a pooled rule the attention-pooled vector of an image.
"""

from transformers import SiglipVisionConfig, SiglipVisionModel

from encgraph.encoders import saved
from encgraph.encoders.fixed_family import FixedFamily, saved_size
from encgraph.sizes import EncoderSize


def config_of(size: EncoderSize) -> SiglipVisionConfig:
    """The tower's config at a size."""
    return SiglipVisionConfig(
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.depth,
        num_attention_heads=size.heads,
        image_size=size.position_side * size.rule.patch,
        patch_size=size.rule.patch,
        **dict(size.settings),
    )


def size_of(config: SiglipVisionConfig, files: saved.Files) -> EncoderSize:
    """Size of a saved tower."""
    return saved_size(config, files, family="siglip", resolution=config.image_size)


FAMILY = FixedFamily(
    module_type=SiglipVisionModel,
    config_of=config_of,
    short={"num_hidden_layers": 1},
    size_of=size_of,
    config_type=SiglipVisionConfig,
    prefixes=("vision_model.",),
)
