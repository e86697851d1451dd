"""What a slot cannot stand for is refused whole and by name of the layer; the slot stays as it was."""

from typing import Any

import pytest
import torch
from helpers_model_runner import tiny_model
from peft import LoraConfig, inject_adapter_in_model

from encgraph.model_runner.adapters import AdapterSlot

FIRST = "model.language_model.layers.0.self_attn"
pytestmark = [
    pytest.mark.filterwarnings("ignore:Already found a `peft_config`"),
    pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed"),
    pytest.mark.filterwarnings("ignore:aLoRA is currently only supported"),
]


def adapted(**adapters: dict[str, Any]) -> Any:
    """A tiny model with adapters of rank 4 on q_proj unless told otherwise."""
    model = tiny_model()
    torch.manual_seed(0)
    for name, told in adapters.items():
        chosen = {"r": 4, "target_modules": ["q_proj"], "init_lora_weights": False, **told}
        inject_adapter_in_model(LoraConfig(**chosen), model, name)
    return model.eval().requires_grad_(False)


def layers(model: Any) -> list[Any]:
    return [m for m in model.modules() if hasattr(m, "lora_A")]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"target_modules": ["q_proj", "v_proj"]}, f"'{FIRST}.v_proj' has adapter .* but not slot"),
        ({"target_modules": ["v_proj"]}, f"'{FIRST}.v_proj' has adapter 'other' but not slot"),
        (
            {"target_modules": ["q_proj", "embed_tokens"]},
            "'model.language_model.embed_tokens' has 'lora_embedding_A' of adapter 'other'",
        ),
        ({"lora_bias": True}, f"'{FIRST}.q_proj' has 'lora_bias' of adapter 'other'"),
        ({"use_dora": True}, f"'{FIRST}.q_proj' has 'lora_magnitude_vector' of adapter 'other'"),
        ({"alora_invocation_tokens": [1]}, f"'{FIRST}.q_proj' has 'lora_variant' of adapter 'othe"),
        ({"modules_to_save": ["lm_head"]}, "'lm_head' has 'modules_to_save' of adapter 'other'"),
        ({"rank_pattern": {"layers.1.self_attn.q_proj": 8}}, "rank 8 in .*layers.1.*, the slot 4"),
    ],
)
def test_an_adapter_that_is_more_than_the_slot_is_refused_and_leaves_it_as_it_was(
    source: dict[str, Any], said: str
) -> None:
    model = adapted(slot={}, other=source)
    slot = AdapterSlot(model, "slot")
    before = [weight.clone() for weight in slot._weights()]
    with pytest.raises(ValueError, match=said):
        slot.load("other")
    assert all(map(torch.equal, before, slot._weights()))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"target_modules": ["q_proj", "embed_tokens"]}, "embed_tokens' has 'lora_embedding_A'"),
        ({"lora_bias": True}, f"'{FIRST}.q_proj' has 'lora_bias' of adapter 'slot'"),
        ({"use_dora": True}, f"'{FIRST}.q_proj' has 'lora_magnitude_vector' of adapter 'slot'"),
    ],
)
def test_an_adapter_that_is_more_than_low_rank_weights_is_no_slot(
    form: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        AdapterSlot(adapted(slot=form), "slot")


def test_merged_layers_take_no_slot_and_no_load() -> None:
    model = adapted(slot={}, other={})
    slot = AdapterSlot(model, "slot")
    last = layers(model)[-1]
    last.merge(adapter_names=["other"])
    said = r"layers.3.self_attn.q_proj' has adapters \['other'\] merged; unmerge\(\) it first"
    with pytest.raises(ValueError, match=said):
        AdapterSlot(model, "slot")
    with pytest.raises(ValueError, match=said):
        slot.load("other")
    last.unmerge()
    slot.load("other")


def test_a_layer_that_got_its_adapter_after_the_slot_was_made_is_seen() -> None:
    model = adapted(slot={})
    slot = AdapterSlot(model, "slot")
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    inject_adapter_in_model(config, model, "other")
    with pytest.raises(ValueError, match=r"v_proj' has adapter 'other' but not slot 'slot'; add"):
        slot.load("other")


def test_the_slot_is_not_loaded_into_itself() -> None:
    slot = AdapterSlot(adapted(slot={}), "slot")
    with pytest.raises(ValueError, match="an adapter the model has besides the slot, got 'slot'"):
        slot.load("slot")
    assert all(weight.any() for weight in slot._weights())
