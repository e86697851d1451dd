"""A part in training mode, as what is injected after `.eval()` is: refused before dropout changes answers."""

import pytest
import torch
from helpers import plan
from helpers_model_runner import batch_of_three, runner, tiny_model
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from encgraph import graphs
from encgraph.encoders import registry, wrap
from encgraph.model_runner.gates import Gates
from encgraph.runner import EncoderRunner

DROPS = {"r": 2, "lora_dropout": 0.5, "init_lora_weights": False}


def injected():
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    inject_adapter_in_model(LoraConfig(target_modules=["qkv"], **DROPS), encoder.module)
    assert not encoder.module.training
    return encoder


@pytest.mark.parametrize("budgets", [(16,), ()])
def test_an_encoder_with_an_injected_part_in_training_mode_is_refused(budgets):
    encoder = injected()
    with EncoderRunner(encoder=encoder, plan=plan(*budgets), backend="reference") as made:
        with pytest.raises(ValueError, match=r"module 'blocks\.0\.attn\.qkv' must be in eval mode"):
            made.capture()
        encoder.module.eval()
        made.capture()


def test_a_set_of_graphs_is_refused_too():
    with pytest.raises(ValueError, match="must be in eval mode"):
        graphs.capture(injected(), plan(16), backend="reference")


def test_a_wrapped_module_is_refused_by_the_name_of_its_part():
    module = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.Dropout(0.5)).eval()
    module[1].train()
    with pytest.raises(ValueError, match="module '1' must be in eval mode"):
        wrap.fixed(module, torch.zeros(1, 3, 8, 8))


def test_a_model_with_an_injected_part_in_training_mode_is_refused():
    model = tiny_model()
    inject_adapter_in_model(LoraConfig(target_modules=["q_proj"], **DROPS), model, "a")
    with pytest.raises(ValueError, match="q_proj' must be in eval mode"):
        runner(model)
    model.eval()
    with runner(model) as made:
        model.model.language_model.layers[0].self_attn.q_proj.train()
        with pytest.raises(ValueError, match="q_proj' must be in eval mode"):
            made.capture()


@pytest.mark.parametrize("part", ["model.visual", "model.language_model", "lm_head"])
def test_without_graphs_a_part_in_training_mode_is_refused_at_every_request(part):
    model = tiny_model()
    with runner(model, Gates(eager_only=True)) as made:
        model.get_submodule(part).train()
        with pytest.raises(ValueError, match=f"'{part}' must be in eval mode"):
            made.generate(batch_of_three(model), new_tokens=1)
