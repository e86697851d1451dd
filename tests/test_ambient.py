"""Autocast and inference mode of a caller change nothing in what graphs hold and give."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from helpers import BACKENDS, batch, device_of, plan, tiny

from encgraph import ambient, exact, graphs
from encgraph.encoders import registry
from encgraph.layouts import Keep
from encgraph.runner import EncoderRunner

SMALL, LARGE = (8, 8), (16, 16)


def exact_dtype(backend):
    """In float32 also on a card: what autocast casts, and keeps the cast of."""
    return registry.named("qwen3-vl-tiny", device=device_of(backend), dtype=torch.float32)


def autocast(backend):
    return torch.autocast(device_of(backend).type, torch.bfloat16)


def opened(encoder, backend, by_layout):
    layouts = partial(exact.open_set, keep=Keep(min_hits=1, max_tokens=32), backend=backend)
    return EncoderRunner(
        encoder=encoder,
        plan=plan() if by_layout else plan(16),
        backend=backend,
        layouts=layouts if by_layout else None,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_edited_in_place_are_seen_inside_autocast(backend):
    encoder = exact_dtype(backend)
    inputs = batch([SMALL], encoder)
    with autocast(backend):
        made = graphs.capture(encoder, plan(16), backend=backend)
        before = made.replay(made.graphs[0].capacity, inputs).clone()
        with torch.no_grad():
            for parameter in encoder.module.parameters():
                parameter.mul_(1.1)
        after = made.replay(made.graphs[0].capacity, inputs).clone()
    outside = made.replay(made.graphs[0].capacity, inputs)
    assert not torch.allclose(before, after, rtol=1e-2)
    torch.testing.assert_close(after, outside, rtol=0, atol=0)
    made.clear()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("by_layout", [False, True])
@pytest.mark.parametrize("inside", ["capture", "execute", "both"])
def test_replay_and_eager_give_one_dtype_inside_autocast(backend, by_layout, inside):
    encoder = exact_dtype(backend)
    inputs = batch([SMALL, LARGE], encoder)
    batches = [inputs[:1], inputs[1:]] if by_layout else [inputs]
    with opened(encoder, backend, by_layout) as runner:
        with autocast(backend) if inside != "execute" else nullcontext():
            runner.capture()
        with autocast(backend) if inside != "capture" else nullcontext():
            mine = [output for one in batches for output in runner.execute(one)]
    for got, value in zip(mine, inputs, strict=True):
        [right] = encoder.eager([value])
        assert {tensor.dtype for tensor in got.tensors} == {torch.float32}
        for a, b in zip(got.tensors, right.tensors, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("by_layout", [False, True])
@pytest.mark.parametrize("slabs", ["shared", "private"])
def test_what_was_captured_in_inference_mode_runs_outside_and_the_reverse(
    backend, by_layout, slabs
):
    encoder = tiny(backend)
    inputs = batch([SMALL], encoder)
    right = encoder.eager(inputs)[0].main.clone()
    runner = opened(encoder, backend, by_layout)
    runner.slabs = slabs
    for first, then in ((True, False), (False, True)):
        with runner:
            with torch.inference_mode(first):
                runner.capture()
                runner.execute(inputs)
            with torch.inference_mode(then):
                [mine] = runner.execute(inputs)
            torch.testing.assert_close(mine.main, right, rtol=0.05, atol=0.05)


def test_the_surroundings_come_back():
    device = torch.device("cpu")
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        with ambient.kept_out(device):
            assert not torch.is_inference_mode_enabled()
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")
