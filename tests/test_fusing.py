"""The fused body: its operators against torch's own, and towers run by it against the untouched ones."""

import copy
import gc
import weakref

import pytest
import torch
from helpers import BACKENDS, compilations
from torch import nn
from torch.nn.functional import gelu, linear
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision

from encgraph import graphs, sizes
from encgraph.encoders import compiling, fronts, fusing, inputs, registry
from encgraph.records import Plan

SHAPES = [(5, 4, 8), (33, 16, 72), (128, 2, 64), (1, 3, 80)]


def packed(patches, heads, width, dtype, device="cpu"):
    made = torch.Generator(device).manual_seed(patches)
    qkv = torch.randn(patches, 3, heads, width, generator=made, device=device).to(dtype)
    cos, sin = (torch.randn(patches, width, generator=made, device=device) for _ in range(2))
    return qkv, cos, sin


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_and_keys_are_rotated_as_transformers_does(shape):
    qkv, cos, sin = packed(*shape, torch.float32)
    q, k = apply_rotary_pos_emb_vision(qkv[:, 0], qkv[:, 1], cos, sin)
    torch.testing.assert_close(fusing.rotate(qkv, cos, sin), torch.stack((q, k)), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operator_is_what_it_tells_a_compiler(dtype):
    rows, weight, bias = (torch.randn(s).to(dtype) for s in ((5, 8), (12, 8), (12,)))
    torch.library.opcheck(torch.ops.encgraph.linear_gelu.default, (rows, weight, bias))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("rows", [2, 127, 1024])
def test_the_epilogue_is_the_tanh_gelu(rows):
    made = torch.Generator("cuda").manual_seed(rows)
    shapes = ((rows, 1152), (4304, 1152), (4304,))
    x, w, b = (torch.randn(s, generator=made, device="cuda") for s in shapes)
    x, w, b = (t.to(torch.bfloat16) for t in (x, w / 34, b))
    right = gelu(linear(x.double(), w.double(), b.double()), approximate="tanh")
    error = (fusing.linear_gelu(x, w, b).double() - right).norm() / right.norm()
    unfused = gelu(linear(x, w, b), approximate="tanh").double()
    assert error <= 1.05 * (unfused - right).norm() / right.norm()


@pytest.fixture
def fused(monkeypatch):
    """A tiny tower with the fused body, compiled without generating code off a card."""

    def made(family, backend, **switches):
        torch._dynamo.reset()
        if backend == "reference":
            monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
        on_card = backend == "cuda"
        return registry.named(
            f"{family}-tiny",
            device="cuda" if on_card else "cpu",
            dtype=torch.bfloat16 if on_card else torch.float32,
            compiled=True,
            fused=True,
            **switches,
        )

    return made


def some(encoder, sides=((8, 8), (12, 10))):
    merge, spec = encoder.size.rule.merge, encoder.spec
    grids = [sizes.Grid(1, h // 2 * merge, w // 2 * merge) for h, w in sides]
    return inputs.synthetic(grids, size=encoder.size, device=spec.device, dtype=spec.dtype, seed=0)


def joined(outputs):
    return torch.cat([torch.cat(o.tensors, 1) for o in outputs]).double()


def capacities(encoder, *tokens, items=4):
    return tuple(sizes.capacity(t, encoder.size.rule, items=items) for t in tokens)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", fusing.FUSED_FAMILIES)
def test_every_family_gives_the_answers_of_its_untouched_tower(fused, family, backend):
    encoder = fused(family, backend)
    assert encoder.spec.fused and encoder.spec.compiled
    batch = some(encoder)
    right = joined(encoder.stock().eager(batch))
    bound = (1e-5 if backend == "reference" else 3e-2) * right.norm()
    assert (joined(encoder.eager(batch)) - right).norm() <= bound
    plan = Plan(graphs=capacities(encoder, 48, 100, 200), encoder=encoder.spec.name)
    with graphs.capture(encoder, plan, backend=backend) as made:
        assert [graph.failure for graph in made.graphs] == [None] * 3
        for graph in reversed(made.graphs):
            assert (made.replay(graph.capacity, batch).double() - right).norm() <= bound


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", fusing.FUSED_FAMILIES)
def test_graphs_of_a_single_item_give_the_answers_of_the_untouched_tower(fused, family, backend):
    """A size of one is compiled apart."""
    encoder = fused(family, backend)
    batch = some(encoder, [(8, 8)])
    right = joined(encoder.stock().eager(batch))
    bound = (1e-5 if backend == "reference" else 3e-2) * right.norm()
    plan = Plan(graphs=capacities(encoder, 64, 200, items=1), encoder=encoder.spec.name)
    with graphs.capture(encoder, plan, backend=backend) as made:
        for graph in made.graphs:
            assert graph.failure is None
            assert (made.replay(graph.capacity, batch).double() - right).norm() <= bound


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_block_and_one_front_are_compiled(fused, backend):
    encoder = fused("qwen3-vl", backend)
    before = compilations()
    plan = Plan(graphs=capacities(encoder, 48, 64, 131, 200), encoder=encoder.spec.name)
    with graphs.capture(encoder, plan, backend=backend):
        encoder.eager(some(encoder))
        encoder.eager(some(encoder, [(4, 4)]))
        assert compilations() - before == 2


def test_a_weight_edited_in_place_is_seen(fused):
    encoder = fused("qwen3-vl", "reference")
    batch = some(encoder)
    before = joined(encoder.eager(batch))
    for name in ("attn.qkv", "mlp.linear_fc1", "norm1", "mlp.linear_fc2"):
        with torch.no_grad():
            encoder.module.blocks[1].get_submodule(name).weight.mul_(1.5)
        after = joined(encoder.eager(batch))
        assert not torch.allclose(before, after)
        torch.testing.assert_close(
            after, joined(encoder.stock().eager(batch)), rtol=1e-4, atol=1e-5
        )
        before = after


class Doubled(nn.Linear):
    """Stands for a product that is more than its weight, as an adapter's is."""

    def forward(self, rows):
        return 2 * super().forward(rows)


def test_a_product_that_is_more_than_its_weight_is_not_passed_by(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    torch._dynamo.reset()
    module = copy.deepcopy(
        registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32).module
    )
    for block in module.blocks:
        first = block.mlp.linear_fc1
        block.mlp.linear_fc1 = Doubled(first.in_features, first.out_features)
        block.mlp.linear_fc1.load_state_dict(first.state_dict())
    size = sizes.named("qwen3-vl-tiny")
    encoder = registry.QwenVL(module, size, compiled=True, fused=True)
    batch = some(encoder)
    torch.testing.assert_close(
        joined(encoder.eager(batch)), joined(encoder.stock().eager(batch)), rtol=1e-4, atol=1e-5
    )


def test_what_cannot_be_fused_is_refused_with_the_reason():
    module = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32).module
    size = sizes.named("qwen3-vl-tiny")
    with pytest.raises(ValueError, match="fused needs compiled=True"):
        registry.QwenVL(module, size, fused=True)
    hook = module.blocks[2].mlp.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="'mlp' has forward hooks"):
        registry.QwenVL(module, size, compiled=True, fused=True)
    hook.remove()
    with pytest.raises(ValueError, match="a block must be one of"):
        registry.named("pixtral-tiny", device="cpu", dtype=torch.float32, compiled=True, fused=True)


@pytest.fixture
def between(fused):
    """A fused tower, and what its first merger of deep features, which runs between blocks, does."""
    encoder = fused("qwen3-vl", "reference")
    doing = []
    merger = encoder.module.deepstack_merger_list[0]
    merger.register_forward_pre_hook(lambda _, given: doing[0](given[0]))
    return encoder, doing


def test_a_forward_that_fails_between_blocks_leaves_nothing_behind(between):
    encoder, doing = between
    seen = []

    def fails(hidden):
        seen.append(weakref.ref(hidden))
        raise RuntimeError("out of room")

    doing.append(fails)
    with pytest.raises(RuntimeError, match="out of room"):
        encoder.eager(some(encoder))
    gc.collect()
    assert seen[0]() is None


def test_a_norm_is_taken_for_its_own_rows_only(fused):
    encoder = fused("qwen3-vl", "reference")
    batch = some(encoder)
    for block in encoder._faces.now().eager.blocks[1:]:
        forward = block.forward
        block.forward = lambda hidden, forward=forward, **named: forward(2 * hidden, **named)
    doubled = joined(encoder.eager(batch))
    stock = encoder.stock()
    for block in stock.module.blocks[1:]:
        block.register_forward_pre_hook(lambda _, given: (2 * given[0], *given[1:]))
    torch.testing.assert_close(doubled, joined(stock.eager(batch)), rtol=1e-4, atol=1e-5)


def test_the_front_is_what_the_tower_makes_of_its_grids(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    front = fronts.compiled(side=encoder.size.position_side, merge=2)
    grids = [sizes.Grid(1, 4, 6), sizes.Grid(1, 6, 6)]
    with torch.no_grad():
        made = front(encoder.module, encoder._padded(grids, 5), 80, 7)
        right = encoder.host_metadata(grids, segments=7)
    for values, name in zip(made, ("positions", "cos", "sin", "offsets"), strict=True):
        torch.testing.assert_close(values[: len(right[name])], right[name], rtol=1e-6, atol=1e-6)
