import pytest
import torch
from helpers_sync import SyncAuditor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import vision_utils

from encgraph.encoders import metadata, segments, windows
from encgraph.sizes import Grid

SIDE, MERGE = 48, 2


def expected(grids):
    tensor = torch.tensor(grids)
    indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
        tensor, SIDE, align_corners=True, spatial_merge_size=MERGE
    )
    return (
        indices,
        weights,
        vision_utils.get_vision_position_ids(tensor, MERGE),
        vision_utils.get_vision_cu_seqlens(tensor),
    )


def padded(grids, items):
    return torch.tensor(grids + [metadata.padding_grid(MERGE)] * (items + 1 - len(grids)))


def built(grid, patches, segments):
    return metadata.build(grid, patches=patches, segments=segments, side=SIDE, merge=MERGE)


def check(made, grids, segments):
    indices, weights, positions, offsets = expected(grids)
    real = len(indices)
    assert torch.equal(made.interp_indices[:real].long(), indices)
    assert torch.equal(made.interp_weights[:real], weights)
    assert torch.equal(made.position_ids[:real].long(), positions)
    assert made.offsets.dtype == torch.int32
    assert torch.equal(made.offsets[: len(offsets)], offsets)
    assert (made.offsets[len(offsets) :] == offsets[-1]).all()
    assert len(made.offsets) == segments + 1


def even_grids():
    sides = range(2, 65, 2)
    return [Grid(1, high, wide) for high in sides for wide in sides]


def test_every_grid_up_to_64_equals_the_host_computation_of_transformers():
    grids = even_grids()
    patches = sum(g.h * g.w for g in grids)
    check(built(padded(grids, 1100), patches + 5000, 1500), grids, 1500)


def test_each_grid_after_a_larger_one_in_the_same_buffer():
    buffer = padded([], 1)
    table = {}
    for side in range(2, 65, 2):
        grid = Grid(1, side, 66 - side)
        check_one(buffer, grid, table)


def check_one(buffer, grid, table):
    for one in (Grid(1, 64, 64), grid):
        metadata.copy_into(buffer, padded([one], 1))
        made = built(buffer, 4096, 3)
        check(made, [one], 3)


def test_videos_and_images_together_equal_transformers():
    grids = [Grid(3, 4, 6), Grid(1, 16, 2), Grid(5, 8, 8), Grid(1, 2, 2), Grid(2, 64, 30)]
    patches = sum(g.t * g.h * g.w for g in grids)
    check(built(padded(grids, 8), patches + 123, 20), grids, 20)


def test_padding_rows_are_legal():
    made = built(padded([Grid(1, 4, 4)], 4), 64, 4)
    assert made.interp_indices.min() >= 0
    assert made.interp_indices.max() < SIDE**2
    assert made.interp_weights.isfinite().all()
    assert (made.position_ids[16:] < MERGE).all()


def test_a_full_buffer_without_padding_equals_transformers():
    grids = [Grid(1, 4, 4), Grid(2, 2, 6)]
    check(built(padded(grids, 2), 40, 3), grids, 3)


def test_an_empty_buffer_has_empty_segments_only():
    assert built(padded([], 3), 16, 4).offsets.tolist() == [0] * 5


def test_host_metadata_equals_transformers():
    grids = [Grid(3, 4, 6), Grid(1, 16, 2), Grid(1, 4, 6)]
    made = metadata.host(grids, side=SIDE, merge=MERGE, device=torch.device("cpu"), segments=9)
    check(made, grids, 9)


class Searched(TorchDispatchMode):
    """Notes what is searched in."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if "searchsorted" in str(operator):
            self.found.append(args[0])
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("items", [1, 2, 5])
def test_what_is_searched_begins_where_its_memory_begins(items):
    """A compiler for cards takes a view for what it looks into; see `metadata.owner`."""
    grid = padded([Grid(2, 4, 6)], items)
    with Searched() as searched:
        built(grid, 128, 8)
        windows.build(grid, tokens=32, windows=16, side=4, merge=MERGE)
        segments.segmented(torch.zeros(9, dtype=torch.long), torch.tensor([4] + [0] * items))
    assert len(searched.found) == 5
    for ends in searched.found:
        assert ends.shape == (items,)
        assert ends.storage_offset() == 0 and ends.is_contiguous()


def test_the_builder_never_synchronizes():
    grid = padded([Grid(3, 4, 6)], 4)
    with SyncAuditor() as auditor:
        built(grid, 128, 8)
    assert auditor.found == []


def test_the_auditor_catches_what_transformers_does_on_the_host():
    with SyncAuditor() as auditor:
        expected([Grid(1, 4, 4)])
    assert any("tolist" in found for found in auditor.found)
    assert any("repeat_interleave" in found for found in auditor.found)


def test_the_builder_launches_few_kernels():
    from torch.profiler import profile

    grid = padded([Grid(3, 4, 6)], 4)
    with profile() as recorded:
        built(grid, 128, 8)
    views = ("aten::select", "aten::slice", "aten::as_strided", "aten::unbind", "aten::unsqueeze")
    outer = [e for e in recorded.events() if e.cpu_parent is None and e.name not in views]
    assert len(outer) < 60, sorted({e.name for e in outer})


def test_offsets_never_decrease():
    """Whatever is in the grid, images in a graph sized for frames included."""
    generator = torch.Generator().manual_seed(0)
    for frames in (1, 4):
        for count in range(9):
            sides = 2 * torch.randint(1, 9, (count, 2), generator=generator)
            steps = torch.randint(1, frames + 1, (count, 1), generator=generator)
            padding = torch.tensor([metadata.padding_grid(2)] * (9 - count))
            grid = torch.cat((torch.cat((steps, sides), 1), padding))
            made = metadata.build(grid, patches=4096, segments=40, side=8, merge=2)
            assert (made.offsets.diff() >= 0).all()
            assert made.offsets[-1] == (steps[:, 0] * sides.prod(1)).sum()
