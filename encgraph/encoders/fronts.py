"""What a Qwen3-VL tower does with its grids before the first block, as one function to compile.

Positions, interpolation, the rows of the position table, rotary angles and offsets are some sixty
operations on small tensors, each a kernel in a graph; compiled they are a handful. The forward then takes the rows and the angles ready made, as it does with metadata from the
host.

Shape legend: P patches, S segments, M max items, H hidden, D head width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders import compiling
from encgraph.encoders import metadata as metadatas

Front = Callable[[Any, Tensor, int, int], tuple[Tensor, Tensor, Tensor, Tensor]]


def compiled(*, side: int, merge: int) -> Front:
    """Compile the front of a tower, once for all capacities.

    Args:
        side: Side of its position table.
        merge: Patches a token along each side.

    Returns:
        A function of a tower, grids (M + 1, 3), patches and segments; see `positions`.
    """
    run = torch.compile(positions, dynamic=True, fullgraph=True, backend=compiling.BACKEND)

    def front(
        tower: Any, grid_M13: Tensor, patches: int, segments: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        made: tuple[Tensor, Tensor, Tensor, Tensor] = run(
            tower, grid_M13.detach(), patches=patches, segments=segments, side=side, merge=merge
        )
        return made

    return front


def positions(
    tower: Any, grid_M13: Tensor, *, patches: int, segments: int, side: int, merge: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Position rows (P, H) in the table's dtype, cosines and sines (P, D), int32 offsets (S + 1,).

    Args:
        tower: With `pos_embed` and `rotary_pos_emb`, whose tensors are read at every run.
        grid_M13: As for `metadata.build`.
        patches: Rows P.
        segments: Segment slots S.
        side: Side of the position table.
        merge: Patches a token along each side.
    """
    made = metadatas.build(grid_M13, patches=patches, segments=segments, side=side, merge=merge)
    taps_P4H = tower.pos_embed(made.interp_indices)
    rows_PH = (taps_P4H * made.interp_weights[:, :, None]).sum(1).to(taps_P4H.dtype)
    cos_PD, sin_PD = tower.rotary_pos_emb(rows_PH, made.position_ids)
    return rows_PH, cos_PD, sin_PD, made.offsets
