"""Audit what graphs would capture: calls that wait or bake, cached tensors, another path in capture.

A captured region may not wait for the device, nor copy from the host, nor read a Python value off a
tensor; what it does must not depend on the inputs; and it must do under capture what it did in the
warm-up. All of that shows on any machine, by the line of the model that does it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest

import torch
from torch import Tensor

from encgraph.checks import checked, keeping, watching
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.checks.watching import Call, Watching
from encgraph.encoders.protocol import Encoder, Input
from encgraph.records import Capacity


def check(subject: Subject) -> Checked:
    """No call that waits or copies in `forward`, no tensor kept, no read of contents in `item_spec`.

    A tensor from outside module and buffers that was there before any call is said, not failed: on the
    CPU nobody can tell whether it would lie on the card.
    """
    encoder, capacity = subject.encoder, subject.capacities()[-1]
    batch = subject.batch(*subject.several)
    forward(encoder, capacity, batch, capturing=False)  # builds what a warm-up builds
    caches = list(keeping.caches(encoder))
    before = [cache.cache_info() for cache in caches]
    outside = keeping.outside(encoder)  # held, or a later tensor would lie where one of them lay
    seen = forward(encoder, capacity, batch, outside=_said_of(outside, subject, caches))
    used = [c for c, b in zip(caches, before, strict=True) if c.cache_info()[:2] != b[:2]]
    with watching.watched() as sizing:
        for value in batch:
            encoder.item_spec(value)
    problems = [str(offence) for offence in seen.offences]
    problems += [f"item_spec, which reads no contents: {offence}" for offence in sizing.offences]
    problems += [_said(cache) for cache in used if keeping.cached(cache)]
    said = f"{len(seen.calls)} operators in forward: none seen that waits or copies"
    said += (
        "".join(f"; {offence}" for offence in seen.remarks)
        or ", no use of a tensor kept in an lru_cache, an attribute or a global"
    )
    figures = {"operators_count": float(len(seen.calls))}
    return checked.of("audit", problems, said=said, figures=figures)


def _said_of(
    outside: Mapping[int, Tensor], subject: Subject, caches: Sequence[keeping.Cached]
) -> dict[int, str]:
    """Of storages from outside module and buffers: kept since the first call, or there before it.

    What an lru_cache holds is told by its name.
    """
    known = {keeping.storage_of(t) for cache in caches for t in keeping.cached(cache)}
    return {
        storage: watching.HELD_TENSOR if storage in subject.held else watching.KEPT_TENSOR
        for storage in outside
        if storage not in known
    }


def paths(subject: Subject) -> Checked:
    """The same operators with the same values, whatever the inputs, and under capture."""
    encoder, capacity = subject.encoder, subject.capacities()[-1]
    few = subject.batch(subject.low)
    forward(encoder, capacity, few)  # whatever runs once, such as a lazy build, is the warm-up's
    warm = forward(encoder, capacity, few, capturing=False).calls
    again = _difference(warm, forward(encoder, capacity, few, capturing=False).calls)
    if again:
        problem = f"with the same inputs the next time forward takes another path: {again}"
        return checked.of("paths", [problem], said="")
    others = _others(subject)
    runs = [
        *(("with other inputs", forward(encoder, capacity, o, capturing=False)) for o in others),
        ("under capture", forward(encoder, capacity, few)),
    ]
    found = [(when, _difference(warm, run.calls)) for when, run in runs]
    problems = list(
        dict.fromkeys(f"{when} forward takes another path: {how}" for when, how in found if how)
    )
    said = (
        f"{len(warm)} operators, the same with the {sum(map(len, others))} other inputs tried, in "
        f"{len(others)} batches, and under capture"
    )
    return checked.of("paths", problems, said=said)


def _others(subject: Subject) -> list[list[Input]]:
    """Batches of other values, sizes and numbers of items, all of which the largest budget holds."""
    low = subject.low
    tokens = [(low,), subject.several, (8 * low,), (low,) * 8]
    return [subject.batch(*each, seed=seed) for seed, each in enumerate(tokens, start=1)]


def forward(
    encoder: Encoder,
    capacity: Capacity,
    batch: Sequence[Input],
    *,
    capturing: bool = True,
    outside: Mapping[int, str] | None = None,
) -> Watching:
    """Run a forward on fresh buffers and return what was seen.

    Args:
        encoder: Under check.
        capacity: Of the buffers.
        batch: What they are filled with.
        capturing: Whether torch says that the stream is being captured, so that code that asks takes
            the path that a graph would hold.
        outside: What to say of operators that use tensors of these storages.
    """
    buffers = encoder.buffers(capacity, encoder.spec.device, encoder.spec.dtype)
    encoder.fill(buffers, batch)
    with (
        torch.compiler.set_stance("force_eager"),  # what is compiled shows no operators
        torch.inference_mode(),
        _said_to_capture(capturing),
        watching.watched(outside or {}) as seen,
    ):
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


def _said(cache: keeping.Cached) -> str:
    code = cache.__wrapped__.__code__
    return (
        f"{code.co_filename}:{code.co_firstlineno} ({code.co_name}): lru_cache holds a tensor, which "
        "lives in a graph's pool or is freed when evicted; call its __wrapped__ in forward"
    )
