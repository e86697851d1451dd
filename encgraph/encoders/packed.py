"""Packed pixels: say what is wrong with an input, cut outputs apart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from torch import Tensor

from encgraph.encoders import rows
from encgraph.encoders.protocol import EncoderOutput, EncoderSpec, Input
from encgraph.errors import require
from encgraph.records import Modality
from encgraph.sizes import EncoderSize, TokenRule

CHOICES = {
    "metadata": ("graph", "host"),
    "eager_forward": ("varlen", "stock"),
    "fill_rule": ("prefix", "zero_and_copy"),
}
"""Switches of a packed tower, and where each may stand."""


def check_switches(**positions: str) -> None:
    """Refuse a position that a switch does not have."""
    for switch, position in positions.items():
        known = CHOICES[switch]
        require(position in known, f"{switch} must be one of {known}, got {position!r}")


def spec(size: EncoderSize, name: str, *, weight: Tensor, attention: str) -> EncoderSpec:
    """What is fixed about a packed tower of this size whose weights are like this one."""
    clips = {Modality.VIDEO} if size.rule.video_max_pixels else set()
    return EncoderSpec(
        name=name,
        modalities=frozenset({Modality.IMAGE} | clips),
        widths=(size.out,) * (1 + len(size.deepstack)),
        dtype=weight.dtype,
        device=weight.device,
        rule=size.rule,
        min_tokens=size.rule.min_tokens,
        max_tokens=size.rule.max_tokens,
        attention=attention,
        compiled=False,
    )


def wrong(value: Input, *, size: EncoderSize, raw: bool = False) -> str | None:
    """What is wrong with an input for a packed tower of this size, or None; `raw` lets 8-bit pixels in."""
    pixels, grid, merge = value.pixels, value.grid, size.rule.merge
    if min(grid) < 1 or grid.h % merge or grid.w % merge:
        return f"must have a grid whose height and width divide by {merge}, got {tuple(grid)!r}"
    is_clip = grid.t > 1 or value.item.modality == Modality.VIDEO
    if is_clip and not size.rule.video_max_pixels:
        return f"must be an image, got a clip of grid {tuple(grid)!r}; {size.family} takes no clips"
    expected = (grid.t * grid.h * grid.w, size.patch_width)
    if tuple(pixels.shape) != expected:
        return (
            f"must have pixels of shape {expected!r} for grid {tuple(grid)!r}, "
            f"got {tuple(pixels.shape)!r}"
        )
    return _wrong_grid_limit(value, size) or _wrong_pixels(pixels, raw)


def _wrong_grid_limit(value: Input, size: EncoderSize) -> str | None:
    """A side past the position table, which a card would read out of bounds."""
    most = size.rule.longest_side(size.rule.max_pixels)
    if size.rule.resize != "longest_edge" or max(value.grid) <= most:
        return None
    return f"must have at most {most} patches a side, got grid {tuple(value.grid)!r}; shrink it"


def _wrong_pixels(pixels: Tensor, raw: bool) -> str | None:
    try:
        rows.require_floats(pixels, or_raw=raw)
    except ValueError as error:
        return str(error)
    return None


def saved_rule(rule: TokenRule, config: Any, processor: Mapping[str, Any]) -> TokenRule:
    """A family's rule with patch and merge of a saved config and its processor's pixel limits.

    Args:
        rule: The published rule, kept where the files say nothing.
        config: The tower's config of transformers.
        processor: The processor's file; older ones keep the limits outside `size`.
    """
    limits = processor.get("size", {})
    low = processor.get("min_pixels") or limits.get("shortest_edge") or rule.min_pixels
    top = processor.get("max_pixels") or limits.get("longest_edge") or rule.max_pixels
    return replace(
        rule,
        patch=config.patch_size,
        merge=config.spatial_merge_size,
        temporal_patch=config.temporal_patch_size,
        min_pixels=low,
        max_pixels=top,
    )


def cut(output: EncoderOutput, tokens: Sequence[int]) -> list[EncoderOutput]:
    """Cut packed rows into items of so many tokens each, in order; views."""
    ends = accumulate(tokens)
    return [output.rows(end - count, end) for count, end in zip(tokens, ends, strict=True)]
