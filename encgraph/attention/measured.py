"""Packed attention by whichever kernel was measured fastest for a launch shape, fixed before capture.

A launch shape is what a capture bakes in. While a warm-up is listened to, `attend` notes each shape it
is called with; `settle` then times, once a process, every kernel there is on that shape, unless its rows
are other than the portable attention's, and keeps the fastest. Shapes that were never settled, such as
those of eager runs, take `plain.first`.

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
from encgraph.attention import plain, sdpa
from encgraph.errors import ParityError

CALLS = 8
"""Calls in one timed graph, so that its launch weighs little; one of a call that is long itself."""
LONG_MS = 1.0
ROUNDINGS = 16.0
"""How many roundings of its dtype a head's row may be off from the portable attention's.

Two right kernels are about one apart; one that reads another segment, or nothing, is off by all of it.
"""
LEAST_DIFFERENCE = 1e-4
"""Relative distance allowed where a dtype rounds finer than sums do that are added in another order."""
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
    """Why an attention that is here was not timed: it failed, or gave other rows than it must."""


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
    """Time every candidate that is right; one that is not or fails is out.

    If all are, the fixed order stands, and the portable attention where its first one is not right.
    """
    times: dict[str, float] = {}
    failures: dict[str, str] = {}
    true, usual = list[Tensor](), _unmeasured(launch.device, launch.dtype)
    for name in candidates(launch.device, launch.dtype):
        attend = plain.FUNCTIONS[name]
        try:
            true = true or _outputs(sdpa.in_blocks, launch, given)
            _require_right(_outputs(attend, launch, given), true)
            times[name] = _time(attend, launch, given)
        except Exception as error:  # a library that does not load, a tensor too large, no kernel
            failures[name] = (str(error).splitlines() or [type(error).__name__])[0]
            if name == usual and isinstance(error, ParityError):
                usual = "sdpa"
        if name in failures and launch.device.type == "cuda":
            broken.recover(launch.device)
    fastest = min(times, key=times.__getitem__, default=usual)
    return ChosenAttention(name=fastest, ms=times, failures=failures)


def _outputs(attend: plain.Attend, launch: Launch, given: FirstCall) -> list[Tensor]:
    """Live rows of each load."""
    q_PHD, k_PHD, v_PHD = _drawn(launch, given)
    made = []
    for offsets in loads(launch):
        offsets_S1 = torch.tensor(offsets, dtype=torch.int32, device="cpu").to(launch.device)
        out_PHD = torch.zeros_like(q_PHD, memory_format=torch.contiguous_format)
        arguments = (q_PHD, k_PHD, v_PHD, offsets_S1, launch.longest)
        made.append(attend(*arguments, scale=given.scale, out=out_PHD)[: offsets[-1]])
    return made


def _require_right(mine: Sequence[Tensor], true: Sequence[Tensor]) -> None:
    """Refuse rows of which one, of one head, is farther from the portable ones than rounding is."""
    for rows_PHD, true_PHD in zip(mine, true, strict=True):
        allowed = max(LEAST_DIFFERENCE, ROUNDINGS * torch.finfo(true_PHD.dtype).eps)
        gap_PH = torch.linalg.vector_norm(rows_PHD.float() - true_PHD.float(), dim=-1)
        size_PH = torch.linalg.vector_norm(true_PHD.float(), dim=-1)
        worst = float((gap_PH / size_PH.clamp_min(size_PH.mean())).max())
        if not worst <= allowed:
            raise ParityError(
                f"a row must be the portable attention's, but one is off by {worst:.3g} of it, "
                f"allowed {allowed:.3g}"
            )


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
    device = launch.device
    q_PHD, k_PHD, v_PHD = _drawn(launch, given)
    out_PHD = torch.zeros_like(q_PHD, memory_format=torch.contiguous_format)
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


def _drawn(launch: Launch, given: FirstCall) -> list[Tensor]:
    """Random queries, keys and values, the same each time."""
    shape = (launch.rows, launch.heads, launch.head_dim)
    generator = torch.Generator(launch.device).manual_seed(0)
    empty = [
        torch.empty_strided(shape, strides, device=launch.device, dtype=launch.dtype)
        for strides in given.strides
    ]
    return [tensor.normal_(generator=generator) for tensor in empty]


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
