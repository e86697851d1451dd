"""Every family over packed patches is proven by the same checks, on its tiny size."""

import math
from contextlib import nullcontext

import pytest
import torch
from helpers_families import (
    CELLS,
    CPU,
    PACKED,
    a_clip,
    assert_same,
    batch,
    built,
    capacity,
    error,
    grids_of,
    mixes,
    replayed,
    stock,
)
from helpers_sync import SyncAuditor
from torch.fx.experimental.proxy_tensor import make_fx

from encgraph import sizes
from encgraph.encoders import inputs, packed, registry
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.records import FallbackReason, Modality, Plan, Route, Step
from encgraph.runner import EncoderRunner
from encgraph.sizes import Grid

METADATA = ("graph", "host")
families = pytest.mark.parametrize("name", PACKED)
modes = pytest.mark.parametrize("metadata", METADATA)


@modes
@families
def test_forward_over_padded_buffers_equals_the_stock_module(name, metadata):
    encoder = built(name, metadata=metadata)
    budget = capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    all_mixes = mixes(encoder.size)
    for seed, grids in enumerate([*all_mixes, all_mixes[1]]):
        one = batch(encoder.size, grids, seed)
        rows, mine = replayed(encoder, buffers, one, budget)
        assert_same(mine, stock(encoder, one))
        assert all(len(t) == 128 and t.isfinite().all() for t in rows.tensors)


@families
def test_a_forward_traced_once_serves_every_mix_so_nothing_is_baked(name):
    encoder = built(name)
    size, budget = encoder.size, capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    encoder.fill(buffers, batch(size, mixes(size)[0]))
    traced = make_fx(
        lambda *tensors: encoder.forward(dict(zip(buffers, tensors, strict=True)), budget).tensors
    )(*buffers.values())
    for grids in mixes(size)[1:]:
        one = batch(size, grids)
        encoder.fill(buffers, one)
        main, *extra = traced(*buffers.values())
        counts = [encoder.item_spec(value).tokens for value in one]
        mine = packed.cut(EncoderOutput(main=main, extra=tuple(extra)), counts)
        assert_same(mine, stock(encoder, one))


@families
def test_zeroing_and_copying_all_buffers_gives_the_same(name):
    encoder = built(name, fill_rule="zero_and_copy", attention_slab=False)
    budget = capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    assert "attention" not in buffers
    for grids in mixes(encoder.size)[1:3]:
        one = batch(encoder.size, grids)
        assert_same(replayed(encoder, buffers, one, budget)[1], stock(encoder, one))


@modes
@families
def test_small_after_large_on_prefix_views_of_one_slab(name, metadata):
    encoder = built(name, metadata=metadata)
    size = encoder.size
    large, small = capacity(size), sizes.capacity(32, size.rule, items=2)
    slab = encoder.buffers(large, CPU, torch.float32)
    shapes = encoder.buffers(small, torch.device("meta"), torch.float32)
    views = {name: slab[name][: len(shape)] for name, shape in shapes.items()}
    little = grids_of(size, [(1, 3, 5), (1, 1, 7)])
    for grids, buffers, budget in (
        (mixes(size)[1], slab, large),
        (little, views, small),
        (mixes(size)[3], slab, large),
        (little[::-1], views, small),
    ):
        one = batch(size, grids)
        rows, mine = replayed(encoder, buffers, one, budget)
        assert_same(mine, stock(encoder, one))
        assert rows.main.isfinite().all()


@modes
@families
def test_nan_in_padded_rows_changes_nothing(name, metadata):
    encoder = built(name, metadata=metadata)
    budget = capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    one = batch(encoder.size, mixes(encoder.size)[1])
    _, clean = replayed(encoder, buffers, one, budget)
    live = sum(len(value.pixels) for value in one)
    encoder.fill(buffers, one)
    buffers["pixels"][live:] = math.nan
    poisoned = encoder.forward(buffers, budget)
    assert poisoned.main.isfinite().all()
    joined = torch.cat([output.main for output in clean])
    assert torch.equal(poisoned.main[: len(joined)], joined)


@families
def test_equal_totals_with_other_boundaries_give_other_outputs(name):
    encoder = built(name)
    size, budget = encoder.size, capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    whole, half = grids_of(size, [(1, 4, 4), (1, 2, 4)])
    pixels = batch(size, [whole])[0].pixels
    cut = [
        Input(item=sizes.item(half, size.rule), pixels=part, grid=half) for part in pixels.chunk(2)
    ]
    joined = [Input(item=sizes.item(whole, size.rule), pixels=pixels, grid=whole)]
    made = []
    for one in (joined, cut, joined):
        mine = replayed(encoder, buffers, one, budget)[1]
        assert_same(mine, stock(encoder, one))
        made.append(torch.cat([output.main for output in mine]))
    assert torch.equal(made[0], made[2])
    assert float((made[0] - made[1]).norm() / made[0].norm()) > 1e-3


@modes
@families
def test_nothing_synchronizes_between_fill_and_output(name, metadata):
    encoder = built(name, metadata=metadata)
    budget = capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    one = batch(encoder.size, mixes(encoder.size)[1])
    replayed(encoder, buffers, one, budget)
    with SyncAuditor() as auditor:
        encoder.fill(buffers, one)
        encoder.forward(buffers, budget)
    assert auditor.found == []


@families
def test_varlen_eager_equals_the_stock_module_in_order_and_never_waits(name):
    encoder = built(name)
    one = batch(encoder.size, [grid for mix in mixes(encoder.size)[:3] for grid in mix])
    assert_same(encoder.eager(one), stock(encoder, one))
    assert_same(encoder.stock().eager(one), stock(encoder, one))
    with SyncAuditor() as auditor:
        encoder.eager(one)
    assert auditor.found == []


@modes
@families
def test_runner_replays_what_fits_and_falls_back_for_the_rest(name, metadata):
    encoder = built(name, metadata=metadata)
    size = encoder.size
    plan = Plan(
        graphs=tuple(sizes.capacity(b, size.rule, items=3, frames=6) for b in (32, 64)),
        encoder=name,
    )
    cells = [(1, 4, 4), (2, 3, 4), (1, 9, 9), (1, 1, 15), (1, 5, 6)]
    one = batch(size, grids_of(size, cells))
    seen: list[Step] = []
    with EncoderRunner(encoder=encoder, plan=plan, backend="reference") as runner:
        runner.capture()
        runner.observe = _keeping(seen)
        mine = runner.execute(one)
    assert_same(mine, stock(encoder, one))
    routes = {step.route for step in seen}
    assert routes == {Route.REPLAY, Route.FALLBACK}
    reasons = [step.reason for step in seen if step.route is Route.FALLBACK]
    assert reasons == [FallbackReason.OVER_TOKENS]


def _keeping(seen):
    def observe(step):
        seen.append(step)
        return nullcontext()

    return observe


@families
def test_a_weight_edited_in_place_is_seen(name):
    encoder = built(name)
    budget = capacity(encoder.size)
    buffers = encoder.buffers(budget, CPU, torch.float32)
    one = batch(encoder.size, mixes(encoder.size)[1])
    before = replayed(encoder, buffers, one, budget)[1]
    with torch.no_grad():
        for parameter in encoder.module.parameters():
            parameter.mul_(1.25)
    after = replayed(encoder, buffers, one, budget)[1]
    assert_same(after, stock(encoder, one))
    assert error(after[0], before[0]) > 1e-3


@families
def test_the_face_shares_every_parameter_with_the_module(name):
    encoder = built(name)
    shared = {id(parameter) for parameter in encoder.module.parameters()}
    assert {id(parameter) for parameter in encoder._faces.now().eager.parameters()} == shared


@families
def test_a_clip_of_two_frames_is_a_clip_or_refused(name):
    encoder = built(name)
    size = encoder.size
    grid = grids_of(size, [(1, 4, 4)])[0]
    clip = a_clip(size, grid)
    if size.rule.video_max_pixels:
        assert encoder.item_spec(clip).modality is Modality.VIDEO
        assert encoder.item_spec(batch(size, [grid])[0]).modality is Modality.IMAGE
    else:
        with pytest.raises(ValueError, match="item 0 must be an image, got a clip"):
            encoder.item_spec(clip)


@families
def test_frames_over_the_capacity_fall_back(name):
    encoder = built(name)
    size = encoder.size
    if not size.rule.video_max_pixels:
        pytest.skip(f"{size.family} takes no clips")
    merge = size.rule.merge
    plan = Plan(graphs=(sizes.capacity(64, size.rule, items=2, frames=4),), encoder=name)
    one = batch(size, [Grid(6, merge, 2 * merge), Grid(4, 2 * merge, 2 * merge)])
    seen: list[Step] = []
    with EncoderRunner(encoder=encoder, plan=plan, backend="reference") as runner:
        runner.capture()
        runner.observe = _keeping(seen)
        assert_same(runner.execute(one), stock(encoder, one))
    reasons = {step.reason for step in seen if step.route is Route.FALLBACK}
    assert reasons <= {FallbackReason.OVER_SEGMENTS, FallbackReason.OVER_FRAMES}
    assert len(reasons) == 1
    assert any(step.route is Route.REPLAY for step in seen)


@families
def test_an_input_that_does_not_fit_is_named(name):
    encoder = built(name)
    size = encoder.size
    good = batch(size, grids_of(size, CELLS[0]))[0]
    wrong = Input(item=good.item, pixels=good.pixels[:-1], grid=good.grid)
    with pytest.raises(ValueError, match="item 1 must have pixels of shape"):
        encoder.eager([good, wrong])
    encoder.module.train()
    with pytest.raises(ValueError, match="eval mode"):
        encoder.eager([good])


@pytest.mark.cuda
@modes
@families
def test_a_captured_graph_equals_eager_on_the_card(name, metadata):
    encoder = registry.named(name, device="cuda", dtype=torch.bfloat16, metadata=metadata)
    size = encoder.size
    plan = Plan(graphs=(capacity(size),), encoder=name)
    with EncoderRunner(encoder=encoder, plan=plan, backend="cuda") as runner:
        runner.capture()
        oracle = encoder.oracle()
        for grids in mixes(size):
            one = inputs.synthetic(grids, size=size, device="cuda", dtype=torch.bfloat16)
            exact, plain = oracle.eager(one), encoder.stock().eager(one)
            for mine, eager, true in zip(runner.execute(one), plain, exact, strict=True):
                assert error(mine, true) <= 1.25 * error(eager, true) + 1e-3
