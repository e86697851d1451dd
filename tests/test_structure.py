"""What differs in a module is named, whatever it is; what changes no answer is no difference."""

from types import MethodType

import pytest
import torch
from torch import nn

from encgraph.structure import Structure


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
        self.scaling, self.name, self.sides, self.rates = 0.5, "a", (1, 2), {"one": [1.0]}
        self.seen, self.act = None, torch.relu
        self.eval()


def shifted(module, rows):
    return rows + 1


CHANGES = {
    "swapped": (
        lambda m: m.layer.__setitem__(0, nn.Linear(2, 2)),
        "submodule 'layer.0' was swapped",
    ),
    "added": (lambda m: m.layer[0].add_module("lora", nn.ReLU()), "'layer.0.lora' was added"),
    "removed": (lambda m: delattr(m, "layer"), "submodule 'layer' was removed"),
    "scaling": (
        lambda m: setattr(m, "scaling", 2),
        "attribute 'scaling' of module 'encoder' changed (0.5 -> 2)",
    ),
    "string": (lambda m: setattr(m, "name", "b"), "attribute 'name'"),
    "tuple": (lambda m: setattr(m, "sides", (1, 3)), "attribute 'sides'"),
    "inside": (lambda m: m.rates["one"].append(2.0), "({'one': [1.0]} -> {'one': [1.0, 2.0]})"),
    "none": (lambda m: setattr(m, "seen", 1), "attribute 'seen'"),
    "tensor": (lambda m: setattr(m, "sides", torch.ones(3)), "((1, 2) -> Tensor)"),
    "gone": (lambda m: delattr(m, "scaling"), "(0.5 -> gone)"),
    "width": (lambda m: setattr(m.layer[0], "in_features", 3), "of module 'layer.0' changed"),
    "function": (lambda m: setattr(m, "act", shifted), "relu -> shifted)"),
    "class": (lambda m: setattr(m.layer[1], "__class__", nn.Tanh), "'layer.1' changed its class"),
    "mode": (lambda m: m.layer[1].train(), "module 'layer.1' changed its training mode"),
    "hook": (
        lambda m: m.layer.register_forward_pre_hook(lambda *_: None),
        "module 'layer' changed its forward hooks",
    ),
    "forward": (
        lambda m: setattr(m.layer[0], "forward", MethodType(shifted, m.layer[0])),
        "module 'layer.0' changed a forward of its own",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_named(name):
    change, said = CHANGES[name]
    module = Scaled()
    structure = Structure.of(module)
    assert structure.changed() is None
    change(module)
    assert said in structure.changed()


def test_another_forward_of_a_class_is_named(monkeypatch):
    module = Scaled()
    structure = Structure.of(module)
    monkeypatch.setattr(nn.ReLU, "forward", shifted)
    assert structure.changed() == "class 'ReLU' of module 'layer.1' changed its forward"
    monkeypatch.undo()
    assert structure.changed() is None


def test_a_hook_in_the_place_of_another_is_a_change():
    module = Scaled()
    hook = module.layer.register_forward_hook(lambda *_: None)
    structure = Structure.of(module)
    hook.remove()
    module.layer.register_forward_hook(lambda *_: None)
    assert structure.changed() == "module 'layer' changed its forward hooks"


def test_the_same_value_set_again_edited_weights_and_new_attributes_are_no_change():
    module = Scaled()
    structure = Structure.of(module)
    module.scaling, module.rates, module.note = 1 / 2, {"one": [1.0]}, "new"
    with torch.no_grad():
        module.layer[0].weight.mul_(2)
    module.layer[0].weight = nn.Parameter(torch.ones(2, 2))
    assert structure.changed() is None
