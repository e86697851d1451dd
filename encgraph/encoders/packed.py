"""Packed pixels: say what is wrong with an input, cut outputs apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from torch import Tensor

from encgraph import sizes
from encgraph.encoders import rows
from encgraph.encoders.protocol import EncoderOutput, EncoderSpec, Input
from encgraph.encoders.saved import Files
from encgraph.errors import require
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize, TokenRule

_CHOICES = {
    "metadata": ("graph", "host"),
    "eager_forward": ("varlen", "stock"),
    "fill_rule": ("prefix", "zero_and_copy"),
}
"""Switches of a packed tower, and where each may stand."""


def check_switches(**positions: str) -> None:
    """Refuse a position that a switch does not have."""
    for switch, position in positions.items():
        known = _CHOICES[switch]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a packed tower of a size takes: its rule, worked out once, since every input is checked."""

    family: str
    merge: int
    """What height and width divide by."""
    width: int
    """Of a patch."""
    clips: bool
    side: int | None
    """Most patches a side, past which a card would read the position table out of bounds."""

    @classmethod
    def of(cls, size: EncoderSize) -> "Takes":
        """What a tower of this size takes."""
        rule = size.rule
        limited = rule.resize == "longest_edge"
        return cls(
            family=size.family,
            merge=rule.merge,
            width=size.patch_width,
            clips=rule.video_max_pixels > 0,
            side=rule.longest_side(rule.max_pixels) if limited else None,
        )


def wrong(value: Input, takes: Takes, *, raw: bool = False) -> str | None:
    """What is wrong with an input for a packed tower, or None; `raw` lets 8-bit pixels in."""
    pixels, grid, merge = value.pixels, value.grid, takes.merge
    frames, height, width = grid
    if frames < 1 or height < 1 or width < 1 or height % merge or width % merge:
        return f"must have a grid whose height and width divide by {merge}, got {tuple(grid)!r}"
    if not takes.clips and (frames > 1 or value.item.modality == Modality.VIDEO):
        clip = f"a clip of grid {tuple(grid)!r}"
        return f"must be an image, got {clip}; {takes.family} takes no clips"
    expected = (frames * height * width, takes.width)
    if pixels.shape != expected:
        return (
            f"must have pixels of shape {expected!r} for grid {tuple(grid)!r}, "
            f"got {tuple(pixels.shape)!r}"
        )
    if takes.side is not None and max(grid) > takes.side:
        return f"must have at most {takes.side} patches a side, got grid {tuple(grid)!r}; shrink it"
    return rows.wrong_floats(pixels, or_raw=raw)


def item(value: Input, rule: TokenRule) -> Item:
    """Sizes of a checked input: its own where its grid says the same, else made from that."""
    known, (frames, height, width) = value.item, value.grid
    frame = height * width
    if (
        known.patches == frames * frame + rule.prefix
        and known.tokens == frames * frame // rule.merge**2 + rule.prefix_tokens
        and known.longest_segment == frame + rule.prefix
        and known.segments == known.frames == frames
        and known.width
        and known.height
        and (frames == 1 or known.modality == Modality.VIDEO)
    ):
        return known
    return sizes.item(
        value.grid,
        rule,
        request=known.request,
        width=known.width or 0,
        height=known.height or 0,
        modality=Modality.VIDEO if frames > 1 else known.modality,
    )


def saved_rule(rule: TokenRule, config: Any, files: Files) -> TokenRule:
    """A family's rule with patch and merge of a saved config and its processors' pixel limits.

    Args:
        rule: The published rule, kept where the files say nothing.
        config: The tower's config of transformers.
        files: Of the saved model.
    """
    low, top = _limits(files.processor())
    clips = files.processor("video_processor") if rule.video_max_pixels else {}
    clip_low, clip_top = _limits(clips)
    return replace(
        rule,
        patch=config.patch_size,
        merge=config.spatial_merge_size,
        temporal_patch=config.temporal_patch_size,
        min_pixels=low or rule.min_pixels,
        max_pixels=top or rule.max_pixels,
        video_min_pixels=clip_low or rule.video_min_pixels,
        video_max_pixels=clip_top or rule.video_max_pixels,
    )


def _limits(processor: Mapping[str, Any]) -> tuple[int, int]:
    """Least and most pixels, 0 where unsaid; older files keep them outside `size`."""
    size = processor.get("size") or {}
    low = processor.get("min_pixels") or size.get("shortest_edge") or 0
    return low, processor.get("max_pixels") or size.get("longest_edge") or 0


def cut(output: EncoderOutput, tokens: Sequence[int]) -> list[EncoderOutput]:
    """Cut packed rows into items of so many tokens each, in order; views."""
    ends = accumulate(tokens)
    return [output.rows(end - count, end) for count, end in zip(tokens, ends, strict=True)]
