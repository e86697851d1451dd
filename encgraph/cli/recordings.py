"""Record the cost curve of an encoder on this machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from encgraph import curves, meters, recording, store
from encgraph.cli import keeping, machines, output, pacing
from encgraph.cli.options import Backend, Body
from encgraph.errors import require
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize

CPU_LARGEST = 1024
"""Largest budget recorded off a card unless told otherwise; those above take minutes each."""


def show(  # noqa: PLR0913 - a parameter an option
    size: EncoderSize,
    backend: Backend | None,
    *,
    attention: str,
    body: Body,
    largest: int | None,
    samples: int,
    folder: Path,
    as_json: bool,
) -> None:
    """Record, write the raw points as they come, and say where they are.

    Raises:
        typer.Exit: With status 130 if it was interrupted; what was recorded is kept.
    """
    machine = machines.chosen(backend)
    output.note(machine.said)
    built = machines.built(size, machine, body=body, attention=attention)
    tokens = recording.budgets(size, budgets(largest, on_card=machine.backend == "cuda"))
    gpu = meters.environment(machine.dtype, machine.device).gpu
    file = store.path(gpu, curves.experiment(size.name), root=folder)
    parts = recording.by_budget(
        built, size, tokens=tokens, backend=machine.backend, samples=samples
    )
    points = _kept(file, parts, tokens)
    if as_json:
        output.machine({"file": str(file), "points": len(points)})
        return
    console = output.console()
    told = f"{built.spec.attention} attention, {body} block"
    console.print(f"{len(points)} points of {size.name}, {told}")
    console.print(f"written: {file}")


def budgets(largest: int | None, *, on_card: bool) -> list[int]:
    """The budgets to record; few off a card, and said so.

    Raises:
        ValueError: If the largest is under every budget that is recorded.
    """
    least = recording.TOKENS[0]
    require(
        largest is None or largest >= least,
        f"--largest must be at least {least}, the smallest budget that is recorded, got {largest}",
    )
    if largest is None and not on_card:
        left = ", ".join(f"{t:,}" for t in recording.TOKENS if t > CPU_LARGEST)
        output.note(
            f"budgets up to {CPU_LARGEST:,} tokens, as a CPU is slow; {left} are left out: "
            f"--largest {recording.TOKENS[-1]} records them too"
        )
        largest = CPU_LARGEST
    return [t for t in recording.TOKENS if largest is None or t <= largest]


def _kept(
    file: Path, parts: Iterator[list[Measurement]], tokens: Sequence[int]
) -> list[Measurement]:
    """All points, written budget by budget beside the file and at the end into it."""
    points: list[Measurement] = []
    beside, done = keeping.unfinished(file), 0
    steps = [f"budget {t:,}" for t in tokens]
    try:
        weights = [*map(float, tokens), float(CPU_LARGEST)]
        for step in pacing.bar([*steps, "whole executes"], "record", weights=weights):
            points += next(parts)
            store.write(beside, points)
            done += 1
            pacing.log(f"record: {step} done, {done} of {len(steps) + 1}, {len(points)} points")
    except KeyboardInterrupt:
        if not done:
            raise
        budgets = ", ".join(f"{t:,}" for t in tokens[:done])
        raise keeping.stopped(f"{len(points)} points of budgets {budgets}", beside) from None
    keeping.curve(file, points)
    return points
