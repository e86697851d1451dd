"""Whether an edit of weights or buffers in place is seen by the next replay, or refused.

Every edit is undone from a kept copy, also where something fails in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor

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
    weights, buffers = (
        {name: tensor for name, tensor in named if _is_float(tensor)}
        for named in (module.named_parameters(), module.named_buffers())
    )
    plain = subject.encoder.stock().eager(batch)

    def changes_stock(held: Mapping[str, Tensor]) -> bool:
        with _scaled(held):
            return not equal(subject.encoder.stock().eager(batch), plain)

    edited, tried = (
        {name: tensor for name, tensor in held.items() if _is_editable(tensor)}
        for held in (weights, buffers)
    )
    judged = {name: buffer for name, buffer in tried.items() if changes_stock({name: buffer})}
    groups = {"weight": edited if changes_stock(edited) else {}, "buffer": judged}
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
    said += _unjudged_ones("it cannot be scaled in place: weight", weights, edited)
    said += _unjudged_ones("it cannot be scaled in place: buffer", buffers, tried)
    said += _unjudged_ones("no output of stock() changes: buffer", tried, judged)
    return checked.of("edited_weight", problems, said=said, figures=figures)


def _unjudged_ones(why: str, found: Mapping[str, Tensor], judged: Mapping[str, Tensor]) -> str:
    names = ", ".join(sorted(found.keys() - judged.keys()))
    return f"; not judged, since {why} {names}" if names else ""


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
    with ExitStack() as put_back:
        for name, tensor in held.items():
            values = tensor.detach()
            put_back.callback(values.copy_, kept[name])
            values.mul_(FACTOR) if bool(values.any()) else values.fill_(FACTOR - 1)
        yield


def equal(mine: Sequence[EncoderOutput], others: Sequence[EncoderOutput]) -> bool:
    """Whether two batches of outputs are the same, bit for bit."""
    return all(
        checked.same(a, b)
        for one, other in zip(mine, others, strict=True)
        for a, b in zip(one.tensors, other.tensors, strict=True)
    )
