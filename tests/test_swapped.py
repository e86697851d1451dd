"""A module that is made of something else is captured and run as it is now, or refused by name."""

import copy
from types import MethodType

import peft
import pytest
import torch
from helpers import batch, plan, tiny
from torch import nn

from encgraph.checks import parity
from encgraph.encoders import compiling
from encgraph.errors import StaleBufferError
from encgraph.runner import EncoderRunner

PARTS = ("blocks.0.attn.qkv", "blocks.0.attn", "blocks.1.mlp", "blocks.2", "merger", "patch_embed")
BODIES = {"plain": {}, "host": {"metadata": "host"}, "fused": {"compiled": True, "fused": True}}


@pytest.fixture(params=BODIES)
def runner(request, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    encoder = tiny(**BODIES[request.param])
    with EncoderRunner(encoder=encoder, plan=plan(16, 64), backend="reference") as made:
        made.capture()
        yield made


def swap(module, name, change=lambda weight: weight.mul_(3)):
    """A copy of other weights in the place of a submodule."""
    owner, _, key = name.rpartition(".")
    other = copy.deepcopy(module.get_submodule(name))
    with torch.no_grad():
        for weight in other.parameters():
            change(weight)
    module.get_submodule(owner)._modules[key] = other


def refused_then_right(runner):
    """The next replay is refused; after a new capture, replays and eager are the module's."""
    given = batch([(4, 4), (8, 8)], runner.encoder)
    with pytest.raises(StaleBufferError, match="clear and capture again") as found:
        runner.execute(given)
    runner.capture()
    for execute in (runner.execute, runner.encoder.eager):
        stock = runner.encoder.stock()
        assert parity.compare(execute, [given], eager=stock.eager, oracle=None).holds
    return str(found.value)


@pytest.mark.parametrize("name", PARTS)
def test_a_swapped_submodule_runs_after_a_new_capture(runner, name):
    swap(runner.encoder.module, name)
    assert f"submodule {name!r} was swapped" in refused_then_right(runner)


def test_a_swapped_rotary_embedding_is_read_anew_by_metadata_of_the_host(runner):
    module = runner.encoder.module
    runner.execute(batch([(4, 4)], runner.encoder))
    other = copy.deepcopy(module.rotary_pos_emb)
    other.inv_freq = other.inv_freq / 2
    module.rotary_pos_emb = other
    refused_then_right(runner)
    module.rotary_pos_emb.inv_freq = other.inv_freq * 3
    refused_then_right(runner)


def test_a_plain_number_that_the_forward_reads_is_read_anew(runner):
    runner.encoder.module.blocks[1].attn.scaling *= 4
    assert "attribute 'scaling' of module 'blocks.1.attn'" in refused_then_right(runner)


def adapt(module, *targets):
    config = peft.LoraConfig(r=2, target_modules=list(targets), init_lora_weights=False)
    peft.inject_adapter_in_model(config, module)
    module.eval().requires_grad_(False)


def test_an_injected_adapter_runs_after_a_new_capture(runner):
    adapt(runner.encoder.module, "qkv", "linear_fc1")
    assert "qkv' was swapped" in refused_then_right(runner)
    layer = runner.encoder.module.blocks[0].attn.qkv
    layer.scaling["default"] *= 2
    assert "attribute 'scaling' of module 'blocks.0.attn.qkv'" in refused_then_right(runner)
    layer.enable_adapters(False)
    assert "_disable_adapters" in refused_then_right(runner)


def test_an_adapter_of_the_patch_embedding_is_refused_by_name(runner):
    adapt(runner.encoder.module, "patch_embed.proj")
    with pytest.raises(
        ValueError, match=r"'patch_embed.proj' must be one of torch or transf.*peft"
    ):
        runner.encoder.eager(batch([(4, 4)], runner.encoder))


def test_a_forward_compiled_whole_runs_the_module_as_it_is_when_captured():
    encoder = tiny(attention="sdpa")
    whole = torch.compile(encoder.forward, fullgraph=True, dynamic=False, backend="eager")
    swap(encoder.module, "merger")
    capacity, given = plan(16).graphs[0], batch([(4, 4)], encoder)
    buffers = encoder.buffers(capacity, torch.device("cpu"), torch.float32)
    encoder.fill(buffers, given)
    made = whole(buffers, capacity).rows(0, given[0].item.tokens)
    assert parity.distance(made, encoder.stock().eager(given)[0]) < 1e-5


class Rounded(nn.Module):
    """A linear product whose weight is kept as 8-bit integers, as tools that quantise leave it."""

    def __init__(self, of):
        super().__init__()
        self.register_buffer("scale", of.weight.abs().amax() / 127)
        self.register_buffer("rounded", (of.weight / self.scale).round().to(torch.int8))
        self.bias = of.bias
        self.eval()

    def forward(self, rows):
        return nn.functional.linear(rows, self.rounded * self.scale, self.bias)


def test_quantised_products_run_after_a_new_capture(runner):
    module = runner.encoder.module
    names = [name for name, each in module.named_modules() if type(each) is nn.Linear]
    for name in names:
        owner, _, key = name.rpartition(".")
        module.get_submodule(owner)._modules[key] = Rounded(module.get_submodule(name))
    refused_then_right(runner)


def negated(module, *given, **named):
    return -type(module).forward(module, *given, **named)


def test_a_forward_of_its_own_runs_where_graphs_share_the_module_and_is_refused_where_not(runner):
    module, given = runner.encoder.module, batch([(4, 4)], runner.encoder)
    qkv, attn = module.blocks[0].attn.qkv, module.blocks[0].attn
    if not runner.encoder.spec.fused:
        qkv.forward = MethodType(negated, qkv)
        refused_then_right(runner)
    else:
        qkv.forward = MethodType(negated, qkv)
        with pytest.raises(ValueError, match=r"'attn.qkv' has a forward of its own"):
            runner.encoder.eager(given)
    del qkv.forward
    attn.forward = MethodType(negated, attn)
    with pytest.raises(
        ValueError, match=r"module 'blocks.0.attn' must run the forward of its class"
    ):
        runner.encoder.eager(given)
    del attn.forward
    runner.encoder.eager(given)


class Attention(nn.Module):
    """Has what a fused body reads, and another forward."""

    def __init__(self, of):
        super().__init__()
        self.of, self.qkv, self.proj, self.config = of, of.qkv, of.proj, of.config
        self.num_heads, self.scaling = of.num_heads, of.scaling


def test_another_attention_in_a_fused_block_is_refused_by_name():
    encoder = tiny(**BODIES["fused"])
    block = encoder.module.blocks[0]
    block.attn = Attention(block.attn).eval()
    with pytest.raises(ValueError, match="cannot be fused: Attention runs in it"):
        encoder.eager(batch([(4, 4)], encoder))
