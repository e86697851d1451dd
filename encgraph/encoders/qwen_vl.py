"""Qwen3-VL's vision tower from transformers, unmodified, behind the encoder protocol.

Shape legend: T real patches, P patches of a capacity, K patch width, H hidden, D head width, M max
items, S segments.
"""

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from encgraph import sizes
from encgraph.attention import choose
from encgraph.encoders import metadata as metadatas
from encgraph.encoders import packed, towers
from encgraph.encoders.metadata import Metadata
from encgraph.encoders.protocol import Buffers, EncoderOutput, EncoderSpec, Input
from encgraph.errors import require
from encgraph.records import Capacity, Item, Modality
from encgraph.sizes import EncoderSize, Grid

CHOICES = {
    "metadata": ("graph", "host"),
    "eager_forward": ("varlen", "stock"),
    "fill_rule": ("prefix", "zero_and_copy"),
}
LONGEST_SIDE = 4096
"""Rows of the rotary tables; the largest legal image has under 3,700 patches along a side."""


class QwenVL:
    """A Qwen3-VL vision tower that graphs can hold.

    The tower stays as it is and serves as the stock oracle. What graphs capture is a second face of
    it, sharing its parameters: packed attention, and a linear patch embedding in place of the Conv3d.

    With `metadata="graph"` a static buffer of grids is all the captured region needs besides pixels.
    With `metadata="host"` position rows and rotary tables are computed before each replay and copied,
    as vLLM does; the captured forward takes them from the buffers, at the price of one multiplication
    by one and one sum over a single tap.
    """

    def __init__(  # noqa: PLR0913 - the switches that strategies set
        self,
        module: Any,
        size: EncoderSize,
        *,
        name: str = "",
        attention: str = "auto",
        metadata: Literal["graph", "host"] = "graph",
        eager_forward: Literal["varlen", "stock"] = "varlen",
        fill_rule: Literal["prefix", "zero_and_copy"] = "prefix",
        attention_slab: bool = True,
    ) -> None:
        """Wrap a tower.

        Args:
            module: The transformers tower, in eval mode; held, not changed.
            size: Its sizes and token rule.
            name: Name in records; empty means the size's.
            attention: A name of `attention.choose`.
            metadata: "graph" (computed inside the captured region) or "host" (before each replay).
            eager_forward: "varlen" (packed attention) or "stock" (the untouched forward).
            fill_rule: "prefix" (write what changed; the forward zeroes padding rows) or "zero_and_copy".
            attention_slab: Whether attention writes into a static buffer of its own, zeroed once.

        Raises:
            ValueError: If a switch has no such position, or the attention cannot run here.
        """
        set_to = {"metadata": metadata, "eager_forward": eager_forward, "fill_rule": fill_rule}
        for switch, position in set_to.items():
            known = CHOICES[switch]
            require(position in known, f"{switch} must be one of {known}, got {position!r}")
        weight = module.patch_embed.proj.weight
        chosen = choose.named(attention, device=weight.device, dtype=weight.dtype)
        registered = choose.register(chosen)
        self.size, self.name, self.attention = size, name or size.name, chosen.name
        self._module, self._weight = module, weight
        self._metadata, self._eager, self._fill = metadata, eager_forward, fill_rule
        self._attention_slab = attention_slab
        self._face = towers.face(module, attention=registered)
        ready = metadata == "host"
        self._captured = towers.with_ready_positions(self._face) if ready else self._face

    @property
    def module(self) -> torch.nn.Module:
        """The tower itself."""
        module: torch.nn.Module = self._module
        return module

    @property
    def spec(self) -> EncoderSpec:
        """What is fixed about it."""
        rule = self.size.rule
        return EncoderSpec(
            name=self.name,
            modalities=frozenset({Modality.IMAGE, Modality.VIDEO}),
            widths=(self.size.out,) * (1 + len(self.size.deepstack)),
            dtype=self._weight.dtype,
            device=self._weight.device,
            rule=rule,
            min_tokens=rule.min_pixels // rule.factor**2,
            max_tokens=rule.max_pixels // rule.factor**2,
            attention=self.attention,
            compiled=False,
        )

    def item_spec(self, value: Input) -> Item:
        """Sizes of one input; host only.

        Raises:
            ValueError: If pixels and grid do not fit together or the encoder.
        """
        self._check((value,))
        known = value.item
        return sizes.item(
            value.grid,
            self.size.rule,
            request=known.request,
            width=known.width or 0,
            height=known.height or 0,
        )

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """Allocate static inputs, zeros and unused grids; leading dimensions grow with capacity."""
        rows, hidden = capacity.patches, self.size.hidden
        widths = {"pixels": self.size.patch_width}
        if self._attention_slab:
            widths["attention"] = hidden
        if self._metadata == "host":
            widths["positions"] = hidden
        made = {n: torch.zeros(rows, w, device=device, dtype=dtype) for n, w in widths.items()}
        if self._metadata == "graph":
            unused = [metadatas.padding_grid(self.size.rule.merge)] * (capacity.items + 1)
            return made | {"grid": torch.tensor(unused, device=device)}
        for name in ("cos", "sin"):
            made[name] = torch.zeros(rows, hidden // self.size.heads, device=device)
        made["offsets"] = torch.zeros(capacity.segments + 1, device=device, dtype=torch.int32)
        return made

    @torch.no_grad()
    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Write inputs into static buffers in place; the host never waits for the device.

        Raises:
            ValueError: If an input does not fit the encoder; names the item.
        """
        self._check(inputs)
        if self._fill == "zero_and_copy":
            for name, buffer in buffers.items():
                if name != "attention":
                    buffer.zero_()
        packed.copy_pixels(buffers["pixels"], inputs)
        grids = [value.grid for value in inputs]
        if self._metadata == "host":
            self._fill_host_metadata(buffers, grids)
            return
        grid_M13 = buffers["grid"]
        require(
            len(grids) < len(grid_M13),
            f"these buffers hold at most {len(grid_M13) - 1} items, got {len(grids)}",
        )
        unused = metadatas.padding_grid(self.size.rule.merge)
        padded = grids + [unused] * (len(grid_M13) - len(grids))
        metadatas.copy_into(grid_M13, torch.tensor(padded))

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode the buffers: packed rows; those past the real ones are finite and meaningless.

        With the "prefix" rule padding pixels are zeroed here, whatever they hold, NaN included; with
        "zero_and_copy" they are what `fill` left, zeros.
        """
        pixels_PK = buffers["pixels"]
        assert len(pixels_PK) == capacity.patches, (len(pixels_PK), capacity)
        if self._metadata == "graph":
            made = metadatas.build(
                buffers["grid"],
                patches=capacity.patches,
                segments=capacity.segments,
                side=self.size.position_side,
                merge=self.size.rule.merge,
            )
            given = towers.arguments(made)
        else:
            given = towers.ready_arguments(buffers)
        if self._fill == "prefix":
            rows_P = torch.arange(capacity.patches, device=pixels_PK.device, dtype=torch.int32)
            live_P1 = (rows_P < given["cu_seqlens"][-1])[:, None]
            pixels_PK = torch.where(live_P1, pixels_PK, 0.0)
        if self._attention_slab:
            given["attention_output"] = buffers["attention"]
        longest = capacity.longest_segment
        return _output(self._captured(pixels_PK, grid_thw=None, max_seqlen=longest, **given))

    @torch.no_grad()
    def eager(self, inputs: Sequence[Input]) -> list[EncoderOutput]:
        """Encode inputs batched and ungraphed; owned outputs in order.

        Raises:
            ValueError: If an input does not fit the encoder; names the item.
        """
        self._check(inputs)
        if not inputs:
            return []
        total = sum(len(value.pixels) for value in inputs)
        pixels_TK = self._weight.new_empty(total, self.size.patch_width)
        packed.copy_pixels(pixels_TK, inputs)
        grids = [value.grid for value in inputs]
        run = self._run_stock if self._eager == "stock" else self._run_varlen
        tokens = [len(value.pixels) // self.size.rule.merge_area for value in inputs]
        return packed.cut(run(pixels_TK, grids), tokens)

    def stock(self) -> "QwenVL":
        """The same weights with the untouched forward as `eager`: the oracle of the same dtype."""
        return QwenVL(
            self._module, self.size, name=self.name, attention="sdpa", eager_forward="stock"
        )

    def oracle(self) -> "QwenVL":
        """A float32 copy of the weights with the untouched forward as `eager`."""
        module = copy.deepcopy(self._module).float()
        return QwenVL(module, self.size, name=self.name, attention="sdpa", eager_forward="stock")

    def _run_stock(self, pixels_TK: Tensor, grids: Sequence[Grid]) -> EncoderOutput:
        grid_N3 = torch.tensor(grids, device=pixels_TK.device)
        return _output(self._module(pixels_TK, grid_thw=grid_N3))

    def _run_varlen(self, pixels_TK: Tensor, grids: Sequence[Grid]) -> EncoderOutput:
        given = towers.arguments(self._on_host(grids))
        # All rows are real, so attention fills every row of a scratch tensor that blocks share.
        given["attention_output"] = pixels_TK.new_empty(len(pixels_TK), self.size.hidden)
        longest = max(grid.h * grid.w for grid in grids)
        return _output(self._face(pixels_TK, grid_thw=None, max_seqlen=longest, **given))

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

    @cached_property
    def _rotary_tables(self) -> tuple[Tensor, Tensor]:
        """Cos and sin of every position along one side, (positions, D / 4)."""
        positions = torch.arange(LONGEST_SIDE, device=self._weight.device)
        cos, sin = self._module.rotary_pos_emb(self._weight, positions[:, None].expand(-1, 2))
        quarter = cos.shape[1] // 4
        return cos[:, :quarter].contiguous(), sin[:, :quarter].contiguous()

    def _check(self, inputs: Sequence[Input]) -> None:
        require(not self._module.training, "the encoder must be in eval mode; call .eval() on it")
        width, merge = self.size.patch_width, self.size.rule.merge
        for index, value in enumerate(inputs):
            wrong = packed.wrong(value, width=width, merge=merge)
            require(wrong is None, f"item {index} {wrong}")


def _output(made: Any) -> EncoderOutput:
    return EncoderOutput(main=made.pooler_output, extra=tuple(made.deepstack_features))
