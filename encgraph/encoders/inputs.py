"""Make encoder inputs: random pixels of given grids, or the processor's from image files."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from encgraph import sizes
from encgraph.encoders import pixels, samples
from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize, Grid, TokenRule

Reader = Callable[[Image.Image], tuple[Tensor, Grid]]
RAW = {"do_rescale": False, "do_normalize": False}
"""What a processor is told when the device is to normalise."""


def synthetic(
    wanted: Iterable[Item | Grid],
    *,
    size: EncoderSize,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> list[Input]:
    """Make random inputs: pixels even in -1 to 1, as normalised images are, or token ids.

    8-bit pixels are even in 0 to 255; see `encoders.pixels`.

    Args:
        wanted: Items, or grids where the layout is packed; one input each.
        size: Gives the patch width and the token rule.
        device: Where the pixels are made.
        dtype: Of the pixels.
        seed: The same seed on the same device gives the same pixels.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    if size.layout != "packed":
        items = [one for one in wanted if isinstance(one, Item)]
        made = [samples.sample(item, size, generator=generator) for item in items]
        return [replace(one, pixels=_in_dtype(one.pixels, dtype)) for one in made]
    made = []
    for one in wanted:
        known = one if isinstance(one, Item) else sizes.item(one, size.rule)
        shape = (known.patches, size.patch_width)
        values = torch.rand(shape, generator=generator, device=device) * 2 - 1
        grid = one if isinstance(one, Grid) else grid_of(one, size.rule)
        made.append(Input(item=known, pixels=_in_dtype(values, dtype), grid=grid))
    return made


def _in_dtype(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Pixels of -1 to 1 in a dtype, 0 to 255 where that is 8-bit; token ids as they are."""
    if not values.is_floating_point():
        return values
    if dtype == torch.uint8:
        values = ((values + 1) / 2 * pixels.LEVELS).round()
    return values.to(dtype)


def grid_of(item: Item, rule: TokenRule) -> Grid:
    """Grid of an item: from its width and height where they give its patches, else near a square.

    Raises:
        ValueError: If a frame's patches do not divide into whole tokens.
    """
    frame, left = divmod(item.patches, item.frames)
    require(
        left == 0 and frame % rule.merge_area == 0,
        f"an item's frames must divide into tokens of {rule.merge_area} patches, got "
        f"{item.patches!r} patches in {item.frames!r} frames",
    )
    if item.frames == 1 and item.modality != Modality.VIDEO and item.width and item.height:
        grid = sizes.image_grid(item.width, item.height, rule)
        if grid.h * grid.w == frame:
            return grid
    tokens = frame // rule.merge_area
    high = next(h for h in range(math.isqrt(tokens), 0, -1) if tokens % h == 0)
    return Grid(item.frames, high * rule.merge, tokens // high * rule.merge)


def from_files(
    paths: Sequence[Path | str],
    size: EncoderSize,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[Input]:
    """Read image files as the encoder's processor does, upright first (EXIF orientation).

    Args:
        paths: Image files.
        size: Gives patch, merge and pixel limits.
        device: Where the pixels go.
        dtype: Of the pixels; uint8 leaves them unnormalised, for the device to do.

    Raises:
        ValueError: If a file cannot be read as an image, or is over the processor's aspect ratio
            (names the file), or the family has no processor here.
    """
    require(
        size.family in READERS,
        f"files are read for families {sorted(READERS)}, got {size.family!r}; "
        "make its inputs from tensors",
    )
    options = RAW if dtype == torch.uint8 else _normalised(size.family)
    reader = READERS[size.family](size.rule, options)
    made = []
    for path in paths:
        values, grid, sides = _read(Path(path), reader)
        item = sizes.item(grid, size.rule, width=sides[0], height=sides[1])
        made.append(Input(item=item, pixels=values.to(device, dtype), grid=grid))
    return made


def _normalised(family: str) -> dict[str, Any]:
    known = pixels.NORMALISATIONS[family]
    return {"image_mean": list(known.mean), "image_std": list(known.std)}


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


READERS: Mapping[str, Callable[[TokenRule, Mapping[str, Any]], Reader]] = {
    "qwen3-vl": _qwen,
    "qwen2.5-vl": _qwen,
    "qwen2-vl": _qwen,
    "glm4v": _glm,
    "pixtral": _pixtral,
    "internvl": _internvl,
    "idefics3": _idefics3,
    "smolvlm": _smolvlm,
}
"""How a family's processor makes pixels and grid of an image."""


def _read(path: Path, reader: Reader) -> tuple[Tensor, Grid, tuple[int, int]]:
    """Pixels, grid, and the sides in pixels of the upright image."""
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        return *reader(image), image.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{str(path)!r} cannot be encoded: {error}") from error
