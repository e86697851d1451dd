import torch

from encgraph.watch import Watch, hooked


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
