"""Record one graph: warm up, capture on the shared stream and pool, keep why a failure happened.

Memory is read around each capture alone, after the warm-up and with caches emptied, so that what the
driver takes for a graph is not confused with libraries that load on first use.
"""

import gc
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from encgraph import memory
from encgraph.encoders.protocol import Buffers, Encoder
from encgraph.records import Capacity
from encgraph.results import Memory

WARMUPS = 2
"""Eager runs before a capture: the first may compile or load libraries, the second must not."""


@dataclass(slots=True, kw_only=True, eq=False)
class BudgetGraph:
    """One capacity with what it owns or sees."""

    capacity: Capacity
    buffers: Buffers
    output: Tensor
    """(B, widths side by side), in the encoder's dtype."""
    is_staged: bool = False
    """Whether outputs are joined in the pool and then copied, as vLLM does, or joined in place."""
    graph: torch.cuda.CUDAGraph | None = None
    """None on the reference backend, before capture and after a failure."""
    is_captured: bool = False
    seconds: float = 0.0
    """Warm-up and capture."""
    memory: Memory | None = None
    """What this capture added; None on the reference backend."""
    failure: str | None = None
    """Why it could not be captured, with the line of the model that stopped it."""


def run(encoder: Encoder, graph: BudgetGraph) -> None:
    """One forward into the output rows: what a graph records."""
    output = encoder.forward(graph.buffers, graph.capacity)
    if graph.is_staged:
        graph.output.copy_(torch.cat(output.tensors, dim=1))
    else:
        torch.cat(output.tensors, dim=1, out=graph.output)


Recording = Callable[[Encoder, BudgetGraph], None]


@contextmanager
def session(backend: str, device: torch.device) -> Iterator[Recording]:
    """Give the function that captures one graph; on cuda, one pool and one stream for all."""
    if backend == "reference":
        yield _reference
        return
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a finaliser that frees CUDA handles would invalidate a capture
    stream.wait_stream(torch.cuda.current_stream(device))
    try:
        yield lambda encoder, graph: _record(encoder, graph, pool=pool, stream=stream)
    finally:
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.synchronize(device)
        if collecting:
            gc.enable()


def _reference(encoder: Encoder, graph: BudgetGraph) -> None:
    """Run once: what fails here would fail at the first replay."""
    start = time.perf_counter()
    try:
        with torch.no_grad():
            run(encoder, graph)
        graph.is_captured = True
    except RuntimeError as error:
        graph.failure = _explain(error)
    graph.seconds = time.perf_counter() - start


def _record(
    encoder: Encoder, graph: BudgetGraph, *, pool: memory.Pool, stream: torch.cuda.Stream
) -> None:
    """Warm up, then capture on the shared stream and pool; a failure is kept, not raised."""
    start = time.perf_counter()
    recorded = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad():
            with torch.cuda.stream(stream):
                for _ in range(WARMUPS):
                    run(encoder, graph)
            with (
                memory.growth(encoder.spec.device, pool) as growth,
                torch.cuda.graph(
                    recorded, pool=pool, stream=stream, capture_error_mode="thread_local"
                ),
            ):
                run(encoder, graph)
        graph.graph, graph.memory, graph.is_captured = recorded, growth.memory, True
    except RuntimeError as error:
        graph.failure = _explain(error)
        _recover(encoder.spec.device)
    graph.seconds = time.perf_counter() - start


def _recover(device: torch.device) -> None:
    """Undo what a broken capture leaves behind: the generator believes it is still capturing."""
    generator = torch.cuda.default_generators[device.index or 0]
    generator.graphsafe_set_state(generator.clone_state())
    torch.cuda.synchronize(device)


def _explain(error: BaseException) -> str:
    """The error with the deepest line of model code, which is what a reader can change."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "/torch/" not in f.filename] or frames[-1:]
    where = f"{inside[-1].filename}:{inside[-1].lineno} ({inside[-1].line})" if inside else "?"
    return f"{type(error).__name__}: {str(error).splitlines()[0]} at {where}"
