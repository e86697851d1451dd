"""Read CSV tables of image sizes or token counts; a malformed cell stops with its line."""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from encgraph.errors import MOST, nearest, require

WHOLE = re.compile(r"\+?0*(\d+)(\.0*)?")
"""Whole numbers, also as pandas writes them into a column with gaps."""
SIDES = ("width", "height")
_TOKENS = "tokens"
_OF_A_REQUEST = ("request", "arrival_s")
COUNTS = frozenset(
    {"images", "items", "count", "num_images", "num_items", "image_count", "repeat", "repeats"}
)
"""Names of columns that would make a row several items."""
MOST_NAMED = 8
"""Columns that a note names."""
Form = Literal["sides", "tokens"]
_COLUMNS: Mapping[Form, tuple[str, ...]] = {"sides": (*SIDES, "frames"), "tokens": (_TOKENS,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One row: an image or a clip by its sides, or an image by its tokens."""

    line: int
    """Line in the file, from 1."""
    request: str
    """Name of the request it belongs to; its line where the table has no `request` column."""
    width: int = 0
    """Pixels; 0 where the table has only tokens."""
    height: int = 0
    """Pixels; 0 where the table has only tokens."""
    tokens: int = 0
    """Encoder output tokens; 0 where the table has sides."""
    frames: int = 1
    arrival_s: float | None = None
    """Seconds since the start of the trace; None where the table has no `arrival_s` column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a table, and which of its columns say how large an item is."""

    rows: tuple[TableRow, ...]
    form: Form
    """What was read."""
    unread: tuple[str, ...] = ()
    """Columns of the other form, which were passed over."""
    notes: tuple[str, ...] = ()
    """What else is in it and not read, a sentence each."""


def read(path: Path, *, prefer: Form = "sides") -> Table:
    """Read a table with columns `width,height` (and `frames`) or `tokens`; others are optional.

    Args:
        path: CSV in UTF-8 with a header line. `request` joins rows to requests, `arrival_s` says
            when each arrived; further columns are named in `Table.notes`.
        prefer: What is read of a table that has both sides and tokens.

    Raises:
        ValueError: If a column is missing, a cell is malformed or there are no rows; says where.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _table(csv.reader(file, strict=True), prefer)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be UTF-8 text: {error.reason}; save it so") from error
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path.name}: {error}") from error


def _table(reader: Any, prefer: Form) -> Table:
    header = [name.strip().lower() for name in next(reader, [])]
    require(any(header), "the file is empty; give a header such as width,height and rows")
    _check_columns(header)
    there = {form: tuple(n for n in names if n in header) for form, names in _COLUMNS.items()}
    form: Form = prefer if there[prefer] else "tokens" if there["tokens"] else "sides"
    unread = tuple(name for other, names in there.items() if other != form for name in names)
    kept = [name for name in header if name not in unread]
    several: dict[str, str] = {}
    rows = tuple(_rows(reader, header, kept, several))
    require(bool(rows), f"there is a header {','.join(header)} but no rows")
    notes = (*_strange(header, prefer), *several.values())
    return Table(rows=rows, form=form, unread=unread, notes=notes)


def _strange(header: list[str], prefer: Form) -> Iterator[str]:
    """Name the columns that nothing reads, each with what it may have been meant for."""
    known = (*_COLUMNS["sides"], *_COLUMNS["tokens"], *_OF_A_REQUEST)
    strange = [name for name in header if name and name not in known]
    missing = [n for n in (*_COLUMNS[prefer], *_OF_A_REQUEST) if n not in header]
    said = [
        f"{name:.40} ({near})" if (near := nearest(name, missing).strip()) else f"{name:.40}"
        for name in strange[:MOST_NAMED]
    ]
    if strange:
        more = f" and {len(strange) - MOST_NAMED:,} more" if len(strange) > MOST_NAMED else ""
        yield f"columns not read: {', '.join(said)}{more}"


def _rows(
    reader: Any, header: list[str], kept: list[str], several: dict[str, str]
) -> Iterator[TableRow]:
    """Rows of the table; `several` is given a note of each column that makes a row several items."""
    counts = sorted(COUNTS.intersection(header))
    for cells in reader:
        if any(cell.strip() for cell in cells):
            more = [cell for cell in cells[len(header) :] if cell.strip()]
            require(
                not more,
                f"line {reader.line_num}: must have {len(header)} fields, as the header has, got "
                f"{','.join(cells)!r:.60}; write numbers without thousands separators",
            )
            named = dict(zip(header, cells, strict=False))
            for name in counts:
                value = named.get(name, "").strip()
                if value not in ("", "1", "1.0"):
                    several.setdefault(name, _several(name, value, reader.line_num))
            yield _row(named, kept, reader.line_num)


def _several(name: str, value: str, line: int) -> str:
    return (
        f"each row counts as one item, whatever {name} says ({value!r:.20} in line {line}): write a "
        "row an item, those of a request with one name in a column request"
    )


def _check_columns(header: list[str]) -> None:
    mark = next((mark for mark in ";\t|" if mark in header[0]), "")
    require(
        len(header) > 1 or not mark,
        f"fields must be separated by commas, got {header[0]!r:.60}; save it with commas in place of "
        f"{mark!r}",
    )
    sides = set(SIDES) & set(header)
    if len(sides) == 1:
        other = (set(SIDES) - sides).pop()
        raise ValueError(f"column {other!r} is missing, got {','.join(header)!r}")
    require(
        bool(sides) or _TOKENS in header,
        f"columns must be width,height or tokens, got {','.join(header)!r}",
    )
    require(bool(sides) or "frames" not in header, "column 'frames' needs 'width' and 'height'")
    double = sorted({name for name in header if name and header.count(name) > 1})
    require(not double, f"columns must be unique, got {double!r} more than once")


def _row(cells: Mapping[str, str], header: list[str], line: int) -> TableRow:
    request = _text(cells, "request", line) if "request" in header else str(line)
    arrival_s = _seconds(cells, line) if "arrival_s" in header else None
    if "width" not in header:
        tokens = _whole(cells, _TOKENS, line)
        return TableRow(line=line, request=request, tokens=tokens, arrival_s=arrival_s)
    return TableRow(
        line=line,
        request=request,
        width=_whole(cells, "width", line),
        height=_whole(cells, "height", line),
        frames=_whole(cells, "frames", line) if "frames" in header else 1,
        arrival_s=arrival_s,
    )


def _text(cells: Mapping[str, str], name: str, line: int) -> str:
    value = cells.get(name, "").strip()
    require(bool(value), f"line {line}: {name} is missing")
    return value


def _whole(cells: Mapping[str, str], name: str, line: int) -> int:
    value = _text(cells, name, line)
    match = WHOLE.fullmatch(value)
    digits = match[1] if match else "0"
    require(
        len(digits) <= len(str(MOST)),
        f"line {line}: {name} must be at most {MOST:,}, got {value[:40]!r}",
    )
    number = int(digits)
    require(
        number >= 1, f"line {line}: {name} must be a whole number of at least 1, got {value[:40]!r}"
    )
    return number


def _seconds(cells: Mapping[str, str], line: int) -> float:
    value = _text(cells, "arrival_s", line)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    require(
        0 <= number < math.inf,
        f"line {line}: arrival_s must be seconds of at least 0, got {value[:40]!r}",
    )
    return number
