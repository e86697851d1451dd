"""Make encoder inputs: random pixels of given grids, or the processor's from image files."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor
from transformers.image_utils import (
    IMAGENET_STANDARD_MEAN,
    IMAGENET_STANDARD_STD,
    OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl import Qwen2VLImageProcessorPil

from encgraph import sizes
from encgraph.encoders import samples
from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize, Grid, TokenRule

Reader = Callable[[Image.Image], tuple[Tensor, Grid]]


def synthetic(
    wanted: Iterable[Item | Grid],
    *,
    size: EncoderSize,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> list[Input]:
    """Make random inputs: pixels even in -1 to 1, as normalised images are, or token ids.

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
        return [samples.sample(item, size, generator=generator).in_dtype(dtype) for item in items]
    made = []
    for one in wanted:
        known = one if isinstance(one, Item) else sizes.item(one, size.rule)
        shape = (known.patches, size.patch_width)
        pixels = torch.rand(shape, generator=generator, device=device) * 2 - 1
        grid = one if isinstance(one, Grid) else grid_of(one, size.rule)
        made.append(Input(item=known, pixels=pixels.to(dtype), grid=grid))
    return made


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
        dtype: Of the pixels.

    Raises:
        ValueError: If a file cannot be read as an image, or is over the processor's aspect ratio
            (names the file), or the family has no processor here.
    """
    require(
        size.family in READERS,
        f"files are read for families {sorted(READERS)}, got {size.family!r}; "
        "make its inputs from tensors",
    )
    reader = READERS[size.family](size.rule)
    made = []
    for path in paths:
        pixels, grid, sides = _read(Path(path), reader)
        item = sizes.item(grid, size.rule, width=sides[0], height=sides[1])
        made.append(Input(item=item, pixels=pixels.to(device, dtype), grid=grid))
    return made


def _qwen(rule: TokenRule, mean: Sequence[float], std: Sequence[float]) -> Reader:
    """The processor's PIL form, which needs no torchvision, under the rule's limits."""
    processor = Qwen2VLImageProcessorPil(
        **_limits(rule), image_mean=list(mean), image_std=list(std)
    )
    return lambda image: _with_grid(processor(images=[image], return_tensors="pt"))


def _glm(rule: TokenRule) -> Reader:
    processor = Glm4vImageProcessorPil(**_limits(rule))
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


def _pixtral(rule: TokenRule) -> Reader:
    """Its images are whole; the encoder takes flat patches in raster order."""
    patch = rule.patch
    processor = PixtralImageProcessorPil(
        size={"longest_edge": math.isqrt(rule.max_pixels)},
        patch_size={"height": patch, "width": patch},
    )

    def read(image: Image.Image) -> tuple[Tensor, Grid]:
        image_3HW = processor(images=[image], return_tensors="pt")["pixel_values"][0]
        high, wide = (side // patch for side in image_3HW.shape[1:])
        blocks = image_3HW.view(3, high, patch, wide, patch).permute(1, 3, 0, 2, 4)
        return blocks.reshape(high * wide, -1), Grid(1, high, wide)

    return read


READERS: Mapping[str, Callable[[TokenRule], Reader]] = {
    "qwen3-vl": lambda rule: _qwen(rule, IMAGENET_STANDARD_MEAN, IMAGENET_STANDARD_STD),
    "qwen2.5-vl": lambda rule: _qwen(rule, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD),
    "qwen2-vl": lambda rule: _qwen(rule, OPENAI_CLIP_MEAN, OPENAI_CLIP_STD),
    "glm4v": _glm,
    "pixtral": _pixtral,
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
