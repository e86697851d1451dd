"""Random inputs of planned items are what the encoders take."""

import pytest
import torch
from helpers_layouts import CASES, SIZES

from encgraph import sizes
from encgraph.encoders import samples


@pytest.mark.parametrize("name", [name for name in CASES if name in SIZES])
def test_a_sample_has_the_sizes_of_its_item(name):
    case, size = CASES[name], SIZES[name]
    encoder = case.build()
    for wanted in case.inputs(encoder, [1, 4], 0):
        made = samples.sample(wanted.item, size, generator=torch.Generator().manual_seed(1))
        assert encoder.item_spec(made) == wanted.item
        assert len(encoder.eager([made])[0].main) == encoder.spec.rows(wanted.item)
        again = samples.sample(wanted.item, size, generator=torch.Generator().manual_seed(1))
        assert torch.equal(made.pixels, again.pixels)


def test_packed_sizes_are_not_sampled_here():
    size = sizes.named("qwen3-vl-tiny")
    item = sizes.item(sizes.Grid(1, 4, 4), size.rule)
    with pytest.raises(ValueError, match="layout must be one of"):
        samples.sample(item, size, generator=torch.Generator())
