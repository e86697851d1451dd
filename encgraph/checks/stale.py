"""Whether a change of the model after capture is seen, or refused by name; never answered wrongly.

Every change is made on the module in place and undone afterwards, so that nothing is copied and the
encoder leaves a check as it entered it.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import chain

import torch
from torch import nn

from encgraph.checks import checked, edits
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner

Change = Callable[[nn.Module], AbstractContextManager[str]]
"""Makes a change, gives what a refusal must name (alternatives joined by a bar), undoes it."""


def refused(name: str, subject: Subject, runner: EncoderRunner) -> Checked:
    """A change that a graph cannot follow raises; the message names what changed.

    Args:
        name: One of `CHANGES`.
        subject: Whose module is changed, and changed back.
        runner: Captured.
    """
    batch = subject.batch(*subject.several)
    unrepeated = subject.unrepeated(name, runner, batch)
    if unrepeated:
        return unrepeated
    lacking = _lacking(name, subject.encoder.module)
    if lacking:
        return checked.not_run(name, lacking)
    before = runner.execute(batch)
    problems = []
    with CHANGES[name](subject.encoder.module) as what:
        try:
            runner.execute(batch)
        except edits.REFUSED as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            words = what.split("|")
            if not any(word in str(error) for word in words):
                wanted = " or ".join(map(repr, words))
                problems.append(f"the refusal must say {wanted}, got {said}")
        else:
            problems.append(
                f"{what.split('|')[0]!r} changed after capture and the runner answered all the same"
            )
    if not edits.equal(runner.execute(batch), before):
        problems.append("outputs differ after the change was undone")
    return checked.of(name, problems, said=said if not problems else "")


def _lacking(name: str, module: nn.Module) -> str | None:
    """Why a change cannot be made of a module; None if it can."""
    if name in ("rebound_weight", "changed_dtype") and not list(module.parameters()):
        return "module holds no weight"
    if name == "swapped_module" and not _outermost(module):
        return "module has no submodule that holds weights"
    return None


def swapped_module(subject: Subject, runner: EncoderRunner) -> Checked:
    """A swapped submodule is refused; after a new capture it is what runs, replayed and eager.

    All submodules that hold weights are swapped at once, for copies of other weights; where that is
    not seen, one by one. Not judged further where nothing of that changes an answer of `stock`, and
    not at all where a new capture or eager is wrong with nothing swapped.
    """
    found = refused("swapped_module", subject, runner)
    batch = subject.batch(*subject.several)
    if not found.passed:
        return found
    wrong = subject.compared(runner.execute, [batch])[0] or _captured_anew(subject, batch)[0]
    if wrong:
        why = f"answers are wrong with nothing swapped: {wrong[0]}"
        return checked.unjudged("swapped_module", why)
    module, plain = subject.encoder.module, subject.encoder.stock().eager(batch)
    names = _outermost(module)
    with _all_swapped(module, names):
        if edits.equal(subject.encoder.stock().eager(batch), plain):
            return found
        problems, done = _captured_anew(subject, batch)
    if not problems:
        said = f"{found.detail[0]}; {done}"
        return checked.of("swapped_module", [], said=said, figures=found.figures)
    unseen = []
    for name in names:
        with _all_swapped(module, [name]):
            if _captured_anew(subject, batch)[0]:
                unseen.append(
                    f"submodule {name!r} swapped is not seen by a new capture or by eager: the "
                    "old one was kept; read it from the module in forward"
                )
    return checked.of("swapped_module", unseen or problems, said="")


def _captured_anew(subject: Subject, batch: Sequence[Input]) -> tuple[list[str], str]:
    """How a new capture and eager differ from the untouched forward, and what is said where not."""
    encoder, plan = subject.encoder, replace(subject.plan(), graphs=(subject.capacity(batch),))
    runner = EncoderRunner(encoder=encoder, plan=plan, backend=subject.backend)
    try:
        with runner:
            runner.capture()
            outputs = [runner.execute(batch), encoder.eager(batch)]
    except edits.REFUSED as error:
        return [], f"captured again: {type(error).__name__}: {error}"
    wrong = [_differing(subject, made, batch) for made in outputs]
    return list(chain(*wrong)), "captured again, the new one runs"


def _differing(
    subject: Subject, outputs: Sequence[EncoderOutput], batch: Sequence[Input]
) -> list[str]:
    return subject.compared(lambda _: list(outputs), [batch])[0]


def _outermost(module: nn.Module) -> list[str]:
    """Submodules that hold a weight themselves, without those inside another such one."""
    names: list[str] = []
    for name, each in module.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in names)
        if name and each._parameters and not inside:
            names.append(name)
    return names


@contextmanager
def _all_swapped(module: nn.Module, names: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(_exchanged(module, name))
        yield


@contextmanager
def _rebound(module: nn.Module) -> Iterator[str]:
    name, weight = max(module.named_parameters(), key=lambda named: named[1].dim() > 1)
    owner, _, key = name.rpartition(".")
    held = module.get_submodule(owner)._parameters
    held[key] = nn.Parameter(weight.detach() * edits.FACTOR, requires_grad=False)
    try:
        yield name
    finally:
        held[key] = weight


@contextmanager
def _other_dtype(module: nn.Module) -> Iterator[str]:
    """Weights of another dtype: torch gives every parameter another storage."""
    weights = dict(module.named_parameters())
    kept = {name: weight.data for name, weight in weights.items()}
    first = next(iter(kept.values()))
    other = torch.bfloat16 if first.dtype == torch.float32 else torch.float32
    for weight in weights.values():
        weight.data = weight.data.to(other)
    try:
        yield f"{next(iter(kept))}|dtype"
    finally:
        for name, weight in weights.items():
            weight.data = kept[name]


@contextmanager
def _swapped(module: nn.Module) -> Iterator[str]:
    name = _outermost(module)[0]
    with _exchanged(module, name):
        yield name


@contextmanager
def _exchanged(module: nn.Module, name: str) -> Iterator[None]:
    """A copy of other weights in the place of one submodule."""
    owner, _, key = name.rpartition(".")
    held = module.get_submodule(owner)._modules
    child = module.get_submodule(name)
    other = copy.deepcopy(child)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(edits.FACTOR)
    held[key] = other
    try:
        yield
    finally:
        held[key] = child


@contextmanager
def _training(module: nn.Module) -> Iterator[str]:
    modes = [(each, each.training) for each in module.modules()]
    module.train()
    try:
        yield "eval mode|training mode"
    finally:
        for each, training in modes:
            each.training = training


@contextmanager
def _hooked(module: nn.Module) -> Iterator[str]:
    name = next(iter(_outermost(module)), "")
    hook = module.get_submodule(name).register_forward_hook(lambda *_: None)
    try:
        yield "hook"
    finally:
        hook.remove()


CHANGES: dict[str, Change] = {
    "rebound_weight": _rebound,
    "changed_dtype": _other_dtype,
    "swapped_module": _swapped,
    "training_mode": _training,
    "forward_hook": _hooked,
}
