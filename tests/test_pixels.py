"""8-bit pixels are normalised on the device as processors do; any float dtype enters any buffer."""

import json
from dataclasses import replace

import pytest
import torch
from helpers_layouts import CASES
from helpers_layouts import SIZES as LAYOUTS
from helpers_sync import SyncAuditor
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from encgraph import sizes
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import inputs, pixels, readers, registry

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TINY = {size.family: name for name, size in sizes.SIZES.items() if name.endswith("-tiny")}
NORMALISED = tuple(family for family in TINY if family in pixels.NORMALISATIONS)
FLOATS = tuple(family for family in TINY if sizes.named(TINY[family]).layout != "text")
OWN_DEFAULTS = {
    "qwen2-vl": Qwen2VLImageProcessorPil,
    "glm4v": Glm4vImageProcessorPil,
    "pixtral": PixtralImageProcessorPil,
    "clip": CLIPImageProcessorPil,
    "siglip": SiglipImageProcessorPil,
    "idefics3": Idefics3ImageProcessorPil,
    "gemma3": Gemma3ImageProcessorPil,
}


def built(family, dtype=torch.float32):
    return registry.named(TINY[family], device="cpu", dtype=dtype)


def raw_batch(encoder):
    """Three items of random 8-bit pixels."""
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    generator = torch.Generator().manual_seed(3)
    return [
        replace(
            value,
            pixels=torch.randint(256, value.pixels.shape, generator=generator, dtype=torch.uint8),
        )
        for value in subject.batch(*subject.several)
    ]


def in_dtype(value, dtype):
    return replace(value, pixels=value.pixels.to(dtype))


def normalised(raw, family):
    """As a processor does: rescaled, less the mean, over the deviation, channel by channel."""
    known = pixels.NORMALISATIONS[family]
    image = raw.pixels.double() / 255
    channels = image.view(len(image), 3, -1) if image.dim() == 2 else image
    mean, std = (torch.tensor(values, dtype=torch.float64) for values in (known.mean, known.std))
    shape = (1, 3, 1) if image.dim() == 2 else (3, 1, 1)
    made = (channels - mean.view(shape)) / std.view(shape)
    return replace(raw, pixels=made.view(image.shape).float())


def capacity_of(encoder, batch):
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    return subject.capacity(batch)


def filled(encoder, batch, dtype=torch.float32):
    buffers = encoder.buffers(capacity_of(encoder, batch), CPU, dtype)
    encoder.fill(buffers, batch)
    return buffers


@pytest.mark.parametrize("family", OWN_DEFAULTS)
def test_means_and_deviations_are_those_of_the_processor(family):
    processor = OWN_DEFAULTS[family]()
    known = pixels.NORMALISATIONS[family]
    assert (tuple(processor.image_mean), tuple(processor.image_std)) == (known.mean, known.std)
    assert processor.rescale_factor == 1 / 255


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", NORMALISED)
def test_8_bit_pixels_fill_what_normalised_floats_fill_to_one_rounding(family, dtype):
    encoder = built(family, dtype)
    raw = raw_batch(encoder)
    mine = filled(encoder, raw, dtype)["pixels"]
    true = filled(encoder, [normalised(one, family) for one in raw], dtype)["pixels"]
    assert mine.dtype == dtype
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(mine, true, rtol=ulp, atol=max(1e-6, ulp / 64))
    assert float(mine.float().std()) > 0.3


@pytest.mark.parametrize("family", NORMALISED)
def test_8_bit_and_float_items_share_a_replay_and_eager_takes_both(family):
    encoder = built(family)
    raw = raw_batch(encoder)
    floats = [normalised(one, family) for one in raw]
    mixed = [raw[0], floats[1], raw[2]]
    capacity = capacity_of(encoder, mixed)
    rows = encoder.forward(filled(encoder, mixed), capacity).main
    true = torch.cat([output.main for output in encoder.eager(floats)])
    torch.testing.assert_close(rows[: len(true)], true, rtol=1e-4, atol=1e-4)
    for untouched in (encoder, encoder.stock(), encoder.oracle()):
        mine = torch.cat([output.main for output in untouched.eager(mixed)])
        torch.testing.assert_close(mine, true, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["qwen3-vl", "siglip"])
def test_another_normalisation_is_followed_at_once(family):
    encoder = built(family)
    raw = raw_batch(encoder)
    before = encoder.eager(raw)
    other = pixels.Normalisation((0.1, 0.2, 0.3), (0.9, 0.8, 0.7))
    if family == "siglip":
        encoder.slot = replace(encoder.slot, normalisation=other)
    else:
        encoder.normalisation = other
    after, fresh = encoder.eager(raw), encoder.oracle().eager(raw)
    assert not torch.equal(before[0].main, after[0].main)
    torch.testing.assert_close(after[0].main, fresh[0].main, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", NORMALISED)
def test_filling_8_bit_pixels_never_waits(family):
    encoder = built(family)
    raw = raw_batch(encoder)
    buffers = filled(encoder, raw)
    with SyncAuditor() as auditor:
        encoder.fill(buffers, raw)
    assert auditor.found == []


@pytest.mark.parametrize("given", DTYPES)
@pytest.mark.parametrize("kept", DTYPES)
@pytest.mark.parametrize("family", FLOATS)
def test_any_float_dtype_enters_any_buffer_converted_once(family, kept, given):
    encoder = built(family, kept)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    batch = [in_dtype(one, given) for one in subject.batch(*subject.several)]
    mine = filled(encoder, batch, kept)["pixels"]
    converted = filled(encoder, [in_dtype(one, kept) for one in batch], kept)["pixels"]
    assert torch.equal(mine, converted)
    assert mine.abs().max() > 0.5
    for output in encoder.eager(batch):
        assert output.main.dtype == kept
        assert output.main.isfinite().all()


@pytest.mark.parametrize("family", sorted(set(FLOATS) - set(NORMALISED)))
def test_a_family_without_a_stated_normalisation_refuses_8_bit_pixels(family):
    encoder = built(family)
    with pytest.raises(ValueError, match=r"item 0 must have pixels of a float dtype.*uint8"):
        encoder.eager(raw_batch(encoder))


@pytest.mark.parametrize("family", sorted(set(readers.READERS) & set(NORMALISED)))
def test_files_read_as_8_bit_normalise_to_what_the_processor_gives(family, tmp_path):
    size = sizes.named(TINY[family])
    path = tmp_path / "image.png"
    Image.effect_noise((310, 260), 60).convert("RGB").save(path)
    [raw] = inputs.from_files([path], size, dtype=torch.uint8)
    [true] = inputs.from_files([path], size)
    assert raw.pixels.dtype == torch.uint8
    assert (raw.grid, raw.item) == (true.grid, true.item)
    torch.testing.assert_close(normalised(raw, family).pixels, true.pixels, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", NORMALISED)
def test_synthetic_8_bit_pixels_use_all_levels(family):
    size = sizes.named(TINY[family])
    item = sizes.item(sizes.near_square_grid(size.rule.min_tokens, size.rule), size.rule)
    [made] = inputs.synthetic([item], size=size, dtype=torch.uint8)
    assert made.pixels.dtype == torch.uint8
    assert (int(made.pixels.min()), int(made.pixels.max())) == (0, 255)


@pytest.mark.parametrize("family", ["qwen2-vl", "clip"])
@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 4]}, ((0.1, 0.2, 0.3), (1, 2, 4))),
        ({"do_normalize": False}, None),
        ({"rescale_factor": 1 / 127.5}, None),
    ],
)
def test_a_saved_processor_states_its_own_normalisation(family, stated, expected, tmp_path):
    built(family).module.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "preprocessor_config.json").write_text(json.dumps(stated))
    loaded = registry.from_pretrained(tmp_path / "saved", device="cpu", dtype=torch.float32)
    holder = loaded.slot if family == "clip" else loaded
    assert holder.normalisation == (pixels.Normalisation(*expected) if expected else None)


def test_the_layouts_under_test_are_all_that_exist():
    packed = {name for name, size in sizes.SIZES.items() if size.layout == "packed"}
    assert set(TINY.values()) == {n for n in {*LAYOUTS, *packed} if n.endswith("-tiny")}
    assert set(CASES) & set(TINY.values())


@pytest.mark.cuda
@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("family", NORMALISED)
def test_8_bit_pixels_replay_on_the_card_as_normalised_floats_do(family, place):
    encoder = registry.named(TINY[family], device="cuda", dtype=torch.bfloat16)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec), backend="cuda")
    raw = [replace(one, pixels=one.pixels.to(place)) for one in raw_batch(encoder)]
    floats = [replace(one, pixels=normalised(one, family).pixels.to("cuda")) for one in on_cpu(raw)]
    with subject.runner() as runner:
        for mine, true in zip(runner.execute(raw), runner.execute(floats), strict=True):
            error = (mine.main.float() - true.main.float()).norm() / true.main.float().norm()
            assert float(error) < 0.05


def on_cpu(batch):
    return [replace(one, pixels=one.pixels.cpu()) for one in batch]
