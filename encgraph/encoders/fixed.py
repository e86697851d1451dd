"""The fixed layout: M slots of one shape, each encoded for itself; an item takes one slot or several.

A slot is an image at the encoder's resolution, a tile of one, or a window of audio. Slots never see
each other, so padding slots may hold anything; `fill` keeps them at zero. The shape is baked: an
encoder for another resolution is another instance, with graphs of its own.

Accounting: tokens are the output rows an item yields (pooled: those before, one row a slot comes out),
patches the positions its slots attend over (class and register tokens included), segments its slots.
A token budget holds `tokens // rows of a slot` slots, and so as many items of one slot.

Shape legend: M slots, N slots in use, R output rows a slot, W width.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from encgraph.encoders import faces, packed, pixels, rows
from encgraph.encoders.protocol import Buffers, EncoderOutput, EncoderSpec, Input
from encgraph.errors import require
from encgraph.records import Capacity, Item, Modality
from encgraph.sizes import EncoderSize, Grid, TokenRule

RunSlots = Callable[[Any, Tensor], Sequence[Tensor]]
"""Runs a module on slots, (N, *shape): the main output, then extras, each (N, R, W)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What is baked into a graph about one slot."""

    shape: tuple[int, ...]
    """Of its pixels: (C, H, W), or (mel bins, frames)."""
    rows: int
    """Output rows, before any pooling."""
    patches: int
    """Positions it attends over."""
    widths: tuple[int, ...]
    """Width of the main output, then of each extra."""
    grid: Grid
    """Patches along time, height and width."""
    rule: TokenRule
    """How a processor sizes an item."""
    modality: Modality = Modality.IMAGE
    most: int = 1
    """Most slots an item may take; over 1 for tiles and windows."""
    normalisation: pixels.Normalisation | None = None
    """What 8-bit pixels go through; None where only floats are taken."""


def image_slot(size: EncoderSize) -> Slot:
    """One square image, or tile of one, at the resolution of a size's rule."""
    rule = size.rule
    resolution = math.isqrt(rule.max_pixels)
    grid = Grid(1, resolution // rule.patch, resolution // rule.patch)
    return Slot(
        shape=(3, resolution, resolution),
        rows=rule.tokens((grid.h // rule.merge) * (grid.w // rule.merge)),
        patches=rule.patches(grid),
        widths=(size.out,),
        grid=grid,
        rule=rule,
        most=rule.max_tiles,
        normalisation=pixels.NORMALISATIONS.get(size.family),
    )


def patches_of(module: Any, pixels_N: Tensor) -> list[Tensor]:
    """Run a tower for the rows of its last hidden state."""
    return [module(pixels_N).last_hidden_state]


def pooled_of(module: Any, pixels_N: Tensor) -> list[Tensor]:
    """Run a tower for its pooled vector, one row a slot."""
    return [module(pixels_N).pooler_output[:, None]]


def whole(module: Any, pixels_N: Tensor) -> list[Tensor]:
    """Run a module that returns the rows themselves."""
    return [module(pixels_N)]


class Fixed:
    """A module of fixed input shape that graphs can hold."""

    def __init__(
        self,
        module: Any,
        slot: Slot,
        *,
        name: str,
        run: RunSlots,
        face: Callable[[Any], Any] = faces.itself,
        eager_forward: Literal["face", "stock"] = "face",
    ) -> None:
        """Wrap a module.

        Args:
            module: In eval mode; held, not changed.
            slot: What is baked.
            name: Name in records.
            run: How to run it.
            face: Makes what graphs capture of the module, parameters shared.
            eager_forward: "face" (what graphs capture) or "stock" (the untouched module).

        Raises:
            ValueError: If the switch has no such position or the module no parameters.
        """
        known = ("face", "stock")
        require(
            eager_forward in known, f"eager_forward must be one of {known}, got {eager_forward!r}"
        )
        self._weight = rows.weight_of(module)
        self._affines = pixels.Affines()
        self.slot, self.name = slot, name
        self._module, self._run, self._make_face = module, run, face
        self._face = faces.Face(module, face)
        self._eager = faces.Face(module, faces.itself) if eager_forward == "stock" else self._face

    @property
    def module(self) -> nn.Module:
        """The module itself."""
        return cast(nn.Module, self._module)

    @property
    def spec(self) -> EncoderSpec:
        """What is fixed about it."""
        return EncoderSpec(
            name=self.name,
            modalities=frozenset({self.slot.modality}),
            widths=self.slot.widths,
            dtype=self._weight.dtype,
            device=self._weight.device,
            rule=self.slot.rule,
            min_tokens=self.slot.rows,
            max_tokens=self.slot.rows * self.slot.most,
            attention="own",
            compiled=False,
            pooled=self.slot.rule.pooled,
        )

    def input(self, pixels: Tensor, *, request: int = 0) -> Input:
        """Make an input of one slot's pixels, or of several stacked, with its sizes.

        Raises:
            ValueError: If the shape is not the encoder's.
        """
        slots = self._slots(pixels)
        grid = self.slot.grid
        return Input(
            item=self._item(slots, request),
            pixels=pixels,
            grid=Grid(slots * grid.t, grid.h, grid.w),
        )

    def capacity(self, tokens: int) -> Capacity:
        """Capacity of a token budget: as many whole slots as it holds, at most each an item.

        Raises:
            ValueError: If it holds no slot.
        """
        height = self.slot.rows
        slots = tokens // height
        require(slots >= 1, f"a token budget must hold a slot of {height} tokens, got {tokens!r}")
        return Capacity(
            tokens=slots * height,
            patches=slots * self.slot.patches,
            items=slots,
            segments=slots,
            longest_segment=self.slot.patches,
            frames=slots,
        )

    def item_spec(self, value: Input) -> Item:
        """Sizes of one input; host only.

        Raises:
            ValueError: If the input does not fit the encoder.
        """
        self._check((value,))
        return self._item(self._slots(value.pixels), value.item.request)

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """Allocate zeroed slots, (M, *shape), as many as the token budget holds."""
        self._face.now()
        shape = capacity.tokens // self.slot.rows, *self.slot.shape
        return {"pixels": torch.zeros(shape, device=device, dtype=dtype)}

    @torch.no_grad()
    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Write inputs into the first slots in place and zero the rest; never synchronizes.

        Raises:
            ValueError: If an input does not fit the encoder (names the item), or there are too many.
        """
        self._check(inputs)
        pixels_M = buffers["pixels"]
        used = sum(self._slots(value.pixels) for value in inputs)
        require(
            used <= len(pixels_M), f"these buffers hold at most {len(pixels_M)} slots, got {used}"
        )
        self._copy(pixels_M, inputs)
        pixels_M[used:].zero_()

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode all slots: packed rows; those past the real ones are finite and meaningless."""
        assert len(buffers["pixels"]) == capacity.tokens // self.slot.rows, capacity
        made = self._packed(self._run(self._face.now(), buffers["pixels"]))
        count = self.spec.rows(capacity)
        main, *extra = (rows.lengthened(tensor, count) for tensor in made.tensors)
        return EncoderOutput(main=main, extra=tuple(extra))

    @torch.no_grad()
    def eager(self, inputs: Sequence[Input]) -> list[EncoderOutput]:
        """Encode inputs in one batch, ungraphed; owned outputs in order.

        Raises:
            ValueError: If an input does not fit the encoder; names the item.
        """
        self._check(inputs)
        if not inputs:
            return []
        items = [self._item(self._slots(value.pixels), 0) for value in inputs]
        pixels_N = self._weight.new_empty(sum(i.segments for i in items), *self.slot.shape)
        self._copy(pixels_N, inputs)
        made = self._packed(self._run(self._eager.now(), pixels_N))
        return packed.cut(made, [self.spec.rows(item) for item in items])

    def stock(self) -> "Fixed":
        """The same weights with the untouched module as `eager`."""
        return self if self._make_face is faces.itself else self._like(self._module)

    def oracle(self) -> "Fixed":
        """A float32 copy of the weights with the untouched module as `eager`."""
        return self._like(copy.deepcopy(self._module).float())

    def _like(self, module: Any) -> "Fixed":
        return Fixed(
            module,
            self.slot,
            name=self.name,
            run=self._run,
            face=self._make_face,
            eager_forward="stock",
        )

    def _item(self, slots: int, request: int) -> Item:
        shape, image = self.slot.shape, self.slot.modality is Modality.IMAGE
        return Item(
            modality=self.slot.modality,
            tokens=slots * self.slot.rows,
            patches=slots * self.slot.patches,
            segments=slots,
            longest_segment=self.slot.patches,
            width=shape[-1] if image and len(shape) > 1 else None,
            height=shape[-2] if image and len(shape) > 1 else None,
            request=request,
        )

    def _slots(self, pixels: Tensor) -> int:
        """Slots that pixels take."""
        shape = self.slot.shape
        given = tuple(pixels.shape)
        count = 1 if given == shape else given[0] if given[1:] == shape else 0
        stacked = f" or up to {self.slot.most} of it stacked" if self.slot.most > 1 else ""
        require(
            1 <= count <= self.slot.most,
            f"must have pixels of shape {shape!r}{stacked}, got {given!r}",
        )
        return count

    def _copy(self, pixels_M: Tensor, inputs: Sequence[Input]) -> None:
        sources = [value.pixels.view(-1, *self.slot.shape) for value in inputs]

        def affine() -> pixels.Affine | None:
            return self._affines.of(self.slot.normalisation, self.slot.shape, pixels_M.device)

        rows.copy_ends(pixels_M, sources, affine)

    def _packed(self, made: Sequence[Tensor]) -> EncoderOutput:
        main, *extra = (tensor.flatten(0, 1) for tensor in made)
        return EncoderOutput(main=main, extra=tuple(extra))

    def _check(self, inputs: Sequence[Input]) -> None:
        require(not self._module.training, "the encoder must be in eval mode; call .eval() on it")
        for index, value in enumerate(inputs):
            try:
                slots = self._slots(value.pixels)
                rows.require_floats(value.pixels, or_raw=self.slot.normalisation is not None)
                rows.require_sizes(value, tokens=slots * self.slot.rows)
            except ValueError as error:
                raise ValueError(f"item {index} {error}") from error
