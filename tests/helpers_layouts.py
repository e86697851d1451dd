"""A tiny encoder of each family outside the packed layout, with inputs and capacities for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from encgraph.encoders import (
    clip,
    dino,
    gemma3,
    idefics3,
    internvl,
    siglip,
    siglip2_naflex,
    text_families,
    whisper,
    wrap,
)
from encgraph.encoders.protocol import Buffers, EncoderOutput, Input
from encgraph.published import audio, images, text, tiles
from encgraph.records import Capacity, Plan
from encgraph.rules import EncoderSize

CPU = torch.device("cpu")
SIZES = {size.name: size for size in (*images.SIZES, *tiles.SIZES, *audio.SIZES, *text.SIZES)}
BUILDERS: dict[str, Callable[..., Any]] = {
    "siglip": siglip.FAMILY.build,
    "clip": clip.FAMILY.build,
    "dinov2": dino.DINOV2.build,
    "dinov2-registers": dino.DINOV2_REGISTERS.build,
    "dinov3": dino.DINOV3.build,
    "internvl": internvl.FAMILY.build,
    "idefics3": idefics3.IDEFICS3.build,
    "smolvlm": idefics3.SMOLVLM.build,
    "gemma3": gemma3.FAMILY.build,
    "siglip2-naflex": siglip2_naflex.build,
    "whisper": whisper.FAMILY.build,
    "bert": text_families.BERT.build,
    "xlm-roberta": text_families.XLM_ROBERTA.build,
    "modernbert": text_families.MODERNBERT.build,
}


class Convolutions(torch.nn.Module):
    """A module that no adapter knows: (N, 2, 8, 8) to a (N, 6, 4, 4) map."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(2, 6, 2, stride=2)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.convolution(pixels).tanh()


@dataclass(frozen=True)
class Case:
    """One encoder, and how to make inputs and capacities for it."""

    build: Callable[..., Any]
    """Takes a dtype, float32 if none is given."""
    inputs: Callable[[Any, Sequence[int], int], list[Input]]
    """Of an encoder, for rough sizes from 1 to 6, from a seed."""
    capacity: Callable[[Any, int], Capacity]
    """Of an encoder, for so many items of middling size."""


def built(size: EncoderSize, dtype: torch.dtype = torch.float32) -> Any:
    return BUILDERS[size.family](size, device=CPU, dtype=dtype, seed=0)


def slots(encoder: Any, wanted: Sequence[int], seed: int) -> list[Input]:
    """A size is a number of slots where an item may take several."""
    torch.manual_seed(seed)
    counts = [min(size, encoder.slot.most) for size in wanted]
    shapes = [(n, *encoder.slot.shape) if n > 1 else encoder.slot.shape for n in counts]
    return [encoder.input(torch.rand(shape) * 2 - 1) for shape in shapes]


def ragged(encoder: Any, wanted: Sequence[int], seed: int) -> list[Input]:
    torch.manual_seed(seed)
    shapes = [((1, 1), (2, 3), (1, 9), (7, 2), (3, 5), (4, 6))[size - 1] for size in wanted]
    width = encoder.size.patch_width
    return [encoder.input(torch.rand(h * w, width) * 2 - 1, (h, w)) for h, w in shapes]


def texts(encoder: Any, wanted: Sequence[int], seed: int) -> list[Input]:
    torch.manual_seed(seed)
    lengths = [(1, 4, 9, 13, 20, 31)[size - 1] for size in wanted]
    return [encoder.input(torch.randint(3, 99, (length,))) for length in lengths]


def case(size: EncoderSize) -> Case:
    if size.layout == "fixed":
        return Case(
            partial(built, size), slots, lambda e, items: e.capacity(2 * items * e.slot.rows)
        )
    if size.layout == "ragged":
        return Case(partial(built, size), ragged, lambda e, items: e.capacity(items))
    return Case(partial(built, size), texts, lambda e, items: e.capacity(12 * items, items=items))


def unpooled(size: EncoderSize, *, pooled: bool) -> EncoderSize:
    """The size under a rule that pools or not."""
    return replace(size, rule=replace(size.rule, pooled=pooled))


CASES = {
    **{name: case(size) for name, size in SIZES.items() if size.hidden == 32},
    "siglip-pooled": case(unpooled(SIZES["siglip-tiny"], pooled=True)),
    "clip-pooled": case(unpooled(SIZES["clip-tiny"], pooled=True)),
    "naflex-patches": case(unpooled(SIZES["siglip2-naflex-tiny"], pooled=False)),
    "modernbert-rows": case(unpooled(SIZES["modernbert-tiny"], pooled=False)),
    "wrapped": Case(
        lambda: wrap.fixed(Convolutions().eval(), torch.zeros(2, 8, 8)),
        slots,
        lambda e, items: e.capacity(2 * items * e.slot.rows),
    ),
}


def plan(encoder: Any, chosen: Case, *budgets: int) -> Plan:
    return Plan(
        graphs=tuple(chosen.capacity(encoder, items) for items in budgets),
        encoder=encoder.spec.name,
    )


def views(slab: Buffers, encoder: Any, capacity: Capacity) -> Buffers:
    """Prefix views of larger buffers, as a graph set makes them."""
    shapes = encoder.buffers(capacity, torch.device("meta"), torch.float32)
    return {name: slab[name][: len(shape)] for name, shape in shapes.items()}


def replayed(
    encoder: Any, buffers: Buffers, inputs: Sequence[Input], capacity: Capacity
) -> EncoderOutput:
    """All rows after a fill."""
    encoder.fill(buffers, inputs)
    return encoder.forward(buffers, capacity)


def joined(outputs: Sequence[EncoderOutput]) -> torch.Tensor:
    return torch.cat([output.main for output in outputs])


def error(mine: torch.Tensor, true: torch.Tensor) -> float:
    """Relative distance; NaN where either has one."""
    return float(torch.linalg.vector_norm(mine - true) / torch.linalg.vector_norm(true))
