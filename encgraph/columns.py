"""Lay a table out for the width of a Rich console, so that no cell is ever cut.

What does not fit in width first costs space between columns and line breaks in headings, then line
breaks in text; then the table becomes several, one below the other, each with the first column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

_TEXT_WIDTH = 20
"""Text that is longer has at least this much room; with less, a column would be mostly breaks."""
_SHORT_TEXT_WIDTH = 8
"""Short text has this much, where there is room."""
_WIDE_GAP, _TIGHT_GAP = 2, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column, and the widths that it can have."""

    name: str
    cells: tuple[str, ...]
    is_number: bool
    whole: int
    """Nothing is broken."""
    unbroken: int
    """No cell is broken, only the heading, between words."""
    least: int
    """It must have this much; less than `unbroken` for text, which breaks between words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arranged:
    """Columns side by side, with widths and the space between them."""

    columns: tuple[_Column, ...]
    widths: tuple[int, ...]
    gap: int

    def drawn(self) -> "Table":
        from rich.table import Table
        from rich.text import Text

        is_headed = any(column.name for column in self.columns)
        made = Table(
            box=None,
            header_style="bold",
            pad_edge=False,
            padding=(0, self.gap, 0, 0),
            show_header=is_headed,
        )
        headings = [_lines(c.name, w) for c, w in zip(self.columns, self.widths, strict=True)]
        deepest = max(map(len, headings))
        for column, lines, width in zip(self.columns, headings, self.widths, strict=True):
            name = Text("\n".join([""] * (deepest - len(lines)) + lines))
            side: Any = "right" if column.is_number else "left"
            made.add_column(name, justify=side, overflow="fold", width=width)
        for row in zip(*(column.cells for column in self.columns), strict=True):
            made.add_row(*map(Text, row))
        return made


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table that a Rich console draws in the width it has."""

    columns: tuple[str, ...]
    """Headings; all empty for a table without."""
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator[Any]:
        from rich.text import Text

        columns = [
            _column(name, tuple(row[n] for row in self.rows), is_first=n == 0)
            for n, name in enumerate(self.columns)
        ]
        parts = _parts(columns, options.max_width)
        if parts is None:
            yield Text("\n".join(self._listed(options.max_width)), overflow="fold")
            return
        for index, part in enumerate(parts):
            if index:
                yield Text("")
            yield part.drawn()

    def _listed(self, width: int) -> Iterator[str]:
        """A line a cell, for a console too narrow for two columns; a heading may have its own."""
        for first, *cells in self.rows:
            yield first
            for name, cell in zip(self.columns[1:], cells, strict=True):
                line = f"  {name}: {cell}"
                is_apart = _longest([line]) > width
                yield (f"  {name}:\n  {cell}" if is_apart else line) if name else f"  {cell}"


def _column(name: str, cells: tuple[str, ...], *, is_first: bool) -> _Column:
    """Measure a column; no cell of numbers or of the first column may be broken."""
    is_number = all(map(_is_number, cells))
    words = [word for cell in cells for word in cell.split()]
    heading = _longest(name.split())
    unbroken = max(_longest(cells), heading)
    text = min(unbroken, max(_TEXT_WIDTH, _longest(words), heading))
    return _Column(
        name=name,
        cells=cells,
        is_number=is_number,
        whole=max(unbroken, _longest([name]), 0 if is_number else _SHORT_TEXT_WIDTH),
        unbroken=unbroken,
        least=unbroken if is_number or is_first else text,
    )


def _parts(columns: Sequence[_Column], width: int) -> list[_Arranged] | None:
    """The fewest tables that hold all columns, about equally wide; None if two columns are too wide."""
    most = _split(columns, width, width)
    if most is None:
        return None
    narrower = (_split(columns, limit, width) for limit in range(1, width))
    return next((parts for parts in narrower if parts and len(parts) == len(most)), most)


def _split(columns: Sequence[_Column], limit: int, width: int) -> list[_Arranged] | None:
    """Fill tables of at most a width with columns in order, and draw each in the width there is."""
    first, *rest = columns
    tables = [[first]]
    for column in rest:
        if len(tables[-1]) > 1 and _arranged([*tables[-1], column], limit) is None:
            tables.append([first])
        tables[-1].append(column)
    if any(_arranged(table, limit) is None for table in tables):
        return None
    return [made for table in tables if (made := _arranged(table, width))]


def _arranged(columns: Sequence[_Column], width: int) -> _Arranged | None:
    """Columns side by side, broken as little as a width allows; None if it does not hold them."""
    whole, unbroken = [c.whole for c in columns], [c.unbroken for c in columns]
    least = [c.least for c in columns]
    for gap, widths, wanted in (
        (_WIDE_GAP, whole, whole),
        (_WIDE_GAP, unbroken, whole),
        (_TIGHT_GAP, unbroken, whole),
        (_WIDE_GAP, least, unbroken),
        (_TIGHT_GAP, least, unbroken),
    ):
        room = width - gap * (len(columns) - 1)
        if sum(widths) <= room:
            given = [
                _evened(*one) for one in zip(columns, _shared(widths, wanted, room), strict=True)
            ]
            wanted = [w if w < c.unbroken else c.whole for c, w in zip(columns, given, strict=True)]
            given = _shared(given, wanted, room)
            return _Arranged(columns=tuple(columns), widths=tuple(given), gap=gap)
    return None


def _evened(column: _Column, width: int) -> int:
    """The least width in which broken text takes no more lines: no line of one word is left over."""

    def lines(narrower: int) -> int:
        return sum(len(_lines(cell, narrower)) for cell in column.cells)

    if width >= column.unbroken:
        return width
    return next(n for n in range(column.least, width + 1) if lines(n) == lines(width))


def _shared(least: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Least widths with what is left of the room added, bit by bit, where most is wanting."""
    widths = list(least)
    for _ in range(room - sum(least)):
        lacks = [want - width for want, width in zip(wanted, widths, strict=True)]
        if max(lacks) <= 0:
            break
        widths[lacks.index(max(lacks))] += 1
    return widths


def _lines(text: str, width: int) -> list[str]:
    """Text in lines, broken between words."""
    from rich.cells import cell_len

    lines: list[str] = []
    for word in text.split():
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _longest(texts: Sequence[str]) -> int:
    """Width of the longest line in a terminal, where some letters take two cells."""
    from rich.cells import cell_len

    return max((cell_len(line) for text in texts for line in text.splitlines()), default=0)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number with at most a unit and a remark; an empty one is no obstacle."""
    return cell[:1] in "0123456789-" and len(cell.split()) <= 3
