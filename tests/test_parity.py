"""Replay against eager and a float32 oracle, by the derived tolerance."""

import math

import pytest
import torch
from helpers import BACKENDS, batch, device_of, plan

from encgraph.checks import parity
from encgraph.encoders import registry
from encgraph.errors import ParityError
from encgraph.runner import EncoderRunner

MIXES = [[(8, 8), (16, 16)], [(4, 8, 8)], [(40, 40)], [(4, 4)], [(12, 16), (8, 8), (4, 6)]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_replay_is_as_close_to_fp32_as_eager_is(backend):
    encoder = registry.named("qwen3-vl-tiny", device=device_of(backend), dtype=torch.bfloat16)
    batches = [batch(grids, encoder, seed=i) for i, grids in enumerate(MIXES)]
    with EncoderRunner(encoder=encoder, plan=plan(16, 64, 128), backend=backend) as runner:
        runner.capture()
        found = parity.compare(
            runner.execute, batches, eager=encoder.stock().eager, oracle=encoder.oracle().eager
        )
    parity.demand(found)
    assert len(found.items) == 8
    assert all(0 < item.error_ratio < 0.05 for item in found.items)


def item(error, eager=0.0, index=0):
    return parity.ItemParity(item=index, error_ratio=error, eager_error_ratio=eager)


def test_an_item_may_err_a_quarter_more_than_eager():
    assert item(0.0124, eager=0.01).holds
    assert not item(0.0126, eager=0.01).holds


def test_nan_never_passes_and_is_the_worst():
    found = parity.Parity(items=(item(0.5), item(math.nan, index=1)), oracle="eager")
    assert found.worst.item == 1
    assert not found.worst.holds


def test_the_first_item_that_differs_is_named():
    found = parity.Parity(items=(item(0.0), item(0.1, index=1), item(0.2, index=2)), oracle="eager")
    with pytest.raises(ParityError, match=r"item 1 differs from eager: relative error 0\.1"):
        parity.demand(found)
