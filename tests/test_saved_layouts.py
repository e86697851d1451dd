"""Saved models of the fixed, ragged and text layouts, loaded from a local directory."""

import json

import pytest
import torch
from helpers_layouts import CASES, CPU, SIZES, error, joined
from helpers_whole import WHOLE, whole
from safetensors.torch import load_file, save_file

from encgraph.encoders import registry

TOWERS = [
    name
    for name, size in SIZES.items()
    if size.hidden == 32 and size.family not in ("internvl", "idefics3", "smolvlm", "gemma3")
]


def load(folder):
    return registry.from_pretrained(folder, device=CPU, dtype=torch.float32)


def same(loaded, encoder, inputs):
    assert loaded.spec.widths == encoder.spec.widths
    assert error(joined(loaded.eager(inputs)), joined(encoder.eager(inputs))) < 1e-6


@pytest.mark.parametrize("name", TOWERS)
def test_a_saved_tower_comes_back(name, tmp_path):
    case, size = CASES[name], SIZES[name]
    encoder = case.build()
    folder = tmp_path / name
    encoder.module.save_pretrained(folder)
    processor = {
        "crop_size": {"height": 32, "width": 32},
        "max_num_patches": 24,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    if dict(size.settings).get("pooling") == "mean":
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    loaded = load(folder)
    assert loaded.spec.name == name
    pooled = getattr(loaded, "size", None)
    assert pooled is None or pooled.parameters == size.parameters
    same(loaded, encoder, case.inputs(encoder, [1, 3, 2], 0))


@pytest.mark.parametrize("name", WHOLE)
def test_a_saved_whole_model_gives_its_encoder(name, tmp_path):
    model, encoder = whole(name)
    folder = tmp_path / name
    model.save_pretrained(folder)
    loaded = load(folder)
    assert loaded.slot.shape == encoder.slot.shape
    assert loaded.slot.rows == encoder.slot.rows
    same(loaded, encoder, [encoder.input(torch.rand(encoder.slot.shape)) for _ in range(2)])


def test_a_missing_weight_of_a_renamed_family_is_named(tmp_path):
    folder = tmp_path / "dinov2-tiny"
    CASES["dinov2-tiny"].build().module.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if "layernorm" in name)
    del weights[gone]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"1 are missing, such as '{gone}'"):
        load(folder)


@pytest.mark.parametrize("name", [name for name in SIZES if name in CASES])
def test_the_registry_builds_every_small_size_by_name(name):
    encoder = registry.named(name, device="cpu", dtype=torch.float32)
    assert encoder.spec.name == name
    assert (encoder.spec.min_tokens, encoder.spec.max_tokens)[0] >= 1
