"""Prefill eager, then decode one token a step: a graph for each batch size, over static keys and values.

A step feeds itself: the graph reads the tokens the step before left, writes keys and values at each
row's own position, leaves logits and the next tokens, and moves the positions on. The host only
launches it. Rows past the batch compute for nobody, in rows of the slabs that nobody reads.

Backend "reference" keeps buffers, rows and padding and runs the step again instead of a graph.

Shape legend: b rows, L longest prompt, V vocabulary, H hidden.
"""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from encgraph import ambient, capturing, graphs, meters, structure, watch
from encgraph.capturing import BudgetGraph
from encgraph.errors import CaptureError
from encgraph.graphs import Observe
from encgraph.model_runner import prefilling
from encgraph.model_runner.facts import NO_MEMORY, PartCapture
from encgraph.model_runner.keyvalues import KeyValueSlabs
from encgraph.model_runner.prefilling import Batch
from encgraph.model_runner.stepping import DecodeStep, Where
from encgraph.records import Capacity, FallbackReason, Modality, Route, Step
from encgraph.results import Memory
from encgraph.watch import Watch


@dataclass(slots=True, kw_only=True, eq=False)
class Decoder:
    """The language model with its keys and values and the graphs of its steps; owns both."""

    model: Any
    """transformers' Qwen3VLForConditionalGeneration."""
    rows: int
    """Requests in a batch at most."""
    length: int
    """Tokens a request at most."""
    backend: str
    is_graphed: bool = True
    """Whether graphs are wanted: then an eager step is a fallback and has a reason."""
    observe: Observe = graphs.unobserved
    slabs: KeyValueSlabs = field(init=False)
    graphs: list[BudgetGraph] = field(init=False, default_factory=list)
    _static: dict[str, Tensor] = field(init=False)
    _step: DecodeStep = field(init=False)
    _watches: tuple[Watch, ...] = ()
    _has_tried: bool = False

    def __post_init__(self) -> None:
        text, head = self.model.model.language_model, self.model.lm_head
        weight = head.weight
        with ambient.kept_out(weight.device):
            self.slabs = KeyValueSlabs(
                text.config,
                rows=self.rows,
                length=self.length,
                device=weight.device,
                dtype=weight.dtype,
            )
            names = ("token", "position", "offset")
            self._static = {
                n: torch.zeros(self.rows, device=weight.device, dtype=torch.int64) for n in names
            }
            self._static["logits"] = torch.zeros(
                self.rows, len(weight), device=weight.device, dtype=weight.dtype
            )
            self._step = DecodeStep(text, head, self.slabs, Where(weight.device))

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self._step.spec.device

    @property
    def vocabulary(self) -> int:
        """Token ids that there are, by the rows of the embedding."""
        return len(self._step.text.embed_tokens.weight)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Rows of the graphs that can be replayed, smallest first."""
        return tuple(sorted(g.capacity.items for g in self.graphs if g.is_captured))

    @property
    def memory(self) -> Memory:
        """Bytes that the graphs hold; keys and values apart, in `slabs.num_bytes`."""
        if not self.graphs:
            return NO_MEMORY
        parts = [g.memory for g in self.graphs if g.memory is not None]
        return Memory(
            slabs_bytes=sum(t.untyped_storage().nbytes() for t in self._static.values()),
            pool_bytes=sum(m.pool_bytes for m in parts),
            driver_bytes=sum(m.driver_bytes for m in parts),
        )

    def capture(self, batch_sizes: Sequence[int]) -> PartCapture:
        """Capture a graph for each batch size, largest first, into one pool; earlier ones go first.

        Returns:
            What was made; batch sizes that failed are told, the rest is usable.

        Raises:
            ValueError: If anything of the language model is in training mode.
            CaptureError: If a forward hook is installed, which a replay would not run.
        """
        self.clear()
        structure.require_eval(self._step.text)
        start = time.perf_counter()
        hooked = watch.hooked(self._step.text) or watch.hooked(self._step.head)
        if hooked:
            raise CaptureError(f"module {hooked!r} has forward hooks; remove them or run eager")
        self._has_tried = True
        device = self._step.spec.device
        with ambient.kept_out(device), capturing.session(self.backend, device) as record:
            for rows in sorted(set(batch_sizes), reverse=True):
                graph = self._graph(rows)
                self.graphs.append(graph)
                self._rest()
                meters.synchronize(device)  # warm-ups run on a stream of their own
                with graphs.observed(self.observe, self._told(Route.CAPTURE, 0, budget=rows)):
                    # The session needs a forward and a device, of all that an encoder has.
                    record(cast(Any, self._step), graph)
        self._watches = (
            Watch.of(self._step.text, self._static | self._named_slabs()),
            Watch.of(_Headed(self._step.head), {}),
        )
        return PartCapture(
            graphs=len(self.batch_sizes),
            seconds=time.perf_counter() - start,
            memory=self.memory,
            failures=tuple(g.failure for g in self.graphs if g.failure),
        )

    def changed(self) -> str | None:
        """One clause that names what is no longer what the graphs hold, or None."""
        return next((found for w in self._watches if (found := w.changed())), None)

    @torch.no_grad()
    def prefill(self, batch: Batch, *, lengths_b: Tensor, offsets_b: Tensor) -> Tensor:
        """Run the prompts and leave each row ready for its first step.

        Args:
            batch: Of b prompts, at most `rows`.
            lengths_b: int64 tokens of each prompt.
            offsets_b: int64, what to add to a later token's index for its rotary position.

        Returns:
            First tokens (b,), a copy.
        """
        rows = len(lengths_b)
        self.slabs.forget(rows)
        with ambient.own_dtypes(self.device):
            last_bH = prefilling.last_hidden(self._step.text, batch, self.slabs)
            logits_bV = self._step.head(last_bH)
        self._rest()
        self._static["logits"][:rows].copy_(logits_bV)
        self._static["token"][:rows].copy_(logits_bV.argmax(-1))
        self._static["position"][:rows].copy_(lengths_b)
        self._static["offset"][:rows].copy_(offsets_b)
        return self.tokens(rows)

    def step(self, rows: int) -> Tensor:
        """Decode one token for each of the first rows.

        Returns:
            Their tokens (rows,), a copy.
        """
        graph = self._fitting(rows)
        if graph is None:
            self._run_eager(rows)
        else:
            step = self._told(Route.REPLAY, rows, budget=graph.capacity.items)
            with graphs.observed(self.observe, step):
                if graph.graph is not None:
                    graph.graph.replay()
                else:
                    capturing.run(cast(Any, self._step), graph)
        return self.tokens(rows)

    def tokens(self, rows: int) -> Tensor:
        """A copy of the last tokens (rows,)."""
        return self._static["token"][:rows].clone()

    def logits(self, rows: int) -> Tensor:
        """A copy of the last logits (rows, V), in the model's dtype."""
        return self._static["logits"][:rows].clone()

    def clear(self) -> int:
        """Drop graphs and their pool; idempotent. Returns the bytes given back."""
        freed = self.memory.pool_bytes + self.memory.driver_bytes
        if self.graphs:
            meters.synchronize(self._step.spec.device)
        self.graphs.clear()
        self._watches, self._has_tried = (), False
        if self.backend == "cuda":
            _give_back()
        return freed

    def release(self) -> int:
        """Drop graphs, then static tensors, keys and values; idempotent. Returns the bytes."""
        freed = self.clear() + self.slabs.clear()
        freed += sum(t.untyped_storage().nbytes() for t in self._static.values())
        self._static.clear()
        if self.backend == "cuda":
            _give_back()
        return freed

    def _graph(self, rows: int) -> BudgetGraph:
        capacity = Capacity(
            tokens=rows, patches=rows, items=rows, segments=rows, longest_segment=1, frames=rows
        )
        output = self._static["logits"][:rows]
        return BudgetGraph(capacity=capacity, buffers=self._views(rows), output=output)

    def _views(self, rows: int) -> dict[str, Tensor]:
        return {name: self._static[name][:rows] for name in ("token", "position", "offset")}

    def _named_slabs(self) -> dict[str, Tensor]:
        pairs = enumerate(self.slabs.layers)
        return {f"{n} of layer {i}": t for i, p in pairs for n, t in zip("kv", p, strict=True)}

    def _rest(self) -> None:
        """Rows of nobody start at position 0, so that they never leave the slabs."""
        for name in ("token", "position", "offset"):
            self._static[name].zero_()

    def _fitting(self, rows: int) -> BudgetGraph | None:
        fitting = [g for g in self.graphs if g.is_captured and g.capacity.items >= rows]
        return min(fitting, key=lambda g: g.capacity.items, default=None)

    def _run_eager(self, rows: int) -> None:
        reason = self._why_not() if self.is_graphed else None
        route = Route.FALLBACK if reason else Route.EAGER
        with graphs.observed(self.observe, self._told(route, rows, reason=reason)):
            graph = self._graph(rows)
            capturing.run(cast(Any, self._step), graph)

    def _why_not(self) -> FallbackReason:
        if self.batch_sizes:
            return FallbackReason.OVER_ITEMS
        tried = self._has_tried
        return FallbackReason.CAPTURE_FAILED if tried else FallbackReason.NOT_CAPTURED

    def _told(
        self,
        route: Route,
        rows: int,
        *,
        budget: int | None = None,
        reason: FallbackReason | None = None,
    ) -> Step:
        return Step(
            route=route,
            modality=Modality.TEXT,
            items=rows,
            real_tokens=rows,
            token_budget=budget,
            reason=reason,
        )


class _Headed(nn.Module):
    """The head under its name in the model, which a watch then says."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.lm_head = head


def _give_back() -> None:
    """Let the driver have what nobody holds any more."""
    gc.collect()
    torch.cuda.empty_cache()
