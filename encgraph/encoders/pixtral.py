"""Pixtral's vision tower from transformers: its modules unmodified, its forward packed.

The tower's own forward takes padded images and sides as host numbers, which a graph would bake, so
what is captured is written out: patch embedding, norm and rotary embedding of the tower around its
transformer, which is given offsets and no mask. Items are flat patches in raster order.

With flash attention the untouched forward of transformers 5.17 derives wrong offsets from its
positions; the stock oracle here always runs under "sdpa", which builds a mask.

Shape legend: T real patches, P patches of a capacity, C channels x patch x patch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.models.pixtral.configuration_pixtral import PixtralVisionConfig
from transformers.models.pixtral.modeling_pixtral import PixtralVisionModel

from encgraph.encoders import faces, saved, towers
from encgraph.encoders import metadata as metadatas
from encgraph.encoders.packed_tower import PackedTower
from encgraph.encoders.protocol import EncoderOutput
from encgraph.published.pixtral import rule
from encgraph.sizes import EncoderSize, Grid


class Pixtral(PackedTower):
    """A Pixtral vision tower that graphs can hold."""

    module_type = PixtralVisionModel
    prefixes = ("model.vision_tower.", "vision_tower.", "vision_encoder.")
    short: ClassVar[Mapping[str, Any]] = {"num_hidden_layers": 1}

    @classmethod
    def config(cls, size: EncoderSize) -> PixtralVisionConfig:
        """Config of transformers for a size."""
        settings = dict(size.settings)
        return PixtralVisionConfig(
            num_hidden_layers=size.depth,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_attention_heads=size.heads,
            patch_size=size.rule.patch,
            image_size=size.rule.longest_side(size.rule.max_pixels) * size.rule.patch,
            hidden_act=settings["hidden_act"],
            rope_parameters={"rope_type": "axial", "rope_theta": settings["rope_theta"]},
            attn_implementation="sdpa",
        )

    @classmethod
    def size_of(cls, name: str, module: Any, files: saved.Files) -> EncoderSize:
        """Size of a saved tower, from its config and its processor's file."""
        config = module.config
        edge = files.processor().get("size", {}).get("longest_edge", config.image_size)
        return EncoderSize(
            name=name,
            family="pixtral",
            layout="packed",
            depth=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            out=config.hidden_size,
            gated=True,
            settings=(
                ("hidden_act", config.hidden_act),
                ("rope_theta", config.rope_parameters["rope_theta"]),
            ),
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            rule=rule(edge, config.patch_size),
            source=f"saved model {name!r}",
        )

    @property
    def _weight(self) -> Tensor:
        weight: Tensor = self._module.patch_conv.weight
        return weight

    def _second_face(self, module: Any) -> Any:
        config = towers.attention_config(module.config, self._registered)
        layers = nn.ModuleList(
            towers.with_config(layer, "attention", config) for layer in module.transformer.layers
        )
        return faces.with_children(
            module,
            {
                "patch_conv": towers.LinearPatchEmbed(module.patch_conv),
                "transformer": faces.with_children(module.transformer, {"layers": layers}),
            },
        )

    def _repeated(self, face: Any) -> Iterable[Any]:
        layers: Iterable[Any] = face.transformer.layers
        return layers

    def _arguments(self, grid_M13: Tensor, patches: int, segments: int) -> dict[str, Tensor]:
        made = metadatas.places(grid_M13, patches=patches, segments=segments, merge=1)
        return {"position_ids": made.position_ids, "cu_seqlens": made.offsets}

    def _run(self, face: Any, pixels_PK: Tensor, given: dict[str, Any]) -> EncoderOutput:
        hidden_1PH = face.ln_pre(face.patch_conv(pixels_PK)[None])
        offsets, longest = given["cu_seqlens"], given["max_seqlen"]
        made = face.transformer(
            hidden_1PH,
            attention_mask=None,
            position_embeddings=face.patch_positional_embedding(hidden_1PH, given["position_ids"]),
            cu_seq_lens_q=offsets,
            cu_seq_lens_k=offsets,
            max_length_q=longest,
            max_length_k=longest,
            attention_output=given.get("attention_output"),
        )
        return self._output(made)

    def _run_stock(self, pixels_TC: Tensor, grids: Sequence[Grid]) -> EncoderOutput:
        """The untouched forward over padded images, put together from their patches."""
        patch = self.size.rule.patch
        sides = [(grid.h * patch, grid.w * patch) for grid in grids]
        most = (max(h for h, _ in sides), max(w for _, w in sides))
        images_N3HW = pixels_TC.new_zeros(len(grids), 3, *most)
        parts = torch.split(pixels_TC, [grid.h * grid.w for grid in grids])
        for image, part, grid in zip(images_N3HW, parts, grids, strict=True):
            blocks = part.view(grid.h, grid.w, 3, patch, patch).permute(2, 0, 3, 1, 4)
            image[:, : grid.h * patch, : grid.w * patch] = blocks.flatten(3).flatten(1, 2)
        return self._output(self._module(images_N3HW, image_sizes=sides))

    def _output(self, made: Any) -> EncoderOutput:
        return EncoderOutput(main=made.last_hidden_state[0])
