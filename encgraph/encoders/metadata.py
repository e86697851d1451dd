"""Compute what a packed vision tower needs from its grids: in the graph, or once on the host.

The in-graph form takes a padded tensor of grids and has static shapes, so one builder serves eager,
capture and replay. The host form is what engines do: cached per grid, joined, copied.

Shape legend: P patches, S segments, M max items, L (height, width), K taps of the interpolation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from encgraph.sizes import Grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metadata:
    """Interpolation, rotary positions and segment offsets of packed items."""

    interp_indices: Tensor
    """(P, 4) integer rows of the learned position table; legal in padding rows too."""
    interp_weights: Tensor
    """(P, 4) float32 weights of those rows."""
    position_ids: Tensor
    """(P, 2) integer (row, column) of each patch within its frame."""
    offsets: Tensor
    """(S + 1,) int32 first patch of each segment; unused slots repeat the last."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Where packed patches are: all that a tower without a learned position table needs."""

    position_ids: Tensor
    """(P, 2) int32 (row, column) of each patch within its frame."""
    sides: Tensor
    """(P, 2) int32 (height, width) of its frame in patches; legal in padding rows too."""
    offsets: Tensor
    """(S + 1,) int32 first patch of each segment; unused slots repeat the last."""


class ItemTable(NamedTuple):
    """What is known of each item from the grids alone, int32."""

    items_M16: Tensor
    """(M + 1, 6): first patch, height, width, blocks a row, patches a frame, first frame."""
    patch_ends_M1: Tensor
    """(M + 1,) patches up to and with each item; the last is the total."""
    frame_ends_M1: Tensor
    """(M + 1,) frames up to and with each item."""


def padding_grid(merge: int) -> Grid:
    """Grid of an unused slot: no frames, so no patches, but legal sides to divide by."""
    return Grid(0, merge, merge)


def build(grid_M13: Tensor, *, patches: int, segments: int, side: int, merge: int) -> Metadata:
    """Compute metadata on the device of the grids; static shapes, no host synchronization.

    Args:
        grid_M13: int64 (M + 1, 3) grids; unused rows, the last among them, hold `padding_grid`.
        patches: Rows P to compute for; rows past the real ones get the positions of a legal patch.
        segments: Segment slots S.
        side: Side of the learned position table.
        merge: Patches a token along each side; patches come block by block.

    Returns:
        Metadata equal, bit for bit, to what transformers computes for the same grids.

    Source:
        `vision_utils` of transformers (bilinear, corners aligned), in closed form.
    """
    made = places(grid_M13, patches=patches, segments=segments, merge=merge)
    indices_P4, weights_P4 = _interpolate(made.position_ids, made.sides, side)
    return Metadata(
        interp_indices=indices_P4,
        interp_weights=weights_P4,
        position_ids=made.position_ids,
        offsets=made.offsets,
    )


def places(grid_M13: Tensor, *, patches: int, segments: int, merge: int) -> Places:
    """Compute positions and offsets alone; see `build` for the arguments."""
    table = item_table(grid_M13, merge)
    within_P, item_P6 = locate(table, patches)
    return Places(
        position_ids=_unmerge(within_P, item_P6[:, 3], merge),
        sides=item_P6[:, 1:3],
        offsets=_segment_offsets(table, segments),
    )


def item_table(grid_M13: Tensor, merge: int) -> ItemTable:
    """Where the patches and frames of each item lie; see `build` for the arguments."""
    frames, height, width = grid_M13.to(torch.int32).unbind(1)
    area = height * width
    patches = frames * area
    patch_ends, frame_ends = (x.cumsum(0, dtype=torch.int32) for x in (patches, frames))
    columns = (patch_ends - patches, height, width, width // merge, area, frame_ends - frames)
    return ItemTable(torch.stack(columns, 1), patch_ends, frame_ends)


def owner(ends_M1: Tensor, rows: Tensor) -> Tensor:
    """int32 item of each row, where item i ends at `ends_M1[i]`; at most M, the padding row.

    What is searched begins where its memory begins: torch 2.11 compiles the search in any other view,
    for a card, into one of the memory's beginning, and says nothing.
    """
    return torch.searchsorted(ends_M1[:-1], rows, right=True, out_int32=True)


def locate(table: ItemTable, patches: int) -> tuple[Tensor, Tensor]:
    """Position of each patch within its frame, and its item's row of the table."""
    rows_P = torch.arange(patches, device=table.items_M16.device, dtype=torch.int32)
    item_P6 = table.items_M16.index_select(0, owner(table.patch_ends_M1, rows_P))
    within_P = (rows_P - item_P6[:, 0]) % item_P6[:, 4]
    return within_P, item_P6


def _unmerge(within_P: Tensor, blocks_P: Tensor, merge: int) -> Tensor:
    """(row, column) of patches numbered block by block, row by row within a block."""
    block_P = within_P // (merge * merge)
    row_P = (block_P // blocks_P) * merge + (within_P // merge) % merge
    column_P = (block_P % blocks_P) * merge + within_P % merge
    return torch.stack((row_P, column_P), 1)


def _interpolate(position_PL: Tensor, sides_PL: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Rows of a side x side table around each patch, and their bilinear weights."""
    source_PL = position_PL.float() * (side - 1) / (sides_PL - 1).clamp(min=1)
    floor_PL = source_PL.floor()
    low_PL = floor_PL.to(torch.int32)
    low_weight_PL = 1 - (source_PL - floor_PL)
    taps_PL2 = torch.stack((low_PL, (low_PL + 1).clamp(max=side - 1)), 2)
    weights_PL2 = torch.stack((low_weight_PL, 1 - low_weight_PL), 2)
    indices_P22 = taps_PL2[:, 0, :, None] * side + taps_PL2[:, 1, None, :]
    weights_P22 = weights_PL2[:, 0, :, None] * weights_PL2[:, 1, None, :]
    return indices_P22.flatten(1), weights_P22.flatten(1)


def _segment_offsets(table: ItemTable, segments: int) -> Tensor:
    """First patch of each segment slot; slots past the last frame get the total."""
    slots_S1 = torch.arange(segments + 1, device=table.items_M16.device, dtype=torch.int32)
    item_S16 = table.items_M16.index_select(0, owner(table.frame_ends_M1, slots_S1))
    offsets_S1 = item_S16[:, 0] + (slots_S1 - item_S16[:, 5]) * item_S16[:, 4]
    return torch.minimum(offsets_S1, table.patch_ends_M1[-1])


def host(
    grids: Sequence[Grid], *, side: int, merge: int, device: torch.device, segments: int = 0
) -> Metadata:
    """Compute metadata on the host, cached per grid, and copy it without waiting.

    Args:
        grids: N grids, all real.
        side: Side of the learned position table.
        merge: Patches a token along each side.
        device: Where the result goes, through pinned memory where that is a card.
        segments: Segment slots; 0 means as many as there are segments.

    Returns:
        Metadata of exactly the real patches.
    """
    parts = [_of_grid(grid.h, grid.w, side, merge) for grid in grids]
    packed = [
        torch.cat([part[i].repeat(g.t, 1) for part, g in zip(parts, grids, strict=True)])
        for i in range(3)
    ]
    indices, weights, positions = (to_device(tensor, device) for tensor in packed)
    return Metadata(
        interp_indices=indices,
        interp_weights=weights,
        position_ids=positions,
        offsets=to_device(host_offsets(grids, segments), device),
    )


def host_offsets(grids: Sequence[Grid], segments: int = 0) -> Tensor:
    """int32 first patch of each segment, on the host; slots past the last repeat the total."""
    offsets = [0]
    for grid in grids:
        start, frame = offsets[-1], grid.h * grid.w
        offsets += (start + frame * (step + 1) for step in range(grid.t))
    offsets += [offsets[-1]] * (segments + 1 - len(offsets))
    return torch.tensor(offsets, dtype=torch.int32, device="cpu")


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to a device without waiting.

    A card is reached through pinned memory of torch's caching host allocator, which hands a block
    out again only after the copies that read it are done, so nothing in flight is overwritten.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def copy_into(buffer: Tensor, values: Tensor) -> None:
    """Copy host values into a static buffer in place, without waiting; see `to_device`."""
    staged = values.pin_memory() if buffer.is_cuda else values
    buffer.copy_(staged, non_blocking=True)


@lru_cache(maxsize=256)
def _of_grid(height: int, width: int, side: int, merge: int) -> tuple[Tensor, Tensor, Tensor]:
    """Interpolation indices and weights and positions of one frame, on the host."""
    within_P = torch.arange(height * width, dtype=torch.int32, device="cpu")
    blocks = torch.tensor(width // merge, dtype=torch.int32, device="cpu")
    position_PL = _unmerge(within_P, blocks, merge)
    sides_L = torch.tensor([height, width], dtype=torch.int32, device="cpu")
    indices_P4, weights_P4 = _interpolate(position_PL, sides_L, side)
    return indices_P4, weights_P4, position_PL
