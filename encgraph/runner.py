"""Execute batches: replay what fits a graph, run the rest eager in one batch, return all in order.

The runner knows no model and takes no decision of its own: packing decides, graphs replay, the
encoder falls back. Sizes are those that the encoder reads from an item's tensors, never the caller's
word, and what eager returns is checked (type, count, rows, widths, dtype), because a count alone would
let one item's rows pass for another's.

Every step is observed; a fallback always has a reason. Outputs are owned by the caller unless
borrowed; a borrowed output raises once a later replay has begun to overwrite it. Inside autocast or
not, replay and eager keep to the encoder's own dtypes, so that a batch has one dtype.

A runner may be called by several threads: it takes one batch, capture or clear at a time, and the
others wait. An observer that calls back into the runner it observes is refused, and one that waits for
another thread's call to it waits for ever.
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from encgraph import ambient, capturing, graphs, incoming, packing, rows, structure, watch
from encgraph.borrowed import Borrowed
from encgraph.encoders import protocol
from encgraph.encoders.protocol import Encoder, EncoderOutput, Input
from encgraph.exact import ExactSet
from encgraph.graphs import GraphSet, Observe
from encgraph.incoming import Incoming, Refusal
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
_ASCENDING: PackerOf = partial(packing.packer, rule="ascending")
OWNERSHIPS: Mapping[str, rows.Own] = {"one_copy": rows.one_copy, "clone_each": rows.clone_each}
FORGOTTEN = "nothing is captured: every batch runs eager; call capture()"


@dataclass(slots=True, kw_only=True, eq=False)
class EncoderRunner(Showing):
    """One encoder with the graphs of one plan; a context manager that clears on exit.

    Threads may share it: `execute`, `execute_each`, `borrow`, `capture`, `clear` and `pack_by` wait for
    one another, so one batch is encoded at a time and `execute` gives each thread its own outputs.
    Called by an observer of the same runner they raise RuntimeError. A forgotten `capture` warns.
    """

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
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _running: int | None = field(init=False, default=None)
    """Thread of the call in progress."""
    _knows: bool = field(init=False, default=False)
    """Whether the caller was told, or chose, that nothing is captured."""

    def __post_init__(self) -> None:
        protocol.check(self.encoder)
        if not isinstance(self.plan, Plan):
            raise TypeError(f"plan must be a Plan, got {type(self.plan).__name__}")
        for name, does in (("packer", "make the packer of a plan"), ("observe", "take a step")):
            if not callable(value := getattr(self, name)):
                raise TypeError(f"{name} must {does}, got {value!r:.40}")
        capturing.check_names(backend=self.backend, slabs=self.slabs)
        if self.ownership not in OWNERSHIPS:
            raise ValueError(f"ownership must be one of {[*OWNERSHIPS]}, got {self.ownership!r}")

    def __enter__(self) -> "EncoderRunner":
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()
        self._knows = False

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
            ValueError: If backend, plan or packer do not suit the encoder, or anything of it is in
                training mode; then nothing is held.
            CaptureError: If no budget could be captured, or forward hooks are installed.
        """
        with self.turn():
            self._clear()
            self._knows = True
            structure.require_eval(self.encoder.module)
            if self.is_graphed:
                watch.refuse_hooks(self.encoder.module)
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
        try:
            self._packer = self.packer(self._graphs.captured_plan)
        except BaseException:
            self._clear()
            raise

    def pack_by(self, packer: PackerOf) -> None:
        """Pack by another packer from now on; graphs by exact layout go on packing themselves."""
        with self.turn():
            if self._graphs is not None and self.layouts is None:
                self._packer = packer(self._graphs.captured_plan)
            self.packer = packer

    def clear(self) -> int:
        """Drop the graphs; idempotent. Returns the bytes given back."""
        with self.turn():
            return self._clear()

    def _clear(self) -> int:
        freed = self._graphs.clear() if self._graphs else 0
        self._graphs = self._packer = None
        return freed

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for other threads' calls, refuse one from within a call; for who replays its graphs too."""
        if self._running == threading.get_ident():
            raise RuntimeError(
                "a batch is in progress; an observer cannot call the runner it observes"
            )
        with self._lock:
            try:
                self._running = threading.get_ident()
                yield
            finally:
                self._running = None

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
            RuntimeError: If an observer of this runner calls it.
        """
        own = OWNERSHIPS[self.ownership]
        return [done.tensor() for done in self._run(incoming.sized(batch), own)]

    def execute_each(self, batch: Sequence[Input]) -> list[EncoderOutput | Refusal]:
        """Encode what can be encoded; a bad item does not fail the others.

        Args:
            batch: As for `execute`; unlike there, an item may be wrong.

        Returns:
            In batch order, an output, or the error that `execute` would have raised for that item.

        Raises:
            StaleBufferError: If the encoder changed since capture; no item is to blame for that.
        """
        numbered = enumerate(incoming.sized(batch))
        refused = [incoming.refusal(value, index, self.encoder) for index, value in numbered]
        pairs = zip(batch, refused, strict=True)
        taken = [value for value, error in pairs if error is None]
        done = iter(self._run(taken, OWNERSHIPS[self.ownership]))
        return [next(done).tensor() if error is None else error for error in refused]

    def borrow(self, batch: Sequence[Input]) -> list[Borrowed]:
        """Encode a batch without the copy out of the slab.

        Only the last replay's outputs are still there on return: of a batch that took several, the
        earlier items' `.tensor()` raises. Fallbacks are always there.

        Between threads that is not enough: `.tensor()` raises from the moment another thread's replay
        begins to write, but what it gave before is overwritten without a word. Threads that share a
        runner call `execute`, or hold a lock of their own until they are done with the output.
        """
        return self._run(incoming.sized(batch), rows.split)

    def _run(self, batch: Sequence[Input], own: rows.Own) -> list[Borrowed]:
        with self.turn():
            if self._graphs is None and self.is_graphed and not self._knows:
                self._knows = True
                warnings.warn(FORGOTTEN, stacklevel=3)
            found = {done.item: done for done in self._parts(batch, own)}
        return [found[index] for index in range(len(batch))]

    def _parts(self, batch: Sequence[Input], own: rows.Own) -> Iterator[Borrowed]:
        known = incoming.read(batch, self.encoder)
        for modality in dict.fromkeys(one.item.modality for one in known):
            members = [one for one in known if one.item.modality == modality]
            packed = self._pack(modality, [one.item for one in members])
            for part in packed.bins:
                yield from self._replay([members[i] for i in part.items], part, own)
            if packed.fallback:
                yield from self._fall_back(members, packed.fallback)

    def _pack(self, modality: Modality, items: Sequence[Item]) -> Packing:
        if self._graphs is None or self._packer is None:
            return leftovers.all_eager(items, FallbackReason.NOT_CAPTURED)
        if not self._graphs.supports(modality):
            return leftovers.all_eager(items, FallbackReason.UNSUPPORTED_MODALITY)
        return self._packer(items)

    def _replay(self, members: Sequence[Incoming], part: Bin, own: rows.Own) -> Iterator[Borrowed]:
        made = self._graphs
        assert made is not None
        items = [one.item for one in members]
        step = Step(
            route=Route.REPLAY,
            modality=items[0].modality,
            items=len(items),
            real_tokens=part.load.tokens,
            token_budget=part.token_budget,
        )
        with graphs.observed(self.observe, step):
            packed = made.replay(part.capacity, [one.value for one in members], items=items)
            outputs = own(packed, [made.spec.rows(item) for item in items], made.spec.widths)
            generation = made.generation
        borrowed = made if own is rows.split else None
        for one, output in zip(members, outputs, strict=True):
            yield Borrowed(one.place, output, borrowed, generation)

    def _fall_back(
        self, members: Sequence[Incoming], fallback: Sequence[Fallback]
    ) -> Iterator[Borrowed]:
        """All of them in one eager batch; the step carries every reason, its largest item's first."""
        falling = [members[one.item] for one in fallback]
        items, indices = [one.item for one in falling], [one.place for one in falling]
        largest = max(fallback, key=lambda one: members[one.item].item.tokens)
        loads = leftovers.by_reason(fallback, [one.item for one in members])
        step = Step(
            route=Route.FALLBACK if self.is_graphed else Route.EAGER,
            modality=items[0].modality,
            items=len(items),
            real_tokens=sum(item.tokens for item in items),
            reason=largest.reason if self.is_graphed else None,
            reasons=loads if self.is_graphed and len(loads) > 1 else {},
        )
        spec = self.encoder.spec
        with graphs.observed(self.observe, step), ambient.own_dtypes(spec.device):
            outputs = self.encoder.eager([one.value for one in falling])
        rows.check(outputs, indices, items, spec)
        for index, output in zip(indices, outputs, strict=True):
            yield Borrowed(index, output, None, 0)
