"""Read one image as its encoder's processor does, by family: pixels as the encoder takes them, and their grid."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from PIL import Image
from torch import Tensor
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
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from encgraph.encoders import pixels
from encgraph.errors import require
from encgraph.sizes import Grid, TokenRule

Reader = Callable[[Image.Image], tuple[Tensor, Grid]]
Make = Callable[[TokenRule, Mapping[str, Any]], Reader]
RAW = {"do_rescale": False, "do_normalize": False}
"""What a processor is told when the device is to normalise."""
DINO_MARGIN = 256 / 224
"""Shorter side over the square cut from its middle, by the published DINOv2 processors."""


def named(family: str, rule: TokenRule, *, raw: bool = False) -> Reader:
    """A family's reader under a rule's limits.

    Args:
        family: A key of `READERS`.
        rule: Patch, merge and pixel limits.
        raw: Whether pixels stay 0 to 255, for the device to normalise.

    Raises:
        ValueError: If the family reads no files, or takes no raw pixels.
    """
    require(
        family in READERS,
        f"files are read for families {sorted(READERS)}, got {family!r}; "
        "make its inputs from tensors",
    )
    known = pixels.NORMALISATIONS.get(family)
    require(not raw or known is not None, f"{family!r} takes float pixels alone, got 8-bit")
    if raw:
        return READERS[family](rule, RAW)
    stated = {"image_mean": list(known.mean), "image_std": list(known.std)} if known else {}
    return READERS[family](rule, stated)


def _qwen(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    """The processor's PIL form, which needs no torchvision, under the rule's limits."""
    processor = Qwen2VLImageProcessorPil(**_limits(rule), **options)
    return lambda image: _with_grid(processor(images=[image], return_tensors="pt"))


def _glm(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    processor = Glm4vImageProcessorPil(**_limits(rule), **options)
    return lambda image: _with_grid(processor(images=[image], return_tensors="pt"))


def _limits(rule: TokenRule) -> dict[str, Any]:
    return {
        "patch_size": rule.patch,
        "merge_size": rule.merge,
        "temporal_patch_size": rule.temporal_patch,
        "size": {"shortest_edge": rule.min_pixels, "longest_edge": rule.max_pixels},
    }


def _with_grid(made: Any) -> tuple[Tensor, Grid]:
    return made["pixel_values"], Grid(*made["image_grid_thw"][0].tolist())


def _pixtral(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    """Its images are whole; the encoder takes flat patches in raster order."""
    patch = rule.patch
    processor = PixtralImageProcessorPil(
        size={"longest_edge": math.isqrt(rule.max_pixels)},
        patch_size={"height": patch, "width": patch},
        **options,
    )

    def read(image: Image.Image) -> tuple[Tensor, Grid]:
        image_3HW = processor(images=[image], return_tensors="pt")["pixel_values"][0]
        high, wide = (side // patch for side in image_3HW.shape[1:])
        blocks = image_3HW.view(3, high, patch, wide, patch).permute(1, 3, 0, 2, 4)
        return blocks.reshape(high * wide, -1), Grid(1, high, wide)

    return read


def _internvl(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    """Tiles in reading order, the whole image last."""
    side = math.isqrt(rule.max_pixels)
    processor = GotOcr2ImageProcessorPil(
        size={"height": side, "width": side},
        crop_to_patches=True,
        max_patches=rule.tiles,
        **options,
    )
    return lambda image: _tiled(processor(images=[image], return_tensors="pt"), rule)


def _idefics3(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    processor = Idefics3ImageProcessorPil(**_edges(rule), **options)
    return lambda image: _tiled(processor(images=[image], return_tensors="pt"), rule)


def _smolvlm(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    processor = SmolVLMImageProcessorPil(**_edges(rule), **options)
    return lambda image: _tiled(processor(images=[image], return_tensors="pt"), rule)


def _edges(rule: TokenRule) -> dict[str, Any]:
    side = math.isqrt(rule.max_pixels)
    return {
        "size": {"longest_edge": rule.tiles * side},
        "max_image_size": {"longest_edge": side},
    }


def _tiled(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """Tiles stacked, in the order of the encoder's tokens."""
    pixels_N = made["pixel_values"].flatten(0, -4)
    side = rule.longest_side(rule.max_pixels)
    return pixels_N, Grid(len(pixels_N), side, side)


def _squared(processor: Callable[..., Any]) -> Make:
    """All of the image in the one square, whatever its ratio."""

    def make(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
        side = math.isqrt(rule.max_pixels)
        made = processor(size={"height": side, "width": side}, **options)
        return lambda image: _whole(made(images=[image], return_tensors="pt"), rule)

    return make


def _cropped(processor: Callable[..., Any], *, margin: float) -> Make:
    """The shorter side to so much more than the square, which is cut from the middle."""

    def make(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
        side = math.isqrt(rule.max_pixels)
        made = processor(
            size={"shortest_edge": round(margin * side)},
            crop_size={"height": side, "width": side},
            **options,
        )
        return lambda image: _whole(made(images=[image], return_tensors="pt"), rule)

    return make


def _whole(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """The one square."""
    side = rule.longest_side(rule.max_pixels)
    return made["pixel_values"][0], Grid(1, side, side)


def _naflex(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
    """Flat patches without the processor's padding."""
    most = rule.max_pixels // rule.patch**2
    processor = Siglip2ImageProcessorPil(patch_size=rule.patch, max_num_patches=most, **options)

    def read(image: Image.Image) -> tuple[Tensor, Grid]:
        made = processor(images=[image], return_tensors="pt")
        high, wide = made["spatial_shapes"][0].tolist()
        return made["pixel_values"][0][: high * wide], Grid(1, high, wide)

    return read


READERS: Mapping[str, Callable[[TokenRule, Mapping[str, Any]], Reader]] = {
    "qwen3-vl": _qwen,
    "qwen2.5-vl": _qwen,
    "qwen2-vl": _qwen,
    "glm4v": _glm,
    "pixtral": _pixtral,
    "internvl": _internvl,
    "idefics3": _idefics3,
    "smolvlm": _smolvlm,
    "siglip": _squared(SiglipImageProcessorPil),
    "gemma3": _squared(Gemma3ImageProcessorPil),
    "dinov3": _squared(ViTImageProcessorPil),
    "clip": _cropped(CLIPImageProcessorPil, margin=1.0),
    "dinov2": _cropped(BitImageProcessorPil, margin=DINO_MARGIN),
    "dinov2-registers": _cropped(BitImageProcessorPil, margin=DINO_MARGIN),
    "siglip2-naflex": _naflex,
}
"""How a family's processor makes pixels and grid of an image. Each is the processor's form over PIL, which
needs no torchvision; DINOv3 has none, and ViT's differs in rounding alone: it resizes before it rescales."""
