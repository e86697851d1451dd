"""Packed pixels: say what is wrong with an input, write inputs end to end, cut outputs apart.

Shape legend: P patches, K patch width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

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


def wrong(value: Input, *, size: EncoderSize) -> str | None:
    """What is wrong with an input for a packed tower of this size, or None."""
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
    if not pixels.is_floating_point():
        return f"must have pixels of a float dtype, got {pixels.dtype}; scale and convert them"
    if pixels.requires_grad:
        return "must have pixels without gradient; detach them, only inference runs here"
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


def copy_pixels(rows_PK: Tensor, inputs: Sequence[Input]) -> None:
    """Write items end to end from row 0, without waiting; one kernel where they are on the device.

    Pixels in pageable host memory are staged by the driver, which keeps the host busy but not the
    device waiting; give pinned or device tensors where that matters.
    """
    sources = [value.pixels for value in inputs]
    total = sum(len(source) for source in sources)
    if sources and all(s.device == rows_PK.device and s.dtype == rows_PK.dtype for s in sources):
        torch.cat(sources, out=rows_PK[:total])
        return
    ends = accumulate(len(source) for source in sources)
    for source, end in zip(sources, ends, strict=True):
        rows = rows_PK[end - len(source) : end]
        # Another dtype is converted on the device: on the host that takes longer than the copy.
        moved = source if source.dtype == rows.dtype else source.to(rows.device, non_blocking=True)
        rows.copy_(moved, non_blocking=True)


def cut(output: EncoderOutput, tokens: Sequence[int]) -> list[EncoderOutput]:
    """Cut packed rows into items of so many tokens each, in order; views."""
    ends = accumulate(tokens)
    return [output.rows(end - count, end) for count, end in zip(tokens, ends, strict=True)]
