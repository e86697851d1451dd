"""Random inputs of the fixed, ragged and text layouts for items that planning made up."""

import math

import torch
from torch import Tensor

from encgraph.encoders import fixed, whisper
from encgraph.encoders.protocol import Input
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize, Grid

_LAYOUTS = ("fixed", "ragged", "text")


def sample(item: Item, size: EncoderSize, *, generator: torch.Generator) -> Input:
    """Make an input of an item, in float32 or token ids, on the generator's device.

    Pixels are even in -1 to 1; token ids leave the first 8 of the vocabulary, the special ones, out.

    Args:
        item: As `sizes.item` or an encoder's `input` counts it.
        size: Of the encoder.
        generator: The same seed on the same device gives the same input.

    Raises:
        ValueError: If the size is of another layout.
    """
    if size.layout == "text":
        words, length = int(dict(size.settings)["vocab_size"]), (item.tokens,)
        ids = torch.randint(8, words, length, generator=generator, device=generator.device)
        return Input(item=item, pixels=ids, grid=Grid(1, 1, item.tokens))
    if size.layout == "ragged":
        high = next(h for h in range(math.isqrt(item.patches), 0, -1) if item.patches % h == 0)
        grid = Grid(1, high, item.patches // high)
        pixels = _even((item.patches, size.patch_width), generator)
        return Input(item=item, pixels=pixels, grid=grid)
    if size.layout != "fixed":
        raise ValueError(f"layout must be one of {_LAYOUTS}, got {size.layout!r}")
    audio = size.rule.modality is Modality.AUDIO
    slot = whisper.window(size) if audio else fixed.image_slot(size)
    count = item.tokens // slot.rows
    shape = slot.shape if count == 1 else (count, *slot.shape)
    grid = Grid(count * slot.grid.t, slot.grid.h, slot.grid.w)
    return Input(item=item, pixels=_even(shape, generator), grid=grid)


def _even(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    device = generator.device
    drawn = torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
    return drawn * 2 - 1
