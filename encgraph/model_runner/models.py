"""Build whole vision-language models of published sizes with seeded random weights, and check any."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForImageTextToText, Qwen3VLVisionModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig, Qwen3VLTextConfig

from encgraph import structure
from encgraph.encoders import registry
from encgraph.errors import StaleBufferError, require
from encgraph.model_runner.text_sizes import TEXT_SIZES, TextSize

_ATTENTIONS = ("sdpa", "eager")
"""Of the language model: those that take a ready mask."""


def named(name: str, *, device: torch.device | str, dtype: torch.dtype, seed: int = 0) -> Any:
    """Build a model of a published size with random weights, made on the device.

    Args:
        name: A name of `TEXT_SIZES`.
        device: Where it lives.
        dtype: Of its weights.
        seed: The same seed on the same device gives the same weights; the tower's are those of
            `registry.named`.

    Returns:
        transformers' Qwen3VLForConditionalGeneration, in eval mode, without gradients.

    Raises:
        ValueError: If there is no such size.
    """
    require(name in TEXT_SIZES, f"model must be one of {sorted(TEXT_SIZES)}, got {name!r}")
    tower: Any = registry.named(
        name, device=device, dtype=dtype, seed=seed, attention="sdpa"
    ).module
    text = TEXT_SIZES[name]
    config = Qwen3VLConfig(
        text_config=_text_config(text),
        vision_config=tower.config,
        vision_start_token_id=text.special,
        vision_end_token_id=text.special + 1,
        image_token_id=text.special + 3,
        video_token_id=text.special + 4,
        tie_word_embeddings=text.tied,
    )
    with torch.device(device):
        model: Any = AutoModelForImageTextToText.from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
    model.model.visual = tower
    generator = torch.Generator(device=device).manual_seed(seed)
    _randomise(model.model.language_model, generator)
    if not text.tied:
        _randomise(model.lm_head, generator)
    return model.eval().requires_grad_(False)


def supports(model: Any) -> bool:
    """Whether the model's tower is one that this project's encoders wrap."""
    return isinstance(model.model.visual, Qwen3VLVisionModel)


def check(model: Any) -> None:
    """Refuse a model that decode graphs cannot run.

    Raises:
        ValueError: If anything of it is in training mode, or its attention builds masks of its own.
    """
    attention = model.model.language_model.config._attn_implementation
    require(
        attention in _ATTENTIONS,
        f"the language model's attention must be one of {_ATTENTIONS}, got {attention!r}; "
        "load the model with attn_implementation='sdpa'",
    )
    structure.require_eval(model)


def held_parts(model: Any) -> dict[str, Any]:
    """The modules that a runner is made of, by their names in the model."""
    return {
        "model.visual": model.model.visual,
        "model.language_model": model.model.language_model,
        "lm_head": model.lm_head,
    }


def refuse_changed(model: Any, held: Mapping[str, Any]) -> None:
    """Refuse a model that has others than these parts by now, or one in training mode.

    Raises:
        StaleBufferError: If one is another module; names it.
        ValueError: If one is in training mode as a whole; what a graph holds is watched in full.
    """
    now = held_parts(model)
    for name, module in held.items():
        require(not now[name].training, f"{name!r} must be in eval mode; call .eval() on the model")
        if now[name] is not module:
            raise StaleBufferError(
                f"submodule {name!r} was swapped after the runner was made; "
                "put it back or make a new runner"
            )


def _text_config(text: TextSize) -> Qwen3VLTextConfig:
    return Qwen3VLTextConfig(
        vocab_size=text.vocabulary,
        hidden_size=text.hidden,
        intermediate_size=text.intermediate,
        num_hidden_layers=text.layers,
        num_attention_heads=text.heads,
        num_key_value_heads=text.key_value_heads,
        head_dim=text.head,
        max_position_embeddings=262_144,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 5e6,
            "mrope_interleaved": True,
            "mrope_section": list(text.sections),
        },
        tie_word_embeddings=text.tied,
    )


@torch.no_grad()
def _randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Write weights that keep activations near 1: a normal of 1 / sqrt(fan in), norms at identity."""
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if parameter.ndim == 1:
                parameter.fill_(1)
            else:
                fan_in = 1 if isinstance(part, nn.Embedding) else parameter.shape[1]
                parameter.normal_(0, 1 / math.sqrt(fan_in), generator=generator)
