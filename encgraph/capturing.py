"""Record one graph: warm up, capture on the shared stream and pool, keep why a failure happened.

Memory is read around each capture alone, after the warm-up and with caches emptied, so that what the
driver takes for a graph is not confused with libraries that load on first use.
"""

import gc
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from encgraph import ambient, memory, streams
from encgraph.attention import measured
from encgraph.encoders.protocol import Buffers, Encoder, EncoderOutput
from encgraph.errors import CaptureError, require
from encgraph.records import Capacity
from encgraph.results import Memory
from encgraph.streams import Home

BACKENDS = ("cuda", "reference")
SLABS = ("shared", "private")
_WARMUPS = 2
"""Eager runs before a capture: the first may compile or load libraries, the second must not."""


@dataclass(slots=True, kw_only=True, eq=False)
class BudgetGraph:
    """One capacity with what it owns or sees."""

    capacity: Capacity
    buffers: Buffers
    output: Tensor
    """(B, widths side by side), in the encoder's dtype."""
    widths: tuple[int, ...] = ()
    """Of each output, main first; empty for one output alone."""
    is_staged: bool = False
    """Whether outputs are joined in the pool and then copied, as vLLM does, or joined in place."""
    graph: torch.cuda.CUDAGraph | None = None
    """None on the reference backend, before capture and after a failure."""
    home: Home | None = None
    """Where it was captured; alive as long as a graph of it."""
    is_captured: bool = False
    seconds: float = 0.0
    """Warm-up and capture."""
    memory: Memory | None = None
    """What this capture added; None on the reference backend."""
    attention: tuple[measured.ChosenAttention, ...] = ()
    """What was chosen for each launch shape of the forward; empty where there was no choice."""
    failure: str | None = None
    """Why it could not be captured, with the line of the model that stopped it."""


def run(encoder: Encoder, graph: BudgetGraph) -> None:
    """One forward into the output rows, in the encoder's own dtypes: what a graph records.

    Raises:
        CaptureError: If it returns other rows or widths than the capacity's; `out=` would resize.
    """
    with ambient.own_dtypes(graph.output.device):
        output = encoder.forward(graph.buffers, graph.capacity)
        rows, width = graph.output.shape
        wrong = misshapen(output, rows, graph.widths or (width,))
        if wrong:
            raise CaptureError(wrong)
        if graph.is_staged:
            graph.output.copy_(torch.cat(output.tensors, dim=1))
        else:
            torch.cat(output.tensors, dim=1, out=graph.output)


def misshapen(output: object, rows: int, widths: Sequence[int]) -> str | None:
    """What is wrong with type, rows or widths of what a forward returned; None if nothing is."""
    if not isinstance(output, EncoderOutput):
        return f"forward must return an EncoderOutput, got {type(output).__name__}"
    expected = [(rows, width) for width in widths]
    shapes = [tuple(tensor.shape) for tensor in output.tensors]
    if shapes == expected:
        return None
    pairs = enumerate(zip_longest(expected, shapes))
    wrong = ["main" if i == 0 else f"extra[{i - 1}]" for i, (a, b) in pairs if a != b]
    return (
        f"forward must return all rows of the capacity, {expected}, got {shapes}; "
        f"look at {' and '.join(wrong)}"
    )


def _settle(encoder: Encoder, graph: BudgetGraph) -> None:
    """Run once, then fix the attention of launch shapes that are to go by measurement."""
    with measured.listening() as heard:
        run(encoder, graph)
    graph.attention = measured.settle(heard)


RecordGraph = Callable[[Encoder, BudgetGraph], None]


_ONE_AT_A_TIME = threading.RLock()
"""Held by a session on a card: another would switch collection on again, and be counted in its bytes."""


def check_names(*, backend: str, slabs: str = "shared") -> None:
    """Refuse a backend or slabs that there are not.

    Raises:
        ValueError: If it is unknown; says which there are.
    """
    for what, name, known in (("backend", backend, BACKENDS), ("slabs", slabs, SLABS)):
        require(name in known, f"{what} must be one of {known}, got {name!r}")


def check_backend(backend: str, device: torch.device) -> None:
    """Refuse a backend that is unknown, or that an encoder's device does not have.

    Raises:
        ValueError: If it is.
    """
    check_names(backend=backend)
    if backend == "cuda" and device.type != "cuda":
        raise ValueError(
            f"backend 'cuda' needs an encoder on a CUDA device, got one on {device}; "
            "use backend 'reference'"
        )


@contextmanager
def session(
    backend: str, device: torch.device, *, home: Home | None = None
) -> Iterator[RecordGraph]:
    """Give the function that captures one graph; on cuda, one pool and one stream for all.

    Args:
        backend: "cuda" or "reference".
        device: Where the encoder lives.
        home: Pool and stream of an earlier session to go on with; new ones by default.
    """
    if backend == "reference":
        yield _reference
        return
    if home is None:
        home = streams.new_home(device)
        gc.collect()  # a third of a second with torch's modules loaded: not for each layout of a set
    stream = home.stream
    with _ONE_AT_A_TIME:
        collecting = gc.isenabled()
        gc.disable()  # a finaliser that frees CUDA handles would invalidate a capture
        stream.wait_stream(torch.cuda.current_stream(device))
        try:
            yield lambda encoder, graph: _record(encoder, graph, home=home)
        finally:
            torch.cuda.current_stream(device).wait_stream(stream)
            torch.cuda.synchronize(device)
            if collecting:
                gc.enable()


def _reference(encoder: Encoder, graph: BudgetGraph) -> None:
    """Run once: what fails here would fail at the first replay; it is kept, not raised."""
    start = time.perf_counter()
    try:
        with torch.no_grad():
            _settle(encoder, graph)
        graph.is_captured = True
    except Exception as error:
        graph.failure = explain(error, graph.capacity)
    graph.seconds = time.perf_counter() - start


def _record(encoder: Encoder, graph: BudgetGraph, *, home: Home) -> None:
    """Warm up, then capture on the shared stream and pool; a failure is kept, not raised."""
    start, stream = time.perf_counter(), home.stream
    recorded = torch.cuda.CUDAGraph()
    try:
        # A stream of its own around it all: a capture that fails leaves its stream the current one.
        with torch.no_grad(), torch.cuda.stream(stream):
            _settle(encoder, graph)
            for _ in range(_WARMUPS - 1):
                run(encoder, graph)
            with (
                memory.growth(encoder.spec.device, home.pool) as growth,
                torch.cuda.graph(
                    recorded, pool=home.pool, stream=stream, capture_error_mode="thread_local"
                ),
            ):
                run(encoder, graph)
        graph.graph, graph.home, graph.is_captured = recorded, home, True
        graph.memory = growth.memory
        home.add()
    except Exception as error:
        graph.failure = explain(error, graph.capacity)
    if graph.failure:  # after the error is gone, whose frames hold what the forward allocated
        home.abandon(recorded, encoder.spec.device)
    graph.seconds = time.perf_counter() - start


ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ \wi?B)")
FREE = re.compile(r"of which ([\d.]+ \wi?B) is free")


def explain(error: BaseException, capacity: Capacity | None = None) -> str:
    """Say what stopped a capture.

    Args:
        error: What was raised.
        capacity: The budget that was being captured, if one was.

    Returns:
        The error with the deepest line of model code, which is what a reader can change; for memory
        that ran out, the budget, what it asked for and what was free.
    """
    if isinstance(error, CaptureError):
        return str(error)
    causes = list(_causes(error))
    short = next((e for e in causes if isinstance(e, torch.OutOfMemoryError)), None)
    if short is not None:
        return _out_of_memory(str(short), capacity)
    cause = causes[-1] if _is_wrapped(error) else error
    text = (str(cause).splitlines() or ["no message"])[0]
    name = type(error).__name__
    said = f"{name}: {text}" if cause is error else f"{name}: {type(cause).__name__}: {text}"
    return f"{said} at {_where(error)}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it came from, deepest last."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = _inner(at) or at.__cause__ or at.__context__


def _inner(error: BaseException) -> BaseException | None:
    """What a compiler's error wraps: its own first line names the compiler alone."""
    inner = vars(error).get("inner_exception")
    return inner if isinstance(inner, BaseException) else None


def _is_wrapped(error: BaseException) -> bool:
    return _inner(error) is not None


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "/torch/" not in f.filename] or frames[-1:]
    return f"{inside[-1].filename}:{inside[-1].lineno} ({inside[-1].line})" if inside else "?"


def _out_of_memory(text: str, capacity: Capacity | None) -> str:
    asked, free = ASKED.search(text), FREE.search(text)
    budget = f"the budget of {capacity.tokens} tokens" if capacity else "the buffers"
    wanted = f"asked for {asked[1]}" if asked else "asked for more than there is"
    left = f"{free[1]} free" if free else "free memory not said"
    return f"out of memory: {budget} {wanted}, {left}; plan smaller or fewer budgets"
