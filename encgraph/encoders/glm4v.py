"""GLM-4.1V's vision tower from transformers: its forward unmodified, its position table by sides.

The tower's own embeddings find the frame of each patch by comparing every patch with every segment,
and index past the end for padding. The face is given the sides of each patch's frame instead, which
are known from the grids; the interpolation is the same operator on the same numbers. Clips are given
to the untouched tower frame by frame, as the whole model does.

Shape legend: P patches, H hidden.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import grid_sample
from transformers.models.glm4v.configuration_glm4v import Glm4vVisionConfig
from transformers.models.glm4v.modeling_glm4v import Glm4vVisionModel

from encgraph.encoders import faces, packed, saved
from encgraph.encoders import metadata as metadatas
from encgraph.encoders.packed_tower import PackedTower
from encgraph.encoders.protocol import EncoderOutput
from encgraph.published.glm4v import GLM4V_RULE
from encgraph.sizes import EncoderSize, Grid


class SidesEmbeddings(nn.Module):
    """Adds the position table, resampled to each patch's own frame."""

    def __init__(self, embeddings: Any) -> None:
        super().__init__()
        table = faces.replaced(embeddings, "embeddings").position_embedding
        self.position_embedding = faces.replaced(table, "embeddings.position_embedding")
        self.mode = embeddings.interpolated_method

    def forward(
        self,
        hidden_PH: Tensor,
        lengths: Tensor,
        sides_P2: Tensor,
        rows_P: Tensor,
        columns_P: Tensor,
    ) -> Tensor:
        """Add to (P, H) patches the rows of the table at their places; `lengths` is not used."""
        weight_TH = self.position_embedding.weight
        side = math.isqrt(len(weight_TH))
        table_1HLL = weight_TH.view(side, side, -1).permute(2, 0, 1).unsqueeze(0).float()
        high_P, wide_P = sides_P2.float().unbind(1)
        at_P2 = torch.stack(((columns_P + 0.5) / wide_P, (rows_P + 0.5) / high_P), 1) * 2 - 1
        found_1HP1 = grid_sample(
            table_1HLL,
            at_P2[None, :, None],
            mode=self.mode,
            align_corners=False,
            padding_mode="border",
        )
        return hidden_PH + found_1HP1[0, :, :, 0].T.to(weight_TH.dtype)


class Glm4v(PackedTower):
    """A GLM-4.1V vision tower that graphs can hold."""

    module_type = Glm4vVisionModel

    @classmethod
    def config(cls, size: EncoderSize) -> Glm4vVisionConfig:
        """Config of transformers for a size; its `intermediate_size` is the merger's."""
        return Glm4vVisionConfig(
            depth=size.depth,
            hidden_size=size.hidden,
            intermediate_size=size.merger,
            num_heads=size.heads,
            out_hidden_size=size.out,
            patch_size=size.rule.patch,
            temporal_patch_size=size.rule.temporal_patch,
            spatial_merge_size=size.rule.merge,
            image_size=size.position_side * size.rule.patch,
            attn_implementation="sdpa",
        )

    @classmethod
    def size_of(cls, name: str, module: Any, files: saved.Files) -> EncoderSize:
        """Size of a saved tower, from its config and its processor's file."""
        config = module.config
        return EncoderSize(
            name=name,
            family="glm4v",
            layout="packed",
            depth=config.depth,
            hidden=config.hidden_size,
            intermediate=config.out_hidden_size,
            gated=True,
            merger=config.intermediate_size,
            heads=config.num_heads,
            out=config.out_hidden_size,
            position_side=config.image_size // config.patch_size,
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            rule=packed.saved_rule(GLM4V_RULE, config, files),
            source=f"saved model {name!r}",
        )

    def _second_face(self, module: Any) -> Any:
        shown = super()._second_face(module)
        return faces.with_children(shown, {"embeddings": SidesEmbeddings(shown.embeddings)})

    def _arguments(self, grid_M13: Tensor, patches: int, segments: int) -> dict[str, Tensor]:
        merge = self.size.rule.merge
        made = metadatas.places(grid_M13, patches=patches, segments=segments, merge=merge)
        return {
            "position_ids": made.position_ids,
            "cu_seqlens": made.offsets,
            "sides": made.sides.contiguous(),
        }

    def _run(self, face: Any, pixels_PK: Tensor, given: dict[str, Any]) -> EncoderOutput:
        # The tower uses its grids for nothing but the embeddings, which here take sides.
        return self._output(face(pixels_PK, grid_thw=given.pop("sides"), **given))

    def _run_stock(self, pixels_TK: Tensor, grids: Sequence[Grid]) -> EncoderOutput:
        frames = [Grid(1, grid.h, grid.w) for grid in grids for _ in range(grid.t)]
        return super()._run_stock(pixels_TK, frames)
