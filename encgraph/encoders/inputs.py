"""Make encoder inputs: random pixels of given grids, or the processor's from image files."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor
from transformers.models.qwen2_vl import Qwen2VLImageProcessorPil

from encgraph import sizes
from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.records import Item
from encgraph.sizes import EncoderSize, Grid, TokenRule


def synthetic(
    wanted: Iterable[Item | Grid],
    *,
    size: EncoderSize,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> list[Input]:
    """Make inputs of random pixels, even in -1 to 1, as normalised images are.

    Args:
        wanted: Items or grids, one input each.
        size: Gives the patch width and the token rule.
        device: Where the pixels are made.
        dtype: Of the pixels.
        seed: The same seed on the same device gives the same pixels.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
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
    if item.frames == 1 and item.width and item.height:
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
        ValueError: If a file cannot be read as an image, or is over the processor's aspect ratio;
            names the file.
    """
    processor = _processor(size.rule)
    made = []
    for path in paths:
        pixels, grid, sides = _read(Path(path), processor)
        item = sizes.item(grid, size.rule, width=sides[0], height=sides[1])
        made.append(Input(item=item, pixels=pixels.to(device, dtype), grid=grid))
    return made


def _processor(rule: TokenRule) -> Any:
    """The processor's PIL form, which needs no torchvision, under the rule's limits."""
    return Qwen2VLImageProcessorPil(
        patch_size=rule.patch,
        merge_size=rule.merge,
        temporal_patch_size=rule.temporal_patch,
        size={"shortest_edge": rule.min_pixels, "longest_edge": rule.max_pixels},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )


def _read(path: Path, processor: Any) -> tuple[Tensor, Grid, tuple[int, int]]:
    """Pixels, grid, and the sides in pixels of the upright image."""
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
        made = processor(images=[image], return_tensors="pt")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{str(path)!r} cannot be encoded: {error}") from error
    return made["pixel_values"], Grid(*made["image_grid_thw"][0].tolist()), image.size
