"""Packed attention by whichever kernel was measured fastest for a launch shape, fixed before capture.

A launch shape is what a capture bakes in. While a warm-up is listened to, `attend` notes each shape it
is called with; `settle` then times every kernel there is on that shape and keeps the fastest, once a
process. Shapes that were never settled, such as those of eager runs, take `plain.first`.

On a card a kernel is timed inside a graph, as it will run; launched one by one, the host would be
timed.

Shape legend: P patches, H heads, D head width, S segments.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from encgraph import broken, meters
from encgraph.attention import plain

CALLS = 8
"""Calls in one timed graph, so that its launch weighs little; one of a call that is long itself."""
LONG_MS = 1.0
_SAMPLES = 3


class Launch(NamedTuple):
    """What a capture bakes into one call."""

    rows: int
    segments: int
    longest: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


class FirstCall(NamedTuple):
    """The rest of what a kernel is given, as it was first called."""

    strides: tuple[tuple[int, ...], ...]
    """Of q, k and v, in elements."""
    scale: float


Heard = dict[Launch, FirstCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenAttention:
    """The attention of one launch shape, and what it was chosen by."""

    name: str
    ms: Mapping[str, float] = field(default_factory=dict)
    """A call with the longest segments and one with the most, together, by attention."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why an attention that is here could not be timed."""


_ONE_AT_A_TIME = threading.Lock()
"""Threads share the stream of the throwaway graphs."""
_CHOSEN: dict[Launch, ChosenAttention] = {}
_HEARD: ContextVar[Heard | None] = ContextVar("heard", default=None)


def candidates(device: torch.device, dtype: torch.dtype) -> tuple[str, ...]:
    """Attentions to choose from: all that run here, on a card without sdpa, which has no fast path."""
    names = [n for n in plain.KERNEL_NAMES if n != "sdpa" or device.type != "cuda"]
    return tuple(n for n in names if plain.missing(n, device=device, dtype=dtype) is None)


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops this attention here, or None."""
    found = candidates(device, dtype)
    return None if len(found) > 1 else f"measured needs two attentions to choose from, got {found}"


def attend(  # noqa: PLR0913 - the one signature of packed attention
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    offsets_S1: Tensor,
    longest: int,
    *,
    scale: float,
    out: Tensor | None = None,
) -> Tensor:
    """Attend within segments by the kernel chosen for this shape; see `sdpa.attend`."""
    rows, heads, head_dim = q_PHD.shape
    segments = offsets_S1.shape[0] - 1
    launch = Launch(rows, segments, longest, heads, head_dim, q_PHD.dtype, q_PHD.device)
    heard = _HEARD.get()
    if heard is not None and launch not in heard:
        heard[launch] = FirstCall((q_PHD.stride(), k_PHD.stride(), v_PHD.stride()), scale)
    choice = _CHOSEN.get(launch)
    name = choice.name if choice else _unmeasured(q_PHD.device, q_PHD.dtype)
    return plain.FUNCTIONS[name](q_PHD, k_PHD, v_PHD, offsets_S1, longest, scale=scale, out=out)


@cache
def _unmeasured(device: torch.device, dtype: torch.dtype) -> str:
    """`plain.first`, which looks for files each time it is asked."""
    return plain.first(device, dtype)


@contextmanager
def listening() -> Iterator[Heard]:
    """Note the launch shapes that `attend` is called with inside the block, by this thread."""
    heard: Heard = {}
    token = _HEARD.set(heard)
    try:
        yield heard
    finally:
        _HEARD.reset(token)


@torch.no_grad()
def settle(heard: Heard) -> tuple[ChosenAttention, ...]:
    """Choose the attention of each shape that has none yet; no capture may be under way.

    Args:
        heard: What `listening` noted.

    Returns:
        The choice of each shape, in the order heard; nothing if nothing was.
    """
    for launch, given in heard.items():
        if launch not in _CHOSEN:
            _CHOSEN[launch] = _choose(launch, given)
    return tuple(_CHOSEN[launch] for launch in heard)


def _choose(launch: Launch, given: FirstCall) -> ChosenAttention:
    """Time every candidate; one that fails is out, and if all do the fixed order stands."""
    times: dict[str, float] = {}
    failures: dict[str, str] = {}
    for name in candidates(launch.device, launch.dtype):
        try:
            times[name] = _time(plain.FUNCTIONS[name], launch, given)
        except Exception as error:  # a library that does not load, a tensor too large, no kernel
            failures[name] = (str(error).splitlines() or [type(error).__name__])[0]
        if name in failures and launch.device.type == "cuda":
            broken.recover(launch.device)
    fastest = min(times, key=times.__getitem__, default=_unmeasured(launch.device, launch.dtype))
    return ChosenAttention(name=fastest, ms=times, failures=failures)


def loads(launch: Launch) -> list[list[int]]:
    """Offsets of full loads: of the longest segments there may be, and of as many as there may be.

    >>> loads(Launch(8, 2, 8, 1, 8, torch.float32, torch.device("cpu")))
    [[0, 8, 8], [0, 4, 8]]
    """
    longest = min(launch.longest, launch.rows)
    lengths = {longest, min(longest, max(1, launch.rows // launch.segments))}
    return [
        [min(n * length, launch.rows) for n in range(launch.segments + 1)]
        for length in sorted(lengths, reverse=True)
    ]


def _time(attend: plain.Attend, launch: Launch, given: FirstCall) -> float:
    """Milliseconds of one call a load, over both loads, on random rows."""
    device, shape = launch.device, (launch.rows, launch.heads, launch.head_dim)
    generator = torch.Generator(device).manual_seed(0)
    q_PHD, k_PHD, v_PHD = (
        torch.empty_strided(shape, strides, device=device, dtype=launch.dtype).normal_(
            generator=generator
        )
        for strides in given.strides
    )
    out_PHD = torch.zeros(shape, device=device, dtype=launch.dtype)
    offsets_S1 = torch.zeros(launch.segments + 1, device=device, dtype=torch.int32)
    run = partial(
        attend,
        *(q_PHD, k_PHD, v_PHD, offsets_S1, launch.longest),
        scale=given.scale,
        out=out_PHD,
    )
    if device.type != "cuda":
        return _called(run, offsets_S1, loads(launch))
    with _ONE_AT_A_TIME:
        return _graphed(run, offsets_S1, loads(launch))


def _called(run: partial[Tensor], offsets_S1: Tensor, full: Sequence[Sequence[int]]) -> float:
    total = 0.0
    for offsets in full:
        offsets_S1.copy_(torch.tensor(offsets, device="cpu"))
        total += meters.wall(run, offsets_S1.device, samples=_SAMPLES, warmups=1).p50_ms
    return total


def _graphed(run: partial[Tensor], offsets_S1: Tensor, full: Sequence[Sequence[int]]) -> float:
    """Replay one graph of several calls, whose offsets change in place between loads."""
    device = offsets_S1.device
    before = torch.cuda.current_stream(device)
    own = broken.RESET_TAKES_ALL or before == torch.cuda.default_stream(device)
    stream = _stream(device) if own else before
    stream.wait_stream(before)
    total = 0.0
    with torch.cuda.device(device), torch.cuda.stream(stream):
        offsets_S1.copy_(torch.tensor(full[0], device="cpu"))
        # The first call loads libraries and builds plans, which a capture may not.
        once = meters.device(run, device, samples=1, warmups=1)
        calls = CALLS if once.p50_ms < LONG_MS else 1
        graph = _recorded(run, calls, device)
        for offsets in full:
            offsets_S1.copy_(torch.tensor(offsets, device="cpu"))
            timed = meters.device(graph.replay, device, samples=_SAMPLES, warmups=1)
            total += timed.p50_ms / calls
        graph.reset()
    before.wait_stream(stream)
    return total


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Of throwaway graphs alone: since 2.13 torch takes, with one, what others of its stream use."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _recorded(run: partial[Tensor], calls: int, device: torch.device) -> torch.cuda.CUDAGraph:
    """So many calls in one throwaway graph, on the current stream and in a pool of its own."""
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    torch.cuda.current_stream().synchronize()
    try:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            for _ in range(calls):
                run()
        finally:
            graph.capture_end()
    except Exception:
        broken.abandon(graph, pool, device, keep=False)
        raise
    return graph
