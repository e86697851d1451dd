"""Whether `eager` gives what the untouched module gives: large items, many items, in order, owned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from encgraph.checks import checked, parity, reaching, replays
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import Encoder, EncoderOutput, EncoderSpec, Input

ORACLE_RATIO = 0.25
"""No tower in half precision is as far as this from itself in float32."""
MANY = 17
"""Items of one size in a batch: more than two chunks of eight, or one of sixteen, hold."""
MIXED = (2, 1, 3, 1, 4, 1, 2, 1, 1)
"""Sizes of the items of a mixed batch, in smallest items."""
REWRITTEN = 4
"""Items whose pixels are written over between two calls."""
_PLAIN = (bool, int, float, str, type(None))


def check(subject: Subject) -> Checked:
    """`eager` of a batch is what the untouched forward gives, item by item, owned and in order.

    Few items, many of one size, many of several, and items of rising size alone, up to the largest
    that there is time for. Not run where `stock` answers by the same `eager`: a thing compared with
    itself proves nothing.
    """
    encoder, few = subject.encoder, _few(subject)
    batches = [few, few[:1], *_many(subject)]
    least = len(batches)
    batches += [subject.batch(tokens) for tokens in subject.reach.tokens]
    outputs, wrong = _encoded(encoder, batches, least=least)
    if wrong:
        return checked.of("fallback", [wrong], said="")
    batches, ready = batches[: len(outputs)], iter(outputs)
    problems = [*_other_dtypes(outputs, encoder.spec), *_apart(subject, few)]
    if encoder.eager([]) != []:
        problems.append("eager of no items must return no outputs")
    problems += _rewritten(subject, batches[2][:REWRITTEN])
    differing, figures = subject.compared(lambda _: next(ready), batches)
    problems += differing
    unproven = _answers_itself(encoder)
    if unproven and not problems:
        return checked.not_run("fallback", unproven)
    said = _said(subject, batches, alone=len(batches) - least)
    if not problems and replays.alike(outputs[2], figures["tolerance_ratio"]):
        said += "; items' rows are too alike to tell one in another's place"
    return checked.of("fallback", problems, said=said, figures=figures)


def _few(subject: Subject) -> list[Input]:
    return [*subject.batch(*subject.several), *subject.batch(3 * subject.low, seed=1)]


def _many(subject: Subject) -> list[list[Input]]:
    """A batch of items of one size, and one of several sizes."""
    equal, mixed = [subject.low] * MANY, [times * subject.low for times in MIXED]
    return [subject.batch(*equal), subject.batch(*mixed, seed=1)]


def _encoded(
    encoder: Encoder, batches: Sequence[Sequence[Input]], *, least: int
) -> tuple[list[list[EncoderOutput]], str | None]:
    """What eager gives, all kept, and what is wrong with one; memory may end it after the least."""
    outputs: list[list[EncoderOutput]] = []
    for batch in batches:
        try:
            made = encoder.eager(batch)
        except Exception as error:
            if len(outputs) < least or not reaching.is_short_of_memory(error):
                raise
            break
        if not isinstance(made, list) or len(made) != len(batch):
            got = f"a list of {len(made)}" if isinstance(made, list) else type(made).__name__
            return outputs, f"eager must return a list of {len(batch)} outputs, got {got}"
        outputs.append(made)
    return outputs, None


def _other_dtypes(outputs: Sequence[Sequence[EncoderOutput]], spec: EncoderSpec) -> Iterator[str]:
    kinds = {t.dtype for made in outputs for output in made for t in output.tensors}
    if kinds != {spec.dtype}:
        yield f"eager must return {spec.dtype}, got {sorted(map(str, kinds))}"


def _rewritten(subject: Subject, batch: Sequence[Input]) -> Iterator[str]:
    """Whether an answer is kept for a tensor into which the caller has written other pixels."""
    mine = [replace(value, pixels=value.pixels.clone()) for value in batch]
    subject.encoder.eager(mine)
    for value, other in zip(mine, (*batch[1:], batch[0]), strict=True):
        if (value.pixels.shape, value.grid) == (other.pixels.shape, other.grid):
            value.pixels.copy_(other.pixels)
    for wrong in subject.compared(subject.encoder.eager, [mine])[0]:
        yield f"with other pixels written into tensors that were encoded before, {wrong}"


def _said(subject: Subject, batches: Sequence[Sequence[Input]], *, alone: int) -> str:
    """How many items of which sizes were compared, of so many batches of one item of rising size."""
    shared = batches[: len(batches) - alone]
    sizes = sorted({value.item.tokens for batch in shared for value in batch})
    counts = ", ".join(str(len(batch)) for batch in shared)
    said = (
        f"{sum(map(len, batches))} items as the untouched forward gives them: batches of {counts} "
        f"items of {', '.join(map(str, sizes))} tokens"
    )
    tried = subject.reach.tokens[:alone]
    if not tried:
        return said
    cut = subject.reach.is_cut or alone < len(subject.reach.tokens)
    return f"{said}; {replace(subject.reach, tokens=tried, is_cut=cut).said}"


def _answers_itself(encoder: Encoder) -> str | None:
    """Why nothing can be proven by `stock`, where it is what it should be compared with."""
    stock = encoder.stock()
    if stock is encoder:
        who = "stock() is the adapter itself"
    elif type(stock).eager is type(encoder).eager and _alike(_held(stock), _held(encoder)):
        who = "stock() runs the adapter's own eager on the same module"
    else:
        return None
    return f"{who}: nothing proves eager against the untouched module"


def _held(encoder: object) -> Mapping[str, object]:
    """Its own attributes; nothing for what has slots, or is no encoder at all."""
    return vars(encoder) if hasattr(encoder, "__dict__") else {}


def _alike(mine: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether two encoders hold the same things."""
    return mine.keys() == other.keys() and all(
        value is other[name] or (isinstance(value, _PLAIN) and value == other[name])
        for name, value in mine.items()
    )


def _apart(subject: Subject, batch: Sequence[Input]) -> Iterator[str]:
    """Whether `stock` and `oracle`, one module in two dtypes, disagree: both judge all else."""
    encoder = subject.encoder
    exact = encoder.spec.dtype == torch.float32
    allowed = parity.FLOAT32_TOLERANCE if exact else ORACLE_RATIO
    pairs = zip(encoder.stock().eager(batch), encoder.oracle().eager(batch), strict=True)
    for index, (mine, true) in enumerate(pairs):
        gap = parity.distance(mine, true)
        if not gap <= allowed:
            how = parity.misfit(mine, true) or f"relative error {gap:.3g}, allowed {allowed:.3g}"
            yield (
                f"item {index}: stock() and oracle() must be one untouched module in two dtypes, but "
                f"differ: {how}; either they are two, or the module itself rounds too much away to "
                "judge by"
            )
