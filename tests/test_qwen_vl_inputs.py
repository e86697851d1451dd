"""What the Qwen3-VL adapter refuses, and what it does with nothing."""

import pytest
import torch

from encgraph import sizes
from encgraph.encoders import inputs, registry
from encgraph.encoders.protocol import Input
from encgraph.sizes import Grid

TINY = sizes.named("qwen3-vl-tiny")
CPU = torch.device("cpu")
CAPACITY = sizes.capacity(128, TINY.rule, items=6, frames=10)
MIXES = [
    [Grid(1, 8, 8)],
    [Grid(1, 4, 6), Grid(3, 4, 8), Grid(1, 12, 10)],
    [Grid(2, 8, 8), Grid(1, 2, 2), Grid(1, 2, 30)],
    [Grid(1, 16, 32)],
    [Grid(1, 16, 16), Grid(1, 16, 16)],
]
MODES = [
    ("graph", "prefix"),
    ("graph", "zero_and_copy"),
    ("host", "prefix"),
    ("host", "zero_and_copy"),
]


def tiny(**switches):
    return registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32, **switches)


def batch(grids, seed=0):
    return inputs.synthetic(grids, size=TINY, seed=seed)


def bad(pixels, grid):
    return Input(item=sizes.item(Grid(1, 4, 4), TINY.rule), pixels=pixels, grid=grid)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            bad(torch.zeros(16, 100), Grid(1, 4, 4)),
            r"item 1 must have pixels of shape \(16, 1536\)",
        ),
        (bad(torch.zeros(12, 1536), Grid(1, 4, 4)), r"got \(12, 1536\)"),
        (bad(torch.zeros(15, 1536), Grid(1, 3, 5)), r"item 1 must have a grid .* divide by 2"),
        (bad(torch.zeros(16, 1536).int(), Grid(1, 4, 4)), "float dtype, got torch.int32"),
        (bad(torch.zeros(16, 1536, requires_grad=True), Grid(1, 4, 4)), "without gradient"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_its_place(value, message):
    encoder = tiny()
    one = [*batch([Grid(1, 4, 4)]), value]
    with pytest.raises(ValueError, match=message):
        encoder.eager(one)
    with pytest.raises(ValueError, match=message):
        encoder.fill(encoder.buffers(CAPACITY, CPU, torch.float32), one)


def test_training_mode_is_refused():
    encoder = tiny()
    encoder.module.train()
    with pytest.raises(ValueError, match=r"eval mode; call .eval\(\)"):
        encoder.eager(batch(MIXES[0]))


def test_more_items_than_the_buffers_hold_are_refused():
    encoder = tiny()
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    with pytest.raises(ValueError, match="hold at most 6 items, got 7"):
        encoder.fill(buffers, batch([Grid(1, 2, 2)] * 7))


@pytest.mark.parametrize("switch", ["metadata", "eager_forward", "fill_rule"])
def test_a_switch_without_that_position_is_refused(switch):
    with pytest.raises(ValueError, match=f"{switch} must be one of"):
        tiny(**{switch: "sometimes"})


def test_no_inputs_give_no_outputs():
    assert tiny().eager([]) == []


def test_an_empty_fill_leaves_finite_rows():
    for metadata, fill_rule in MODES:
        encoder = tiny(metadata=metadata, fill_rule=fill_rule)
        buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
        for inputs_ in (batch(MIXES[1]), []):
            encoder.fill(buffers, inputs_)
            packed = encoder.forward(buffers, CAPACITY)
        assert packed.main.isfinite().all()
