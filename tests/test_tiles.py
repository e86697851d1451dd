"""InternVL, Idefics3, SmolVLM and Gemma 3 against the whole models they are part of."""

import pytest
import torch
from helpers_layouts import SIZES, built, error, joined
from helpers_paths import operators
from helpers_whole import WHOLE, whole
from transformers import Idefics3VisionConfig, InternVLModel
from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionEmbeddings
from transformers.utils import import_utils

from encgraph.encoders import idefics3, internvl


@pytest.mark.parametrize("name", WHOLE)
def test_features_are_those_of_the_whole_model(name):
    model, encoder = whole(name)
    counts = [1, 3, 2] if encoder.slot.most > 1 else [1, 1, 1]
    inputs = [encoder.input(torch.rand(n, *encoder.slot.shape) + 0.1) for n in counts]
    tiles = torch.cat([value.pixels for value in inputs])
    wanted = tiles[None] if "idefics" in name or "smol" in name else tiles
    true = model.get_image_features(wanted).pooler_output
    true = torch.cat(list(true)) if isinstance(true, list | tuple) else true.flatten(0, 1)
    assert error(joined(encoder.eager(inputs)), true) < 1e-5
    capacity = encoder.capacity(8 * encoder.slot.rows)
    buffers = encoder.buffers(capacity, torch.device("cpu"), torch.float32)
    encoder.fill(buffers, inputs)
    assert error(encoder.forward(buffers, capacity).main[: len(true)], true) < 1e-5


def test_a_whole_model_and_its_encoder_share_parameters():
    model, encoder = whole("internvl-tiny")
    assert {id(p) for p in encoder.module.parameters()} < {id(p) for p in model.parameters()}


@pytest.mark.parametrize("name", ["idefics3-tiny", "smolvlm-tiny"])
def test_the_stock_tower_takes_another_path_under_capture_so_the_proof_can_fail(name, monkeypatch):
    encoder = built(SIZES[name]).stock()
    inputs = [encoder.input(torch.rand(encoder.slot.shape))]
    warm = operators(lambda: encoder.eager(inputs))
    monkeypatch.setattr(import_utils, "is_cuda_stream_capturing", lambda: True)
    assert operators(lambda: encoder.eager(inputs)) != warm


@pytest.mark.parametrize("side", [4, 7, 26, 27, 32, 70])
def test_positions_of_a_full_tile_run_row_by_row(side):
    assert idefics3._positions(side, side, torch.device("cpu")).tolist() == list(range(side))


@pytest.mark.parametrize(("side", "moved"), [(364, 420), (384, 288)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_of_a_full_tile_are_right_in_every_dtype_whatever_the_stock_tower_rounds_away(
    side, moved, dtype
):
    """Some releases look positions up by fractions rounded to the dtype of the pixels."""
    config = Idefics3VisionConfig(
        hidden_size=8, image_size=side, patch_size=14, num_attention_heads=1
    )
    stock = Idefics3VisionEmbeddings(config).to(dtype)
    found = []
    stock.position_embedding.register_forward_hook(
        lambda module, given, out: found.append(given[0].flatten())
    )
    pixels, count = torch.zeros(1, 3, side, side, dtype=dtype), side // 14
    mask = torch.ones(1, count, count, dtype=torch.bool)
    with torch.no_grad():
        for embed in (idefics3.FullTileEmbeddings(stock), stock):
            embed(pixels, patch_attention_mask=mask)
    right = torch.arange(count * count)
    assert torch.equal(found[0], right)
    rounded = {0} if dtype == torch.float32 else {0, moved}
    assert int((found[1] != right).sum()) in rounded


def test_shuffled_tiles_keep_every_value_once():
    patches = torch.arange(2 * 16 * 3.0).view(2, 16, 3)
    made = internvl.shuffled(patches, 0.5)
    assert made.shape == (2, 4, 12)
    assert sorted(made.flatten().tolist()) == sorted(patches.flatten().tolist())
    shuffle = InternVLModel.pixel_shuffle
    assert torch.equal(made, shuffle(None, patches.view(2, 4, 4, 3), 0.5).reshape(2, 4, 12))
