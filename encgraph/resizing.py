"""Turn pixels into patch grids as the processors of transformers do; no torch.

Every rule is a function of one literal table, `RESIZES`, named by `rules.TokenRule.resize`.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache

from encgraph.errors import require
from encgraph.rules import MAX_ASPECT, Grid, TokenRule, with_whole

_REFUSED = "the processor refuses such an image; crop or pad it"


def _check_sides(width: int, height: int) -> None:
    require(
        width >= 1 and height >= 1,
        f"width and height must be at least 1 pixel, got {width!r} x {height!r}",
    )


def _check_aspect(width: int, height: int, given: str) -> None:
    """The limit of the processors that resize by `smart_resize`; no other has one."""
    aspect = max(width, height) / min(width, height)
    require(
        aspect <= MAX_ASPECT,
        f"aspect ratio must be at most {MAX_ASPECT}, got {aspect:.1f} ({given}); {_REFUSED}",
    )


def image_grid(width: int, height: int, rule: TokenRule) -> Grid:
    """Grid of an image after the processor's resize; see `rules.TokenRule.resize`.

    Where images are cut, `t` counts tiles, the one of the whole included, and `h` and `w` are those
    of each.

    Args:
        width: Pixels, after EXIF orientation; the length of an item of a "length" rule.
        height: Pixels, after EXIF orientation.
        rule: The processor's limits.

    Raises:
        ValueError: If a side is under 1 pixel, a "smart" rule's aspect ratio over 200, or a side of
            a "longest_edge" rule shrinks to nothing.

    Source:
        The image processors of transformers: qwen2_vl, glm4v, pixtral, siglip2, got_ocr2 (of
        InternVL), idefics3 and smolvlm.

    >>> from encgraph.published.qwen_vl import QWEN3_VL_RULE
    >>> image_grid(640, 480, QWEN3_VL_RULE)
    Grid(t=1, h=30, w=40)
    """
    return RESIZES[rule.resize](width, height, rule)


def video_grid(width: int, height: int, frames: int, rule: TokenRule) -> Grid:
    """Grid of a clip after the processor's resize; `frames` are those given to the encoder.

    Raises:
        ValueError: If a side or the frames are too few, or the aspect ratio is over 200.

    Source:
        `smart_resize` of transformers' video processors: qwen3_vl, qwen2_vl and glm4v.

    >>> from encgraph.published.qwen_vl import QWEN3_VL_RULE
    >>> video_grid(640, 480, 8, QWEN3_VL_RULE)
    Grid(t=4, h=30, w=40)
    """
    temporal = rule.temporal_patch
    require(rule.video_max_pixels > 0, "this encoder takes no clips; encode their frames as images")
    require(frames >= temporal, f"a clip needs at least {temporal} frames, got {frames!r}")
    steps = -(-frames // temporal)
    limits = (rule.video_min_pixels, rule.video_max_pixels)
    if rule.video_limits_a_frame:
        return _smart(width, height, rule, limits=limits, frames=1)._replace(t=steps)
    return _smart(width, height, rule, limits=limits, frames=frames)._replace(t=steps)


def _smart(
    width: int, height: int, rule: TokenRule, *, limits: tuple[int, int], frames: int
) -> Grid:
    """Sides to multiples of the factor, area x frames within limits; frames come in whole steps."""
    _check_sides(width, height)
    given, rounded = f"{width!r} x {height!r}", 1
    if frames > 1:
        rounded = round(frames / rule.temporal_patch) * rule.temporal_patch
        if min(width, height) < rule.factor:
            scale = max(rule.factor / height, rule.factor / width)
            width, height = int(width * scale), int(height * scale)
    _check_aspect(width, height, given)
    high, wide = _within(
        height,
        width,
        rule.factor,
        frames=frames,
        rounded_frames=rounded,
        low=limits[0],
        top=limits[1],
    )
    return Grid(1, high // rule.patch, wide // rule.patch)


def _smart_image(width: int, height: int, rule: TokenRule) -> Grid:
    limits = (rule.min_pixels, rule.max_pixels)
    return _smart(width, height, rule, limits=limits, frames=rule.image_frames)


def _longest_edge(width: int, height: int, rule: TokenRule) -> Grid:
    """Shrink until the longer side is at most the root of `max_pixels`; sides to patches, up."""
    _check_sides(width, height)
    ratio = max(width, height) / math.isqrt(rule.max_pixels)
    wide, high = width, height
    if ratio > 1:
        wide, high = math.floor(width / ratio), math.floor(height / ratio)
    require(
        wide >= 1 and high >= 1,
        f"the shorter side must not shrink to 0 pixels, as that of {width!r} x {height!r} does; "
        f"{_REFUSED}",
    )
    return Grid(1, -(-high // rule.patch), -(-wide // rule.patch))


def _fixed(width: int, height: int, rule: TokenRule) -> Grid:
    """The one grid there is."""
    _check_sides(width, height)
    side = rule.longest_side(rule.max_pixels)
    return Grid(1, side, side)


def _ratio_tiles(width: int, height: int, rule: TokenRule) -> Grid:
    """The canvas of tiles nearest in ratio; of equal ones the largest that is half covered."""
    _check_sides(width, height)
    ratio, best, least = width / height, 1, math.inf
    for wide, high in _canvases(rule.tiles):
        off = abs(ratio - wide / high)
        covered = width * height > 0.5 * rule.max_pixels * wide * high
        if off < least or (off == least and covered):
            best, least = wide * high, off
    return _fixed(width, height, rule)._replace(t=with_whole(best))


@cache
def _canvases(most: int) -> list[tuple[int, int]]:
    """Every (tiles across, tiles down) of at most so many, few first."""
    sides = range(1, most + 1)
    every = [(wide, high) for wide in sides for high in sides if wide * high <= most]
    return sorted(every, key=lambda sides: sides[0] * sides[1])


def _edge_tiles(width: int, height: int, rule: TokenRule) -> Grid:
    """The longer side to whole tiles, then the shorter up to whole tiles."""
    _check_sides(width, height)
    side = math.isqrt(rule.max_pixels)
    for even in (True, False):
        width, height = _longer_side(width, height, rule.tiles * side, even=even)
    return _fixed(width, height, rule)._replace(
        t=with_whole(-(-width // side) * -(-height // side))
    )


def _longer_side(width: int, height: int, longer: int, *, even: bool) -> tuple[int, int]:
    """Sides after the longer becomes so many pixels, the shorter rounded down, or up to even ones."""
    ratio = width / height
    shorter = int(longer / ratio) if width >= height else int(longer * ratio)
    shorter = max(1, shorter + shorter % 2 if even else shorter)
    return (longer, shorter) if width >= height else (shorter, longer)


def _patch_limit(width: int, height: int, rule: TokenRule) -> Grid:
    """The largest scale, to 1e-5, whose patches fit; sides rounded up to patches."""
    _check_sides(width, height)
    most = rule.max_pixels // rule.patch**2

    def scaled(scale: float, side: int) -> int:
        return max(1, math.ceil(side * scale / rule.patch))

    low, top = 1e-5 / 10, 100.0
    while top - low >= 1e-5:
        scale = (low + top) / 2
        if scaled(scale, height) * scaled(scale, width) <= most:
            low = scale
        else:
            top = scale
    return Grid(1, scaled(low, height), scaled(low, width))


def _length(width: int, height: int, rule: TokenRule) -> Grid:
    """One row as long as the item."""
    require(
        rule.min_pixels <= width <= rule.max_pixels,
        f"length must be {rule.min_pixels} to {rule.max_pixels}, got {width!r}",
    )
    return Grid(1, 1, width)


RESIZES: Mapping[str, Callable[[int, int, TokenRule], Grid]] = {
    "smart": _smart_image,
    "longest_edge": _longest_edge,
    "fixed": _fixed,
    "ratio_tiles": _ratio_tiles,
    "edge_tiles": _edge_tiles,
    "patch_limit": _patch_limit,
    "length": _length,
}
"""How a processor picks a grid from (width, height), by name."""


def _within(  # noqa: PLR0913 - the seven numbers of one published formula
    height: int, width: int, factor: int, *, frames: int, rounded_frames: int, low: int, top: int
) -> tuple[int, int]:
    """Nearest multiples of factor with area x frames within limits, as (height, width)."""
    high, wide = round(height / factor) * factor, round(width / factor) * factor
    if rounded_frames * high * wide > top:
        beta = math.sqrt(frames * height * width / top)
        high = max(factor, math.floor(height / beta / factor) * factor)
        wide = max(factor, math.floor(width / beta / factor) * factor)
    elif rounded_frames * high * wide < low:
        beta = math.sqrt(low / (frames * height * width))
        high = math.ceil(height * beta / factor) * factor
        wide = math.ceil(width * beta / factor) * factor
    return high, wide
