import pytest
import torch
from torch.nn.modules import module as all_modules

from encgraph import watch as watching
from encgraph.errors import CaptureError
from encgraph.watch import LooksOn, Watch, hooked


class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.register_buffer("scale", torch.ones(3))
        self.eval()


def test_nothing_changed_says_nothing():
    module, static = Half(), torch.zeros(4)
    watch = Watch.of(module, {"slab": static})
    with torch.no_grad():
        module.layer.weight.mul_(2)
        static.fill_(1)
    assert watch.changed() is None


def test_a_rebound_buffer_is_named():
    module = Half()
    watch = Watch.of(module, {})
    module.scale = torch.ones(3)
    assert "weight 'scale' was rebound" in watch.changed()


def test_a_moved_static_tensor_is_named_with_both_addresses():
    static = torch.zeros(4)
    watch = Watch.of(Half(), {"slab": static})
    static.data = torch.zeros(4)
    assert "buffer 'slab' moved (0x" in watch.changed()


def test_a_hook_is_found_wherever_it_is():
    module = Half()
    assert hooked(module) is None
    module.layer.register_forward_pre_hook(lambda *args: None)
    assert hooked(module) == "layer"


def test_the_watch_keeps_what_it_watches_alive():
    module = Half()
    watch = Watch.of(module, {})
    address = module.layer.weight.data_ptr()
    module.layer.weight = torch.nn.Parameter(torch.zeros(3, 3))
    assert any(held.tensor.data_ptr() == address for held in watch.held)


def bare():
    module = Half()
    module.layer = torch.nn.Linear(3, 3, bias=False).eval()
    return module


@pytest.mark.parametrize("name", ["bias", "another"])
def test_a_weight_where_there_was_none_is_named(name):
    module = bare()
    watch = Watch.of(module, {})
    module.layer.register_parameter(name, torch.nn.Parameter(torch.ones(3)))
    assert f"{name}' was added (there was none at capture)" in watch.changed()


def test_a_buffer_where_none_was_ever_named_is_found():
    module = bare()
    watch = Watch.of(module, {})
    module.layer.register_buffer("shift", torch.ones(3))
    assert "weight 'shift' was added" in watch.changed()
    del module.layer.shift
    assert watch.changed() is None


def test_a_name_without_a_tensor_that_goes_is_no_change():
    module = bare()
    watch = Watch.of(module, {})
    del module.layer.bias
    assert watch.changed() is None


def test_what_a_module_is_made_of_is_watched():
    module = Half()
    watch = Watch.of(module, {})
    module.layer.add_module("lora", torch.nn.Linear(3, 3))
    assert watch.changed() == "submodule 'layer.lora' was added"


def test_a_hook_on_all_modules_is_a_change_unless_it_looks_on():
    watch, seen = Watch.of(Half(), {}), []
    looking = all_modules.register_module_forward_hook(LooksOn(lambda *_: seen.append(1)))
    try:
        Half().layer(torch.ones(3))
        assert seen == [1]
        assert watch.changed() is None
        assert hooked(Half()) is None
        other = all_modules.register_module_forward_pre_hook(lambda *_: None)
        try:
            assert watch.changed() == "hooks on the forward of all modules were added or removed"
            assert hooked(Half()) == "encoder"
        finally:
            other.remove()
    finally:
        looking.remove()


def square(**how):
    return torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, **how)).eval()


LAYOUTS = {
    "transposed": lambda held: held.transpose(0, 1),
    "cut": lambda held: held[:2],
    "viewed": lambda held: held.view(2, 8, 3, 3),
    "strides": lambda held: held.as_strided((4, 4, 3, 3), (36, 1, 12, 4)),
    "dtype": lambda held: held.view(torch.float16),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("has_guards", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_another_layout_at_the_same_address_is_named(name, has_guards, grad, monkeypatch):
    if not has_guards:
        monkeypatch.setattr(watching, "compiled", None)
    module = square(dtype=torch.bfloat16)
    with torch.set_grad_enabled(grad):
        watch = Watch.of(module, {})
    kept, weight = module[0].weight.data, module[0].weight
    assert watch.changed() is None
    weight.data = LAYOUTS[name](kept)
    assert weight.data_ptr() == kept.data_ptr()
    assert "weight '0.weight' was laid out otherwise (torch.bfloat16 (4, 4" in watch.changed()
    weight.data = kept
    assert watch.changed() is None


def test_the_mode_of_gradients_and_of_inference_is_no_change():
    module = square()
    watch = Watch.of(module, {})
    module.requires_grad_(False)
    assert watch.changed() is None
    with torch.inference_mode():
        assert watch.changed() is None


def test_a_hook_that_looks_on_is_no_hook_to_refuse():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module[0].register_forward_hook(LooksOn(lambda *_: None))
    watching.refuse_hooks(module)
    module[0].register_forward_pre_hook(lambda *_: None)
    with pytest.raises(CaptureError, match="module '0' has forward hooks"):
        watching.refuse_hooks(module)
