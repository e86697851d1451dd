"""SigLIP 2 NaFlex, batched and ragged: one padded row of patches an item, told apart by its shape.

Buffers are (M, L, K) flattened patches and (M, 2) shapes; L, the most patches an item may have, is
baked. Positions are interpolated from the table inside the graph, with the antialiasing of torch's
`interpolate`, so a table edited in place is seen. The mask comes from the shapes and is handed to the
tower ready made: asked for one, it would look at the contents and wait.

Unused slots hold one zero patch, so that no row of attention is fully masked.

Outputs are the pooled vector of an item, or under a rule that does not pool its patches, packed.

Shape legend: M max items, L patches a slot, K patch width, H hidden, S side of the table.
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn
from transformers import Siglip2VisionConfig, Siglip2VisionModel

from encgraph.encoders import building, faces, naflex_rows, packed, rows, saved
from encgraph.encoders.fixed_family import counted, eager_of, saved_name
from encgraph.encoders.metadata import copy_into
from encgraph.encoders.protocol import Buffers, EncoderOutput, EncoderSpec, Input, Switches
from encgraph.errors import require
from encgraph.published.images import naflex_rule
from encgraph.records import Capacity, Item, Modality
from encgraph.sizes import EncoderSize, Grid

MAX_PATCHES = 256
"""Most patches of an item, the processor's default."""


class NaFlex:
    """A SigLIP 2 NaFlex tower that graphs can hold."""

    def __init__(
        self,
        module: Any,
        size: EncoderSize,
        *,
        name: str = "",
        eager_forward: Literal["face", "stock"] = "face",
    ) -> None:
        """Wrap a tower.

        Args:
            module: A `Siglip2VisionModel` in eval mode; held, not changed.
            size: Its size; the rule gives the most patches of an item, and whether it is pooled.
            name: Name in records; empty means the size's.
            eager_forward: "face" (as captured) or "stock" (the untouched forward).
        """
        self.size, self.name = size, name or size.name
        self.length = size.rule.max_pixels // size.rule.patch**2
        self._module, self._eager = module, eager_forward
        self._face = faces.Face(module, naflex_rows.interpolated)

    @property
    def module(self) -> nn.Module:
        """The tower itself."""
        module: nn.Module = self._module
        return module

    @property
    def _weight(self) -> Tensor:
        weight: Tensor = self._module.embeddings.patch_embedding.weight
        return weight

    @property
    def spec(self) -> EncoderSpec:
        """What is fixed about it."""
        return EncoderSpec(
            name=self.name,
            modalities=frozenset({Modality.IMAGE}),
            widths=(self.size.out,),
            dtype=self._weight.dtype,
            device=self._weight.device,
            rule=self.size.rule,
            min_tokens=1,
            max_tokens=self.length,
            attention="own",
            compiled=False,
            pooled=self.size.rule.pooled,
        )

    def input(self, pixels: Tensor, shape: tuple[int, int], *, request: int = 0) -> Input:
        """Make an input of one image's patches, (h x w, K) row by row, and its shape (h, w).

        Raises:
            ValueError: If they do not fit together or the encoder.
        """
        grid = Grid(1, *shape)
        self._check_one(pixels, grid)
        return Input(item=self._item(grid, request), pixels=pixels, grid=grid)

    def capacity(self, items: int) -> Capacity:
        """Capacity of so many items, each of up to the most patches."""
        return Capacity(
            tokens=items * self.length,
            patches=items * self.length,
            items=items,
            segments=items,
            longest_segment=self.length,
            frames=items,
        )

    def item_spec(self, value: Input) -> Item:
        """Sizes of one input; host only. It takes a whole slot, whatever its patches.

        Raises:
            ValueError: If the input does not fit the encoder.
        """
        self._check((value,))
        return self._item(value.grid, value.item.request)

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """Allocate zeroed patches (M, L, K) and shapes (M, 2) of one patch."""
        self._face.now()
        items, width = capacity.items, self.size.patch_width
        return {
            "pixels": torch.zeros(items, self.length, width, device=device, dtype=dtype),
            "shapes": torch.ones(items, 2, device=device, dtype=torch.int64),
        }

    @torch.no_grad()
    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Write patches and shapes in place; the forward zeroes what a shape does not cover.

        Raises:
            ValueError: If an input does not fit the encoder (names the item), or there are too many.
        """
        self._check(inputs)
        pixels_MLK, shapes_M2 = buffers["pixels"], buffers["shapes"]
        most = len(pixels_MLK)
        require(len(inputs) <= most, f"these buffers hold at most {most} items, got {len(inputs)}")
        for slot, value in zip(pixels_MLK, inputs, strict=False):
            rows.copy(slot[: len(value.pixels)], value.pixels)
        pixels_MLK[len(inputs) :, :1].zero_()
        shapes = [(value.grid.h, value.grid.w) for value in inputs]
        shapes += [(1, 1)] * (most - len(shapes))
        copy_into(shapes_M2, torch.tensor(shapes, device="cpu"))

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode all slots: pooled vectors, or patches packed from row 0."""
        pixels_MLK, shapes_M2 = buffers["pixels"], buffers["shapes"]
        assert len(pixels_MLK) == capacity.items, capacity
        made = self._run(self._face.now(), pixels_MLK, shapes_M2)
        if not self.size.rule.pooled:
            made = naflex_rows.compacted(made, shapes_M2, capacity.tokens)
        return EncoderOutput(main=rows.lengthened(made, self.spec.rows(capacity)))

    @torch.no_grad()
    def eager(self, inputs: Sequence[Input]) -> list[EncoderOutput]:
        """Encode inputs in one batch, padded to the longest, ungraphed; owned outputs in order.

        Raises:
            ValueError: If an input does not fit the encoder; names the item.
        """
        self._check(inputs)
        if not inputs:
            return []
        longest = max(len(value.pixels) for value in inputs)
        pixels_NLK = self._weight.new_zeros(len(inputs), longest, self.size.patch_width)
        for row, value in zip(pixels_NLK, inputs, strict=True):
            rows.copy(row[: len(value.pixels)], value.pixels)
        shapes = torch.tensor([(v.grid.h, v.grid.w) for v in inputs], device="cpu")
        shapes_N2 = torch.empty_like(shapes, device=self._weight.device)
        copy_into(shapes_N2, shapes)
        if self._eager == "stock":
            made = self._run_stock(self._module, pixels_NLK, shapes_N2)
        else:
            made = self._run(self._face.now(), pixels_NLK, shapes_N2)
        if self.size.rule.pooled:
            return packed.cut(EncoderOutput(main=made), [1] * len(inputs))
        kept = [row[: len(value.pixels)] for row, value in zip(made, inputs, strict=True)]
        return [EncoderOutput(main=row) for row in kept]

    def stock(self) -> "NaFlex":
        """The same weights with the untouched forward as `eager`."""
        return NaFlex(self._module, self.size, name=self.name, eager_forward="stock")

    def oracle(self) -> "NaFlex":
        """A float32 copy of the weights with the untouched forward as `eager`."""
        module = copy.deepcopy(self._module).float()
        return NaFlex(module, self.size, name=self.name, eager_forward="stock")

    def _run(self, held: Any, pixels_MLK: Tensor, shapes_M2: Tensor) -> Tensor:
        """The tower with a mask made here; NaN beyond a shape is zeroed, since masks let it through."""
        counts_M1 = shapes_M2[:, :1] * shapes_M2[:, 1:]
        real_ML = torch.arange(pixels_MLK.shape[1], device=pixels_MLK.device)[None] < counts_M1
        pixels_MLK = torch.where(real_ML[..., None], pixels_MLK, 0.0)
        return self._rows(held(pixels_MLK, real_ML[:, None, None], shapes_M2))

    def _run_stock(self, held: Any, pixels_NLK: Tensor, shapes_N2: Tensor) -> Tensor:
        at = torch.arange(pixels_NLK.shape[1], device=pixels_NLK.device)
        mask_NL = (at[None] < shapes_N2.prod(1)[:, None]).long()
        return self._rows(held(pixels_NLK, mask_NL, shapes_N2))

    def _rows(self, made: Any) -> Tensor:
        chosen: Tensor = made.pooler_output if self.size.rule.pooled else made.last_hidden_state
        return chosen

    def _item(self, grid: Grid, request: int) -> Item:
        patches = grid.h * grid.w
        return Item(tokens=patches, patches=patches, request=request)

    def _check_one(self, pixels: Tensor, grid: Grid) -> None:
        expected = (grid.h * grid.w, self.size.patch_width)
        require(
            grid.t == 1 and min(grid) >= 1 and expected[0] <= self.length,
            f"must be an image of 1 to {self.length} patches, got grid {tuple(grid)!r}",
        )
        require(
            tuple(pixels.shape) == expected,
            f"must have pixels of shape {expected!r} for grid {tuple(grid)!r}, "
            f"got {tuple(pixels.shape)!r}",
        )
        rows.require_floats(pixels)

    def _check(self, inputs: Sequence[Input]) -> None:
        require(not self._module.training, "the encoder must be in eval mode; call .eval() on it")
        for index, value in enumerate(inputs):
            try:
                self._check_one(value.pixels, value.grid)
                rows.require_sizes(value, tokens=len(value.pixels))
            except ValueError as error:
                raise ValueError(f"item {index} {error}") from error


def config_of(size: EncoderSize) -> Siglip2VisionConfig:
    """The tower's config at a size."""
    return Siglip2VisionConfig(
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.depth,
        num_attention_heads=size.heads,
        num_patches=size.position_side**2,
        patch_size=size.rule.patch,
        **dict(size.settings),
    )


def build(
    size: EncoderSize,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    **switches: Unpack[Switches],
) -> NaFlex:
    """Build one with random weights from a seed; see `registry`."""
    eager = eager_of(switches)
    module = building.empty(
        Siglip2VisionModel,
        config_of(size),
        device=device,
        dtype=dtype,
        short={"num_hidden_layers": 1},
    )
    building.randomise(module, torch.Generator(device=device).manual_seed(seed))
    return NaFlex(module, size, eager_forward=eager)


def load(
    files: saved.Files,
    *,
    device: torch.device,
    dtype: torch.dtype,
    **switches: Unpack[Switches],
) -> NaFlex:
    """Load one from a saved model; see `registry`."""
    eager = eager_of(switches)
    config = Siglip2VisionConfig.from_dict(files.config())
    module = building.empty(
        Siglip2VisionModel, config, device=device, dtype=dtype, short={"num_hidden_layers": 1}
    )
    saved.load(module, files, ("vision_model.",))
    size = EncoderSize(
        name=saved_name(files),
        family="siglip2-naflex",
        layout="ragged",
        depth=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        out=config.hidden_size,
        position_side=round(config.num_patches**0.5),
        parameters=0,
        rule=naflex_rule(
            config.patch_size, int(files.processor().get("max_num_patches", MAX_PATCHES))
        ),
        source=f"saved model {files.name!r}",
    )
    return NaFlex(module, counted(size, module), eager_forward=eager)
