import math

import pytest
import torch
from helpers_sync import SyncAuditor

from encgraph import sizes
from encgraph.encoders import inputs, registry
from encgraph.encoders.protocol import Input
from encgraph.sizes import Grid

TINY = sizes.named("qwen3-vl-tiny")
CPU = torch.device("cpu")
CAPACITY = sizes.capacity(128, TINY.rule, items=6, frames=10)
MIXES = [
    [Grid(1, 8, 8)],
    [Grid(1, 4, 6), Grid(3, 4, 8), Grid(1, 12, 10)],
    [Grid(2, 8, 8), Grid(1, 2, 2), Grid(1, 2, 30)],
    [Grid(1, 16, 32)],
    [Grid(1, 16, 16), Grid(1, 16, 16)],
]
MODES = [
    ("graph", "prefix"),
    ("graph", "zero_and_copy"),
    ("host", "prefix"),
    ("host", "zero_and_copy"),
]


def tiny(**switches):
    return registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32, **switches)


def batch(grids, seed=0):
    return inputs.synthetic(grids, size=TINY, seed=seed)


def stock(encoder, batch_):
    """The untouched tower, item by item."""
    outputs = []
    with torch.no_grad():
        for one in batch_:
            made = encoder.module(one.pixels, grid_thw=torch.tensor([one.grid]))
            outputs.append([made.pooler_output, *made.deepstack_features])
    return outputs


def error(mine, true):
    return float((mine - true).norm() / true.norm())


def replayed(encoder, buffers, batch_, capacity=CAPACITY):
    encoder.fill(buffers, batch_)
    packed = encoder.forward(buffers, capacity)
    done, outputs = 0, []
    for one in batch_:
        count = encoder.item_spec(one).tokens
        outputs.append([t.clone() for t in packed.rows(done, done + count).tensors])
        done += count
    return packed, outputs


def assert_same(mine, true):
    for one, other in zip(mine, true, strict=True):
        assert len(one) == len(other) == 3
        assert max(error(a, b) for a, b in zip(one, other, strict=True)) < 1e-5


@pytest.mark.parametrize(("metadata", "fill_rule"), MODES)
def test_forward_over_padded_buffers_equals_the_stock_tower(metadata, fill_rule):
    encoder = tiny(metadata=metadata, fill_rule=fill_rule)
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    for seed, grids in enumerate([*MIXES, *MIXES[::-1]]):
        one = batch(grids, seed)
        packed, mine = replayed(encoder, buffers, one)
        assert_same(mine, stock(encoder, one))
        assert all(t.shape == (128, TINY.out) and t.isfinite().all() for t in packed.tensors)


@pytest.mark.parametrize(("metadata", "fill_rule"), MODES)
def test_a_smaller_capacity_works_on_prefix_views_after_a_larger_one(metadata, fill_rule):
    encoder = tiny(metadata=metadata, fill_rule=fill_rule)
    slab = encoder.buffers(CAPACITY, CPU, torch.float32)
    small = sizes.capacity(32, TINY.rule, items=2)
    shapes = {n: len(b) for n, b in encoder.buffers(small, CPU, torch.float32).items()}
    views = {name: slab[name][:rows] for name, rows in shapes.items()}
    for grids, buffers, capacity in (
        (MIXES[1], slab, CAPACITY),
        ([Grid(1, 4, 4)], views, small),
        (MIXES[3], slab, CAPACITY),
        ([Grid(1, 8, 8), Grid(1, 2, 4)], views, small),
    ):
        one = batch(grids)
        packed, mine = replayed(encoder, buffers, one, capacity)
        assert_same(mine, stock(encoder, one))
        assert packed.main.isfinite().all()


@pytest.mark.parametrize("metadata", ["graph", "host"])
def test_nan_in_padded_pixel_rows_changes_nothing(metadata):
    encoder = tiny(metadata=metadata)
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    one = batch(MIXES[1])
    _, clean = replayed(encoder, buffers, one)
    real = sum(len(value.pixels) for value in one)
    encoder.fill(buffers, one)
    buffers["pixels"][real:] = math.nan
    poisoned = encoder.forward(buffers, CAPACITY)
    assert poisoned.main.isfinite().all()
    assert torch.equal(poisoned.main[: real // 4], torch.cat([o[0] for o in clean]))


def test_equal_totals_with_other_boundaries_give_other_outputs():
    encoder = tiny()
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    pixels = torch.rand(64, TINY.patch_width)
    whole = [Input(item=sizes.item(Grid(1, 8, 8), TINY.rule), pixels=pixels, grid=Grid(1, 8, 8))]
    half = Grid(1, 4, 8)
    halves = [
        Input(item=sizes.item(half, TINY.rule), pixels=part, grid=half) for part in pixels.split(32)
    ]
    for one in (whole, halves, whole):
        _, mine = replayed(encoder, buffers, one)
        assert_same(mine, stock(encoder, one))
    one_clip = Grid(2, 4, 8)
    clip = [Input(item=sizes.item(one_clip, TINY.rule), pixels=pixels, grid=one_clip)]
    _, mine = replayed(encoder, buffers, clip)
    assert_same(mine, stock(encoder, clip))


def test_varlen_eager_equals_stock_eager_in_order():
    one = batch([grid for mix in MIXES for grid in mix])
    varlen, untouched = tiny(eager_forward="varlen"), tiny(eager_forward="stock")
    mine = [output.tensors for output in varlen.eager(one)]
    assert_same(mine, [output.tensors for output in untouched.eager(one)])
    assert_same(mine, stock(varlen, one))


def test_host_metadata_equals_graph_metadata_exactly():
    one = batch(MIXES[2])
    results = []
    for metadata in ("graph", "host"):
        encoder = tiny(metadata=metadata)
        buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
        results.append(replayed(encoder, buffers, one)[1])
    for one, other in zip(*results, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("inference", [False, True])
def test_rotary_frequencies_edited_in_place_are_seen_by_host_metadata(inference):
    encoder, batch_ = tiny(metadata="host"), batch(MIXES[1])
    rotary = encoder.module.rotary_pos_emb
    with torch.inference_mode(inference):
        rotary.inv_freq = rotary.inv_freq.clone()
        buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
        replayed(encoder, buffers, batch_)
        rotary.inv_freq.mul_(1.25)
        _, outputs = replayed(encoder, buffers, batch_)
    for mine, true in zip(outputs, stock(encoder, batch_), strict=True):
        assert error(mine[0], true[0]) < 1e-5


def test_without_an_attention_slab_the_outputs_are_the_same():
    one = batch(MIXES[1])
    encoder = tiny(attention_slab=False)
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    assert "attention" not in buffers
    assert_same(replayed(encoder, buffers, one)[1], stock(encoder, one))


def test_the_attention_slab_is_what_attention_writes_into():
    encoder = tiny()
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    replayed(encoder, buffers, batch([Grid(1, 8, 8)]))
    assert (buffers["attention"][:64] != 0).any()
    assert (buffers["attention"][64:] == 0).all()


def test_the_linear_patch_embedding_equals_the_convolution():
    encoder = tiny()
    pixels = torch.rand(300, TINY.patch_width)
    torch.testing.assert_close(
        encoder._faces.now().eager.patch_embed(pixels), encoder.module.patch_embed(pixels)
    )


def test_a_weight_edited_in_place_is_seen_by_both_patch_embeddings():
    encoder = tiny()
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    one = batch(MIXES[0])
    _, before = replayed(encoder, buffers, one)
    encoder.module.patch_embed.proj.weight.mul_(1.5)
    encoder.module.blocks[1].attn.qkv.weight.mul_(1.5)
    _, after = replayed(encoder, buffers, one)
    assert error(after[0][0], before[0][0]) > 1e-3
    assert_same(after, stock(encoder, one))


def test_the_tower_itself_is_left_as_it_was():
    encoder = tiny()
    tower = encoder.module
    assert tower.config._attn_implementation == "sdpa"
    assert type(tower.patch_embed).__name__ == "Qwen3VLVisionPatchEmbed"
    assert tower.blocks[0].attn.config is tower.config
    shared = {id(p) for p in tower.parameters()}
    assert {id(p) for p in encoder._faces.now().eager.parameters()} == shared


@pytest.mark.parametrize("metadata", ["graph", "host"])
def test_nothing_synchronizes_between_fill_and_output(metadata):
    encoder = tiny(metadata=metadata)
    buffers = encoder.buffers(CAPACITY, CPU, torch.float32)
    one = batch(MIXES[1])
    replayed(encoder, buffers, one)
    with SyncAuditor() as auditor:
        encoder.fill(buffers, one)
        encoder.forward(buffers, CAPACITY)
    assert auditor.found == []


def test_the_stock_forward_synchronizes_so_the_auditor_can_fail():
    with SyncAuditor() as auditor:
        tiny(eager_forward="stock").eager(batch(MIXES[1]))
    assert any("tolist" in found for found in auditor.found)


def test_varlen_eager_synchronizes_nowhere_either():
    encoder, one = tiny(), batch(MIXES[1])
    encoder.eager(one)
    with SyncAuditor() as auditor:
        encoder.eager(one)
    assert auditor.found == []


def test_item_spec_counts_segments_of_a_clip():
    item = tiny().item_spec(batch([Grid(3, 4, 8)])[0])
    assert (item.tokens, item.patches, item.segments, item.longest_segment) == (24, 96, 3, 32)


def test_spec_names_what_is_in_use():
    spec = tiny().spec
    assert (spec.name, spec.attention, spec.widths) == ("qwen3-vl-tiny", "loop", (96, 96, 96))
    assert (spec.min_tokens, spec.max_tokens) == (64, 16384)


@pytest.mark.cuda
@pytest.mark.parametrize("metadata", ["graph", "host"])
def test_many_fills_in_flight_do_not_overwrite_one_another(metadata):
    encoder = registry.named(
        "qwen3-vl-tiny", device="cuda", dtype=torch.bfloat16, metadata=metadata
    )
    buffers = encoder.buffers(CAPACITY, torch.device("cuda"), torch.bfloat16)
    ready = [
        inputs.synthetic(mix, size=TINY, device="cuda", dtype=torch.bfloat16) for mix in MIXES * 8
    ]
    results = [replayed(encoder, buffers, one)[1] for one in ready]
    torch.cuda.synchronize()
    for one, mine in zip(ready, results, strict=True):
        for output, eager in zip(mine, encoder.eager(one), strict=True):
            assert error(output[0].float(), eager.main.float()) < 3e-2


@pytest.mark.cuda
@pytest.mark.parametrize("metadata", ["graph", "host"])
def test_torch_sees_no_synchronization_on_the_card(metadata):
    encoder = registry.named(
        "qwen3-vl-tiny", device="cuda", dtype=torch.bfloat16, metadata=metadata
    )
    buffers = encoder.buffers(CAPACITY, torch.device("cuda"), torch.bfloat16)
    one = inputs.synthetic(MIXES[1], size=TINY, device="cuda", dtype=torch.bfloat16)
    replayed(encoder, buffers, one)
    torch.cuda.set_sync_debug_mode("error")
    try:
        encoder.fill(buffers, one)
        encoder.forward(buffers, CAPACITY)
    finally:
        torch.cuda.set_sync_debug_mode("default")
