"""Whether what the runner returns is right: parity under reuse, at borders, at full budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from encgraph.checks import checked, replays
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
    """Small, large, small over one pool, replayed and fallen back; all kept, and looked at last.

    Then items of rising size, each alone in a replay, up to the largest that there is time for.
    """
    low, several = subject.low, subject.several
    tokens = [(low,), several, (low,), (8 * low,), several, (10 * low, low), (low,) * 8, (low,)]
    batches = [subject.batch(*each, seed=i) for i, each in enumerate(tokens)]
    kept = [runner.execute(batch) for batch in batches]
    most = max(len(batch) for batch in batches if not subject.unreplayed(runner, batch))
    alone = [subject.batch(each) for each in subject.reach.tokens]
    with subject.runner(subject.further()[0]) as large:
        kept += [large.execute(batch) for batch in alone]
    batches += alone
    what = f"small, large and small again, up to {most} items in one replay; {subject.reach.said}"
    return _compared("parity", subject, batches, kept, what)


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
    """Each budget full in one replay: of most items, and of few large ones where there are such.

    Also one for the largest item that is tried, and those of a plan that was given.
    """
    batches: list[list[Input]] = []
    outputs: list[list[EncoderOutput]] = []
    filled: dict[int, int] = {}
    with subject.runner(*subject.further()) as further:
        captured = capture(further)
        if captured.passed is False:
            return checked.of("full_budget", captured.detail, said="")
        for graph_set in filter(None, (runner.graphs, further.graphs)):
            for capacity in graph_set.captured_plan.graphs:
                made = list(replays.filling(subject, capacity))
                batches += made
                outputs += [replays.one(graph_set, capacity, batch) for batch in made]
                most = max(map(len, made), default=0)
                filled[capacity.tokens] = max(most, filled.get(capacity.tokens, 0))
    if not batches:
        return checked.not_run("full_budget", "items fill no budget that was captured")
    found = _compared("full_budget", subject, batches, outputs, _full(subject, filled))
    most_items = max(outputs, key=len)
    if found.passed and replays.alike(most_items, found.figures["tolerance_ratio"]):
        said = f"{found.detail[0]}; items' rows are too alike to tell one in another's place"
        return replace(found, detail=(said,))
    return found


def _full(subject: Subject, filled: Mapping[int, int]) -> str:
    """By how many items each budget was filled, by tokens, and up to how many were tried."""
    each = [
        f"{tokens} tokens by {n} {'item' if n == 1 else 'items'}"
        for tokens, n in sorted(filled.items())
        if n
    ]
    unfilled = ", ".join(str(tokens) for tokens, n in sorted(filled.items()) if not n)
    whose = "budgets of the plan given among them" if subject.given else "no plan was given"
    return (
        f"full in one replay: {', '.join(each)}"
        + (f"; items fill none of {unfilled} tokens" if unfilled else "")
        + f"; up to {max(filled.values())} items in one replay, {whose}"
    )


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
