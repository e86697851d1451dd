"""What graphs, runner and checks need of an encoder: nine names, and the records they pass.

`buffers` gives static inputs whose leading dimension grows with the capacity, so that every budget
can see one slab through prefix views. `fill` is the only host-to-device step. `forward` is captured:
pure tensors, static shapes, metadata computed inside. `eager` is the fallback; `stock` and `oracle`
give the untouched forward, in the same dtype and in float32, for proofs.

Shape legend: T real tokens, B token budget, N items, M max items, P patches, K patch width, W output
width, S segments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

import torch
from torch import Tensor

from encgraph.records import Capacity, Item, Modality
from encgraph.sizes import Grid, TokenRule

Buffers = Mapping[str, Tensor]


class Switches(TypedDict, total=False):
    """How an encoder is run, as strategies set it; an adapter refuses what it does not have."""

    attention: str
    """A name of `attention.choose`."""
    metadata: Literal["graph", "host"]
    eager_forward: Literal["varlen", "stock"]
    fill_rule: Literal["prefix", "zero_and_copy"]
    attention_slab: bool
    compiled: bool
    fused: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Input:
    """One item with its tensors: the one kind that carries a user's tensors into the runner."""

    item: Item
    pixels: Tensor
    """The item's own tensor, on any device: packed towers take (patches, patch width) in merge-block
    order, fixed ones (channels, height, width), audio (mels, frames), text ids (length,). Pinned
    memory is still read after `execute` has returned: write to it once the outputs are there."""
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncoderOutput:
    """Rows of one item, or packed rows of a whole budget inside a graph."""

    main: Tensor
    """(rows, out), in the encoder's dtype; `EncoderSpec.rows` says how many."""
    extra: tuple[Tensor, ...] = ()
    """Further outputs with the same rows (deepstack features), each (rows, width)."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Main first, then extras."""
        return (self.main, *self.extra)

    def rows(self, start: int, stop: int) -> "EncoderOutput":
        """Views of the rows start to stop of each tensor; borrowed."""
        return EncoderOutput(
            main=self.main[start:stop], extra=tuple(e[start:stop] for e in self.extra)
        )


Execute = Callable[[Sequence[Input]], list[EncoderOutput]]
"""Runs a batch: an output for each input, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """What is fixed about an encoder."""

    name: str
    modalities: frozenset[Modality]
    widths: tuple[int, ...]
    """Width of the main output, then of each extra."""
    dtype: torch.dtype
    device: torch.device
    rule: TokenRule
    min_tokens: int
    """Tokens of the smallest legal item."""
    max_tokens: int
    """Tokens of the largest legal image."""
    attention: str
    """Name of the packed attention in use, never "auto"; "measured" is the fastest for each capacity,
    which its graph names."""
    compiled: bool
    fused: bool = False
    """Whether the compiled block has its passes joined by hand."""
    pooled: bool = False
    """Whether one row comes out a segment, pooled in the graph; else one a token."""

    def rows(self, sized: Item | Capacity) -> int:
        """Output rows of an item, or of a whole capacity."""
        return sized.segments if self.pooled else sized.tokens


class Encoder(Protocol):
    """An encoder that graphs can hold."""

    @property
    def spec(self) -> EncoderSpec:
        """What is fixed about it."""
        ...

    @property
    def module(self) -> torch.nn.Module:
        """The module under study; its parameters and buffers are watched for rebinding.

        The next replay sees an edit in place of a parameter or a float buffer, or it is refused.
        """
        ...

    def item_spec(self, value: Input) -> Item:
        """Sizes of one input; host only, reads no tensor contents."""
        ...

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """Allocate static inputs; each shape is a function of the capacity, rows first."""
        ...

    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Write inputs into static buffers in place, clearing a stale tail; never synchronizes."""
        ...

    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode the buffers: packed rows of the capacity, those past the real ones meaningless."""
        ...

    def eager(self, inputs: Sequence[Input]) -> list[EncoderOutput]:
        """Encode inputs batched and ungraphed; owned outputs in order."""
        ...

    def stock(self) -> "Encoder":
        """The same weights with the untouched forward as `eager`: what parity compares with."""
        ...

    def oracle(self) -> "Encoder":
        """A float32 copy with the untouched forward as `eager`: what is right."""
        ...


MEMBERS = tuple(name for name in vars(Encoder) if not name.startswith("_"))
"""What the protocol asks for."""


def missing(encoder: object) -> list[str]:
    """Members of the protocol that an encoder lacks or inherits as a stub."""
    return [name for name in MEMBERS if not _has(encoder, name)]


def _has(encoder: object, name: str) -> bool:
    """Whether a member is the encoder's own; looked up without running a property."""
    own, stub = getattr(type(encoder), name, None), vars(Encoder)[name]
    if own is None:
        return hasattr(encoder, name)
    return own is not stub or name in getattr(encoder, "__dict__", {})


def check(encoder: object) -> None:
    """Refuse what is no encoder.

    Raises:
        TypeError: If it lacks members of the protocol; names them.
    """
    lacking = ", ".join(missing(encoder))
    if lacking:
        raise TypeError(
            f"encoder must have all of `encoders.protocol.Encoder`, got {type(encoder).__name__} "
            f"without {lacking}"
        )
