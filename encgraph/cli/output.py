"""Write for people and for machines: tables, JSON, progress, and folders checked before work starts."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, Literal

import typer
from rich.console import Console

from encgraph import codec, tabular
from encgraph.errors import require
from encgraph.records import Plan

Holds = Literal["plan", "trace"]
PIPE_WIDTH = 120
_LONG_S = 5.0
"""A step that takes longer says so, once."""
table = tabular.table
"""A table of columns and rows, as records show themselves in a terminal."""


def bare_ms(value: float | None) -> str:
    """Milliseconds in a table whose header has the unit; a dash for none."""
    return "-" if value is None else f"{value:.2f}"


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: brackets are no markup; a pipe has room for a table."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal:
        made.width = max(made.width, PIPE_WIDTH)
    return made


def machine(values: object) -> None:
    """Write one JSON value on stdout, records included."""
    text = json.dumps(codec.encode(values), sort_keys=True, ensure_ascii=False, allow_nan=False)
    typer.echo(text)


def note(text: str) -> None:
    """Write one line for people on stderr."""
    typer.echo(text, err=True)


def bar(values: Iterable[Any], about: str) -> Iterable[Any]:
    """Show progress on stderr: a bar on a terminal, one plain line a long step elsewhere."""
    if not sys.stderr.isatty():
        return logged(values, about)
    from tqdm import tqdm

    shown: Iterable[Any] = tqdm(values, desc=about, file=sys.stderr, leave=False)
    return shown


def logged(values: Iterable[Any], about: str, *, long_s: float = _LONG_S) -> Iterator[Any]:
    """Pass values on, and write one line once that took long: how many are done, of how many."""
    began, is_said = time.monotonic(), False
    for done, value in enumerate(values):
        spent_s = time.monotonic() - began
        if done and not is_said and spent_s >= long_s:
            total = f" of {len(values):,}" if isinstance(values, Sized) else ""
            note(f"{about}: {done:,}{total} done after {spent_s:.0f} s")
            is_said = True
        yield value


@contextmanager
def working(about: str, *, long_s: float = _LONG_S) -> Iterator[None]:
    """Write one line on stderr, once what is done inside took long and cannot say how far it is."""
    timer = Timer(long_s, note, [f"{about}: not done after {long_s:.0f} s, going on"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def reading(values: Iterable[Any]) -> Iterable[Any]:
    """Show progress while a source is read."""
    return bar(values, "read")


def file(path: Path, *, holds: Holds = "trace") -> Path:
    """Check that a file can be written; its folder is made with it.

    Args:
        path: May hold an earlier result of the same kind, which is lost, and nothing else.
        holds: What is to be written.

    Raises:
        ValueError: If it cannot, before any work is done.
    """
    require(not path.is_dir(), f"output {str(path)!r} is a folder; name a file")
    folder(path.parent)
    if path.is_file() and path.stat().st_size:
        try:
            EARLIER[holds](path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            other = path.with_name(f"{path.stem}-{holds}.json")
            raise ValueError(
                f"output {str(path)!r} exists and is no {holds}, so it is not overwritten; name "
                f"another, such as {str(other)!r}"
            ) from error
    return path


def _is_trace(text: str) -> None:
    require('"traceEvents"' in text, "a trace has events")


EARLIER: Mapping[Holds, Callable[[str], object]] = {
    "plan": lambda text: codec.loads(Plan, text),
    "trace": _is_trace,
}
"""Refuse the text of a file that is not of a kind, by kind."""


def folder(path: Path) -> Path:
    """Check that files can be written into a folder, and leave none behind that was not there.

    Raises:
        ValueError: If that is impossible, before any work is done.
    """
    require(not path.is_file(), f"output folder {str(path)!r} is a file; choose another")
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise ValueError(
            f"output folder {str(path)!r} cannot be written: {error.strerror}; choose another"
        ) from error
    finally:
        with suppress(OSError):  # somebody else may have used it since
            for folder in made:
                folder.rmdir()


def write(path: Path, text: str) -> None:
    """Write a text file, and its folder where there is none.

    Raises:
        ValueError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def line(text: str) -> None:
    """Write one line on stdout as it is."""
    typer.echo(text)
