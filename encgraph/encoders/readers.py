"""Read one image as its encoder's processor does, by family: pixels as the encoder takes them, and their grid."""

import math
from collections.abc import Callable, Mapping
from functools import partial
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


def _by(
    processor: Callable[..., Any],
    stated: Callable[[TokenRule], dict[str, Any]],
    taken: Callable[[Any, TokenRule], tuple[Tensor, Grid]],
) -> Make:
    """A processor told what the rule says, and what is taken of its answer."""

    def make(rule: TokenRule, options: Mapping[str, Any]) -> Reader:
        made = processor(**stated(rule), **options)
        return lambda image: taken(made(images=[image], return_tensors="pt"), rule)

    return make


def _side(rule: TokenRule) -> int:
    return math.isqrt(rule.max_pixels)


def _square(rule: TokenRule) -> dict[str, int]:
    return {"height": _side(rule), "width": _side(rule)}


def _limits(rule: TokenRule) -> dict[str, Any]:
    return {
        "patch_size": rule.patch,
        "merge_size": rule.merge,
        "temporal_patch_size": rule.temporal_patch,
        "size": {"shortest_edge": rule.min_pixels, "longest_edge": rule.max_pixels},
    }


def _longest_edge(rule: TokenRule) -> dict[str, Any]:
    patch = {"height": rule.patch, "width": rule.patch}
    return {"size": {"longest_edge": _side(rule)}, "patch_size": patch}


def _by_ratio(rule: TokenRule) -> dict[str, Any]:
    return {"size": _square(rule), "crop_to_patches": True, "max_patches": rule.tiles}


def _by_edge(rule: TokenRule) -> dict[str, Any]:
    return {
        "size": {"longest_edge": rule.tiles * _side(rule)},
        "max_image_size": {"longest_edge": _side(rule)},
    }


def _squared(rule: TokenRule) -> dict[str, Any]:
    """All of the image in the one square, whatever its ratio."""
    return {"size": _square(rule)}


def _cropped(rule: TokenRule, margin: float = 1.0) -> dict[str, Any]:
    """The shorter side to so much more than the square, which is cut from the middle."""
    return {"size": {"shortest_edge": round(margin * _side(rule))}, "crop_size": _square(rule)}


def _patches(rule: TokenRule) -> dict[str, Any]:
    return {"patch_size": rule.patch, "max_num_patches": rule.max_pixels // rule.patch**2}


def _with_grid(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """Flat patches, and the grid that the processor says."""
    return made["pixel_values"], Grid(*made["image_grid_thw"][0].tolist())


def _cut_up(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """Flat patches in raster order of a whole image."""
    patch, image_3HW = rule.patch, made["pixel_values"][0]
    high, wide = (side // patch for side in image_3HW.shape[1:])
    blocks = image_3HW.view(3, high, patch, wide, patch).permute(1, 3, 0, 2, 4)
    return blocks.reshape(high * wide, -1), Grid(1, high, wide)


def _tiled(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """Tiles stacked in reading order, the whole image last, as the encoder's tokens lie."""
    pixels_N = made["pixel_values"].flatten(0, -4)
    side = rule.longest_side(rule.max_pixels)
    return pixels_N, Grid(len(pixels_N), side, side)


def _whole(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """The one square."""
    side = rule.longest_side(rule.max_pixels)
    return made["pixel_values"][0], Grid(1, side, side)


def _unpadded(made: Any, rule: TokenRule) -> tuple[Tensor, Grid]:
    """Flat patches without the processor's padding."""
    high, wide = made["spatial_shapes"][0].tolist()
    return made["pixel_values"][0][: high * wide], Grid(1, high, wide)


_QWEN = _by(Qwen2VLImageProcessorPil, _limits, _with_grid)
_DINOV2 = _by(BitImageProcessorPil, partial(_cropped, margin=DINO_MARGIN), _whole)
READERS: Mapping[str, Make] = {
    "qwen3-vl": _QWEN,
    "qwen2.5-vl": _QWEN,
    "qwen2-vl": _QWEN,
    "glm4v": _by(Glm4vImageProcessorPil, _limits, _with_grid),
    "pixtral": _by(PixtralImageProcessorPil, _longest_edge, _cut_up),
    "internvl": _by(GotOcr2ImageProcessorPil, _by_ratio, _tiled),
    "idefics3": _by(Idefics3ImageProcessorPil, _by_edge, _tiled),
    "smolvlm": _by(SmolVLMImageProcessorPil, _by_edge, _tiled),
    "siglip": _by(SiglipImageProcessorPil, _squared, _whole),
    "gemma3": _by(Gemma3ImageProcessorPil, _squared, _whole),
    "dinov3": _by(ViTImageProcessorPil, _squared, _whole),
    "clip": _by(CLIPImageProcessorPil, _cropped, _whole),
    "dinov2": _DINOV2,
    "dinov2-registers": _DINOV2,
    "siglip2-naflex": _by(Siglip2ImageProcessorPil, _patches, _unpadded),
}
"""How a family's processor makes pixels and grid of an image. Each is the processor's form over PIL, which
needs no torchvision; DINOv3 has none, and ViT's differs in rounding alone: it resizes before it rescales."""
