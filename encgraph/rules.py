"""Rules that turn pixels into tokens, and what an encoder's size is made of; no torch.

A `TokenRule` is data: `resize` names how a processor picks the patch grid of an item, the rest says
what attention and output make of that grid. So one record serves all four layouts (see
`EncoderSize.layout`), is stored as JSON, and planning asks it only for item sizes and capacities.

The resize rules are the processors' own, in exact integer and float steps (Python's round half to
even included), so that a plan made from file headers counts the tokens the engine will count.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from encgraph.errors import require
from encgraph.records import Modality

MAX_ASPECT = 200
"""Longer over shorter side; a processor of a "smart" rule refuses anything beyond, others do not."""
ConfigValue = int | float | bool | str
Resize = Literal[
    "smart", "longest_edge", "fixed", "ratio_tiles", "edge_tiles", "patch_limit", "length"
]


class Grid(NamedTuple):
    """Patches of one item along time, height and width."""

    t: int
    h: int
    w: int


def with_whole(tiles: int) -> int:
    """Tiles that an image cut into so many has, with the one of the whole: none if it is not cut."""
    return tiles + (tiles > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRule:
    """How a processor sizes an item, and how many patches and tokens that is."""

    patch: int
    merge: int
    temporal_patch: int = 2
    min_pixels: int
    """Of an image; for "length", the shortest item."""
    max_pixels: int
    """Of an image; for "length", the longest item; for "fixed" all there are, both limits alike; so
    too of a tile, where images are cut."""
    video_min_pixels: int = 0
    """Lower limit on frames x height x width of a clip."""
    video_max_pixels: int = 0
    """0: the encoder takes no clips."""
    video_limits_a_frame: bool = False
    """Whether the limits of a clip are on the area of each frame, not on the whole clip."""
    resize: Resize = "smart"
    """"smart": sides to multiples of patch x merge, the area within limits (Qwen, GLM).
    "longest_edge": shrink until both sides are at most the root of `max_pixels`, round up (Pixtral).
    "fixed": always the square of `max_pixels`, whatever comes in (SigLIP, CLIP, Gemma 3).
    "ratio_tiles": cut into squares of `max_pixels`, in the grid of at most `tiles` whose sides have
    the ratio nearest to the image's, and the whole of it in one more where it is cut (InternVL).
    "edge_tiles": the longer side to `tiles` such squares, the shorter to as many as hold it, and the
    whole in one more (Idefics3, SmolVLM).
    "patch_limit": the largest scale whose patches, sides rounded up, are at most `max_pixels` over
    patch squared (NaFlex). "length": one row as long as the item (text)."""
    tiles: int = 1
    """Most tiles of an image ("ratio_tiles") or of its longer side ("edge_tiles"), the one of the
    whole not counted."""
    image_frames: int = 1
    """Frames as which an image counts towards the area; 2 where the processor doubles it first."""
    prefix: int = 0
    """Patches before those of the grid, or of each tile: class and register tokens."""
    prefix_tokens: int = 0
    """Output tokens before those of the grid."""
    pooled: bool = False
    """Whether one row comes out for all tokens of a segment; budgets count tokens all the same."""
    modality: Modality = Modality.IMAGE
    """Of an item that is no clip."""

    @property
    def factor(self) -> int:
        """Pixels each side must divide by."""
        return self.patch * self.merge

    @property
    def merge_area(self) -> int:
        """Patches a token."""
        return self.merge**2

    @property
    def min_tokens(self) -> int:
        """Tokens of the smallest image; where images are cut, of one tile."""
        return self.tokens(self._limit(self.min_pixels, up=True))

    @property
    def max_tokens(self) -> int:
        """Tokens of the largest image."""
        return self.max_tiles * self.tokens(self._limit(self.max_pixels, up=False))

    @property
    def is_cut(self) -> bool:
        """Whether an image may come as several tiles, each a segment and a slot of its own."""
        return self.resize in ("ratio_tiles", "edge_tiles")

    @property
    def max_tiles(self) -> int:
        """Tiles of the largest image, the one of the whole included; 1 where none is cut."""
        return with_whole(self.tiles**2 if self.resize == "edge_tiles" else self.tiles)

    def longest_side(self, pixels: int) -> int:
        """Patches along the root of an area; "longest_edge" rounds up as its processor does."""
        side = math.isqrt(pixels)
        return -(-side // self.patch) if self.resize == "longest_edge" else side // self.patch

    def patches(self, grid: Grid) -> int:
        """Patches of an item with this grid."""
        return grid.t * (grid.h * grid.w + self.prefix)

    def tokens(self, cells: int) -> int:
        """Output tokens, before any pooling, of an item whose grid has so many merged cells."""
        return cells + self.prefix_tokens

    @property
    def slot_tokens(self) -> int:
        """Tokens of a slot: what a graph sets aside for an item however few it has, or for each of
        its tiles; 0 where items lie end to end."""
        slotted = self.resize == "patch_limit" or self.min_pixels == self.max_pixels
        return self.max_tokens // self.max_tiles if slotted else 0

    def _limit(self, pixels: int, *, up: bool) -> int:
        """Merged cells in an area: whole sides where both are the root of it, else by area."""
        if self.is_cut or self.resize in ("fixed", "longest_edge"):
            return max(1, self.longest_side(pixels) // self.merge) ** 2
        if self.resize == "length":
            return pixels
        area = self.factor**2 * self.image_frames
        return max(1, -(-pixels // area) if up else pixels // area)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSize:
    """One published size of an encoder."""

    name: str
    family: str
    """A key of `encoders.registry.FAMILIES`."""
    layout: str
    """"packed": items lie end to end in one sequence, told apart by offsets. "ragged": one padded
    row an item. "fixed": slots all equal, an item takes one or several. "text": packed sequences of
    symbols."""
    depth: int
    hidden: int
    intermediate: int
    heads: int
    out: int
    """Width of an output token."""
    deepstack: tuple[int, ...] = ()
    """Blocks whose features are output too, each as wide as `out`."""
    position_side: int = 0
    """Side of the learned position table; 0 without one."""
    gated: bool = False
    """Whether the blocks' multilayer perceptrons have a gate, so three matrices and not two."""
    merger: int = 0
    """Width inside the merger where the config states it; 0 where it follows from the others."""
    window: int = 0
    """Side in pixels of an attention window; 0 without windows."""
    full_attention: tuple[int, ...] = ()
    """Blocks that attend over whole segments where the others keep to windows."""
    settings: tuple[tuple[str, ConfigValue], ...] = ()
    """Further arguments of the family's own config, by name."""
    parameters: int
    rule: TokenRule
    source: str

    def __post_init__(self) -> None:
        require(self.layout in LAYOUTS, f"layout must be one of {LAYOUTS}, got {self.layout!r}")

    @property
    def patch_width(self) -> int:
        """Values in one flattened input patch: 3 channels x temporal patch x patch x patch."""
        return 3 * self.rule.temporal_patch * self.rule.patch**2


LAYOUTS = ("packed", "ragged", "fixed", "text")
