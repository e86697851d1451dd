import json

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from encgraph import sizes
from encgraph.encoders import compiling, fusing, inputs, registry
from encgraph.sizes import Grid

VISION = {
    "depth": 3,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_heads": 4,
    "out_hidden_size": 32,
    "num_position_embeddings": 36,
    "deepstack_visual_indexes": [0, 1],
}
TEXT = {
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 1e4},
}
GRIDS = [Grid(1, 4, 6), Grid(2, 4, 4)]


def load(path, **switches):
    return registry.from_pretrained(path, device="cpu", dtype=torch.float32, **switches)


@pytest.fixture(scope="module")
def whole():
    torch.manual_seed(0)
    config = Qwen3VLConfig(vision_config=dict(VISION), text_config=dict(TEXT))
    return Qwen3VLForConditionalGeneration(config).eval()


@pytest.fixture(scope="module")
def saved(whole, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "tiny-model"
    whole.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def sharded(whole, tmp_path_factory):
    path = tmp_path_factory.mktemp("sharded") / "tiny-model"
    whole.save_pretrained(path, max_shard_size="60KB")
    return path


def assert_same_as(whole, encoder):
    one = inputs.synthetic(GRIDS, size=encoder.size)
    with torch.no_grad():
        pixels = torch.cat([value.pixels for value in one])
        true = whole.model.visual(pixels, grid_thw=torch.tensor(GRIDS))
    made = encoder.eager(one)
    for mine, full in (
        (torch.cat([m.main for m in made]), true.pooler_output),
        (torch.cat([m.extra[1] for m in made]), true.deepstack_features[1]),
    ):
        torch.testing.assert_close(mine, full, rtol=1e-4, atol=1e-5)


def test_a_saved_model_gives_its_own_visual_outputs(whole, saved):
    assert_same_as(whole, load(saved))


def test_a_model_in_shards_gives_its_own_visual_outputs(whole, sharded):
    assert (sharded / "model.safetensors.index.json").is_file()
    assert_same_as(whole, load(sharded))


def test_shards_without_vision_weights_are_never_opened(whole, sharded, tmp_path):
    where = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {shard for key, shard in where.items() if "visual." in key}
    unneeded = set(where.values()) - needed
    assert unneeded
    for file in sharded.iterdir():
        if file.name not in unneeded:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    assert_same_as(whole, load(tmp_path))


def test_sizes_come_from_the_config(saved):
    size = load(saved).size
    assert (size.depth, size.hidden, size.out, size.position_side) == (3, 48, 32, 6)
    assert size.deepstack == (0, 1)
    assert load(saved).spec.name == "tiny-model"


def test_pixel_limits_come_from_the_processor_s_file(saved, tmp_path):
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    limits = {"size": {"shortest_edge": 4096, "longest_edge": 1_000_000}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(limits))
    rule = load(tmp_path).size.rule
    assert (rule.min_pixels, rule.max_pixels) == (4096, 1_000_000)
    assert load(saved).size.rule == sizes.QWEN3_VL_RULE


def test_weights_that_are_missing_are_named(saved, tmp_path):
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    tensors = load_file(saved / "model.safetensors")
    tensors.pop("model.visual.merger.norm.weight")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"1 are missing, such as 'merger\.norm\.weight'"):
        load(tmp_path)


def test_another_kind_of_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"vision_config": {"model_type": "sigmoid"}}')
    with pytest.raises(ValueError, match=r"must be a model of .*, got .*'sigmoid'"):
        load(tmp_path)


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must hold 'config\.json'"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["/nope", "../nope/nope", "./nope"])
def test_a_directory_that_is_not_there_is_said(name):
    with pytest.raises(ValueError, match=f"no such directory, and no name of a model: '{name}'"):
        load(name)


def test_a_hub_out_of_reach_is_said_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    said = r"the hub could not be reached for 'config\.json' of 'a/b'.*; give a local directory"
    with pytest.raises(ValueError, match=said):
        load("a/b")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_device_that_is_not_there_is_said(device, saved):
    said = "needs an NVIDIA GPU, torch sees no card; use device='cpu'"
    with pytest.raises(ValueError, match=said):
        registry.named("qwen3-vl-tiny", device=device, dtype=torch.float32)
    with pytest.raises(ValueError, match=said):
        registry.from_pretrained(saved, device=device, dtype=torch.float32)


def test_parameters_of_a_name_are_those_published():
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    count = sum(parameter.numel() for parameter in encoder.module.parameters())
    assert count == sizes.TINY.parameters


@pytest.mark.parametrize("name", [s.name for s in sizes.SIZES.values() if s.layout == "packed"])
def test_parameters_of_every_packed_size_are_those_published(name):
    size = sizes.named(name)
    adapter = registry.FAMILIES[size.family].build.__self__
    with torch.device("meta"):
        tower = adapter.module_type(adapter.config(size))
    assert sum(p.numel() for p in tower.parameters()) == size.parameters


def test_every_size_has_a_family_and_every_family_a_toy_size():
    assert {size.family for size in sizes.SIZES.values()} == set(registry.FAMILIES)
    toys = {size.family for size in sizes.SIZES.values() if size.parameters < 1_000_000}
    assert toys == set(registry.FAMILIES)


def test_no_model_type_belongs_to_two_families():
    kinds = [kind for family in registry.FAMILIES.values() for kind in family.model_types]
    assert len(kinds) == len(set(kinds))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    def weight(seed):
        made = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32, seed=seed)
        return made.module.blocks[0].mlp.linear_fc1.weight

    assert torch.equal(weight(3), weight(3))
    assert not torch.equal(weight(3), weight(4))


def test_bfloat16_outputs_are_finite_and_not_trivial():
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.bfloat16)
    one = inputs.synthetic([Grid(1, 8, 8)] * 2, size=encoder.size, dtype=torch.bfloat16)
    first, second = (output.main.float() for output in encoder.eager(one))
    assert first.isfinite().all()
    assert 0.05 < first.std() < 20
    assert (first - second).norm() > 0.1 * first.norm()


def test_rotary_frequencies_stay_float32_and_computed():
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.bfloat16)
    frequencies = encoder.module.rotary_pos_emb.inv_freq
    assert frequencies.dtype == torch.float32
    torch.testing.assert_close(frequencies, 10000 ** -(torch.arange(0, 8, 2) / 8))


def test_a_misspelt_name_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'qwen3-vl-tiny'"):
        registry.named("qwen3-vl-tinny", device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("use", [registry.named, registry.from_pretrained])
@pytest.mark.parametrize(
    ("device", "dtype", "kind", "said"),
    [
        ("cpu", "float32", TypeError, "dtype must be a torch.dtype, got 'float32'; write torch.bf"),
        ("cpu", torch.int8, ValueError, "dtype must be of floating point, got torch.int8; take"),
        ("gpu", torch.float32, ValueError, "device must be one that torch knows.*, got 'gpu'"),
        (None, torch.float32, ValueError, "device must be one that torch knows.*, got None"),
    ],
)
def test_what_is_no_device_or_dtype_is_refused_by_name(use, device, dtype, kind, said, tmp_path):
    name = "qwen3-vl-tiny" if use is registry.named else tmp_path
    with pytest.raises(kind, match=said):
        use(name, device=device, dtype=dtype)


@pytest.mark.parametrize("size", [s for s in sizes.SIZES.values() if s.parameters < 1_000_000])
@pytest.mark.parametrize("body", [{"compiled": True}, {"compiled": True, "fused": True}])
def test_a_body_that_a_family_does_not_have_is_refused_and_never_left_out(size, body):
    families = fusing.FUSED_FAMILIES if "fused" in body else compiling.COMPILED_FAMILIES
    made = {"device": "cpu", "dtype": torch.float32}
    if size.family in families:
        spec = registry.named(size.name, **made, **body).spec
        assert (spec.compiled, spec.fused) == (True, "fused" in body)
    else:
        with pytest.raises(ValueError, match=r"must be left out for this encoder|cannot be fused"):
            registry.named(size.name, **made, **body)
