"""Audit what graphs would capture: calls that wait or bake, cached tensors, another path in capture.

A captured region may not wait for the device, nor copy from the host, nor read a Python value off a
tensor; what it does must not depend on the inputs; and it must do under capture what it did in the
warm-up. All of that shows on any machine, by the line of the model that does it.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from encgraph.checks import checked, watching
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.checks.watching import Call, Watching
from encgraph.encoders.protocol import Encoder, Input
from encgraph.records import Capacity

Cached = Any
"""What `functools.lru_cache` makes."""


def check(subject: Subject) -> Checked:
    """No call that waits or copies in `forward`, no cached tensor, no read of contents in `item_spec`."""
    encoder, capacity = subject.encoder, subject.capacities()[-1]
    batch = subject.batch(*subject.several)
    forward(encoder, capacity, batch, capturing=False)  # builds what a warm-up builds
    caches = list(_caches(encoder))
    before = [cache.cache_info() for cache in caches]
    seen = forward(encoder, capacity, batch)
    used = [c for c, b in zip(caches, before, strict=True) if c.cache_info()[:2] != b[:2]]
    with watching.watched() as sizing:
        for value in batch:
            encoder.item_spec(value)
    problems = [str(offence) for offence in seen.offences]
    problems += [f"item_spec, which reads no contents: {offence}" for offence in sizing.offences]
    problems += [_said(cache) for cache in used if _holds_tensor(gc.get_referents(cache))]
    said = f"{len(seen.calls)} operators in forward, none waits, copies or caches a tensor"
    figures = {"operators_count": float(len(seen.calls))}
    return checked.of("audit", problems, said=said, figures=figures)


def paths(subject: Subject) -> Checked:
    """The same operators with the same values, whatever the inputs, and under capture."""
    encoder, capacity = subject.encoder, subject.capacities()[-1]
    few, many = subject.batch(subject.low), subject.batch(*subject.several, seed=1)
    forward(encoder, capacity, few)  # whatever runs once, such as a lazy build, is the warm-up's
    warm = forward(encoder, capacity, few, capturing=False).calls
    again = _difference(warm, forward(encoder, capacity, few, capturing=False).calls)
    if again:
        problem = f"with the same inputs the next time forward takes another path: {again}"
        return checked.of("paths", [problem], said="")
    others = {
        "with other inputs": forward(encoder, capacity, many, capturing=False).calls,
        "under capture": forward(encoder, capacity, few).calls,
    }
    problems = [
        f"{when} forward takes another path: {difference}"
        for when, calls in others.items()
        if (difference := _difference(warm, calls))
    ]
    said = f"{len(warm)} operators, the same with other inputs and under capture"
    return checked.of("paths", problems, said=said)


def forward(
    encoder: Encoder, capacity: Capacity, batch: Sequence[Input], *, capturing: bool = True
) -> Watching:
    """Run a forward on fresh buffers and return what was seen.

    Args:
        encoder: Under check.
        capacity: Of the buffers.
        batch: What they are filled with.
        capturing: Whether torch says that the stream is being captured, so that code that asks takes
            the path that a graph would hold.
    """
    buffers = encoder.buffers(capacity, encoder.spec.device, encoder.spec.dtype)
    encoder.fill(buffers, batch)
    with torch.inference_mode(), _said_to_capture(capturing), watching.watched() as seen:
        encoder.forward(buffers, capacity)
    return seen


@contextmanager
def _said_to_capture(capturing: bool) -> Iterator[None]:
    ask = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: capturing
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = ask


def _difference(mine: Sequence[Call], others: Sequence[Call]) -> str | None:
    """Where two runs part, or None."""
    for a, b in zip_longest(mine, others):
        if a is None or b is None:
            return f"{(a or b).place} runs in one of two runs only"
        if (a.name, a.given) != (b.name, b.given):
            if a.name == b.name:
                return f"{b.place}: {a.name} is given {a.given}, then {b.given}"
            return f"{b.place}: {b.name} instead of {a.name} at {a.place}"
    return None


def _caches(encoder: Encoder) -> Iterator[Cached]:
    """Functions with an lru_cache that the code of an encoder and its modules can reach."""
    owners = {type(encoder), *(type(m) for m in encoder.module.modules())}
    names = {base.__module__ for owner in owners for base in owner.__mro__}
    found = {id(c): c for owner in owners for c in _cached(vars(owner))}
    for module in _modules(names):
        found |= {id(c): c for c in _cached(vars(module))}
    yield from found.values()


def _modules(names: set[str]) -> Iterator[ModuleType]:
    """These modules and those that their functions come from, torch and builtins aside."""
    near = {n for n in names if n in sys.modules}
    for name in list(near):
        values = list(vars(sys.modules[name]).values())
        near |= {v.__module__ for v in values if inspect.isfunction(v)}
    for name in near:
        if name.split(".")[0] not in ("torch", "builtins", "typing") and name in sys.modules:
            yield sys.modules[name]


def _cached(names: Any) -> list[Cached]:
    return [v for v in list(names.values()) if isinstance(v, functools._lru_cache_wrapper)]


def _holds_tensor(value: Any, depth: int = 4) -> bool:
    """Whether a value is a tensor, or a container with one inside."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return depth > 0 and any(_holds_tensor(one, depth - 1) for one in value)
    return isinstance(value, Tensor)


def _said(cache: Cached) -> str:
    code = cache.__wrapped__.__code__
    return (
        f"{code.co_filename}:{code.co_firstlineno} ({code.co_name}): lru_cache holds a tensor, which "
        "lives in a graph's pool or is freed when evicted; call its __wrapped__ in forward"
    )
