import pytest
import torch
from helpers_sync import SyncAuditor
from transformers import vision_utils

from encgraph.encoders import metadata, windows
from encgraph.sizes import Grid

MERGE, SIDE, PATCH = 2, 4, 14


def expected(grids):
    return vision_utils.get_vision_window_index(
        torch.tensor(grids), MERGE, window_size=SIDE * MERGE * PATCH, patch_size=PATCH
    )


def padded(grids, items):
    return torch.tensor([*grids, *[metadata.padding_grid(MERGE)] * (items + 1 - len(grids))])


def check(grids, *, tokens, slots, items):
    made = windows.build(padded(grids, items), tokens=tokens, windows=slots, side=SIDE, merge=MERGE)
    index, offsets = expected(grids)
    real = len(index)
    assert torch.equal(made.index[:real], index)
    assert torch.equal(made.index[real:], torch.arange(real, tokens))
    assert made.offsets.dtype == torch.int32
    assert torch.equal(made.offsets[: len(offsets)], offsets)
    assert (made.offsets[len(offsets) :] == offsets[-1]).all()
    assert len(made.offsets) == slots + 1


def cells(grids):
    return sum(g.t * g.h * g.w for g in grids) // MERGE**2


def test_every_grid_up_to_18_cells_a_side_equals_transformers_together():
    sides = range(2, 37, 2)
    grids = [Grid(1 + (h + w) // 2 % 3, h, w) for h in sides for w in sides]
    check(grids, tokens=cells(grids) + 77, slots=9000, items=400)


@pytest.mark.parametrize("sides", [(2, 2), (2, 60), (60, 2), (8, 8), (10, 8), (6, 14), (34, 18)])
def test_each_grid_alone_equals_transformers(sides):
    grids = [Grid(1, *sides)]
    check(grids, tokens=cells(grids), slots=windows.most(cells(grids), 1, side=SIDE), items=1)
    check(grids, tokens=cells(grids) + 9, slots=40, items=3)


def test_the_bound_on_windows_holds_for_every_frame_and_is_reached():
    reached = 0
    for high in range(1, 40):
        for wide in range(1, 40):
            count = -(-high // SIDE) * -(-wide // SIDE)
            bound = windows.most(high * wide, 1, side=SIDE)
            assert count <= bound, (high, wide)
            reached += count == bound
    assert reached > 10


def test_the_bound_adds_up_over_segments():
    grids = [Grid(1, 2, 2)] * 7 + [Grid(3, 2, 10), Grid(1, 2, 18), Grid(1, 30, 22)]
    tokens, segments = cells(grids), sum(g.t for g in grids)
    slots = windows.most(tokens, segments, side=SIDE)
    assert slots < tokens
    check(grids, tokens=tokens, slots=slots, items=len(grids))


def test_an_empty_buffer_has_empty_windows_only():
    made = windows.build(padded([], 2), tokens=8, windows=5, side=SIDE, merge=MERGE)
    assert made.offsets.tolist() == [0] * 6
    assert made.index.tolist() == list(range(8))


def test_windows_never_synchronize_and_transformers_does():
    grid = padded([Grid(2, 4, 6)], 2)
    with SyncAuditor() as auditor:
        windows.build(grid, tokens=16, windows=8, side=SIDE, merge=MERGE)
    assert auditor.found == []
    with SyncAuditor() as auditor:
        expected([Grid(2, 4, 6)])
    assert auditor.found
