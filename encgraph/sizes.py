"""Look published sizes up, and turn pixels into item sizes and budgets into capacities; no torch.

The rules themselves are records of `encgraph.rules`, how they resize is `encgraph.resizing`, and the
sizes are those of `encgraph.published`.
"""

import math

from encgraph.errors import nearest, require
from encgraph.published import audio, glm4v, images, pixtral, qwen_vl, text, tiles
from encgraph.published.qwen_vl import QWEN3_VL_RULE as QWEN3_VL_RULE
from encgraph.published.qwen_vl import TINY as TINY
from encgraph.records import Capacity, Item, Modality, Plan
from encgraph.resizing import image_grid as image_grid
from encgraph.resizing import video_grid as video_grid
from encgraph.rules import MAX_ASPECT as MAX_ASPECT
from encgraph.rules import EncoderSize as EncoderSize
from encgraph.rules import Grid as Grid
from encgraph.rules import TokenRule as TokenRule

SIZES: dict[str, EncoderSize] = {
    size.name: size
    for group in (
        qwen_vl.SIZES,
        glm4v.SIZES,
        pixtral.SIZES,
        images.SIZES,
        tiles.SIZES,
        audio.SIZES,
        text.SIZES,
    )
    for size in group
}
"""Every size by name; a group of families adds its tuple, see `encgraph.published`."""


def named(name: str) -> EncoderSize:
    """Look a size up by name.

    Raises:
        ValueError: If there is none of that name; suggests the nearest three.
    """
    require(isinstance(name, str), f"encoder must be a name, got {name!r:.60}")
    if name in SIZES:
        return SIZES[name]
    raise ValueError(
        f"encoder must be a published size, got {name!r}; {nearest(name, SIZES)}"
        "`encgraph encoders` lists them all"
        + ("; only `encgraph check` takes MODULE:FUNCTION" if ":" in name else "")
    )


def given(size: EncoderSize) -> EncoderSize:
    """The size itself.

    Raises:
        ValueError: If it is something else, such as the name of a size.
    """
    require(
        isinstance(size, EncoderSize),
        f"size must be an EncoderSize, got {size!r:.60}; `sizes.named` finds one by its name",
    )
    return size


def near_square_grid(tokens: int, rule: TokenRule) -> Grid:
    """Legal image grid nearest to a square with at least this many tokens.

    Among heights from the root down to three quarters of it, the one whose product overshoots
    least. Tokens under the rule's minimum give the minimum. Of tiles, as few as hold the tokens.

    >>> near_square_grid(300, QWEN3_VL_RULE)
    Grid(t=1, h=30, w=40)
    """
    require(tokens >= 1, f"tokens must be at least 1, got {tokens!r}")
    low, top = rule.min_tokens, rule.max_tokens
    require(tokens <= top, f"tokens must be at most {top} for one image, got {tokens!r}")
    if rule.is_cut:
        return _tiles(tokens, rule)
    if rule.resize in ("fixed", "length"):
        return image_grid(
            max(tokens, low), 1 if rule.resize == "length" else max(tokens, low), rule
        )
    cells = max(tokens, low)
    root = max(1, round(math.sqrt(cells)))
    high = min(
        range(_lowest(cells, root, rule), root + 1), key=lambda h: (-(-cells // h) * h, root - h)
    )
    return Grid(1, high * rule.merge, -(-cells // high) * rule.merge)


def _tiles(tokens: int, rule: TokenRule) -> Grid:
    """As few tiles as have so many tokens, though no image may be cut into just as many."""
    side = rule.longest_side(rule.max_pixels)
    return Grid(-(-tokens // rule.slot_tokens), side, side)


def _lowest(cells: int, root: int, rule: TokenRule) -> int:
    """Least height to try: three quarters of the root, and no width over the longest side."""
    lowest = math.ceil(0.75 * root)
    if rule.resize != "longest_edge":
        return lowest
    return max(lowest, -(-cells // (rule.longest_side(rule.max_pixels) // rule.merge)))


def item(
    grid: Grid,
    rule: TokenRule,
    *,
    request: int = 0,
    width: int = 0,
    height: int = 0,
    modality: Modality | None = None,
) -> Item:
    """Sizes of an item from its grid; attention runs within each temporal step, or tile.

    Args:
        grid: Patches along time, height and width; along tiles where the rule cuts images.
        rule: The processor's rule.
        request: Index of the request it belongs to.
        width: Source pixels; 0 means the grid's own.
        height: Source pixels; 0 means the grid's own.
        modality: None means a clip where there is more than one temporal step, else the rule's. A
            clip of two frames has one step, so it must be said to be a clip.
    """
    patches, steps = rule.patches(grid), 1 if rule.is_cut else grid.t
    return Item(
        modality=modality or (rule.modality if steps == 1 else Modality.VIDEO),
        tokens=rule.tokens(grid.t * grid.h * grid.w // rule.merge_area),
        patches=patches,
        segments=grid.t,
        longest_segment=grid.h * grid.w + rule.prefix,
        frames=steps,
        width=width or grid.w * rule.patch,
        height=height or grid.h * rule.patch,
        request=request,
    )


def item_of(tokens: int, rule: TokenRule) -> Item:
    """An item known by its tokens alone: as many patches as those need, in one segment or in tiles."""
    if rule.is_cut:
        return item(_tiles(tokens, rule), rule)
    cells = max(1, tokens - rule.prefix_tokens)
    return Item(tokens=tokens, patches=cells * rule.merge_area + rule.prefix)


def capacity(
    tokens: int,
    rule: TokenRule,
    *,
    items: int,
    frames: int = 0,
    longest_segment: int = 0,
) -> Capacity:
    """Capacity of a token budget; what is not given is the worst case that fits it.

    Where every item takes slots of its own (`TokenRule.slot_tokens`), the budget is rounded down to
    whole slots, at least one, and holds as many items as that, fewer where an item takes several
    slots; `items` and the rest follow.

    Args:
        tokens: The token budget.
        rule: Gives patches a token.
        items: Most items a replay; lowered to the budget if above.
        frames: Most temporal steps in all; 0 means as many as items (images only).
        longest_segment: Patches of the longest segment; 0 means the whole budget, of texts the
            longest there is.
    """
    if rule.slot_tokens:
        return _slotted_capacity(tokens, rule)
    items = min(items, tokens)
    steps = max(frames, items)
    patches = tokens * rule.merge_area + items * rule.prefix
    whole = min(patches, rule.max_pixels) if rule.resize == "length" else patches
    return Capacity(
        tokens=tokens,
        patches=patches,
        items=items,
        segments=steps,
        longest_segment=min(longest_segment, whole) or whole,
        frames=steps,
    )


def check_plan(plan: Plan, rule: TokenRule) -> None:
    """Refuse a plan whose limits contradict each other by an encoder's rule.

    Raises:
        ValueError: If the patches of a graph are not those of its tokens, or its segments or frames
            cannot hold its items; says what is needed.
    """
    for capacity in plan.graphs:
        _check_capacity(capacity, rule)


def _check_capacity(capacity: Capacity, rule: TokenRule) -> None:
    tokens, slot = capacity.tokens, rule.slot_tokens
    if slot and tokens % slot:
        return  # slots are as many as the items then, and the budget is of the rows that come out
    budget = f"a budget of {tokens:,} tokens"
    rows = tokens * rule.merge_area + capacity.items * rule.prefix
    needed = _slotted_capacity(tokens, rule).patches if slot else rows
    require(
        capacity.patches == needed,
        f"{budget} needs {needed:,} patches, the plan says {capacity.patches:,}",
    )
    for name, held in (("segments", capacity.segments), ("frames", capacity.frames)):
        require(
            held >= capacity.items,
            f"{budget} for {capacity.items:,} items needs at least as many {name}, "
            f"the plan says {held:,}",
        )


def _slotted_capacity(tokens: int, rule: TokenRule) -> Capacity:
    each, side = rule.slot_tokens, rule.longest_side(rule.max_pixels)
    square = rule.is_cut or rule.resize == "fixed"
    rows = rule.patches(Grid(1, side, side) if square else Grid(1, 1, each * rule.merge_area))
    count = max(1, tokens // each)
    return Capacity(
        tokens=count * each,
        patches=count * rows,
        items=count,
        segments=count,
        longest_segment=rows,
        frames=count,
    )
