"""Published sizes of encoders and the rules that turn pixels into tokens; no torch.

The resize rule is the processor's own, in exact integer and float steps (Python's round half to even
included), so that a plan made from file headers counts the tokens the engine will count.
"""

import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from encgraph.errors import require
from encgraph.records import Capacity, Item, Modality

MAX_ASPECT = 200
"""Longer over shorter side; the processor refuses anything beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRule:
    """How a processor resizes: each side a multiple of patch x merge, the area within limits."""

    patch: int
    merge: int
    temporal_patch: int = 2
    min_pixels: int
    max_pixels: int
    video_min_pixels: int
    """Lower limit on frames x height x width of a clip."""
    video_max_pixels: int

    @property
    def factor(self) -> int:
        """Pixels each side must divide by."""
        return self.patch * self.merge

    @property
    def merge_area(self) -> int:
        """Patches a token."""
        return self.merge**2


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSize:
    """One published size of an encoder."""

    name: str
    family: str
    layout: str
    """"packed": items lie end to end in one sequence, told apart by offsets."""
    depth: int
    hidden: int
    intermediate: int
    heads: int
    out: int
    """Width of an output token."""
    deepstack: tuple[int, ...]
    """Blocks whose features are output too, each as wide as `out`."""
    position_side: int
    """Side of the learned position table."""
    parameters: int
    rule: TokenRule
    source: str

    @property
    def patch_width(self) -> int:
        """Values in one flattened input patch: 3 channels x temporal patch x patch x patch."""
        return 3 * self.rule.temporal_patch * self.rule.patch**2


class Grid(NamedTuple):
    """Patches of one item along time, height and width."""

    t: int
    h: int
    w: int


QWEN3_VL_RULE = TokenRule(
    patch=16,
    merge=2,
    min_pixels=65_536,
    max_pixels=16_777_216,
    video_min_pixels=131_072,
    video_max_pixels=786_432,
)


def _sized(name: str, *, small: bool, out: int, parameters: int) -> EncoderSize:
    return EncoderSize(
        name=name,
        family="qwen3-vl",
        layout="packed",
        depth=24 if small else 27,
        hidden=1024 if small else 1152,
        intermediate=4096 if small else 4304,
        heads=16,
        out=out,
        deepstack=(5, 11, 17) if small else (8, 16, 24),
        position_side=48,
        parameters=parameters,
        rule=QWEN3_VL_RULE,
        source=f"vision_config of Qwen/Qwen3-VL-{name.rsplit('-', 1)[1].upper()}-Instruct",
    )


TINY = EncoderSize(
    name="qwen3-vl-tiny",
    family="qwen3-vl",
    layout="packed",
    depth=4,
    hidden=64,
    intermediate=128,
    heads=4,
    out=96,
    deepstack=(1, 2),
    position_side=8,
    parameters=508_896,
    rule=QWEN3_VL_RULE,
    source="made for tests and laptops; the published token rule, a toy width",
)

SIZES = {
    size.name: size
    for size in (
        TINY,
        _sized("qwen3-vl-2b", small=True, out=2048, parameters=406_957_056),
        _sized("qwen3-vl-4b", small=True, out=2560, parameters=415_347_712),
        _sized("qwen3-vl-8b", small=False, out=4096, parameters=576_388_336),
        _sized("qwen3-vl-32b", small=False, out=5120, parameters=595_266_800),
    )
}


def named(name: str) -> EncoderSize:
    """Look a size up by name.

    Raises:
        ValueError: If there is none of that name; suggests the nearest.
    """
    if name in SIZES:
        return SIZES[name]
    near = get_close_matches(name.lower(), SIZES, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}" if near else ""
    raise ValueError(f"encoder must be one of {sorted(SIZES)}, got {name!r}{hint}")


def _check_sides(width: int, height: int) -> None:
    require(
        width >= 1 and height >= 1,
        f"width and height must be at least 1 pixel, got {width!r} x {height!r}",
    )
    aspect = max(width, height) / min(width, height)
    require(
        aspect <= MAX_ASPECT,
        f"aspect ratio must be at most {MAX_ASPECT}, got {aspect:.1f} ({width!r} x {height!r}); "
        "the processor refuses such an image; crop or pad it",
    )


def image_grid(width: int, height: int, rule: TokenRule) -> Grid:
    """Grid of an image after the processor's resize.

    Args:
        width: Pixels, after EXIF orientation.
        height: Pixels, after EXIF orientation.
        rule: The processor's limits.

    Raises:
        ValueError: If a side is under 1 pixel or the aspect ratio over 200.

    Source:
        `smart_resize` of transformers' qwen2_vl image processor.

    >>> image_grid(640, 480, QWEN3_VL_RULE)
    Grid(t=1, h=30, w=40)
    """
    _check_sides(width, height)
    high, wide = _within(
        height,
        width,
        rule.factor,
        frames=1,
        rounded_frames=1,
        low=rule.min_pixels,
        top=rule.max_pixels,
    )
    return Grid(1, high // rule.patch, wide // rule.patch)


def video_grid(width: int, height: int, frames: int, rule: TokenRule) -> Grid:
    """Grid of a clip after the processor's resize; `frames` are those given to the encoder.

    Raises:
        ValueError: If a side or the frames are too few, or the aspect ratio is over 200.

    Source:
        `smart_resize` of transformers' qwen3_vl video processor.

    >>> video_grid(640, 480, 8, QWEN3_VL_RULE)
    Grid(t=4, h=16, w=22)
    """
    temporal = rule.temporal_patch
    require(frames >= temporal, f"a clip needs at least {temporal} frames, got {frames!r}")
    require(
        width >= 1 and height >= 1, f"sides must be at least 1 pixel, got {width!r} x {height!r}"
    )
    if min(width, height) < rule.factor:
        scale = max(rule.factor / height, rule.factor / width)
        width, height = int(width * scale), int(height * scale)
    _check_sides(width, height)
    rounded = round(frames / temporal) * temporal
    high, wide = _within(
        height,
        width,
        rule.factor,
        frames=frames,
        rounded_frames=rounded,
        low=rule.video_min_pixels,
        top=rule.video_max_pixels,
    )
    return Grid(-(-frames // temporal), high // rule.patch, wide // rule.patch)


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


def near_square_grid(tokens: int, rule: TokenRule) -> Grid:
    """Legal image grid nearest to a square with at least this many tokens.

    Among heights from the root down to three quarters of it, the one whose product overshoots
    least. Tokens under the rule's minimum give the minimum.

    >>> near_square_grid(300, QWEN3_VL_RULE)
    Grid(t=1, h=30, w=40)
    """
    require(tokens >= 1, f"tokens must be at least 1, got {tokens!r}")
    low, top = rule.min_pixels // rule.factor**2, rule.max_pixels // rule.factor**2
    require(tokens <= top, f"tokens must be at most {top} for one image, got {tokens!r}")
    tokens = max(tokens, low)
    root = max(1, round(math.sqrt(tokens)))
    high = min(
        range(math.ceil(0.75 * root), root + 1), key=lambda h: (-(-tokens // h) * h, root - h)
    )
    return Grid(1, high * rule.merge, -(-tokens // high) * rule.merge)


def item(grid: Grid, rule: TokenRule, *, request: int = 0, width: int = 0, height: int = 0) -> Item:
    """Sizes of an item from its grid; attention runs within each temporal step."""
    patches = grid.t * grid.h * grid.w
    return Item(
        modality=Modality.IMAGE if grid.t == 1 else Modality.VIDEO,
        tokens=patches // rule.merge_area,
        patches=patches,
        segments=grid.t,
        longest_segment=grid.h * grid.w,
        frames=grid.t,
        width=width or grid.w * rule.patch,
        height=height or grid.h * rule.patch,
        request=request,
    )


def capacity(
    tokens: int, rule: TokenRule, *, items: int, frames: int = 0, longest_segment: int = 0
) -> Capacity:
    """Capacity of a token budget; what is not given is the worst case that fits it.

    Args:
        tokens: The token budget.
        rule: Gives patches a token.
        items: Most items a replay; lowered to the budget if above.
        frames: Most temporal steps in all; 0 means as many as items (images only).
        longest_segment: Patches of the longest segment; 0 means the whole budget.
    """
    items = min(items, tokens)
    steps = max(frames, items)
    return Capacity(
        tokens=tokens,
        patches=tokens * rule.merge_area,
        items=items,
        segments=steps,
        longest_segment=min(longest_segment, tokens * rule.merge_area) or tokens * rule.merge_area,
        frames=steps,
    )
