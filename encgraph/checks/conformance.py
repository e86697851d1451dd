"""Whether an encoder keeps the protocol: methods, buffers, fill and forward agree.

Each check says what is missing and what to do, so that an adapter can be written step by step.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import torch

from encgraph import capturing
from encgraph.checks import checked
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders import protocol
from encgraph.encoders.protocol import Buffers, Encoder, EncoderOutput, EncoderSpec, Input
from encgraph.records import Capacity, Item


def methods(encoder: Encoder) -> Checked:
    """Every member of the protocol is there, and `spec` and `module` are what they should be."""
    lacking = protocol.missing(encoder)
    problems = [f"{name!r} is missing: {_purpose(name)}" for name in lacking]
    if "spec" not in lacking:
        problems += _wrong_spec(encoder.spec)
    if "module" not in lacking and not isinstance(encoder.module, torch.nn.Module):
        problems.append(f"module must be a torch module, got {type(encoder.module).__name__}")
    return checked.of(
        "methods", problems, said=f"all {len(protocol.MEMBERS)} members of the protocol"
    )


def _purpose(name: str) -> str:
    member = vars(Encoder)[name]
    text = (member.fget if isinstance(member, property) else member).__doc__ or ""
    return text.splitlines()[0]


def _wrong_spec(spec: object) -> list[str]:
    if not isinstance(spec, EncoderSpec):
        return [f"spec must be an EncoderSpec, got {type(spec).__name__}"]
    problems = []
    if not spec.widths or min(spec.widths) < 1:
        problems.append(f"spec.widths must name the width of each output, got {spec.widths!r}")
    if not 1 <= spec.min_tokens <= spec.max_tokens:
        problems.append(
            "spec must have 1 <= min_tokens <= max_tokens, got "
            f"{spec.min_tokens!r} and {spec.max_tokens!r}"
        )
    if not spec.modalities:
        problems.append("spec.modalities must name at least one modality, got none")
    return problems


def buffers(subject: Subject) -> Checked:
    """Shapes follow from the capacity, and those of a smaller one are a prefix of a larger one's."""
    encoder, problems = subject.encoder, [*_wrong_items(subject)]
    small, *_, large = subject.capacities()
    made = {c: _allocated(encoder, c, encoder.spec.device) for c in (small, large)}
    for capacity, found in made.items():
        if not isinstance(found, Mapping) or not found:
            problems.append(f"buffers must return tensors by name, got {found!r}")
            return checked.of("buffers", problems, said="")
        problems += _unlike(found, _allocated(encoder, capacity, torch.device("meta")))
    problems += _no_prefix(made[small], made[large])
    names = ", ".join(f"{n} {tuple(t.shape)}" for n, t in made[large].items())
    return checked.of("buffers", problems, said=f"{names} at {large.tokens} tokens")


def _wrong_items(subject: Subject) -> Iterator[str]:
    for index, value in enumerate(subject.batch(*subject.several)):
        item = subject.encoder.item_spec(value)
        if not isinstance(item, Item):
            yield f"item_spec must return an Item, got {item!r} for item {index}"
        elif item.tokens != value.item.tokens:
            yield (
                f"item {index} has {value.item.tokens} tokens where item_spec says {item.tokens}; "
                "make inputs with the sizes that item_spec returns"
            )


def _allocated(encoder: Encoder, capacity: Capacity, device: torch.device) -> Buffers:
    return encoder.buffers(capacity, device, encoder.spec.dtype)


def _unlike(made: Buffers, shapes: Buffers) -> list[str]:
    """Where shapes on the meta device, which slabs are sized by, are others."""
    mine = {n: (tuple(t.shape), t.dtype) for n, t in made.items()}
    meta = {n: (tuple(t.shape), t.dtype) for n, t in shapes.items()}
    if mine == meta:
        return []
    return [f"buffers must have the same shapes on every device, got {mine!r} and {meta!r}"]


def _no_prefix(small: Buffers, large: Buffers) -> list[str]:
    if set(small) != set(large):
        return [f"every capacity must have the same buffers, got {set(small)!r} and {set(large)!r}"]
    return [
        f"buffer {name!r} must grow along its first dimension alone, got {tuple(small[name].shape)} "
        f"and {tuple(large[name].shape)} for a larger capacity"
        for name in small
        if small[name].dim() == 0
        or small[name].shape[1:] != large[name].shape[1:]
        or len(small[name]) > len(large[name])
    ]


def fill(subject: Subject) -> Checked:
    """Written in place; nothing else changed; no row of an earlier, larger batch left to be seen."""
    encoder, capacity = subject.encoder, subject.capacities()[-1]
    used, fresh = (_allocated(encoder, capacity, encoder.spec.device) for _ in range(2))
    addresses = {name: tensor.data_ptr() for name, tensor in used.items()}
    small = subject.batch(3 * subject.low, 4 * subject.low)  # ends past those of many small items
    large = subject.batch(*_most(subject, capacity), seed=1)
    given = [value.pixels.clone() for value in small]
    versions = [p._version for p in encoder.module.parameters()]
    for buffer, batch in ((used, large), (used, small), (fresh, small)):
        encoder.fill(buffer, batch)
    problems = [
        f"fill must write buffer {name!r} in place, but its address changed"
        for name, tensor in used.items()
        if tensor.data_ptr() != addresses.get(name)
    ]
    if any(not torch.equal(a, v.pixels) for a, v in zip(given, small, strict=True)):
        problems.append("fill must not change its inputs")
    if versions != [p._version for p in encoder.module.parameters()]:
        problems.append("fill must write its buffers alone, but a weight was edited")
    counts = [encoder.spec.rows(v.item) for v in small]
    if not problems and _misshapen(encoder, capacity, fresh):
        return checked.not_run("fill", "a stale tail is not judged: forward returns other rows")
    if not problems:
        problems += _stale_tail(encoder, capacity, used, fresh, counts)
    said = f"{len(used)} buffers in place; nothing of a larger batch is seen after a smaller one"
    return checked.of("fill", problems, said=said)


def _most(subject: Subject, capacity: Capacity) -> list[int]:
    return [subject.low] * min(capacity.items, capacity.tokens // subject.low)


def _misshapen(encoder: Encoder, capacity: Capacity, filled: Buffers) -> bool:
    with torch.inference_mode():
        output = encoder.forward(filled, capacity)
    wrong = capturing.misshapen(output, encoder.spec.rows(capacity), encoder.spec.widths)
    return wrong is not None


def _stale_tail(  # the two fills, and whose rows are whose
    encoder: Encoder, capacity: Capacity, used: Buffers, fresh: Buffers, counts: Sequence[int]
) -> Iterator[str]:
    with torch.inference_mode():
        mine, clean, again = (encoder.forward(b, capacity) for b in (used, fresh, fresh))
    if not all(map(checked.same, clean.tensors, again.tensors)):
        yield "forward must give the same rows for the same buffers, but gave others the next time"
        return
    start = 0
    for index, count in enumerate(counts):
        rows = slice(start, start + count)
        pairs = zip(mine.tensors, clean.tensors, strict=True)
        if any(not checked.same(a[rows], b[rows]) for a, b in pairs):
            yield (
                f"item {index} differs after a larger batch filled the same buffers: fill must "
                "clear a stale tail, or forward must not read it"
            )
        start += count


def forward(subject: Subject) -> Checked:
    """All rows of a capacity, in the spec's widths and dtype, real ones equal to stock's.

    Of several items, and of the largest item alone that there is time for.
    """
    encoder, capacity = subject.encoder, subject.capacities()[-1]
    several = subject.batch(*subject.several)
    cut, problems = _encoded(encoder, capacity, several)
    if cut is None:
        return checked.of("forward", problems, said="")
    largest = subject.batch(subject.reach.largest)
    is_held = capacity.holds(subject.load(largest))
    alone, wrong = _encoded(encoder, capacity if is_held else subject.capacity(largest), largest)
    problems += [f"the largest item alone: {said}" for said in wrong]
    if alone is None:
        return checked.of("forward", problems, said="")
    ready = iter((cut, alone))
    differing, figures = subject.compared(lambda _: next(ready), [several, largest])
    rows = encoder.spec.rows(capacity)
    said = (
        f"{rows} rows of {encoder.spec.widths}, real ones as stock gives them; the largest item "
        f"tried has {subject.reach.largest:,} tokens, {subject.reach.legal}"
    )
    return checked.of("forward", problems + differing, said=said, figures=figures)


def _encoded(
    encoder: Encoder, capacity: Capacity, batch: Sequence[Input]
) -> tuple[list[EncoderOutput] | None, list[str]]:
    """Rows of each item of a batch in fresh buffers, None where they are not there, and problems."""
    made = _allocated(encoder, capacity, encoder.spec.device)
    encoder.fill(made, batch)
    with torch.inference_mode():
        output = encoder.forward(made, capacity)
    problems = _wrong_rows(output, encoder.spec, capacity)
    if problems:
        return None, problems
    if not all(bool(torch.isfinite(t).all()) for t in output.tensors):
        problems.append("rows past the real ones must be finite, but some are not")
    counts = [encoder.spec.rows(value.item) for value in batch]
    ends = accumulate(counts)
    return [output.rows(end - n, end) for n, end in zip(counts, ends, strict=True)], problems


def _wrong_rows(output: object, spec: EncoderSpec, capacity: Capacity) -> list[str]:
    wrong = capturing.misshapen(output, spec.rows(capacity), spec.widths)
    problems = [wrong] if wrong else []
    if not isinstance(output, EncoderOutput):
        return problems
    kinds = {t.dtype for t in output.tensors}
    if kinds != {spec.dtype}:
        problems.append(f"forward must return {spec.dtype}, got {sorted(map(str, kinds))}")
    return problems
