"""Each packed family loads from a directory that transformers saved, whole model or tower alone."""

import json

import pytest
import torch
from helpers_families import PACKED, assert_same, batch, mixes
from safetensors.torch import save_file

from encgraph import sizes
from encgraph.encoders import registry


def saved(name, path, prefix=""):
    """A tower saved by transformers; under a prefix, as the file of a whole model keeps it."""
    encoder = registry.named(name, device="cpu", dtype=torch.float32, seed=5)
    encoder.module.save_pretrained(path)
    if prefix:
        tensors = {f"{prefix}{k}": v.clone() for k, v in encoder.module.state_dict().items()}
        save_file({**tensors, "lm_head.weight": torch.zeros(2)}, path / "model.safetensors")
    return encoder


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", PACKED)
def test_a_saved_tower_loads_with_its_sizes_and_outputs(name, whole, tmp_path):
    adapter = registry.FAMILIES[sizes.named(name).family].build.__self__
    made = saved(name, tmp_path / "saved-one", adapter.prefixes[0] if whole else "")
    loaded = registry.from_pretrained(tmp_path / "saved-one", device="cpu", dtype=torch.float32)
    mine, true = loaded.size, made.size
    assert loaded.spec.name == "saved-one"
    facts = ("family", "depth", "hidden", "intermediate", "heads", "out", "deepstack", "window")
    more = ("position_side", "full_attention", "gated", "merger", "settings", "parameters", "rule")
    for fact in (*facts, *more):
        assert getattr(mine, fact) == getattr(true, fact), fact
    one = batch(true, mixes(true)[1])
    assert_same(loaded.eager(one), made.stock().eager(one))


@pytest.mark.parametrize("name", PACKED)
def test_a_missing_weight_is_named(name, tmp_path):
    encoder = saved(name, tmp_path / "saved")
    tensors = {k: v.clone() for k, v in encoder.module.state_dict().items()}
    gone = sorted(tensors)[0]
    tensors.pop(gone)
    save_file(tensors, tmp_path / "saved" / "model.safetensors")
    with pytest.raises(ValueError, match=f"1 are missing, such as '{gone}'"):
        registry.from_pretrained(tmp_path / "saved", device="cpu", dtype=torch.float32)


def test_limits_of_an_older_processor_file_are_read(tmp_path):
    saved("qwen2-vl-tiny", tmp_path / "saved")
    file = tmp_path / "saved" / "preprocessor_config.json"
    file.write_text('{"min_pixels": 6272, "max_pixels": 1000000}')
    loaded = registry.from_pretrained(tmp_path / "saved", device="cpu", dtype=torch.float32)
    rule = loaded.size.rule
    assert (rule.min_pixels, rule.max_pixels) == (6272, 1_000_000)
    # clips without a file of their own, as the processors of transformers load them
    assert (rule.video_min_pixels, rule.video_max_pixels) == (6272, 1_000_000)


def test_published_limits_are_those_of_the_models_own_files():
    """The files of Qwen/Qwen3-VL-8B-Instruct and Qwen/Qwen2.5-VL-7B-Instruct, clips' among them."""
    limits = {
        name: (rule.min_pixels, rule.max_pixels, rule.video_min_pixels, rule.video_max_pixels)
        for name in ("qwen3-vl-8b", "qwen2.5-vl-7b")
        for rule in (sizes.named(name).rule,)
    }
    assert limits["qwen3-vl-8b"] == (65_536, 16_777_216, 4_096, 25_165_824)
    assert limits["qwen2.5-vl-7b"] == 2 * (3_136, 12_845_056)
    clip = sizes.video_grid(640, 480, 16, sizes.named("qwen3-vl-8b").rule)
    assert sizes.item(clip, sizes.named("qwen3-vl-8b").rule).tokens == 2_400


@pytest.mark.parametrize("kept", ["apart", "together"])
def test_limits_of_images_and_clips_are_those_of_the_saved_processors(kept, tmp_path):
    saved("qwen3-vl-tiny", tmp_path / "saved")
    image, clip = (
        {"size": {"shortest_edge": low, "longest_edge": top}}
        for low, top in ((65_536, 262_144), (4_096, 524_288))
    )
    files = {"preprocessor_config.json": image, "video_preprocessor_config.json": clip}
    if kept == "together":  # as newer releases save a processor; an older file beside it is stale
        both = {"image_processor": image, "video_processor": clip}
        files = {"processor_config.json": both, "preprocessor_config.json": {"min_pixels": 1}}
    for name, text in files.items():
        (tmp_path / "saved" / name).write_text(json.dumps(text))
    loaded = registry.from_pretrained(tmp_path / "saved", device="cpu", dtype=torch.float32)
    rule = loaded.size.rule
    assert (rule.min_pixels, rule.max_pixels) == (65_536, 262_144)
    assert (rule.video_min_pixels, rule.video_max_pixels) == (4_096, 524_288)
