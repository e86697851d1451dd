"""Write measurements: whole ones in the place of older ones, interrupted ones beside them."""

from collections.abc import Sequence
from pathlib import Path

import typer

from encgraph import store
from encgraph.cli import output
from encgraph.curves import Kernels
from encgraph.errors import require
from encgraph.results import Measurement


def announce(file: Path, encoder: str, strategies: Sequence[str] | None = None) -> None:
    """Say before a comparison what it will take the place of.

    Rows of two runs were never interleaved, so that their ratios mean nothing: a file has one run of
    an encoder, and none that measures fewer strategies may take its place unasked.

    Args:
        file: Where the comparison will be written.
        encoder: Whose rows it will replace.
        strategies: What will be measured; None where that is always the same.

    Raises:
        ValueError: If the file has other strategies of that encoder, or cannot be read.
    """
    old = [m for m in store.read(file) if m.encoder == encoder] if file.is_file() else []
    if not old:
        return
    names = sorted({m.strategy for m in old if "/" not in m.strategy})
    when = max(m.environment.utc for m in old)[:10]
    lost = ", ".join(n for n in names if strategies is not None and n not in strategies)
    require(
        not lost,
        f"{str(file)!r} has {lost} of {encoder}, measured {when}, which this run would replace and "
        "not measure; name them in --strategies too, since times of two runs are no comparison, or "
        "choose another --out",
    )
    output.note(
        f"will replace in {file.name}: {', '.join(names)} of {encoder}, measured {when}, once all "
        "is measured"
    )


def bench(file: Path, lines: Sequence[Measurement]) -> None:
    """Replace what the file has of this encoder; see `announce`."""
    old = store.read(file) if file.is_file() else ()
    encoders = {m.encoder for m in lines}
    store.write(file, [*(m for m in old if m.encoder not in encoders), *lines])
    unfinished(file).unlink(missing_ok=True)


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
