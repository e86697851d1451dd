"""Sizes are those that an encoder reads from tensors."""

from dataclasses import replace

import pytest
import torch
from helpers import close

from encgraph import sizes
from encgraph.encoders import inputs, registry
from encgraph.records import Item, Plan
from encgraph.runner import EncoderRunner

SIZE = sizes.named("qwen3-vl-tiny")


@pytest.mark.parametrize("planned", [True, False])
def test_rows_are_those_of_the_tensors_not_of_the_callers_sizes(planned):
    encoder = registry.named("bert-tiny", device=torch.device("cpu"), dtype=torch.float32)
    first, second = encoder.input(torch.arange(5, 10)), encoder.input(torch.arange(20, 26))
    two = replace(first, item=replace(first.item, segments=2))
    graphed = (encoder.capacity(64, items=8),) if planned else ()
    runner = EncoderRunner(
        encoder=encoder,
        plan=Plan(graphs=graphed, encoder=encoder.spec.name),
        backend="reference",
    )
    with runner:
        runner.capture()
        right = runner.execute([first, second])
        said = "item 0 must have the 1 segments of its tensors, got 2"
        with pytest.raises(ValueError, match=said):
            runner.execute([two, second])
        refused, other = runner.execute_each([two, second])
        assert said in str(refused)
        assert close(other, right[1], encoder)


def test_an_item_refused_by_the_encoder_is_named_once_by_its_place_in_the_batch():
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    good = inputs.synthetic([Item(tokens=64, patches=256, width=256, height=256)], size=SIZE)[0]
    bad = replace(good, pixels=good.pixels.int())
    runner = EncoderRunner(
        encoder=encoder, plan=Plan(graphs=(), encoder=encoder.spec.name), backend="reference"
    )
    with runner, pytest.raises(ValueError, match=r"^item 1 must have pixels of a float dtype"):
        runner.execute([good, bad])
