"""Whether bad inputs get a clear error that names the item, and leave the other items alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from encgraph.checks import checked, parity
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner
from encgraph.sizes import Grid

Spoil = Callable[[Input], Input]
BAD = 1
"""Which item of three is spoiled."""
_SAME_RATIO = 0.05
"""Within half-precision rounding of pixels, another answer is the same answer."""

SPOILED: dict[str, Spoil] = {
    "a value a patch too few": lambda v: replace(v, pixels=v.pixels[..., :-1]),
    "a patch too few": lambda v: replace(v, pixels=v.pixels[:-1]),
    "no patches": lambda v: replace(v, pixels=v.pixels[:0]),
    "axes in another order": lambda v: replace(v, pixels=v.pixels.transpose(0, -1)),
    "integer pixels": lambda v: replace(v, pixels=v.pixels.to(torch.int32)),
    "pixels that require gradients": lambda v: replace(
        v, pixels=v.pixels.detach().clone().requires_grad_()
    ),
    "a grid one patch higher": lambda v: replace(v, grid=Grid(v.grid.t, v.grid.h + 1, v.grid.w)),
    "a grid of no frames": lambda v: replace(v, grid=Grid(0, v.grid.h, v.grid.w)),
    "one token too many": lambda v: replace(v, item=replace(v.item, tokens=v.item.tokens + 1)),
}


def check(subject: Subject, runner: EncoderRunner) -> Checked:
    """Each way to spoil the middle one of three items: an error that names it, or the right answer.

    An encoder may ignore what was spoiled (a grid, where it has none); then nothing may change.
    """
    good = subject.batch(*subject.several)
    unrepeated = subject.unrepeated("bad_inputs", runner, good, within=_SAME_RATIO)
    if unrepeated:
        return unrepeated
    right = runner.execute(good)
    problems = [] if runner.execute([]) == [] else ["no items must give no outputs"]
    for what, spoil in SPOILED.items():
        spoiled = _spoiled(good[BAD], spoil)
        if spoiled is not None and not _alike(spoiled, good[BAD]):
            bad = [*good[:BAD], spoiled, *good[BAD + 1 :]]
            problems += [f"{what}: {said}" for said in _wrong(runner, bad, right)]
    strided = [*good[:BAD], _strided(good[BAD]), *good[BAD + 1 :]]
    problems += [f"pixels that lie apart in memory: {s}" for s in _wrong(runner, strided, right)]
    problems += _mixed_dtypes(subject, runner, good, right)
    said = f"{len(SPOILED)} kinds of bad item refused by name, the other items encoded"
    return checked.of("bad_inputs", problems, said=said)


def _spoiled(value: Input, spoil: Spoil) -> Input | None:
    """The spoiled input; None where torch or a record refuses to make it."""
    try:
        return spoil(value)
    except (RuntimeError, ValueError):
        return None


def _strided(value: Input) -> Input:
    """The same values, each second one of a larger tensor's: a view, as a transposed image is one."""
    pixels = value.pixels
    return replace(value, pixels=torch.stack((pixels, torch.zeros_like(pixels)), dim=-1)[..., 0])


def _alike(mine: Input, other: Input) -> bool:
    """Whether nobody can tell them apart by their sizes, such as square pixels with axes swapped."""
    return (
        (mine.pixels.shape, mine.pixels.dtype) == (other.pixels.shape, other.pixels.dtype)
        and (mine.grid, mine.item) == (other.grid, other.item)
        and not mine.pixels.requires_grad
    )


def _wrong(
    runner: EncoderRunner, bad: Sequence[Input], right: Sequence[EncoderOutput]
) -> Iterator[str]:
    """What is wrong with how a spoiled batch is answered."""
    try:
        if not _same(runner.execute(bad), right):
            yield "accepted, with another answer; refuse it in item_spec"
        return
    except (ValueError, TypeError) as error:
        if f"item {BAD}" not in str(error):
            yield f"the error must name item {BAD}, got {str(error)[:120]!r}"
    except Exception as error:
        yield f"must be a ValueError from item_spec, got {type(error).__name__}: {str(error)[:120]}"
        return
    each = runner.execute_each(bad)
    others = [
        (mine, true) for i, (mine, true) in enumerate(zip(each, right, strict=True)) if i != BAD
    ]
    if not isinstance(each[BAD], Exception):
        yield "execute refuses the item and execute_each does not"
    elif not all(isinstance(m, EncoderOutput) and _same([m], [t]) for m, t in others):
        yield "the other items are not encoded as they are without it"


def _mixed_dtypes(
    subject: Subject,
    runner: EncoderRunner,
    good: Sequence[Input],
    right: Sequence[EncoderOutput],
) -> Iterator[str]:
    """Pixels of three dtypes in one batch are converted, or refused by name."""
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    mixed = [replace(v, pixels=v.pixels.to(d)) for v, d in zip(good, dtypes, strict=False)]
    if any(not v.pixels.is_floating_point() for v in good):
        return
    try:
        if not _same(runner.execute(mixed), right):
            yield "mixed dtypes: another answer"
    except ValueError as error:
        if "item" not in str(error):
            yield f"mixed dtypes: the error must name the item, got {str(error)[:120]!r}"


def _same(mine: Sequence[EncoderOutput], others: Sequence[EncoderOutput]) -> bool:
    pairs = zip(mine, others, strict=True)
    return all(parity.distance(a, b) <= _SAME_RATIO for a, b in pairs)
