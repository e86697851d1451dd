"""Qwen3-VL's vision tower from transformers, unmodified, behind the encoder protocol.

Shape legend: T real patches, P patches of a capacity, H hidden, D head width, M max items, S segments.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import Qwen3VLVisionModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig

from encgraph.encoders import fronts, packed, saved, towers
from encgraph.encoders import metadata as metadatas
from encgraph.encoders.metadata import Metadata
from encgraph.encoders.packed_tower import PackedTower
from encgraph.encoders.protocol import Buffers, EncoderOutput
from encgraph.records import Capacity
from encgraph.sizes import QWEN3_VL_RULE, EncoderSize, Grid

LONGEST_SIDE = 4096
"""Rows of the rotary tables; the largest legal image has under 3,700 patches along a side."""


class QwenVL(PackedTower):
    """A Qwen3-VL vision tower that graphs can hold.

    With `metadata="graph"` a static buffer of grids is all the captured region needs besides pixels.
    With `metadata="host"` position rows and rotary tables are computed before each replay and copied,
    as vLLM does; the captured forward takes them from the buffers, at the price of one multiplication
    by one and one sum over a single tap.
    """

    module_type = Qwen3VLVisionModel
    short: ClassVar[Mapping[str, Any]] = {
        "depth": 1,
        "deepstack_visual_indexes": [],
        "num_position_embeddings": 1,
    }

    _tables: tuple[Tensor, Tensor]
    _tables_of: tuple[object, ...] = ()
    _tables_at: list[object]

    @classmethod
    def config(cls, size: EncoderSize) -> Qwen3VLVisionConfig:
        """Config of transformers for a size."""
        return Qwen3VLVisionConfig(
            depth=size.depth,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_heads=size.heads,
            out_hidden_size=size.out,
            patch_size=size.rule.patch,
            temporal_patch_size=size.rule.temporal_patch,
            spatial_merge_size=size.rule.merge,
            num_position_embeddings=size.position_side**2,
            deepstack_visual_indexes=list(size.deepstack),
            attn_implementation="sdpa",
        )

    @classmethod
    def size_of(cls, name: str, module: Any, files: saved.Files) -> EncoderSize:
        """Size of a saved tower, from its config and its processor's file."""
        config = module.config
        return EncoderSize(
            name=name,
            family="qwen3-vl",
            layout="packed",
            depth=config.depth,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_heads,
            out=config.out_hidden_size,
            deepstack=tuple(config.deepstack_visual_indexes),
            position_side=math.isqrt(config.num_position_embeddings),
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            rule=packed.saved_rule(QWEN3_VL_RULE, config, files),
            source=f"saved model {name!r}",
        )

    def _output(self, made: Any) -> EncoderOutput:
        return EncoderOutput(main=made.pooler_output, extra=tuple(made.deepstack_features))

    def _captured_face(self, face: Any) -> Any:
        ready = self._metadata == "host" or self._fused
        return towers.with_ready_positions(face) if ready else face

    @cached_property
    def _front(self) -> fronts.Front:
        return fronts.compiled(side=self.size.position_side, merge=self.size.rule.merge)

    def _arguments(self, grid_M13: Tensor, patches: int, segments: int) -> dict[str, Any]:
        if self._fused:
            rows_PH, cos_PD, sin_PD, offsets_S1 = self._front(
                self._faces.now().eager, grid_M13, patches, segments
            )
            ready = {"positions": rows_PH, "cos": cos_PD, "sin": sin_PD, "offsets": offsets_S1}
            return towers.ready_arguments(ready)
        made = metadatas.build(
            grid_M13,
            patches=patches,
            segments=segments,
            side=self.size.position_side,
            merge=self.size.rule.merge,
        )
        return towers.arguments(made)

    def _host_arguments(self, buffers: Buffers) -> dict[str, Any]:
        return towers.ready_arguments(buffers)

    def _host_buffers(
        self, capacity: Capacity, device: torch.device, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        rows, hidden = capacity.patches, self.size.hidden
        made = {"positions": torch.zeros(rows, hidden, device=device, dtype=dtype)}
        for name in ("cos", "sin"):
            made[name] = torch.zeros(
                rows, hidden // self.size.heads, device=device, dtype=torch.float32
            )
        made["offsets"] = torch.zeros(capacity.segments + 1, device=device, dtype=torch.int32)
        return made

    def _eager_arguments(self, grids: Sequence[Grid]) -> dict[str, Tensor]:
        return towers.arguments(self._on_host(grids))

    def _on_host(self, grids: Sequence[Grid], segments: int = 0) -> Metadata:
        return metadatas.host(
            grids,
            side=self.size.position_side,
            merge=self.size.rule.merge,
            device=self._weight.device,
            segments=segments,
        )

    @torch.no_grad()
    def host_metadata(self, grids: Sequence[Grid], *, segments: int) -> dict[str, Tensor]:
        """What metadata="host" computes before a replay, on the device, for at least one grid.

        Returns:
            positions (T, H) in the weights' dtype, cos and sin (T, D) float32, offsets (S + 1,) int32.
        """
        made = self._on_host(grids, segments=segments)
        taps_T4H = self._module.pos_embed(made.interp_indices)
        rows_TH = (taps_T4H * made.interp_weights[:, :, None]).sum(1).to(taps_T4H.dtype)
        cos, sin = (table[made.position_ids].flatten(1) for table in self._rotary_tables)
        return {
            "positions": rows_TH,
            "cos": torch.cat((cos, cos), 1),
            "sin": torch.cat((sin, sin), 1),
            "offsets": made.offsets,
        }

    def _fill_host_metadata(self, buffers: Buffers, grids: Sequence[Grid]) -> None:
        if not grids:
            buffers["offsets"].zero_()
            return
        made = self.host_metadata(grids, segments=len(buffers["offsets"]) - 1)
        for name, values in made.items():
            buffers[name][: len(values)].copy_(values)

    @property
    def _rotary_tables(self) -> tuple[Tensor, Tensor]:
        """Cos and sin of every position along one side, (positions, D / 4).

        Made again where the tower's rotary embedding, or a buffer bound in it, is another or was
        written to; always where a buffer keeps no count of that, as those made in inference mode.
        """
        rotary = self._module.rotary_pos_emb
        made_of = (rotary, *rotary.buffers())
        made_at = [id(rotary), *map(_written, made_of[1:])]
        if not self._tables_of or self._tables_at != made_at:
            positions = torch.arange(LONGEST_SIDE, device=self._weight.device)
            cos, sin = rotary(self._weight, positions[:, None].expand(-1, 2))
            quarter = cos.shape[1] // 4
            self._tables = cos[:, :quarter].contiguous(), sin[:, :quarter].contiguous()
            self._tables_of, self._tables_at = made_of, made_at
        return self._tables


def _written(tensor: Tensor) -> tuple[object, ...]:
    """What differs once a tensor that is kept alive was written to or moved."""
    version = object() if tensor.is_inference() else tensor._version
    return id(tensor), tensor.data_ptr(), version
