"""Real captures of every fixed, ragged and text family: the same answers as eager, no waiting."""

import pytest
import torch
from helpers_layouts import CASES, SIZES, plan

from encgraph.checks import parity
from encgraph.encoders import registry
from encgraph.encoders.protocol import Input
from encgraph.runner import EncoderRunner

NAMES = [name for name in CASES if name in SIZES]
pytestmark = pytest.mark.cuda


def on_card(values):
    return [Input(item=v.item, pixels=v.pixels.to("cuda"), grid=v.grid) for v in values]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["host", "card"])
def test_captured_graphs_are_as_close_to_float32_as_eager_is(name, place):
    case = CASES[name]
    encoder = registry.named(name, device="cuda", dtype=torch.bfloat16)
    with EncoderRunner(encoder=encoder, plan=plan(encoder, case, 1, 2, 4)) as runner:
        runner.capture()
        assert all(graph.failure is None for graph in runner.graphs.graphs)
        for seed, mix in enumerate([[1], [3, 1, 2, 6, 1], [2], [1, 1, 1]]):
            inputs = case.inputs(encoder, mix, seed)
            inputs = on_card(inputs) if place == "card" else inputs
            eager, oracle = encoder.stock().eager, encoder.oracle().eager
            parity.demand(parity.compare(runner.execute, [inputs], eager=eager, oracle=oracle))


@pytest.mark.parametrize("name", NAMES)
def test_torch_sees_no_synchronization_on_the_card(name):
    case = CASES[name]
    encoder = registry.named(name, device="cuda", dtype=torch.bfloat16)
    capacity = case.capacity(encoder, 4)
    buffers = encoder.buffers(capacity, torch.device("cuda"), torch.bfloat16)
    inputs = on_card(case.inputs(encoder, [1, 2, 1], 0))
    encoder.fill(buffers, inputs)
    encoder.forward(buffers, capacity)
    torch.cuda.set_sync_debug_mode("error")
    try:
        encoder.fill(buffers, inputs)
        encoder.forward(buffers, capacity)
    finally:
        torch.cuda.set_sync_debug_mode("default")
