"""Whether what the runner returns is right: parity under reuse, at borders, at full budgets."""

from collections.abc import Sequence

from encgraph.checks import checked
from encgraph.checks.checked import Checked
from encgraph.checks.subject import TILE, Subject
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.runner import EncoderRunner


def capture(runner: EncoderRunner) -> Checked:
    """Every budget was captured; if not, the line of the model that stopped it."""
    made = runner.graphs.graphs if runner.graphs else []
    problems = [f"{g.capacity.tokens} tokens: {g.failure}" for g in made if not g.is_captured]
    said = f"budgets {', '.join(str(g.capacity.tokens) for g in made)}"
    figures = {"capture_s": sum(g.seconds for g in made)}
    return checked.of("capture", problems, said=said, figures=figures)


def parity(subject: Subject, runner: EncoderRunner) -> Checked:
    """Small, large, small over one pool, replayed and fallen back; all kept, and looked at last."""
    low = subject.low
    tokens = [(low,), subject.several, (low,), (8 * low,), subject.several, (10 * low, low), (low,)]
    batches = [subject.batch(*each, seed=i) for i, each in enumerate(tokens)]
    kept = [runner.execute(batch) for batch in batches]
    return _compared("parity", subject, batches, kept, "small, large and small again")


def clips(subject: Subject, runner: EncoderRunner) -> Checked:
    """Clips alone, and images and clips in one batch."""
    low, modalities = subject.low, subject.encoder.spec.modalities
    if len(modalities) < 2:
        return checked.not_run(
            "clips", f"{subject.encoder.spec.name} takes {min(modalities)} alone"
        )
    clip = subject.batch(4 * low, frames=4)
    mixed = [*subject.batch(low), *subject.batch(2 * low, frames=2, seed=1), *subject.batch(low)]
    batches = [clip, mixed]
    return _compared("clips", subject, batches, [runner.execute(b) for b in batches], "clips")


def boundaries(subject: Subject, runner: EncoderRunner) -> Checked:
    """The same total in other items: what differs is where one ends, nothing else."""
    low = subject.low
    tokens = [(2 * low, low, low), (low, low, 2 * low), (low, 3 * low), (4 * low,)]
    batches = [subject.batch(*each) for each in tokens]
    total = subject.load(batches[0]).tokens
    same = list({_tokens(b): b for b in batches if subject.load(b).tokens == total}.values())
    if len(same) < 2:
        return checked.not_run("boundaries", f"items make {total} tokens in one way only")
    outputs = [runner.execute(batch) for batch in same]
    return _compared("boundaries", subject, same, outputs, f"{len(same)} ways to one total")


def last_row(subject: Subject, runner: EncoderRunner) -> Checked:
    """The last live row just before, on and just after the border of an attention tile."""
    made = [subject.batch(*tokens) for tokens in subject.around_a_tile]
    batches = [
        batch
        for batch in made
        if abs(subject.load(batch).patches - TILE) <= TILE // 8
        or abs(subject.load(batch).tokens - TILE) <= TILE // 8
    ]
    if not batches:
        return checked.not_run("last_row", "no legal item ends near a tile's border")
    outputs = [runner.execute(batch) for batch in batches]
    ends = ", ".join(str(subject.load(batch).tokens) for batch in batches)
    return _compared("last_row", subject, batches, outputs, f"last rows {ends}")


def full_budget(subject: Subject, runner: EncoderRunner) -> Checked:
    """Each budget full: with one item, whose segment is the longest there is, and with most items."""
    batches = []
    for capacity in runner.graphs.captured_plan.graphs if runner.graphs else ():
        many = min(capacity.items, capacity.tokens // subject.low)
        for tokens in {(capacity.tokens,), (subject.low,) * many}:
            batch = subject.batch(*tokens)
            if capacity.holds(subject.load(batch)):
                batches.append(batch)
    if not batches:
        return checked.not_run("full_budget", "items fill no budget that was captured")
    outputs = [runner.execute(batch) for batch in batches]
    return _compared("full_budget", subject, batches, outputs, f"{len(batches)} full budgets")


def _tokens(batch: Sequence[Input]) -> tuple[int, ...]:
    return tuple(value.item.tokens for value in batch)


def _compared(
    name: str,
    subject: Subject,
    batches: Sequence[Sequence[Input]],
    outputs: Sequence[list[EncoderOutput]],
    what: str,
) -> Checked:
    """Compare outputs that are there already with the untouched forward."""
    ready = iter(outputs)
    problems, figures = subject.compared(lambda _: next(ready), batches)
    worst = figures.get("worst_error_ratio", 0.0)
    said = f"{what}: worst relative error {worst:.3g}, {figures['tolerance_ratio']:.3g} allowed"
    return checked.of(name, problems, said=said, figures=figures)
