"""Execute batches: replay what fits a graph, run the rest eager in one batch, return all in order.

The runner knows no model and takes no decision of its own: packing decides, graphs replay, the
encoder falls back. It checks what comes back (type, count, rows, width), because a count alone would
let one item's rows pass for another's.

Every step is observed; a fallback always has a reason. Outputs are owned by the caller unless
borrowed; a borrowed output raises once a later replay has overwritten it.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from encgraph import graphs, packing, rows, watch
from encgraph.encoders.protocol import Encoder, EncoderOutput, Input
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.exact import ExactSet
from encgraph.graphs import GraphSet, Observe
from encgraph.packers import leftovers
from encgraph.records import (
    Bin,
    Fallback,
    FallbackReason,
    Item,
    Modality,
    Packing,
    Plan,
    Route,
    Step,
)
from encgraph.results import Memory
from encgraph.tabular import Showing

PackerOf = Callable[[Plan], packing.Packer]
Present = TypeVar("Present")
Refusal = ValueError | TypeError
"""What is wrong with one item."""
_ASCENDING: PackerOf = partial(packing.packer, rule="ascending")
OWNERSHIPS = ("one_copy", "clone_each")


@dataclass(frozen=True, slots=True, eq=False)
class Borrowed:
    """An output that may still lie in the graph's own slab."""

    item: int
    """Index into the batch."""
    _output: EncoderOutput
    _graphs: GraphSet | None
    _generation: int

    def tensor(self) -> EncoderOutput:
        """The output, while it is still there.

        Raises:
            StaleBufferError: If a later replay of the same graph set has overwritten it.
        """
        if self._graphs is not None and self._graphs.generation != self._generation:
            raise StaleBufferError(
                f"the borrowed output of item {self.item} was overwritten by a later replay; "
                "use it before the next batch, or call execute, which copies"
            )
        return self._output


@dataclass(slots=True, kw_only=True, eq=False)
class EncoderRunner(Showing):
    """One encoder with the graphs of one plan; a context manager that clears on exit."""

    encoder: Encoder
    plan: Plan
    """May be empty: then every batch runs eager and nobody calls that a fallback."""
    backend: str = "cuda"
    packer: PackerOf = _ASCENDING
    """Makes the packer of the graphs that were captured; see `packing.packer`."""
    slabs: str = "shared"
    ownership: str = "one_copy"
    """"one_copy": one clone a replay, its items are views of it; "clone_each": one an item."""
    observe: Observe = graphs.unobserved
    layouts: Callable[[Encoder], ExactSet] | None = None
    """Opens a set of graphs by exact layout, made as batches come, instead of the plan's."""
    _graphs: GraphSet | None = None
    _packer: packing.Packer | None = None

    def __post_init__(self) -> None:
        if self.ownership not in OWNERSHIPS:
            raise ValueError(f"ownership must be one of {OWNERSHIPS}, got {self.ownership!r}")

    def __enter__(self) -> "EncoderRunner":
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    @property
    def is_graphed(self) -> bool:
        """Whether graphs are wanted: then what runs eager is a fallback."""
        return bool(self.plan.graphs) or self.layouts is not None

    @property
    def has_graphs(self) -> bool:
        """Whether anything can be replayed."""
        return self._graphs is not None and self._graphs.is_captured

    @property
    def graphs(self) -> GraphSet | None:
        """The graph set, for reading; None before capture and after clear."""
        return self._graphs

    @property
    def memory(self) -> Memory:
        """Bytes the graphs hold now."""
        nothing = Memory(slabs_bytes=0, pool_bytes=0, driver_bytes=0)
        return self._graphs.memory if self._graphs else nothing

    def capture(self) -> Memory:
        """Capture the plan, freeing an earlier capture first; returns what it holds.

        Raises:
            ValueError: If backend or plan do not suit the encoder.
            CaptureError: If no budget could be captured, or forward hooks are installed.
        """
        self.clear()
        if self.is_graphed:
            hooked = watch.hooked(self.encoder.module)
            if hooked:
                raise CaptureError(
                    f"module {hooked!r} has forward hooks, which a replay would not run; "
                    "remove them or run eager"
                )
            self._open()
        return self.memory

    def _open(self) -> None:
        if self.layouts is not None:
            made = self.layouts(self.encoder)
            self._graphs, self._packer = made, made.pack
            return
        self._graphs = graphs.capture(
            self.encoder, self.plan, backend=self.backend, slabs=self.slabs, observe=self.observe
        )
        self._packer = self.packer(self._graphs.captured_plan)

    def pack_by(self, packer: PackerOf) -> None:
        """Pack by another packer from now on; graphs by exact layout go on packing themselves."""
        if self._graphs is not None and self.layouts is None:
            self._packer = packer(self._graphs.captured_plan)
        self.packer = packer

    def clear(self) -> int:
        """Drop the graphs; idempotent. Returns the bytes given back."""
        freed = self._graphs.clear() if self._graphs else 0
        self._graphs = self._packer = None
        return freed

    def execute(self, batch: Sequence[Input]) -> list[EncoderOutput]:
        """Encode a batch.

        Args:
            batch: N inputs of any modality the encoder takes; may be empty.

        Returns:
            N outputs in batch order, each (tokens, width) and owned by the caller.

        Raises:
            TypeError: If the batch, or something in it, is not what it must be.
            ValueError: If an input contradicts its own sizes; names it.
            StaleBufferError: If the encoder changed since capture.
        """
        own = rows.one_copy if self.ownership == "one_copy" else rows.clone_each
        outputs: list[EncoderOutput | None] = [None] * len(_sized(batch))
        for done in self._run(batch, own):
            outputs[done.item] = done._output
        return [_present(output, index) for index, output in enumerate(outputs)]

    def execute_each(self, batch: Sequence[Input]) -> list[EncoderOutput | Refusal]:
        """Encode what can be encoded; a bad item does not fail the others.

        Args:
            batch: As for `execute`; unlike there, an item may be wrong.

        Returns:
            In batch order, an output, or the error that `execute` would have raised for that item.

        Raises:
            StaleBufferError: If the encoder changed since capture; no item is to blame for that.
        """
        refused = [self._refusal(value, index) for index, value in enumerate(_sized(batch))]
        pairs = zip(batch, refused, strict=True)
        outputs = iter(self.execute([value for value, error in pairs if error is None]))
        return [next(outputs) if error is None else error for error in refused]

    def _refusal(self, value: Input, index: int) -> Refusal | None:
        try:
            self._item(value, index)
        except (ValueError, TypeError) as error:
            return error
        return None

    def borrow(self, batch: Sequence[Input]) -> list[Borrowed]:
        """Encode a batch without the copy out of the slab.

        Only the last replay's outputs are still there on return: of a batch that took several, the
        earlier items' `.tensor()` raises. Fallbacks are always there.
        """
        outputs: list[Borrowed | None] = [None] * len(_sized(batch))
        for done in self._run(batch, rows.split):
            outputs[done.item] = done
        return [_present(output, index) for index, output in enumerate(outputs)]

    def _run(self, batch: Sequence[Input], own: rows.Own) -> Iterator[Borrowed]:
        items = [self._item(value, index) for index, value in enumerate(batch)]
        for modality in dict.fromkeys(item.modality for item in items):
            members = [index for index, item in enumerate(items) if item.modality == modality]
            packed = self._pack(modality, [items[index] for index in members])
            for part in packed.bins:
                yield from self._replay(batch, [members[i] for i in part.items], part, own)
            if packed.fallback:
                yield from self._fall_back(batch, members, packed.fallback, modality)

    def _item(self, value: Input, index: int) -> Item:
        if not isinstance(value, Input):
            raise TypeError(f"item {index} must be an Input, got {type(value).__name__}")
        try:
            item = self.encoder.item_spec(value)
        except ValueError as error:
            raise ValueError(f"item {index}: {error}") from error
        if item.tokens != value.item.tokens:
            raise ValueError(
                f"item {index} must have the {item.tokens!r} tokens of its tensors, "
                f"got {value.item.tokens!r}; make its sizes from its grid"
            )
        return item

    def _pack(self, modality: Modality, items: Sequence[Item]) -> Packing:
        if self._graphs is None or self._packer is None:
            return leftovers.all_eager(items, FallbackReason.NOT_CAPTURED)
        if not self._graphs.supports(modality):
            return leftovers.all_eager(items, FallbackReason.UNSUPPORTED_MODALITY)
        return self._packer(items)

    def _replay(
        self, batch: Sequence[Input], members: Sequence[int], part: Bin, own: rows.Own
    ) -> Iterator[Borrowed]:
        assert self._graphs is not None
        inputs = [batch[index] for index in members]
        step = Step(
            route=Route.REPLAY,
            modality=inputs[0].item.modality,
            items=len(inputs),
            real_tokens=part.load.tokens,
            token_budget=part.token_budget,
        )
        with graphs.observed(self.observe, step):
            packed = self._graphs.replay(part.capacity, inputs)
            spec = self._graphs.spec
            outputs = own(packed, [spec.rows(value.item) for value in inputs], spec.widths)
        borrowed = self._graphs if own is rows.split else None
        for index, output in zip(members, outputs, strict=True):
            yield Borrowed(index, output, borrowed, self._graphs.generation)

    def _fall_back(
        self,
        batch: Sequence[Input],
        members: Sequence[int],
        fallback: Sequence[Fallback],
        modality: Modality,
    ) -> Iterator[Borrowed]:
        """All of them in one eager batch; the step carries every reason, its largest item's first."""
        indices = [members[one.item] for one in fallback]
        inputs = [batch[index] for index in indices]
        largest = max(fallback, key=lambda one: batch[members[one.item]].item.tokens)
        loads = leftovers.by_reason(fallback, [batch[index].item for index in members])
        step = Step(
            route=Route.FALLBACK if self.is_graphed else Route.EAGER,
            modality=modality,
            items=len(inputs),
            real_tokens=sum(value.item.tokens for value in inputs),
            reason=largest.reason if self.is_graphed else None,
            reasons=loads if self.is_graphed and len(loads) > 1 else {},
        )
        with graphs.observed(self.observe, step):
            outputs = self.encoder.eager(inputs)
        rows.check(outputs, indices, inputs, self.encoder.spec)
        for index, output in zip(indices, outputs, strict=True):
            yield Borrowed(index, output, None, 0)


def _sized(batch: Sequence[Input]) -> Sequence[Input]:
    if not isinstance(batch, Sized):
        raise TypeError(f"batch must be a sequence of inputs, got {type(batch).__name__}")
    return batch


def _present(value: Present | None, index: int) -> Present:
    assert value is not None, f"packing lost item {index}"
    return value
