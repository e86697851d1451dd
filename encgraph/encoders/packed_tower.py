"""A vision tower of transformers over packed patches, behind the encoder protocol; a family fills in.

The tower stays as it is and serves as the stock oracle. What graphs capture is a second face of it,
sharing its parameters: packed attention, and a linear patch embedding in place of the convolution.
What the tower would compute on the host it is given as keyword arguments, computed from a static
buffer of grids inside the captured region (`metadata="graph"`), or before each replay and copied, as
engines do (`metadata="host"`).

Shape legend: T real patches, P patches of a capacity, K patch width, M max items, S segments.
"""

import copy
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, Self, Unpack, cast

import torch
from torch import Tensor

from encgraph.attention import choose
from encgraph.encoders import compiling, faces, packed, pixels, rows, saved, towers
from encgraph.encoders import metadata as metadatas
from encgraph.encoders.packed_family import PackedFamily
from encgraph.encoders.protocol import Buffers, EncoderOutput, EncoderSpec, Input, Switches
from encgraph.errors import require
from encgraph.records import Capacity, Item
from encgraph.sizes import EncoderSize, Grid


class PackedTower(PackedFamily):
    """A packed vision tower that graphs can hold."""

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
        compiled: bool = False,
        fused: bool = False,
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
            attention_slab: Whether attention writes into a static buffer of its own, zeroed once a replay
                instead of once a block.
            compiled: Whether the repeated block is compiled, once for all layers and capacities.
            fused: Whether a compiled block has its passes joined by hand as well; see `fusing`.

        Raises:
            ValueError: If a switch has no such position, the attention cannot run here, or the
                blocks cannot be fused.
        """
        packed.check_switches(metadata=metadata, eager_forward=eager_forward, fill_rule=fill_rule)
        self._module = module
        chosen = choose.named(attention, device=self._weight.device, dtype=self._weight.dtype)
        self._registered = choose.register(chosen)
        self.size, self.name, self.attention = size, name or size.name, chosen.name
        self._affines = pixels.Affines()
        self.normalisation = pixels.NORMALISATIONS.get(size.family)
        self._takes = packed.Takes.of(size)
        self._metadata, self._eager, self._fill = metadata, eager_forward, fill_rule
        require(compiled or not fused, "fused needs compiled=True, got compiled=False")
        self._attention_slab, self._compiled, self._fused = attention_slab, compiled, fused
        self._faces = faces.Face(module, self._make_faces)

    @classmethod
    def load(
        cls,
        files: saved.Files,
        *,
        device: torch.device,
        dtype: torch.dtype,
        **switches: Unpack[Switches],
    ) -> Self:
        """Load the tower's weights and its processor's normalisation; see `PackedFamily.load`."""
        made = super().load(files, device=device, dtype=dtype, **switches)
        made.normalisation = pixels.of_processor(files.processor(), made.normalisation)
        return made

    @abstractmethod
    def _arguments(self, grid_M13: Tensor, patches: int, segments: int) -> dict[str, Any]:
        """Tensors the face is given, from padded grids: static shapes, no synchronization."""

    def _copy_pixels(self, rows_PK: Tensor, inputs: Sequence[Input]) -> None:
        """Write items end to end from row 0, normalising 8-bit ones; never waits."""

        def affine() -> pixels.Affine | None:
            return self._affines.of(self.normalisation, rows_PK.shape[1:], rows_PK.device)

        rows.copy_ends(rows_PK, [value.pixels for value in inputs], affine)

    def _limits(self, longest: int) -> dict[str, int]:
        """Host numbers the face is given, from the longest segment."""
        return {"max_seqlen": longest}

    @property
    def _weight(self) -> Tensor:
        return cast(Tensor, self._module.patch_embed.proj.weight)

    def _make_faces(self, module: Any) -> towers.Faces:
        face = faces.unaltered(self._second_face(module), module)
        if self._compiled:
            compiling.compile_blocks(self._repeated(face), fused=self._fused)
        return towers.Faces(eager=face, captured=self._captured_face(face))

    def _second_face(self, module: Any) -> Any:
        return towers.face(module, attention=self._registered)

    def _repeated(self, face: Any) -> Iterable[Any]:
        """The blocks of a face, all of one class."""
        return cast(Iterable[Any], face.blocks)

    def _captured_face(self, face: Any) -> Any:
        return face

    def _run(self, face: Any, pixels_PK: Tensor, given: dict[str, Any]) -> EncoderOutput:
        return self._output(face(pixels_PK, grid_thw=None, **given))

    def _run_stock(self, pixels_TK: Tensor, grids: Sequence[Grid]) -> EncoderOutput:
        grid_N3 = torch.tensor(grids, device=pixels_TK.device)
        return self._output(self._module(pixels_TK, grid_thw=grid_N3))

    def _output(self, made: Any) -> EncoderOutput:
        return EncoderOutput(main=made.pooler_output)

    @property
    def module(self) -> torch.nn.Module:
        """The tower itself."""
        return cast(torch.nn.Module, self._module)

    @property
    def spec(self) -> EncoderSpec:
        """What is fixed about it."""
        fixed = packed.spec(self.size, self.name, weight=self._weight, attention=self.attention)
        return replace(fixed, compiled=self._compiled, fused=self._fused)

    def item_spec(self, value: Input) -> Item:
        """Sizes of one input; host only.

        Raises:
            ValueError: If pixels and grid do not fit together or the encoder.
        """
        self._check((value,))
        return packed.item(value, self.size.rule)

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """Allocate static inputs, zeros and unused grids; leading dimensions grow with capacity."""
        self._faces.now()
        rows = capacity.patches
        made = {"pixels": torch.zeros(rows, self.size.patch_width, device=device, dtype=dtype)}
        if self._attention_slab:
            made["attention"] = torch.zeros(rows, self.size.hidden, device=device, dtype=dtype)
        if self._metadata == "host":
            return made | self._host_buffers(capacity, device, dtype)
        return made | {"grid": self._padded((), capacity.items).to(device)}

    def _host_buffers(
        self, capacity: Capacity, device: torch.device, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        unused = self._padded((), 1)
        made = self._arguments(unused, capacity.patches, capacity.segments)
        return {name: values.to(device) for name, values in made.items()}

    def _padded(self, grids: Sequence[Grid], items: int) -> Tensor:
        """Grids as a host tensor with unused rows up to `items` and one beyond."""
        unused = metadatas.padding_grid(self._takes.merge) * (items + 1 - len(grids))
        numbers = array("q", [*chain.from_iterable(grids), *unused])
        # A third of what torch.tensor takes for a list of so few numbers.
        return torch.frombuffer(numbers, dtype=torch.int64).view(-1, 3)

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
        self._copy_pixels(buffers["pixels"], inputs)
        grids = [value.grid for value in inputs]
        if self._metadata == "host":
            with torch.no_grad():
                self._fill_host_metadata(buffers, grids)
            return
        most = buffers["grid"].shape[0] - 1
        require(len(grids) <= most, f"these buffers hold at most {most} items, got {len(grids)}")
        metadatas.copy_into(buffers["grid"], self._padded(grids, most))

    def _fill_host_metadata(self, buffers: Buffers, grids: Sequence[Grid]) -> None:
        segments = len(buffers["cu_seqlens"]) - 1
        padded = self._padded(grids, len(grids))
        for name, values in self._arguments(padded, len(buffers["pixels"]), segments).items():
            metadatas.copy_into(buffers[name], values)

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode the buffers: packed rows; those past the real ones are finite and meaningless.

        With the "prefix" rule padding pixels are zeroed here, whatever they hold, NaN included; with
        "zero_and_copy" they are what `fill` left, zeros.
        """
        pixels_PK = buffers["pixels"]
        assert len(pixels_PK) == capacity.patches, (len(pixels_PK), capacity)
        if self._metadata == "graph":
            given = self._arguments(buffers["grid"], capacity.patches, capacity.segments)
        else:
            given = self._host_arguments(buffers)
        if self._fill == "prefix":
            rows_P = torch.arange(capacity.patches, device=pixels_PK.device, dtype=torch.int32)
            live_P1 = (rows_P < given["cu_seqlens"][-1])[:, None]
            pixels_PK = torch.where(live_P1, pixels_PK, 0.0)
        if self._attention_slab:
            given["attention_output"] = self._cleared(buffers["attention"])
        limits = self._limits(capacity.longest_segment)
        return self._run(self._faces.now().captured, pixels_PK, {**given, **limits})

    def _cleared(self, attention_PH: Tensor) -> Tensor:
        """The slab without what an earlier batch left in rows that attention will not write.

        Kernels load whole tiles of values and multiply those of no segment by zero: NaN would spread.
        """
        # Detached, a prefix view of the slab is a tensor like eager's to a compiled block.
        return attention_PH.zero_().detach()

    def _host_arguments(self, buffers: Buffers) -> dict[str, Any]:
        return {n: t for n, t in buffers.items() if n not in ("pixels", "attention")}

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
        self._copy_pixels(pixels_TK, inputs)
        grids = [value.grid for value in inputs]
        made = (self._run_stock if self._eager == "stock" else self._run_varlen)(pixels_TK, grids)
        return packed.cut(made, [len(v.pixels) // self.size.rule.merge_area for v in inputs])

    def _run_varlen(self, pixels_TK: Tensor, grids: Sequence[Grid]) -> EncoderOutput:
        given: dict[str, Any] = self._eager_arguments(grids)
        # All rows are real, so attention fills every row of a scratch tensor that blocks share.
        given["attention_output"] = pixels_TK.new_empty(len(pixels_TK), self.size.hidden)
        limits = self._limits(max(grid.h * grid.w for grid in grids))
        return self._run(self._faces.now().eager, pixels_TK, {**given, **limits})

    def _eager_arguments(self, grids: Sequence[Grid]) -> dict[str, Tensor]:
        """What the face is given for exactly these grids: on the device, as a graph would have it."""
        grid_N13 = metadatas.to_device(self._padded(grids, len(grids)), self._weight.device)
        patches = sum(grid.t * grid.h * grid.w for grid in grids)
        return self._arguments(grid_N13, patches, sum(grid.t for grid in grids))

    def stock(self) -> Self:
        """The same weights with the untouched forward as `eager`: the oracle of the same dtype."""
        return self._oracle(self._module)

    def oracle(self) -> Self:
        """A float32 copy of the weights with the untouched forward as `eager`."""
        return self._oracle(copy.deepcopy(self._module).float())

    def _oracle(self, module: Any) -> Self:
        made = type(self)(
            module, self.size, name=self.name, attention="sdpa", eager_forward="stock"
        )
        made.normalisation = self.normalisation
        return made

    def _check(self, inputs: Sequence[Input]) -> None:
        require(not self._module.training, "the encoder must be in eval mode; call .eval() on it")
        takes, raw = self._takes, self.normalisation is not None
        for index, value in enumerate(inputs):
            wrong = packed.wrong(value, takes, raw=raw)
            if wrong:
                raise ValueError(f"item {index} {wrong}")
