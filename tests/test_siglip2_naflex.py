"""SigLIP 2 NaFlex: positions as torch's antialiased interpolation, and what it refuses."""

import pytest
import torch
from helpers_layouts import SIZES, built, error
from torch.nn.functional import interpolate

from encgraph.encoders import naflex_rows
from encgraph.encoders.protocol import Input
from encgraph.sizes import Grid


@pytest.mark.parametrize("side", [4, 16])
@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (16, 16), (40, 3), (5, 24), (4, 4)])
def test_positions_are_those_of_torch_interpolate(side, shape):
    table = torch.randn(side * side, 8)
    length = shape[0] * shape[1] + 5
    weights = naflex_rows.resize_weights(torch.tensor([shape, (1, 1)]), length, side=side)
    square = table.view(1, side, side, 8).permute(0, 3, 1, 2)
    true = interpolate(square, size=shape, mode="bilinear", align_corners=False, antialias=True)
    true = true.flatten(2)[0].T
    assert error((weights @ table)[0, : len(true)], true) < 1e-5
    assert weights.isfinite().all()


def test_padding_beyond_a_shape_gets_a_legal_position():
    weights = naflex_rows.resize_weights(torch.tensor([(2, 2)]), 9, side=4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 9))


@pytest.mark.parametrize(
    ("rows", "grid", "message"),
    [
        (30, Grid(1, 5, 6), "1 to 24 patches"),
        (4, Grid(2, 2, 2), "1 to 24 patches"),
        (0, Grid(1, 0, 2), "1 to 24 patches"),
        (5, Grid(1, 2, 2), r"shape \(4, 48\) for grid \(1, 2, 2\), got \(5, 48\)"),
    ],
)
def test_patches_that_do_not_fit_are_refused_by_their_place(rows, grid, message):
    encoder = built(SIZES["siglip2-naflex-tiny"])
    good = encoder.input(torch.zeros(6, 48), (2, 3))
    bad = Input(item=good.item, pixels=torch.zeros(rows, 48), grid=grid)
    with pytest.raises(ValueError, match=f"item 1 must .*{message}"):
        encoder.eager([good, bad])


def test_equal_patches_of_another_shape_give_another_vector():
    encoder = built(SIZES["siglip2-naflex-tiny"])
    pixels = torch.rand(12, 48)
    wide, high = encoder.eager([encoder.input(pixels, s) for s in ((3, 4), (4, 3))])
    assert error(wide.main, high.main) > 1e-3
