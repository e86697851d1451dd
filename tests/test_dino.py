"""DINOv2 and DINOv3: tables interpolated in the graph, and no tensor left in a cache."""

import math

import torch
from helpers_layouts import SIZES, built, error
from transformers.models.dinov3_vit import modeling_dinov3_vit

CPU = torch.device("cpu")


def cached():
    """The `lru_cache` that DINOv3's coordinates go through."""
    cells = modeling_dinov3_vit.get_patches_center_coordinates.__closure__
    return next(c.cell_contents for c in cells if hasattr(c.cell_contents, "cache_info"))


def replay(encoder):
    capacity = encoder.capacity(2 * encoder.slot.rows)
    buffers = encoder.buffers(capacity, CPU, torch.float32)
    encoder.fill(buffers, [encoder.input(torch.rand(encoder.slot.shape))])
    return encoder.forward(buffers, capacity)


def test_a_replay_of_dinov3_leaves_the_cache_alone():
    encoder = built(SIZES["dinov3-tiny"])
    before = cached().cache_info()
    replay(encoder)
    assert cached().cache_info() == before


def test_the_stock_forward_of_dinov3_fills_the_cache_so_the_test_can_fail():
    encoder = built(SIZES["dinov3-tiny"]).stock()
    before = cached().cache_info()
    encoder.eager([encoder.input(torch.rand(encoder.slot.shape))])
    assert cached().cache_info() != before


def test_uncached_rotary_positions_are_bit_for_bit_the_stock_ones():
    encoder = built(SIZES["dinov3-tiny"])
    for shape in ((1, 3, 32, 32), (2, 3, 16, 56)):
        pixels = torch.rand(shape)
        mine = encoder._face.now().rope_embeddings(pixels)
        stock = encoder.module.rope_embeddings(pixels)
        assert all(torch.equal(a, b) for a, b in zip(mine, stock, strict=True))


def test_dinov2_runs_at_another_resolution_than_its_table():
    encoder = built(SIZES["dinov2-tiny"])
    table = encoder.module.embeddings.position_embeddings
    assert table.shape[1] - 1 == 36
    assert encoder.slot.patches - 1 == 16
    first = replay(encoder).main.clone()
    table.add_(torch.randn_like(table))
    torch.manual_seed(0)
    assert error(replay(encoder).main, first) > 1e-3


def test_registers_are_rows_too():
    size = SIZES["dinov2-registers-tiny"]
    encoder = built(size)
    assert encoder.slot.rows == 1 + 4 + math.isqrt(size.rule.max_pixels // 64) ** 2
