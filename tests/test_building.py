"""Modules made without their own initialisation: the same buffers, and no weight is drawn for nothing."""

import pytest
import torch
from torch import nn

from encgraph import sizes
from encgraph.encoders import building, registry, siglip2_naflex

DEVICE = torch.device("cpu")


def tiny(family):
    return next(s for s in sizes.SIZES.values() if s.family == family and s.name.endswith("-tiny"))


def parts(family):
    """Class, config and the twin's values of a family."""
    owner = getattr(registry.FAMILIES[family].build, "__self__", None)
    if owner is None:
        config = siglip2_naflex.config_of(tiny(family))
        return siglip2_naflex.Siglip2VisionModel, config, {"num_hidden_layers": 1}
    config_of = getattr(owner, "config_of", None) or owner.config
    return owner.module_type, config_of(tiny(family)), owner.short


@pytest.mark.parametrize("family", sorted(registry.FAMILIES))
def test_buffers_are_those_of_a_module_that_initialised_itself(family):
    module_type, config, short = parts(family)
    made = building.empty(module_type, config, device=DEVICE, dtype=torch.bfloat16, short=short)
    mine, true = (dict(m.named_buffers()) for m in (made, module_type(config)))
    assert mine.keys() == true.keys()
    for name, buffer in true.items():
        assert mine[name].dtype == buffer.dtype
        assert torch.equal(mine[name], buffer), name


def test_initialisations_inside_draw_nothing_and_end():
    before = torch.get_rng_state()
    with building.Undrawn():
        made = nn.Linear(64, 64)
        for initialise in (nn.init.trunc_normal_, nn.init.normal_, nn.init.xavier_uniform_):
            initialise(made.weight)
    assert torch.equal(torch.get_rng_state(), before)
    assert not made.weight.any() and not made.bias.any()
