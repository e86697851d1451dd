"""Budget graphs on shared slabs: capture each capacity of a plan once, replay it ever after.

Invariants, each with a test of its name:

* `buffer_addresses_never_change`: a graph holds addresses. Slabs are allocated once, at the largest
  capacity; every budget sees them through prefix views, so n budgets cost one slab.
* `budgets_are_captured_largest_first_into_one_pool`: smaller graphs then live in memory the largest
  one already owns. One capture stream, since the allocator reuses pool blocks within one stream only.
* `padding_rows_stay_finite`: attention writes live rows only, into a slab outside the pool, where no
  other graph's scratch shows through; a replay begins by zeroing it, so that nothing of an earlier
  batch does either.
* `changed_weights_are_seen_or_refused`: a weight edited in place is read by the next replay; one that
  was rebound is refused by name, since the graph would go on reading the old storage.
* `a_failed_capture_leaves_the_rest_usable`: a budget that fails keeps why, and is never replayed.

Captures and replays keep to the encoder's own dtypes, whatever autocast or inference mode surrounds
them (see `ambient`).

Backend "reference" keeps slabs, refill, padding and slicing, and runs the encoder's forward again
instead of a graph: it defines what is correct, on any machine. Nothing swaps backends silently.

States: empty -> captured | partial -> cleared. A set is a handle: it owns device memory, is a context
manager, is never stored, and is for one thread at a time: a replay is a fill, a launch and a copy on
the same slabs. `runner.EncoderRunner` lets threads wait for one another.

Shape legend: B token budget, T real tokens, W widths of all outputs side by side.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from encgraph import ambient, capturing, memory, static, streams, structure, watch
from encgraph.capturing import BudgetGraph
from encgraph.encoders.protocol import Encoder, EncoderSpec, Input
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.records import DIMENSIONS, Capacity, Item, Load, Modality, Plan, Route, Step
from encgraph.results import Memory
from encgraph.tabular import Showing

Observe = Callable[[Step], AbstractContextManager[None]]


def unobserved(step: Step) -> AbstractContextManager[None]:
    """Observe nothing."""
    return nullcontext()


def observed(observe: Observe, step: Step) -> AbstractContextManager[None]:
    """What an observer says to enter around a step.

    Raises:
        TypeError: If that cannot be entered.
    """
    found = observe(step)
    if not isinstance(found, AbstractContextManager):
        raise TypeError(
            f"observe must return a context manager, got {type(found).__name__}; "
            "@contextlib.contextmanager makes one"
        )
    return found


class State(StrEnum):
    """Life of a graph set."""

    EMPTY = "empty"
    CAPTURED = "captured"
    PARTIAL = "partial"
    CLEARED = "cleared"


@dataclass(slots=True, kw_only=True, eq=False)
class GraphSet(Showing):
    """The graphs of a plan and the memory they hold; a context manager that clears on exit."""

    encoder: Encoder
    spec: EncoderSpec
    """The encoder's at capture, which the graphs keep to."""
    plan: Plan
    backend: str
    graphs: list[BudgetGraph]
    slabs: tuple[Tensor, ...]
    """Distinct static tensors the set owns."""
    state: State = State.EMPTY
    generation: int = 0
    """Replays begun so far: a borrowed output is good until it changes."""
    peak_bytes: int | None = None
    _watch: watch.Watch | None = None
    _stream: torch.cuda.Stream | None = None

    def __enter__(self) -> "GraphSet":
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    @property
    def is_captured(self) -> bool:
        """Whether anything can be replayed."""
        return self.state in (State.CAPTURED, State.PARTIAL)

    def supports(self, modality: Modality) -> bool:
        """Whether items of a modality can be replayed."""
        return modality in self.spec.modalities

    @property
    def captured_plan(self) -> Plan:
        """The plan's graphs that can be replayed, in order, for packing."""
        kept = [i for i, graph in enumerate(self.graphs) if graph.is_captured]
        reasons = self.plan.reasons
        return replace(
            self.plan,
            graphs=tuple(self.graphs[i].capacity for i in kept),
            reasons=tuple(reasons[i] for i in kept) if reasons else (),
        )

    @property
    def memory(self) -> Memory:
        """Bytes held now: slabs, pool and driver apart."""
        parts = [g.memory for g in self.graphs if g.memory is not None]
        return Memory(
            slabs_bytes=sum(t.untyped_storage().nbytes() for t in self.slabs),
            pool_bytes=sum(m.pool_bytes for m in parts),
            driver_bytes=sum(m.driver_bytes for m in parts),
            peak_bytes=self.peak_bytes,
        )

    def replay(
        self, capacity: Capacity, inputs: Sequence[Input], *, items: Sequence[Item] | None = None
    ) -> Tensor:
        """Fill a capacity's buffers with inputs and replay it on the current stream.

        Args:
            capacity: One that was captured.
            inputs: What to encode, within the capacity.
            items: Their sizes as the encoder gave them, where packing has checked that they fit.
                Otherwise the encoder is asked, and checked against the capacity.

        Returns:
            Packed rows (T, W), item after item, all outputs side by side: a borrowed view,
            overwritten by the next replay of this set, whatever its budget.

        Raises:
            CaptureError: If that capacity is not captured.
            ValueError: If an input is not what the encoder takes, or the capacity does not hold them.
            StaleBufferError: If a weight was rebound, a buffer moved or a hook added since capture.
        """
        sizes = [self.encoder.item_spec(value) for value in inputs] if items is None else items
        graph = self._captured(capacity, sizes)
        if items is None:
            _refuse_overfull(graph.capacity, sizes)
        self._follow_stream()
        self.generation += 1  # before anything is written
        with ambient.own_dtypes(self.spec.device):
            self.encoder.fill(graph.buffers, inputs)
        if graph.graph is not None:
            graph.graph.replay()
        else:
            self._refuse_stale()  # before the forward runs into what a graph would not see
            with torch.no_grad():
                capturing.run(self.encoder, graph)
        self._refuse_stale()
        return graph.output[: sum(self.spec.rows(item) for item in sizes)]

    def clear(self) -> int:
        """Drop graphs, pool and slabs; idempotent. Returns the bytes given back."""
        freed = self.memory.total_bytes if self.state is not State.CLEARED else 0
        if self.graphs and self.slabs and self.slabs[0].is_cuda:
            torch.cuda.synchronize(self.slabs[0].device)
        self.graphs.clear()
        self.slabs = ()
        self._watch = None
        self.generation += 1
        self.state = State.CLEARED
        if self.backend == "cuda" and freed:
            gc.collect()
            torch.cuda.empty_cache()
        return freed

    def _captured(self, capacity: Capacity, items: Sequence[Item]) -> BudgetGraph:
        for graph in self.graphs:
            if graph.capacity == capacity and graph.is_captured:
                return graph
        raise CaptureError(
            f"no captured graph for {capacity!r} in a set that is {self.state}; capture it first"
        )

    def _follow_stream(self) -> None:
        """Let a replay on another stream wait for the one before, which used the same slabs."""
        self._stream = streams.followed(self._stream, self.spec.device)

    def _refuse_stale(self) -> None:
        """Check, while the card works, that what the graphs hold is still what the encoder uses."""
        changed = self._watch.changed() if self._watch else None
        if changed:
            raise StaleBufferError(f"{changed} after capture; clear and capture again")


def capture(
    encoder: Encoder,
    plan: Plan,
    *,
    backend: str = "cuda",
    slabs: str = "shared",
    observe: Observe = unobserved,
) -> GraphSet:
    """Capture one graph a capacity of the plan, largest first, into one pool.

    Args:
        encoder: In evaluation mode, weights in place.
        plan: Made for this encoder; at least one graph.
        backend: "cuda", or "reference" to run the forward again instead of a graph.
        slabs: "shared" (prefix views of one slab) or "private" (buffers for each graph, as vLLM has).
        observe: Called with a `Step` around each capture.

    Returns:
        A set that is captured, or partial when some budget failed (see `BudgetGraph.failure`).

    Raises:
        ValueError: If the backend is unknown or absent, or the plan is for another encoder.
        CaptureError: If no budget could be captured (names the line that stopped the first one), or
            forward hooks are installed.
    """
    _check(encoder, plan, backend=backend, slabs=slabs)
    with ambient.kept_out(encoder.spec.device):
        if slabs == "shared":
            graphs, owned = static.shared(encoder, plan)
        else:
            graphs = [static.own(encoder, c, is_staged=True) for c in plan.graphs]
            owned = static.of(graphs)
        made = GraphSet(
            encoder=encoder,
            spec=encoder.spec,
            plan=plan,
            backend=backend,
            graphs=graphs,
            slabs=owned,
        )
        _record(made, observe)
    failures = [g.failure for g in _largest_first(made) if g.failure]
    if len(failures) == len(made.graphs):
        raise CaptureError(f"no budget could be captured: {failures[0]}")
    made.state = State.PARTIAL if failures else State.CAPTURED
    made._watch = watch.Watch.of(encoder.module, static.named(made.graphs))
    return made


def _record(made: GraphSet, observe: Observe) -> None:
    spec = made.spec
    with memory.peak(spec.device) as peak, capturing.session(made.backend, spec.device) as record:
        for graph in _largest_first(made):
            step = Step(
                route=Route.CAPTURE,
                modality=min(spec.modalities),
                items=graph.capacity.items,
                real_tokens=0,
                token_budget=graph.capacity.tokens,
            )
            with observed(observe, step):
                record(made.encoder, graph)
    made.peak_bytes = peak.bytes


def _largest_first(made: GraphSet) -> list[BudgetGraph]:
    return sorted(made.graphs, key=lambda graph: graph.capacity, reverse=True)


def _refuse_overfull(capacity: Capacity, items: Sequence[Item]) -> None:
    load = Load.of(items)
    if capacity.holds(load):
        return
    over = next(name for name in DIMENSIONS if getattr(load, name) > getattr(capacity, name))
    raise ValueError(
        f"{over} must be at most {getattr(capacity, over)!r} in the graph of {capacity.tokens!r} "
        f"tokens, got {getattr(load, over)!r}; pack the batch first, or run it eager"
    )


def _check(encoder: Encoder, plan: Plan, *, backend: str, slabs: str) -> None:
    capturing.check_names(backend=backend, slabs=slabs)
    capturing.check_backend(backend, encoder.spec.device)
    if not plan.graphs:
        raise ValueError("a plan without graphs has nothing to capture; run the encoder eager")
    name = encoder.spec.name
    if plan.encoder != name:
        raise ValueError(f"the plan is for encoder {plan.encoder!r}, got {name!r}; plan again")
    structure.require_eval(encoder.module)
    watch.refuse_hooks(encoder.module)
