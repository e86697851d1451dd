"""Whether outputs are the caller's: nothing that runs later may change them, or it says so loudly."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from encgraph.checks import checked
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import StaleBufferError
from encgraph.runner import EncoderRunner


def check(subject: Subject, runner: EncoderRunner) -> Checked:
    """Keep the outputs of every route, run more on every route, and look at them again.

    A replay of one item, of several, of a full budget; a fallback; a direct call of `eager`.
    """
    low = subject.low
    tokens = [(low,), subject.several, (8 * low,), (10 * low,)]
    kept = {str(list(each)): runner.execute(subject.batch(*each)) for each in tokens}
    kept["eager"] = subject.encoder.eager(subject.batch(*subject.several))
    before = {name: [t.clone() for t in _tensors(each)] for name, each in kept.items()}
    for seed, each in enumerate((*tokens, *tokens[::-1]), start=1):
        runner.execute(subject.batch(*each, seed=seed))
        subject.encoder.eager(subject.batch(*each, seed=seed))
    problems = [
        f"a later batch changed outputs of {name}; return rows of a tensor of their own"
        for name, each in kept.items()
        if not all(map(checked.same, _tensors(each), before[name]))
    ]
    owned = _storages(runner.graphs.slabs if runner.graphs else ())
    problems += [
        f"outputs of {name} lie in a static buffer of the graphs"
        for name, each in kept.items()
        if _storages(_tensors(each)) & owned
    ]
    problems += [
        f"outputs of {name} require gradients, which keeps every activation alive; "
        "put @torch.no_grad() on eager"
        for name, each in kept.items()
        if any(tensor.requires_grad for tensor in _tensors(each))
    ]
    said = f"outputs of {len(kept)} routes stay the caller's"
    return checked.of("ownership", problems, said=said)


def borrowing(subject: Subject, runner: EncoderRunner) -> Checked:
    """A borrowed output is what `execute` gives, and raises once a replay has overwritten it."""
    batch = subject.batch(subject.low)
    unrepeated = subject.unrepeated("borrowing", runner, batch)
    if unrepeated:
        return unrepeated
    [borrowed] = runner.borrow(batch)
    mine = [t.clone() for t in borrowed.tensor().tensors]
    [owned] = runner.execute(batch)
    same = all(map(checked.same, mine, owned.tensors))
    problems = [] if same else ["a borrowed output differs from the owned one"]
    try:
        borrowed.tensor()
    except StaleBufferError:
        pass
    else:
        problems.append("a borrowed output can still be read after a later replay overwrote it")
    return checked.of("borrowing", problems, said="a borrowed output expires with the next replay")


def _tensors(outputs: Sequence[EncoderOutput]) -> Iterator[Tensor]:
    for output in outputs:
        yield from output.tensors


def _storages(tensors: Iterator[Tensor] | Sequence[Tensor]) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}
