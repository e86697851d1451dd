"""Whether an edit of weights or buffers in place is seen by the next replay, or refused.

Every edit is undone from a kept copy, also where something fails in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from encgraph.checks import checked
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner

FACTOR = 1.25
"""Exact in every float dtype; undone by the kept copy, not by division."""
REFUSED = (RuntimeError, ValueError)
"""What a runner raises for a change that a graph cannot follow."""


def edited_weight(subject: Subject, runner: EncoderRunner) -> Checked:
    """Every weight and every float buffer edited in place is seen, derived copies included.

    Not judged where replays are wrong as they are, since they then are after any edit.
    """
    batch, module = subject.batch(*subject.several), subject.encoder.module
    why = _unjudged(subject, runner, batch)
    if why:
        return checked.not_run("edited_weight", why)
    weights, buffers = dict(module.named_parameters()), _float_buffers(module)
    judged = {
        name: buffer
        for name, buffer in buffers.items()
        if not _overlaps(buffer) and _changes_stock(subject, batch, {name: buffer})
    }
    groups: dict[str, Mapping[str, Tensor]] = {
        "weight": weights if _changes_stock(subject, batch, weights) else {},
        "buffer": judged,
    }
    if not any(groups.values()):
        return checked.not_run(
            "edited_weight", "an edit of all weights changes no output of stock()"
        )
    problems, done, figures = list[str](), list[str](), dict[str, float]()
    for what, held in groups.items():
        if held:
            wrong, found = _edited(what, held, subject, runner, batch)
            problems += wrong
            done.append("is seen by the next replay" if found else "is refused")
            figures |= found
    why = _unjudged(subject, runner, batch)
    if why:
        return checked.not_run("edited_weight", why)
    said = (
        f"an edit of {len(groups['weight'])} weights and {len(judged)} float buffers in place "
        + " or ".join(dict.fromkeys(done))
    )
    if ignored := ", ".join(sorted(buffers.keys() - judged.keys())):
        said += f"; not judged, since no output of stock() changes: buffer {ignored}"
    return checked.of("edited_weight", problems, said=said, figures=figures)


def _float_buffers(module: nn.Module) -> dict[str, Tensor]:
    return {
        name: tensor
        for name, tensor in module.named_buffers()
        if tensor.is_floating_point() or tensor.is_complex()
    }


def _overlaps(tensor: Tensor) -> bool:
    """Whether one value lies in several places of a tensor, as `expand` makes it: not to be written."""
    return any(step == 0 and n > 1 for step, n in zip(tensor.stride(), tensor.shape, strict=True))


def _changes_stock(subject: Subject, batch: Sequence[Input], held: Mapping[str, Tensor]) -> bool:
    """Whether an edit of all of these at once changes an answer of the untouched forward."""
    plain = subject.encoder.stock().eager(batch)
    with _scaled(held):
        return not equal(subject.encoder.stock().eager(batch), plain)


def _edited(
    what: str,
    held: Mapping[str, Tensor],
    subject: Subject,
    runner: EncoderRunner,
    batch: Sequence[Input],
) -> tuple[list[str], dict[str, float]]:
    """How replays of all of these edited at once are wrong, and figures; one by one where they are."""
    with _scaled(held):
        wrong, figures = _seen(subject, runner, batch)
    if not wrong:
        return [], figures
    unseen = []
    for name, tensor in held.items():
        with _scaled({name: tensor}):
            if _seen(subject, runner, batch)[0]:
                unseen.append(
                    f"{what} {name!r} edited in place is not seen: something derived "
                    "from it was kept; derive it in forward, or hold a view"
                )
    return unseen or wrong, figures


def _unjudged(subject: Subject, runner: EncoderRunner, batch: Sequence[Input]) -> str | None:
    """Why no edit can be judged; None where replays of the unedited module are right."""
    why = subject.unreplayed(runner, batch)
    if why:
        return why
    wrong, _ = subject.compared(runner.execute, [batch])
    return f"not judged: replays are wrong before any edit: {wrong[0]}" if wrong else None


def _seen(
    subject: Subject, runner: EncoderRunner, batch: Sequence[Input]
) -> tuple[list[str], dict[str, float]]:
    """How replays differ from the untouched forward of what was edited; nothing if refused."""
    try:
        outputs = runner.execute(batch)
    except REFUSED:
        return [], {}
    return subject.compared(lambda _: outputs, [batch])


@contextmanager
def _scaled(held: Mapping[str, Tensor]) -> Iterator[None]:
    """Other values in place: scaled ones, and where all are zero, others than zero."""
    kept = {name: tensor.detach().clone() for name, tensor in held.items()}
    try:
        with torch.no_grad():
            for tensor in held.values():
                tensor.mul_(FACTOR) if bool(tensor.any()) else tensor.fill_(FACTOR - 1)
        yield
    finally:
        with torch.no_grad():
            for name, tensor in held.items():
                tensor.copy_(kept[name])


def equal(mine: Sequence[EncoderOutput], others: Sequence[EncoderOutput]) -> bool:
    """Whether two batches of outputs are the same, bit for bit."""
    return all(
        checked.same(a, b)
        for one, other in zip(mine, others, strict=True)
        for a, b in zip(one.tensors, other.tensors, strict=True)
    )
