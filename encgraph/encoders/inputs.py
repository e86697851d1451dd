"""Make encoder inputs: random pixels of given grids, or the processor's from image files."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

from encgraph import sizes
from encgraph.encoders import pixels, readers, samples
from encgraph.encoders.protocol import Input
from encgraph.encoders.readers import Reader
from encgraph.errors import require
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize, Grid, TokenRule


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
        wanted: Items or grids; one input each.
        size: Gives the patch width and the token rule.
        device: Where the pixels are made.
        dtype: Of the pixels.
        seed: The same seed on the same device gives the same pixels.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    if size.layout != "packed":
        items = [one if isinstance(one, Item) else sizes.item(one, size.rule) for one in wanted]
        made = [samples.sample(item, size, generator=generator) for item in items]
        return [replace(one, pixels=_in_dtype(one.pixels, dtype)) for one in made]
    made = []
    for one in wanted:
        known = one if isinstance(one, Item) else sizes.item(one, size.rule)
        shape = (known.patches, size.patch_width)
        drawn = torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
        values = drawn * 2 - 1
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
        ValueError: If paths is a single one, a file cannot be read as an image, or is over the processor's aspect ratio
            (names the file), or the family has no processor here.
    """
    require(
        not isinstance(paths, str | Path),
        f"paths must be a list of image files, got {str(paths)!r}; put one into a list",
    )
    reader = readers.named(size.family, size.rule, raw=dtype == torch.uint8)
    made = []
    for path in paths:
        values, grid, sides = _read(Path(path), reader)
        item = sizes.item(grid, size.rule, width=sides[0], height=sides[1])
        made.append(Input(item=item, pixels=values.to(device, dtype), grid=grid))
    return made


def _read(path: Path, reader: Reader) -> tuple[Tensor, Grid, tuple[int, int]]:
    """Pixels, grid, and the sides in pixels of the upright image."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened).convert("RGB")
        return *reader(image), image.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{str(path)!r} cannot be encoded: {error}") from error
