"""Replay against eager and a float32 oracle, by the derived tolerance."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import BACKENDS, batch, device_of, plan
from helpers_layouts import CASES

from encgraph.checks import parity
from encgraph.encoders import registry
from encgraph.encoders.protocol import EncoderOutput
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


def item(error, eager=0.0, index=0, values=10**8):
    return parity.ItemParity(item=index, error_ratio=error, eager_error_ratio=eager, values=values)


def test_an_item_may_err_a_quarter_more_than_eager_and_a_short_one_by_chance_more():
    assert item(0.0124, eager=0.01).holds
    assert not item(0.0126, eager=0.01).holds
    assert item(0.0211, eager=0.01, values=32).holds
    assert not item(0.0213, eager=0.01, values=32).holds
    assert not item(1.1e-5, values=1).holds


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize("values", [32, 128, 512])
def test_the_ratio_of_two_right_roundings_scatters_as_derived(values, correlation):
    draw = np.random.default_rng(values)
    shared, *own = draw.normal(size=(3, 4_000, values))
    both = [correlation**0.5 * shared + (1 - correlation) ** 0.5 * one for one in own]
    mine, eager = (np.linalg.norm(one, axis=1) for one in both)
    log_ratio = np.log(mine / eager)
    derived = math.sqrt((1 - correlation**2) / values)
    assert log_ratio.std() == pytest.approx(derived, rel=0.08)
    beyond = log_ratio > math.log(parity.multiple(values))
    assert not beyond.any()


def test_items_together_may_err_less_than_each_of_them():
    each = [item(0.018, eager=0.01, index=i, values=32) for i in range(32)]
    found = parity.Parity(items=tuple(each), oracle="eager")
    assert all(one.holds for one in found.items)
    assert found.together.values == 1024
    assert found.together.error_ratio == pytest.approx(0.018)
    assert not found.holds
    with pytest.raises(ParityError, match=r"all items together differ .* 0\.018, allowed 0\.0137"):
        parity.demand(found)


def test_where_one_item_makes_the_error_its_values_alone_count():
    small = [item(1e-5, eager=1e-5, index=i, values=32) for i in range(50)]
    found = parity.Parity(items=(item(0.02, eager=0.01, values=32), *small), oracle="eager")
    assert found.together.values == 32
    assert found.holds


def compared(encoder, spoil=lambda output, index: output, seeds=range(1)):
    """bert's forward over the reference graphs against eager and the oracle, seed by seed."""
    case = CASES["bert-tiny"]
    oracle = encoder.oracle().eager
    with EncoderRunner(
        encoder=encoder, plan=small_plan(encoder, case), backend="reference"
    ) as runner:
        runner.capture()

        def execute(inputs):
            return [spoil(output, index) for index, output in enumerate(runner.execute(inputs))]

        for seed in seeds:
            mix = [case.inputs(encoder, [1, 3, 2, 6], seed)]
            yield parity.compare(execute, mix, eager=encoder.stock().eager, oracle=oracle)


def small_plan(encoder, case):
    return replace(plan(1), graphs=(case.capacity(encoder, 6),), encoder=encoder.spec.name)


@pytest.fixture(scope="module")
def bert():
    return CASES["bert-tiny"].build(torch.bfloat16)


@pytest.fixture(scope="module")
def right(bert):
    return list(compared(bert, seeds=range(200)))


def test_a_right_encoder_of_short_rows_passes_over_200_seeds(right):
    assert all(found.holds for found in right)
    items = [item for found in right for item in found.items]
    assert {item.values for item in items} == {32}
    # A bare 1.25 would have called some of these right answers wrong.
    over = sum(item.error_ratio > 1.25 * item.eager_error_ratio for item in items)
    assert 0.005 < over / len(items) < 0.15


def test_the_scatter_of_a_right_encoder_is_no_wider_than_derived(right):
    items = [item for found in right for item in found.items]
    log_ratio = np.log([item.error_ratio / item.eager_error_ratio for item in items])
    assert 0.02 < log_ratio.std() < 1 / math.sqrt(32)


def scaled(output, index):
    return EncoderOutput(main=output.main.float() * 1.01)


def leaning(output, index):
    """The first row of a batch alone is off, by 3 % of its neighbouring columns."""
    return EncoderOutput(main=output.main + 0.03 * output.main.roll(1, 1)) if not index else output


@pytest.mark.parametrize("spoil", [scaled, leaning])
def test_a_small_planted_fault_is_found(bert, spoil):
    items = [item for found in compared(bert, spoil, range(8)) for item in found.items]
    assert not parity.Parity(items=tuple(items), oracle="eager, float32").holds


def test_a_token_lost_from_a_mean_is_found_in_every_batch():
    case = CASES["xlm-roberta-tiny"]
    encoder = case.build(torch.bfloat16)

    def loses(inputs):
        return encoder.eager([encoder.input(value.pixels[:-1]) for value in inputs])

    for seed in range(8):
        mix = case.inputs(encoder, [2, 3, 4], seed)
        found = parity.compare(
            loses, [mix], eager=encoder.stock().eager, oracle=encoder.oracle().eager
        )
        assert not any(item.holds for item in found.items)


def test_nan_never_passes_and_is_the_worst():
    found = parity.Parity(items=(item(0.5), item(math.nan, index=1)), oracle="eager")
    assert found.worst.item == 1
    assert not found.worst.holds


def test_the_first_item_that_differs_is_named():
    found = parity.Parity(items=(item(0.0), item(0.1, index=1), item(0.2, index=2)), oracle="eager")
    with pytest.raises(ParityError, match=r"item 1 differs from eager: relative error 0\.1"):
        parity.demand(found)
