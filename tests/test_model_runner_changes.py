"""A tower, language model or head that is not as it was: no old answer, from a graph or from the cache."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers_model_runner import answers, batch_of_three, images, runner, tiny_model
from torch import nn

from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import StaleBufferError
from encgraph.model_runner.cache import EncoderCache
from encgraph.model_runner.gates import Gates


def scale(model: Any) -> None:
    for block in model.model.visual.blocks:
        block.attn.scaling *= 4


def hook(model: Any) -> None:
    model.model.visual.blocks[0].register_forward_hook(lambda module, given, made: made * 2)


def activate(model: Any) -> None:
    for block in model.model.visual.blocks:
        block.mlp.act_fn = nn.ReLU()


CHANGES = pytest.mark.parametrize("change", [scale, hook, activate])
PARTS = pytest.mark.parametrize("name", ["model.visual", "model.language_model", "lm_head"])


@CHANGES
@pytest.mark.filterwarnings("ignore:nothing is captured")
def test_a_tower_made_otherwise_is_encoded_again_where_nothing_is_captured(
    change: Callable[[Any], None],
) -> None:
    model, given = tiny_model(), images((8, 8))
    with runner(model, Gates()) as made, runner(model, Gates(encoder_cache=False)) as fresh:
        [before] = made.encode(given)
        change(model)
        [after], [right] = made.encode(given), fresh.encode(given)
        assert torch.equal(after.main, right.main)
        assert not torch.allclose(after.main, before.main, atol=1e-2)
        made.encode(given)
        assert made.cache.facts.hits == 1


@CHANGES
def test_a_tower_made_otherwise_is_refused_under_graphs_though_the_cache_has_the_image(
    change: Callable[[Any], None],
) -> None:
    model, given = tiny_model(), images((8, 8))
    with runner(model, Gates()) as made:
        made.capture()
        made.encode(given)
        change(model)
        for _ in range(2):
            with pytest.raises(StaleBufferError, match="after capture; clear and capture again"):
                made.encode(given)


@PARTS
@pytest.mark.parametrize("is_captured", [True, False])
@pytest.mark.filterwarnings("ignore:nothing is captured")
def test_a_part_of_the_model_that_is_another_module_is_refused_by_name(
    name: str, is_captured: bool
) -> None:
    model = tiny_model()
    batch = batch_of_three(model)
    with runner(model) as made:
        if is_captured:
            made.capture()
        right = answers(made, batch)
        part = model.get_submodule(name)
        model.set_submodule(name, copy.deepcopy(part))
        said = f"submodule '{name}' was swapped after the runner was made; put it back or make"
        with pytest.raises(StaleBufferError, match=said):
            made.generate(batch, new_tokens=1)
        with pytest.raises(StaleBufferError, match=said):
            made.encode(batch[0].items)
        with pytest.raises(StaleBufferError, match=said):
            made.capture()
        model.set_submodule(name, part)
        assert answers(made, batch) == right


@PARTS
def test_a_part_that_is_swapped_within_an_answer_is_refused_at_the_next_stage(name: str) -> None:
    model = tiny_model()
    with runner(model) as made:
        made.capture()
        observe = made.decoder.observe

        def swap(step: Any) -> Any:
            model.set_submodule(name, copy.deepcopy(model.get_submodule(name)))
            return observe(step)

        made.decoder.observe = swap
        with pytest.raises(StaleBufferError, match=f"submodule '{name}' was swapped"):
            made.generate(batch_of_three(model), new_tokens=3)


def test_the_cache_forgets_at_an_edit_in_place_a_new_binding_and_another_module() -> None:
    layer, held = nn.Linear(2, 2).requires_grad_(False), EncoderCache(1 << 10)
    output = EncoderOutput(main=torch.ones(2, 4))

    def is_kept(module: nn.Module) -> bool:
        held.keep("a", output)
        held.follow(module)
        return held.find("a") is not None

    held.follow(layer)
    assert is_kept(layer)
    layer.weight.add_(1)
    assert not is_kept(layer)
    assert is_kept(layer)
    layer.bias = nn.Parameter(layer.bias.clone(), requires_grad=False)
    assert not is_kept(layer)
    assert not is_kept(copy.deepcopy(layer))
