"""Qwen2-VL's vision tower from transformers, unmodified."""

from typing import Any

from torch import Tensor
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

from encgraph.encoders import metadata as metadatas
from encgraph.encoders import packed, saved
from encgraph.encoders.packed_tower import PackedTower
from encgraph.published.qwen_vl import QWEN2_VL_RULE
from encgraph.sizes import EncoderSize


class Qwen2VL(PackedTower):
    """A Qwen2-VL vision tower that graphs can hold."""

    module_type = Qwen2VisionTransformerPretrainedModel

    @classmethod
    def config(cls, size: EncoderSize) -> Qwen2VLVisionConfig:
        """Config of transformers for a size; its `hidden_size` is the width of an output token."""
        return Qwen2VLVisionConfig(
            depth=size.depth,
            embed_dim=size.hidden,
            mlp_ratio=size.intermediate // size.hidden,
            num_heads=size.heads,
            hidden_size=size.out,
            patch_size=size.rule.patch,
            temporal_patch_size=size.rule.temporal_patch,
            spatial_merge_size=size.rule.merge,
            attn_implementation="sdpa",
        )

    @classmethod
    def size_of(cls, name: str, module: Any, files: saved.Files) -> EncoderSize:
        """Size of a saved tower, from its config and its processor's file."""
        config = module.config
        return EncoderSize(
            name=name,
            family="qwen2-vl",
            layout="packed",
            depth=config.depth,
            hidden=config.embed_dim,
            intermediate=config.embed_dim * config.mlp_ratio,
            heads=config.num_heads,
            out=config.hidden_size,
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            rule=packed.saved_rule(QWEN2_VL_RULE, config, files),
            source=f"saved model {name!r}",
        )

    def _arguments(self, grid_M13: Tensor, patches: int, segments: int) -> dict[str, Tensor]:
        merge = self.size.rule.merge
        made = metadatas.places(grid_M13, patches=patches, segments=segments, merge=merge)
        return {"position_ids": made.position_ids, "cu_seqlens": made.offsets}
