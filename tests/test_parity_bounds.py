"""Parity passes nothing where there is nothing to judge by, nor one wrong row of thousands."""

import math
from itertools import pairwise

import pytest
import torch

from encgraph import proving, sizes
from encgraph.checks import parity
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import registry
from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import ParityError

WIDTH = 64
TINY = [name for name in sizes.SIZES if name.endswith("-tiny")]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def normal(rows, width=WIDTH):
    return torch.randn(rows, width)


def given(rows):
    """What gives one item, whatever is asked for."""
    return lambda batch: [EncoderOutput(main=rows)]


def compared(mine, *, eager, true):
    return parity.compare(given(mine), [[0]], eager=given(eager), oracle=given(true))


@pytest.mark.parametrize(
    ("off", "said"),
    [
        (0.85, r"nothing to judge by: eager's own in this dtype is 0\.8\d*, more than 0\.5"),
        (math.inf, r"nothing to judge by: eager's own in this dtype is inf, more than 0\.5"),
        (math.nan, r"nothing to judge by: eager's own in this dtype is nan, more than 0\.5"),
    ],
)
def test_only_what_is_near_float32_passes_where_eager_is_far_from_itself(off, said):
    true = normal(64)
    eager = true.clone()
    if math.isfinite(off):
        eager += off * normal(64)
    else:
        eager[0, 0] = off
    assert compared(true + 0.01 * normal(64), eager=eager, true=true).holds
    for mine in (torch.zeros_like(true), true + 0.1 * normal(64)):
        found = compared(mine, eager=eager, true=true)
        assert not found.holds
        assert found.worst.tolerance_ratio <= parity.TOLERANCE_MOST
        with pytest.raises(ParityError, match=said):
            parity.demand(found)
        right = proving.Right(batch=[0], eager=given(eager)([0]), oracle=given(true)([0]))
        with pytest.raises(ParityError, match=f"mine: item 0 differs .*{said}"):
            right.demand("mine", given(mine))


def test_an_item_that_cannot_be_judged_leaves_what_the_others_are_allowed():
    good = parity.ItemParity(item=0, error_ratio=0.01, eager_error_ratio=0.01, values=256)
    for eager in (math.inf, math.nan, 1e70):
        bad = parity.ItemParity(item=1, error_ratio=1.0, eager_error_ratio=eager, values=256)
        found = parity.Parity(items=(good, bad), oracle="eager, float32")
        assert (found.together.values, found.together.holds) == (256, False)
        assert found.worst is bad


@pytest.mark.parametrize("values", [1, 8, 64, 10**6])
@pytest.mark.parametrize("eager", [0.01, 0.32, 0.5])
def test_zeros_never_pass_and_a_module_that_rounds_much_away_is_still_judged(eager, values):
    def item(error):
        return parity.ItemParity(item=0, error_ratio=error, eager_error_ratio=eager, values=values)

    assert not item(1.0).holds
    assert item(eager).holds


@pytest.mark.parametrize(
    ("error", "rows"), [(0.01, 40_000), (0.02, 12_000), (0.03, 8192), (0.05, 2048)]
)
def test_one_wrong_row_among_many_is_found_and_said(error, rows):
    true = normal(rows)
    eager, mine = (true + error * normal(rows) for _ in range(2))
    assert compared(mine, eager=eager, true=true).holds
    wrong = {"another item's": normal(1)[0], "zeros": torch.zeros(WIDTH), "next": true[0]}
    for row in wrong.values():
        mine[-1] = row
        found = compared(mine, eager=eager, true=true)
        assert found.items[0].error_ratio <= found.items[0].tolerance_ratio
        with pytest.raises(ParityError, match=r"item 0 differs .* relative error of one row"):
            parity.demand(found)
        assert found.worst.row_error_ratio > 2 * found.worst.row_tolerance_ratio


def test_rows_of_nothing_and_rows_far_above_others_do_not_fail_right_answers():
    true = normal(512)
    true[0] *= 1000
    true[1:300] = 0
    true[300] *= 1e-6
    eager, mine = (true + 0.01 * true.norm(dim=-1, keepdim=True) / 8 * normal(512) for _ in "ab")
    eager[1:300] += 1e-5
    mine[1:300] -= 1e-5
    assert compared(mine, eager=eager, true=true).holds


def _forward(encoder, subject, inputs):
    capacity = subject.capacity(inputs)
    buffers = encoder.buffers(capacity, encoder.spec.device, encoder.spec.dtype)
    encoder.fill(buffers, inputs)
    with torch.inference_mode():
        output = encoder.forward(buffers, capacity)
    ends = [0]
    for value in inputs:
        ends.append(ends[-1] + encoder.spec.rows(value.item))
    return [output.rows(a, b) for a, b in pairwise(ends)]


@pytest.mark.parametrize("name", TINY)
def test_no_row_of_a_right_tower_comes_near_being_called_wrong(name):
    encoder = registry.named(name, device="cpu", dtype=torch.bfloat16)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    batch = subject.batch(subject.low, min(encoder.spec.max_tokens, 8 * subject.low))
    found = parity.compare(
        lambda inputs: _forward(encoder, subject, inputs),
        [batch],
        eager=lambda inputs: [encoder.stock().eager([value])[0] for value in inputs],
        oracle=lambda inputs: [encoder.oracle().eager([value])[0] for value in inputs],
    )
    for one in found.items:
        assert one.error_ratio < parity.ALONE_TOLERANCE
        assert one.row_error_ratio < 0.2 * one.row_tolerance_ratio
        assert one.row_error_ratio < 0.5 * parity.ROW_MULTIPLE * one.eager_row_error_ratio
    if "idefics3" not in name and "smolvlm" not in name:
        assert all(one.eager_row_error_ratio < 0.1 for one in found.items)
