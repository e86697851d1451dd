"""Windows of a packed vision tower, in closed form: static shapes, no sort, no host.

A frame of h x w merged cells is cut into squares of `side` cells, those at the right and the bottom
narrower; the tower then attends within each. Cells are gathered window by window. A window's cells
are found from its place alone: rows of windows are full but the last, windows of a row are full but
the last, so a cell's row of windows, window and place in it come from divisions.

How many windows a budget may hold follows from its tokens T and segments S: a frame of h x w cells
has ceil(h / n) ceil(w / n) <= (h w + (n - 1)(h + w) + (n - 1)^2) / n^2 <= (h w + n - 1) / n windows of
side n, as h + w <= h w + 1. So T cells in S frames have at most (T + (n - 1) S) / n, reached by strips
one cell wide. Nothing else bakes windows, so a `Capacity` need not count them.

Shape legend: N cells (tokens) of a capacity, M max items, W window slots.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from encgraph.encoders import metadata


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """The order of cells window by window, and where each window starts."""

    index: Tensor
    """(N,) int64 cell at each place of the new order; padding cells stay where they are."""
    offsets: Tensor
    """(W + 1,) int32 first patch of each window; unused slots repeat the last."""


def most(tokens: int, segments: int, *, side: int) -> int:
    """Windows that so many tokens in so many segments have at most.

    >>> most(64, 1, side=4)
    16
    """
    return min(tokens, (tokens + (side - 1) * segments) // side)


def build(grid_M13: Tensor, *, tokens: int, windows: int, side: int, merge: int) -> Windows:
    """Compute windows on the device of the grids; static shapes, no host synchronization.

    Args:
        grid_M13: int64 (M + 1, 3) grids in patches; unused rows, the last among them, hold
            `metadata.padding_grid`.
        tokens: Cells N to order.
        windows: Window slots W.
        side: Cells along a window's side.
        merge: Patches a cell along each side.

    Returns:
        Windows equal to what transformers computes for the same grids.

    Source:
        `get_vision_window_index` of transformers, in closed form.
    """
    cells_M13 = torch.stack((grid_M13[:, 0], grid_M13[:, 1] // merge, grid_M13[:, 2] // merge), 1)
    return Windows(
        index=_order(cells_M13, tokens, side),
        offsets=_offsets(cells_M13, windows, side) * (merge * merge),
    )


def _order(cells_M13: Tensor, tokens: int, side: int) -> Tensor:
    """Cell at each place, frame by frame, window by window, row by row."""
    table = metadata.item_table(cells_M13, 1)
    within_N, item_N6 = metadata.locate(table, tokens)
    _, height_N, width_N, _, _, _ = item_N6.unbind(1)
    band_N = within_N // (side * width_N)
    high_N = torch.clamp(height_N - band_N * side, max=side)
    left_N = within_N - band_N * side * width_N
    window_N = left_N // (high_N * side)
    wide_N = torch.clamp(width_N - window_N * side, max=side)
    place_N = left_N - window_N * high_N * side
    row_N = band_N * side + place_N // wide_N
    column_N = window_N * side + place_N % wide_N
    rows_N = torch.arange(tokens, device=cells_M13.device, dtype=torch.int32)
    moved_N = rows_N - within_N + row_N * width_N + column_N
    return torch.where(rows_N < table.patch_ends_M1[-1], moved_N, rows_N).long()


def _offsets(cells_M13: Tensor, windows: int, side: int) -> Tensor:
    """First cell of each window slot; slots past the last window get the total."""
    frames, height, width = cells_M13.to(torch.int32).unbind(1)
    across = (width + side - 1) // side
    a_frame = (height + side - 1) // side * across
    counts = (frames * a_frame, frames * height * width)
    window_ends, cell_ends = (x.cumsum(0, dtype=torch.int32) for x in counts)
    starts = window_ends - counts[0], cell_ends - counts[1]
    columns = (starts[0], height, width, across, a_frame, starts[1])
    slots_W1 = torch.arange(windows + 1, device=cells_M13.device, dtype=torch.int32)
    item_W1 = metadata.owner(window_ends, slots_W1)
    first, high, wide, across, a_frame, cell = (
        torch.stack(columns, 1).index_select(0, item_W1).unbind(1)
    )
    slot = slots_W1 - first
    frame, within = slot // a_frame, slot % a_frame
    band, window = within // across, within % across
    rows = torch.clamp(high - band * side, max=side)
    offset_W1 = cell + frame * high * wide + band * side * wide + rows * side * window
    return torch.minimum(offset_W1, cell_ends[-1])
