"""Strips: each family takes, sizes and refuses them as its processor in transformers does."""

import math
from typing import get_args

import pytest
from PIL import Image
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from encgraph import sizes
from encgraph.rules import Resize, TokenRule
from encgraph.sizes import Grid

STRIPS = [(4000, 10), (10, 4000)]
LINES = [(4000, 1), (1, 4000)]
SHORTER = [(1024, 1), (1, 1025), (2000, 10), (10, 2001), (200, 1), (7, 1399), (1, 1)]
SMART = {
    "qwen2-vl-7b": Qwen2VLImageProcessorPil,
    "qwen2.5-vl-7b": Qwen2VLImageProcessorPil,
    "qwen3-vl-8b": Qwen2VLImageProcessorPil,
    "glm4v-9b": Glm4vImageProcessorPil,
}
LONGEST_EDGE = ["pixtral-12b", "mistral-small-3.1"]
PATCH_LIMIT = ["siglip2-so400m-16-naflex"]
SQUARE = {
    "siglip-base-16-224": SiglipImageProcessorPil,
    "clip-vit-l-14": CLIPImageProcessorPil,
    "dinov2-large": BitImageProcessorPil,
    "gemma3-4b": Gemma3ImageProcessorPil,
    "idefics3-8b": Idefics3ImageProcessorPil,
    "smolvlm2-2.2b": SmolVLMImageProcessorPil,
    "internvl3-2b": GotOcr2ImageProcessorPil,
}
NAMES = [*SMART, *LONGEST_EDGE, *PATCH_LIMIT, *SQUARE]


def processed(name: str, sides: tuple[int, int]) -> Grid:
    """Patches of the pixels that the processor of an encoder makes of an image."""
    rule = sizes.named(name).rule
    made, patch = _made(name, Image.new("RGB", sides), rule), rule.patch
    if "image_grid_thw" in made:
        return Grid(*made["image_grid_thw"][0].tolist())
    if "spatial_shapes" in made:
        return Grid(1, *made["spatial_shapes"][0].tolist())
    tiles = made["pixel_values"].flatten(0, -4)
    return Grid(len(tiles), *(side // patch for side in tiles.shape[-2:]))


def _made(name, image, rule: TokenRule):
    side, patch = math.isqrt(rule.max_pixels), rule.patch
    square = {"height": side, "width": side}
    if name in SMART:
        limits = {"shortest_edge": rule.min_pixels, "longest_edge": rule.max_pixels}
        processor = SMART[name](patch_size=patch, merge_size=rule.merge, size=limits)
    elif name in LONGEST_EDGE:
        patches = {"height": patch, "width": patch}
        processor = PixtralImageProcessorPil(size={"longest_edge": side}, patch_size=patches)
    elif name in PATCH_LIMIT:
        most = rule.max_pixels // patch**2
        processor = Siglip2ImageProcessorPil(patch_size=patch, max_num_patches=most)
    elif name in ("clip-vit-l-14", "dinov2-large"):
        processor = SQUARE[name](size={"shortest_edge": side}, crop_size=square)
    elif name == "internvl3-2b":
        processor = GotOcr2ImageProcessorPil(size=square, crop_to_patches=True)
    elif name in ("idefics3-8b", "smolvlm2-2.2b"):
        processor = SQUARE[name](
            size={"longest_edge": 4 * side}, max_image_size={"longest_edge": side}
        )
    else:
        processor = SQUARE[name](size=square)
    return processor(images=[image], return_tensors="pt")


def promised(name, sides):
    return sizes.image_grid(*sides, sizes.named(name).rule)


@pytest.mark.parametrize("sides", [*STRIPS, *LINES, *SHORTER])
@pytest.mark.parametrize("name", NAMES)
def test_a_strip_has_the_grid_that_the_processor_gives_it_or_is_refused_as_there(name, sides):
    try:
        expected = processed(name, sides)
    except ValueError:
        with pytest.raises(ValueError, match="the processor refuses such an image"):
            promised(name, sides)
        return
    assert promised(name, sides) == expected
    assert min(expected) >= 1


@pytest.mark.parametrize("sides", STRIPS)
def test_of_an_aspect_of_400_only_smart_resize_makes_a_refusal(sides):
    refused = set()
    for name in NAMES:
        try:
            promised(name, sides)
        except ValueError as error:
            wanted = f"at most 200, got 400.0 ({sides[0]} x {sides[1]})"
            assert wanted in str(error)
            refused.add(name)
    assert refused == set(SMART)


@pytest.mark.parametrize("sides", LINES)
def test_a_line_that_would_shrink_to_no_pixels_is_refused_by_name(sides):
    for name in LONGEST_EDGE:
        with pytest.raises(ValueError, match=rf"0 pixels, as that of {sides[0]} x {sides[1]} does"):
            promised(name, sides)
    for name in (*PATCH_LIMIT, *SQUARE):
        assert min(promised(name, sides)) >= 1


def test_every_kind_of_resize_of_images_is_among_them():
    kinds = {sizes.named(name).rule.resize for name in NAMES}
    assert kinds == set(get_args(Resize)) - {"length"}
