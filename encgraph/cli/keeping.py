"""Write measurements: whole ones in the place of older ones, interrupted ones beside them."""

from collections.abc import Sequence
from pathlib import Path

import typer

from encgraph import store
from encgraph.cli import output
from encgraph.curves import Kernels
from encgraph.results import Measurement


def bench(file: Path, lines: Sequence[Measurement]) -> None:
    """Replace what the file has of this encoder, since rows of two runs were never interleaved."""
    old = store.read(file) if file.is_file() else ()
    encoders = {m.encoder for m in lines}
    gone = [m for m in old if m.encoder in encoders]
    store.write(file, [*(m for m in old if m.encoder not in encoders), *lines])
    unfinished(file).unlink(missing_ok=True)
    if gone:
        names = ", ".join(sorted({m.strategy for m in gone if "/" not in m.strategy}))
        when = max(m.environment.utc for m in gone)[:10]
        output.note(f"replaced in {file.name}: {names} of {gone[0].encoder}, measured {when}")


def curve(file: Path, points: Sequence[Measurement]) -> None:
    """Replace what the file has of these kernels; other kernels' points stay."""
    new = {(m.encoder, Kernels.of(m)) for m in points}
    old = store.read(file) if file.is_file() else ()
    store.write(file, [*(m for m in old if (m.encoder, Kernels.of(m)) not in new), *points])
    unfinished(file).unlink(missing_ok=True)


def unfinished(file: Path) -> Path:
    """Where an interrupted measurement is kept, so that it takes no whole one's place."""
    return file.with_name(f"{file.name}.unfinished")


def stopped(what: str, file: Path) -> typer.Exit:
    """Say what an interrupted command kept; raise what comes back."""
    output.note(f"interrupted; kept: {what}")
    output.note(f"written: {file}")
    return typer.Exit(130)
