"""One adapter slot of peft, filled in place: replays see it, and every other switch is refused by name."""

from typing import Any

import pytest
import torch
from helpers import TINY, batch, close, plan
from helpers_model_runner import answers, batch_of_three, generated, runner, tiny_model
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from encgraph import graphs
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.errors import StaleBufferError
from encgraph.model_runner.adapters import DUMMY, AdapterSlot

RANKS = {"slot": 4, "other": 2}
SCALING = {"slot": 2.0, "other": 4.0}
pytestmark = pytest.mark.filterwarnings("ignore:Already found a `peft_config`")


@pytest.fixture
def model() -> Any:
    made = tiny_model()
    torch.manual_seed(0)
    for name, rank in RANKS.items():
        config = LoraConfig(
            r=rank,
            lora_alpha=SCALING[name] * rank,
            target_modules=["qkv", "q_proj", "v_proj"],
            init_lora_weights=name == "slot",
        )
        inject_adapter_in_model(config, made, name)
    return made.eval().requires_grad_(False)


def layers(model: Any) -> list[Any]:
    return [m for m in model.modules() if hasattr(m, "lora_A") and hasattr(m, "active_adapters")]


def switch(model: Any, name: str) -> None:
    for layer in layers(model):
        layer.set_adapter([name])


def slotted(model: Any) -> Any:
    return runner(model, options={"slot": "slot"})


def test_what_is_loaded_into_the_slot_is_seen_by_replays(model: Any) -> None:
    prompts = batch_of_three(model)
    switch(model, "other")
    wanted = [generated(model, p, 3) for p in prompts]
    with slotted(model) as made:
        made.capture()
        without = answers(made, prompts)
        made.slot.load("other")
        assert answers(made, prompts) == wanted != without
        made.slot.load(None)
        assert answers(made, prompts) == without


def test_a_graph_captured_outside_the_dummy_context_never_sees_the_slot(model: Any) -> None:
    encoder = QwenVL(model.model.visual, TINY)
    inputs = batch([(4, 6), (6, 6)], encoder)
    [capacity] = plan(32).graphs
    slot = AdapterSlot(model, "slot")
    for layer in layers(model):
        layer.enable_adapters(False)
    with graphs.capture(encoder, plan(32), backend="reference") as outside:
        before = outside.replay(capacity, inputs).clone()
        with slot.dummy(), graphs.capture(encoder, plan(32), backend="reference") as inside:
            dummied = inside.replay(capacity, inputs).clone()
        assert not torch.equal(before, dummied)
    with graphs.capture(encoder, plan(32), backend="reference") as inside:
        empty = inside.replay(capacity, inputs).clone()
        slot.load("other")
        loaded = inside.replay(capacity, inputs).clone()
    assert torch.allclose(before, empty, atol=1e-5)
    assert not torch.allclose(empty, loaded, atol=1e-2)
    eager = encoder.eager(inputs)
    assert close(eager[0], encoder.stock().eager(inputs)[0], encoder)
    assert torch.allclose(loaded[:6, : TINY.out], eager[0].main, atol=1e-4)


def test_the_dummy_context_fills_the_slot_and_brings_its_content_back(model: Any) -> None:
    slot = AdapterSlot(model, "slot")
    slot.load("other")
    weight = layers(model)[0].lora_A["slot"].weight.detach()
    held, address = weight.clone(), weight.data_ptr()
    with slot.dummy():
        assert float(weight.min()) == float(weight.max()) == pytest.approx(DUMMY)
    assert torch.equal(weight, held)
    assert weight.data_ptr() == address


def test_another_adapter_disabled_adapters_and_a_swapped_slot_are_refused_by_name(
    model: Any,
) -> None:
    prompts = batch_of_three(model)
    with slotted(model) as made:
        made.capture()
        switch(model, "other")
        with pytest.raises(StaleBufferError, match=r"qkv' was switched to adapters \['other'\]"):
            made.generate(prompts, new_tokens=1)
        switch(model, "slot")
        layers(model)[0].enable_adapters(False)
        with pytest.raises(StaleBufferError, match="qkv' has its adapters disabled or merged"):
            made.encode(prompts[0].items)
        layers(model)[0].enable_adapters(True)
        last = layers(model)[-1]
        last.lora_A["slot"] = nn.Linear(96, 4, bias=False).eval().requires_grad_(False)
        with pytest.raises(StaleBufferError, match=r"lora_A.slot.* was swapped"):
            made.generate(prompts, new_tokens=1)


def test_a_slot_that_is_not_there_and_a_rank_above_it_are_refused(model: Any) -> None:
    with pytest.raises(ValueError, match=r"got 'third'; the model has \['other', 'slot'\]"):
        AdapterSlot(model, "third")
    with pytest.raises(ValueError, match="the model has besides the slot, got 'third'"):
        AdapterSlot(model, "slot").load("third")
    with pytest.raises(ValueError, match=r"adapter 'slot' has rank 4 in .*, the slot 2"):
        AdapterSlot(model, "other").load("slot")
