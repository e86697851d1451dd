"""Every family of images reads files as its processor does, and encodes what it has read."""

import pytest
import torch
from PIL import Image
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
from transformers.utils.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from encgraph import sizes
from encgraph.encoders import inputs, readers, registry
from encgraph.records import Modality

TINY = {
    size.family: name
    for name, size in sizes.SIZES.items()
    if name.endswith("-tiny") and size.rule.modality is Modality.IMAGE
}
SIDES = ((300, 200), (31, 500), (64, 64), (900, 700))
IMAGENET = {"image_mean": IMAGENET_DEFAULT_MEAN, "image_std": IMAGENET_DEFAULT_STD}
PUBLISHED = {
    "siglip-base-16-224": SiglipImageProcessorPil(),
    "clip-vit-l-14-336": CLIPImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    ),
    "dinov2-large": BitImageProcessorPil(size={"shortest_edge": 256}, **IMAGENET),
    "dinov3-vit-l-16": ViTImageProcessorPil(**IMAGENET),
    "gemma3-4b": Gemma3ImageProcessorPil(size={"height": 896, "width": 896}),
}


def photo(path, width, height):
    Image.effect_noise((width, height), 60).convert("RGB").save(path)
    return path


def test_every_family_of_images_reads_files():
    assert set(readers.READERS) == set(TINY)


@pytest.mark.parametrize("family", sorted(TINY))
def test_files_have_the_grid_their_rule_promises_and_encode(family, tmp_path):
    size = sizes.named(TINY[family])
    encoder = registry.named(size.name, device="cpu", dtype=torch.float32)
    paths = [photo(tmp_path / f"{wide}.png", wide, high) for wide, high in SIDES]
    made = inputs.from_files(paths, size)
    for value, (wide, high) in zip(made, SIDES, strict=True):
        grid = sizes.image_grid(wide, high, size.rule)
        assert value.grid == grid
        assert value.item == sizes.item(grid, size.rule, width=wide, height=high)
        assert encoder.item_spec(value) is not None
    small = [value for value in made if value.item.tokens <= 1024]
    assert small
    for output, value in zip(encoder.eager(small), small, strict=True):
        assert len(output.main) == encoder.spec.rows(value.item)
        assert output.main.isfinite().all()


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_pixels_are_those_of_the_published_processor(name, tmp_path):
    path = photo(tmp_path / "photo.png", 640, 427)
    [made] = inputs.from_files([path], sizes.named(name))
    with Image.open(path) as image:
        [true] = PUBLISHED[name](images=[image.convert("RGB")], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(made.pixels, torch.as_tensor(true))


def test_naflex_patches_are_the_processor_s_without_its_padding(tmp_path):
    size = sizes.named("siglip2-naflex-tiny")
    most = size.rule.max_pixels // size.rule.patch**2
    path = photo(tmp_path / "strip.png", 500, 60)
    [made] = inputs.from_files([path], size)
    processor = Siglip2ImageProcessorPil(patch_size=size.rule.patch, max_num_patches=most)
    with Image.open(path) as image:
        true = processor(images=[image.convert("RGB")], return_tensors="pt")
    live = int(true["pixel_attention_mask"].sum())
    assert len(made.pixels) == live <= most
    torch.testing.assert_close(made.pixels, true["pixel_values"][0][:live])


def test_8_bit_pixels_are_refused_where_they_have_no_normalisation():
    rule = sizes.named("siglip2-naflex-tiny").rule
    with pytest.raises(ValueError, match=r"'siglip2-naflex' takes float pixels alone, got 8-bit"):
        readers.named("siglip2-naflex", rule, raw=True)
