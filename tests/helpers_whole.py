"""Whole tiny models of transformers, with the encoders that are part of them."""

import torch
from helpers_layouts import SIZES
from transformers import Gemma3Model, Idefics3Model, InternVLModel, SmolVLMModel

from encgraph.encoders import gemma3, idefics3, internvl

WHOLE = {
    "internvl-tiny": (InternVLModel, internvl.FAMILY, internvl.InternVLFeatures.of),
    "idefics3-tiny": (
        Idefics3Model,
        idefics3.IDEFICS3,
        lambda m: idefics3.TileFeatures(m.vision_model, m.connector).eval(),
    ),
    "smolvlm-tiny": (
        SmolVLMModel,
        idefics3.SMOLVLM,
        lambda m: idefics3.TileFeatures(m.vision_model, m.connector).eval(),
    ),
    "gemma3-tiny": (Gemma3Model, gemma3.FAMILY, gemma3.Gemma3Features.of),
}
ONE_LAYER = {
    "vocab_size": 32,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "pad_token_id": 0,
}


def whole(name):
    """A whole model of the tower's size, its text model as small as can be."""
    model_type, family, of = WHOLE[name]
    config = family.config_of(SIZES[name])
    for key, value in ONE_LAYER.items():
        setattr(config.text_config, key, value)
    if hasattr(config.text_config, "layer_types"):
        config.text_config.layer_types = config.text_config.layer_types[:1]
    config.image_token_id = 3
    torch.manual_seed(0)
    model = model_type(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model, family.encoder(of(model), SIZES[name])
