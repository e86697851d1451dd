"""Qwen2.5-VL's vision tower from transformers, unmodified: most blocks attend within windows.

The tower reorders tokens window by window and back; what it returns is in raster order. Windows are
no dimension of a capacity: their number is bounded by its tokens and segments (`windows.most`).
"""

from typing import Any

from torch import Tensor
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel,
)

from encgraph.encoders import metadata as metadatas
from encgraph.encoders import packed, saved, windows
from encgraph.encoders.packed_tower import PackedTower
from encgraph.published.qwen_vl import QWEN2_VL_RULE
from encgraph.sizes import EncoderSize


class Qwen25VL(PackedTower):
    """A Qwen2.5-VL vision tower that graphs can hold."""

    module_type = Qwen2_5_VisionTransformerPretrainedModel

    @classmethod
    def config(cls, size: EncoderSize) -> Qwen2_5_VLVisionConfig:
        """Config of transformers for a size."""
        return Qwen2_5_VLVisionConfig(
            depth=size.depth,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_heads=size.heads,
            out_hidden_size=size.out,
            patch_size=size.rule.patch,
            temporal_patch_size=size.rule.temporal_patch,
            spatial_merge_size=size.rule.merge,
            window_size=size.window,
            fullatt_block_indexes=list(size.full_attention),
            attn_implementation="sdpa",
        )

    @classmethod
    def size_of(cls, name: str, module: Any, files: saved.Files) -> EncoderSize:
        """Size of a saved tower, from its config and its processor's file."""
        config = module.config
        return EncoderSize(
            name=name,
            family="qwen2.5-vl",
            layout="packed",
            depth=config.depth,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_heads,
            out=config.out_hidden_size,
            gated=True,
            window=config.window_size,
            full_attention=tuple(config.fullatt_block_indexes),
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            rule=packed.saved_rule(QWEN2_VL_RULE, config, files),
            source=f"saved model {name!r}",
        )

    @property
    def _side(self) -> int:
        """Side of a window in tokens."""
        return self.size.window // self.size.rule.factor

    def _limits(self, longest: int) -> dict[str, int]:
        whole = self._side**2 * self.size.rule.merge_area
        return {"max_seqlen": longest, "max_window_seqlen": min(whole, longest)}

    def _arguments(self, grid_M13: Tensor, patches: int, segments: int) -> dict[str, Tensor]:
        rule, tokens = self.size.rule, patches // self.size.rule.merge_area
        made = metadatas.places(grid_M13, patches=patches, segments=segments, merge=rule.merge)
        cut = windows.build(
            grid_M13,
            tokens=tokens,
            windows=windows.most(tokens, segments, side=self._side),
            side=self._side,
            merge=rule.merge,
        )
        return {
            "position_ids": made.position_ids,
            "cu_seqlens": made.offsets,
            "window_index": cut.index,
            "cu_window_seqlens": cut.offsets,
        }
