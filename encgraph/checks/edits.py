"""Whether an edit of weights or buffers in place is seen by the next replay, or refused.

Every edit is undone from a kept copy, also where something fails in between.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from encgraph.checks import checked, keeping, watching
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner

Changes = Callable[[Mapping[str, Tensor]], bool]
"""Whether an edit of these tensors changes an answer."""
FACTOR = 1.25
"""Exact in every float dtype; undone by the kept copy, not by division."""
SHAPED_LIKE = re.compile(r"::new_|_like$")
"""Operators that take sizes and dtype of a tensor, and none of its values."""
MOST_UNJUDGED = 8
"""Tensors named of those that tell nothing."""
REFUSED = (RuntimeError, ValueError)
"""What a runner raises for a change that a graph cannot follow."""


def edited_weight(subject: Subject, runner: EncoderRunner) -> Checked:
    """Every weight and every float buffer edited in place is seen, derived copies included.

    All weights at once, and all buffers; one by one where that is not seen. A weight of which no edit
    changes an answer of `stock` is not judged, and fails where the module keeps a copy that does. Nothing
    is judged where replays are wrong as they are, since they then are after any edit.
    """
    batch, module = subject.batch(*subject.several), subject.encoder.module
    unreplayed = subject.unreplayed(runner, batch)
    if unreplayed:
        return checked.not_run("edited_weight", f"{checked.UNJUDGED}{unreplayed}")
    why = _unjudged(subject, runner, batch, when="before any edit")
    if why:
        return checked.unjudged("edited_weight", why)
    weights, buffers = (
        {name: tensor for name, tensor in named if _is_float(tensor)}
        for named in (module.named_parameters(), module.named_buffers())
    )
    edited, tried = (
        {name: tensor for name, tensor in held.items() if _is_editable(tensor)}
        for held in (weights, buffers)
    )
    changes = _changing(subject, batch)
    idle = _idle(_unread(subject, batch, edited), changes)
    moved = {name: weight for name, weight in edited.items() if name not in idle}
    judged = {name: buffer for name, buffer in tried.items() if changes({name: buffer})}
    groups = {"weight": moved if changes(moved) else {}, "buffer": judged}
    problems = list(_kept(subject, idle, changes))
    if not any(groups.values()) and not problems:
        return checked.not_run(
            "edited_weight", "an edit of all weights changes no output of stock()"
        )
    done, figures = list[str](), dict[str, float]()
    for what, held in groups.items():
        if held:
            wrong, found = _edited(what, held, subject, runner, batch)
            problems += wrong
            done.append("is seen by the next replay" if found else "is refused")
            figures |= found
    why = _unjudged(subject, runner, batch, when="once all edits are undone")
    if why:
        return checked.unjudged("edited_weight", why)
    said = (
        f"an edit of {len(groups['weight'])} weights and {len(judged)} float buffers in place "
        + " or ".join(dict.fromkeys(done))
    )
    said += _unjudged_ones("it cannot be scaled in place: weight", weights, edited)
    said += _unjudged_ones("it cannot be scaled in place: buffer", buffers, tried)
    said += _unjudged_ones("no output of stock() changes: weight", edited, groups["weight"])
    said += _unjudged_ones("no output of stock() changes: buffer", tried, judged)
    return checked.of("edited_weight", problems, said=said, figures=figures)


def _changing(subject: Subject, batch: Sequence[Input]) -> Changes:
    """Whether an edit of all of these changes an answer of `stock`."""
    plain = subject.encoder.stock().eager(batch)

    def changes(held: Mapping[str, Tensor]) -> bool:
        with _scaled(held):
            return not equal(subject.encoder.stock().eager(batch), plain)

    return changes


def _unread(
    subject: Subject, batch: Sequence[Input], weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Weights of which no operator of the untouched forward is seen to be given the values."""
    by_storage = {keeping.storage_of(weight): name for name, weight in weights.items()}
    with torch.compiler.set_stance("force_eager"), watching.watched(by_storage) as seen:
        subject.encoder.stock().eager(batch)
    read = {offence.why for offence in seen.offences if not SHAPED_LIKE.search(offence.call)}
    return {name: weight for name, weight in weights.items() if name not in read}


def _idle(held: dict[str, Tensor], changes: Changes) -> dict[str, Tensor]:
    """Of these, the ones whose edit changes nothing; found by halves."""
    if not held or not changes(held):
        return held
    if len(held) == 1:
        return {}
    names = list(held)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    first, second = ({name: held[name] for name in half} for half in halves)
    return _idle(first, changes) | _idle(second, changes)


def _kept(subject: Subject, idle: Mapping[str, Tensor], changes: Changes) -> Iterator[str]:
    """Weights of which the module reads a copy, found by its values, in their place."""
    outside = keeping.outside(subject.encoder).values() if idle else ()
    for name, weight in idle.items():
        for other in outside:
            if _is_copy(other, weight) and changes({name: other}):
                yield (
                    f"weight {name!r} edited in place is not seen, not even by stock(): a copy of it "
                    "was kept and is read in its place"
                )


def _is_copy(other: Tensor, weight: Tensor) -> bool:
    """Whether one tensor has another's values, and these are not all one value."""
    is_like = (other.shape, other.dtype, other.device) == (
        weight.shape, weight.dtype, weight.device
    )  # fmt: skip
    return (
        is_like
        and _is_editable(other)
        and torch.equal(other, weight)
        and bool((other != other.flatten()[0]).any())
    )


def _unjudged_ones(why: str, found: Mapping[str, Tensor], judged: Mapping[str, Tensor]) -> str:
    names = sorted(found.keys() - judged.keys())
    further = f" and {len(names) - MOST_UNJUDGED} more" if len(names) > MOST_UNJUDGED else ""
    named = ", ".join(names[:MOST_UNJUDGED]) + further
    return f"; not judged, since {why} {named}" if names else ""


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_editable(tensor: Tensor) -> bool:
    """Whether values can be scaled in place: not of 8 bits, and none that lies in several places."""
    spread = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.element_size() > 1 and spread + 1 >= tensor.numel()


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


def _unjudged(
    subject: Subject, runner: EncoderRunner, batch: Sequence[Input], *, when: str
) -> str | None:
    """Why no edit can be judged; None where replays of the unedited module are right."""
    wrong, _ = subject.compared(runner.execute, [batch])
    return f"replays are wrong {when}: {wrong[0]}" if wrong else None


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
    """Other values in place: every second one scaled, and where all are zero, others than zero.

    Not every one: what is normalised afterwards is the same for weights of twice their size.
    """
    kept = {name: tensor.detach().clone() for name, tensor in held.items()}
    with ExitStack() as put_back:
        for name, tensor in held.items():
            whole = tensor.detach()
            put_back.callback(whole.copy_, kept[name])
            values = whole[..., ::2] if whole.dim() else whole
            values.mul_(FACTOR) if bool(values.any()) else values.fill_(FACTOR - 1)
        yield


def equal(mine: Sequence[EncoderOutput], others: Sequence[EncoderOutput]) -> bool:
    """Whether two batches of outputs are the same, bit for bit."""
    return all(
        checked.same(a, b)
        for one, other in zip(mine, others, strict=True)
        for a, b in zip(one.tensors, other.tensors, strict=True)
    )
