"""Cache one graph for each exact layout of a batch: no padding, no packing, no plan.

A layout is the boundaries of every item in order. A graph for it computes not one row too many, which
makes it the floor that budget graphs are compared with, and what SGLang's vision runners do. The price
is that a layout must come back to be worth its capture: one is made only after `min_hits` batches had
that layout, at most `max_graphs` are kept, and a layout that could not be captured is not tried again
while it is remembered: of layouts that are not held, the last `REMEMBERED` are.

The set has the interface of `graphs.GraphSet`. What it does not hold runs eager, with a reason.

Source:
    The exact-layout vision runners of SGLang 0.5.23, the bounded and the unbounded one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from encgraph import ambient, capturing, graphs, layouts, meters, static, streams, structure, watch
from encgraph.capturing import BudgetGraph
from encgraph.encoders.protocol import Encoder
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.graphs import GraphSet, Observe, State
from encgraph.layouts import Keep, Layout, capacity_of, layout_of
from encgraph.packers import leftovers
from encgraph.records import (
    Bin,
    Capacity,
    FallbackReason,
    Item,
    Load,
    Packing,
    Plan,
    Route,
    Step,
)
from encgraph.results import Memory

Known = TypeVar("Known")
REMEMBERED = 4096
"""Layouts that are counted, and that are known to fail: those that came last."""
RETIRED = 64
"""Graphs dropped from one pool that are kept with the others of it, at most, uncounted; see
`streams.Home`."""


@dataclass(slots=True, kw_only=True, eq=False)
class ExactSet(GraphSet):
    """Graphs by exact layout; `plan` stays empty, `graphs` are those held now."""

    keep: Keep
    observe: Observe = graphs.unobserved
    record: capturing.RecordGraph | None = None
    """Makes one graph instead of the backend's own way."""
    frozen: bool = False
    """Whether the set captures nothing more: then a comparison that repeats its batches does not
    turn its own repeats into hits."""
    hits: OrderedDict[Layout, int] = field(default_factory=OrderedDict)
    """Batches of each layout that came last, at most `REMEMBERED`, the latest at the end."""
    failures: OrderedDict[Layout, str] = field(default_factory=OrderedDict)
    """Why a layout could not be captured; at most `REMEMBERED`, the latest at the end."""
    evicted: int = 0
    """Graphs that made way for others."""
    _kept: dict[Layout, BudgetGraph] = field(default_factory=dict)
    """Least recently used first."""
    _home: streams.Home | None = None
    _lost_bytes: int = 0
    """Of the one pool, what evicted graphs had added: the pool keeps it for the next."""

    @property
    def captured_plan(self) -> Plan:
        """A plan of the layouts held now; two orders of the same items are one capacity."""
        held = tuple(sorted({graph.capacity for graph in self.graphs}, key=_order))
        return replace(self.plan, graphs=held)

    @property
    def memory(self) -> Memory:
        """Bytes held now; each layout has static tensors of its own."""
        held: Memory = GraphSet.memory.fget(self)  # type: ignore[attr-defined]
        return replace(held, pool_bytes=held.pool_bytes + self._lost_bytes)

    def pack(self, items: Sequence[Item]) -> Packing:
        """Find the graph of a whole batch, capturing it if this is the hit that earns it.

        Args:
            items: N items of one modality, in the order in which they will be replayed.

        Returns:
            One bin of all items, or all of them for eager.

        Raises:
            StaleBufferError: If a capture is due and the encoder changed since the last one.
            CaptureError: If a capture is due and forward hooks are installed.
        """
        layout, load = layout_of(items), Load.of(items)
        if self.keep.max_tokens is not None and load.tokens > self.keep.max_tokens:
            return leftovers.all_eager(items, FallbackReason.OVER_TOKENS)
        if not self.frozen and layout not in self.failures:
            hits = self._hit(layout)
            if layout not in self._kept and hits >= self.keep.min_hits:
                self._make(layout, items)
        if layout in self.failures:
            return leftovers.all_eager(items, FallbackReason.CAPTURE_FAILED)
        if layout not in self._kept:
            return leftovers.all_eager(items, FallbackReason.NOT_CAPTURED)
        self._kept[layout] = self._kept.pop(layout)
        capacity = self._kept[layout].capacity
        everything = tuple(range(len(items)))
        return Packing(bins=(Bin(items=everything, graph=0, capacity=capacity, load=load),))

    def warm(self, requests: Iterable[Sequence[Item]]) -> int:
        """Capture the layouts that earlier traffic had most often, largest first, then freeze.

        Args:
            requests: What was sent before. Layouts seen under `min_hits` times are left out.

        Returns:
            How many graphs the set holds then.
        """
        requests = list(requests)
        for items in layouts.earned(requests, self.keep):
            self._make(layout_of(items), items)
        for items in filter(None, requests):
            self._hit(layout_of(items))
        self.frozen = True
        return len(self._kept)

    def clear(self) -> int:
        """Drop graphs, pools and buffers; idempotent. Returns the bytes given back."""
        self._kept.clear()
        self._home = None
        freed = GraphSet.clear(self)
        self._lost_bytes = 0
        return freed

    def _hit(self, layout: Layout) -> int:
        """Count a batch of a layout; returns how many came while it was remembered."""
        hits = self.hits.get(layout, 0) + 1
        _remember(self.hits, layout, hits)
        return hits

    def _captured(self, capacity: Capacity, items: Sequence[Item]) -> BudgetGraph:
        layout = layout_of(items)
        found = self._kept.get(layout)
        if found is None:
            raise CaptureError(
                f"no captured graph for layout {layout!r} in a set that is {self.state}; "
                "pack the batch first, and run eager what it leaves"
            )
        return found

    def _make(self, layout: Layout, items: Sequence[Item]) -> None:
        """Capture one layout, or remember why not."""
        full = self.keep.max_graphs is not None and len(self._kept) >= self.keep.max_graphs
        if self.state is State.CLEARED or (full and not self.keep.evict):
            return
        changed = self._watch.changed() if self._watch else None
        if changed:
            raise StaleBufferError(f"{changed} after capture; clear and capture again")
        structure.require_eval(self.encoder.module)
        watch.refuse_hooks(self.encoder.module)
        if full:
            self._evict()
        with ambient.kept_out(self.encoder.spec.device):
            try:
                graph = static.own(self.encoder, capacity_of(Load.of(items)))
            except Exception as error:
                _remember(self.failures, layout, capturing.explain(error))
                return
            with self._recording() as record, graphs.observed(self.observe, _step(items)):
                record(self.encoder, graph)
        if graph.failure:
            _remember(self.failures, layout, graph.failure)
        else:
            self._kept[layout] = graph
        self._settle()

    @contextmanager
    def _recording(self) -> Iterator[capturing.RecordGraph]:
        if self.record is not None:
            yield self.record
            return
        device = self.encoder.spec.device
        if self.backend == "cuda" and self.keep.pools == "one" and self._home is None:
            self._home = streams.new_home(device)
        with capturing.session(self.backend, device, home=self._home) as record:
            yield record

    def _evict(self) -> None:
        """Drop the layout unused longest, once the card is done with it, and free what it held."""
        meters.synchronize(self.encoder.spec.device)
        dropped = self._kept.pop(next(iter(self._kept)))
        self.evicted += 1
        if self._home is not None:
            self._lost_bytes += dropped.memory.pool_bytes if dropped.memory else 0
            self._home.retire(dropped.graph)
            if len(self._home.retired) > RETIRED:  # they go with the last of their stream alone
                self.evicted += len(self._kept)
                self._kept.clear()
        self._settle()

    def _settle(self) -> None:
        """Bring lists, state and watch in line with what is held."""
        self.graphs[:] = self._kept.values()
        self.slabs = static.of(self.graphs)
        if not self.graphs:
            self.state, self._watch = State.EMPTY, None
            self._home, self._lost_bytes = None, 0  # torch lets nobody into a pool without graphs
            return
        self.state = State.PARTIAL if self.failures else State.CAPTURED
        self._watch = watch.Watch.of(
            self.encoder.module, {f"{i}": t for i, t in enumerate(self.slabs)}
        )


def open_set(
    encoder: Encoder,
    keep: Keep,
    *,
    backend: str = "cuda",
    observe: Observe = graphs.unobserved,
    record: capturing.RecordGraph | None = None,
) -> ExactSet:
    """Open an empty set that captures layouts as they come.

    Args:
        encoder: In evaluation mode, weights in place.
        keep: Which layouts get a graph.
        backend: "cuda", or "reference" to run the forward again instead of a graph.
        observe: Called with a `Step` around each capture.
        record: Makes one graph instead of the backend's own way.

    Raises:
        ValueError: If the backend is unknown or absent.
    """
    spec = encoder.spec
    capturing.check_backend(backend, spec.device)
    dtype = str(spec.dtype).removeprefix("torch.")
    plan = Plan(graphs=(), encoder=spec.name, dtype=dtype)
    return ExactSet(
        encoder=encoder,
        spec=spec,
        plan=plan,
        backend=backend,
        graphs=[],
        slabs=(),
        keep=keep,
        observe=observe,
        record=record,
    )


def _remember(known: OrderedDict[Layout, Known], layout: Layout, value: Known) -> None:
    known[layout] = value
    known.move_to_end(layout)
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _order(capacity: Capacity) -> tuple[int, int, int, int]:
    return capacity.tokens, capacity.items, capacity.longest_segment, capacity.patches


def _step(items: Sequence[Item]) -> Step:
    tokens = sum(item.tokens for item in items)
    return Step(
        route=Route.CAPTURE,
        modality=items[0].modality,
        items=len(items),
        real_tokens=tokens,
        token_budget=tokens,
    )
