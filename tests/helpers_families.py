"""What the suite over all families shares: a mix of grids for each, and the untouched module."""

import torch

from encgraph import sizes
from encgraph.encoders import inputs, registry
from encgraph.encoders.packed_tower import PackedTower
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.records import Capacity, Modality
from encgraph.sizes import EncoderSize, Grid

PACKED = tuple(
    size.name
    for size in sizes.SIZES.values()
    if size.name.endswith("-tiny") and size.layout == "packed"
)
CPU = torch.device("cpu")


def built(name: str, **switches: object) -> PackedTower:
    """The encoder on CPU with the one attention that never waits for the device."""
    return registry.named(
        name, device=CPU, dtype=torch.float32, **{"attention": "sdpa", **switches}
    )


def grids_of(size: EncoderSize, cells: list[tuple[int, int, int]]) -> list[Grid]:
    """Grids of (frames, merged rows, merged columns); without frames where there are no clips."""
    merge, clips = size.rule.merge, size.rule.video_max_pixels > 0
    return [Grid(t if clips else 1, h * merge, w * merge) for t, h, w in cells]


CELLS = [
    [(1, 4, 4)],
    [(1, 5, 3), (3, 2, 4), (1, 6, 5)],
    [(2, 4, 4), (1, 1, 1), (1, 1, 15), (1, 9, 2)],
    [(1, 8, 16)],
    [(1, 8, 8), (1, 8, 8)],
    [(1, 1, 2), (1, 2, 1), (1, 3, 9), (2, 5, 5)],
]
"""Up to 128 tokens, 6 items and 10 frames; strips, single cells, clips, and a full buffer."""


def mixes(size: EncoderSize) -> list[list[Grid]]:
    """The mixes of a family."""
    return [grids_of(size, cells) for cells in CELLS]


def capacity(size: EncoderSize, tokens: int = 128, items: int = 6) -> Capacity:
    """A budget that holds each of the mixes."""
    return sizes.capacity(tokens, size.rule, items=items, frames=10)


def batch(size: EncoderSize, grids: list[Grid], seed: int = 0) -> list[Input]:
    """Random inputs of grids."""
    return inputs.synthetic(grids, size=size, seed=seed)


def replayed(
    encoder: PackedTower, buffers: dict[str, torch.Tensor], batch_: list[Input], budget: Capacity
) -> tuple[EncoderOutput, list[EncoderOutput]]:
    """What the captured forward makes of filled buffers: all rows, and each item's."""
    encoder.fill(buffers, batch_)
    packed = encoder.forward(buffers, budget)
    done, outputs = 0, []
    for value in batch_:
        count = encoder.item_spec(value).tokens
        rows = packed.rows(done, done + count)
        outputs.append(
            EncoderOutput(main=rows.main.clone(), extra=tuple(e.clone() for e in rows.extra))
        )
        done += count
    return packed, outputs


def stock(encoder: PackedTower, batch_: list[Input]) -> list[EncoderOutput]:
    """The untouched module, item by item."""
    untouched = encoder.stock()
    return [untouched.eager([value])[0] for value in batch_]


def error(mine: EncoderOutput, true: EncoderOutput) -> float:
    """Worst relative distance of an item's outputs."""
    return max(
        float((a - b).norm() / b.norm()) for a, b in zip(mine.tensors, true.tensors, strict=True)
    )


def assert_same(mine: list[EncoderOutput], true: list[EncoderOutput]) -> None:
    """To 1e-5 relative, each item."""
    worst = max(error(a, b) for a, b in zip(mine, true, strict=True))
    assert worst < 1e-5, worst


def a_clip(size: EncoderSize, grid: Grid) -> Input:
    """An input that says it is a clip, whatever its steps."""
    one = batch(size, [grid])[0]
    item = sizes.item(grid, size.rule, modality=Modality.VIDEO)
    return Input(item=item, pixels=one.pixels, grid=grid)
