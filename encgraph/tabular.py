"""A title, rows and a note, written as plain text, as HTML that is always escaped, or as a Rich table.

`Showing` makes a type show itself in all three ways, by what `encgraph.shows` knows of it.
"""

import html as escaping
import importlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from encgraph.columns import Fitted

if TYPE_CHECKING:
    from rich.console import Group

_MOST_ROWS = 24
MIB = 2**20
TIMES = "\N{MULTIPLICATION SIGN}"


def ms(value: float | None) -> str:
    """Milliseconds to three digits; a dash for what there is not."""
    if value is None:
        return "-"
    return f"{value:#.3g} ms" if value < 100 else f"{value:,.0f} ms"


def whole(value: int | None) -> str:
    """A whole number in thousands; a dash for what there is not."""
    return "-" if value is None else f"{value:,}"


def mib(value: int) -> str:
    """Bytes as whole mebibytes, or kibibytes where that is less than one."""
    return f"{value / 2**10:,.0f} KiB" if 0 < value < MIB else f"{value / MIB:,.0f} MiB"


def parameters(count: int) -> str:
    """A number of parameters in thousands or millions.

    >>> parameters(38_496), parameters(576_388_336)
    ('38.5 K', '576.4 M')
    """
    return f"{count / 1e3:,.1f} K" if count < 1e6 else f"{count / 1e6:,.1f} M"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a record."""

    title: str
    columns: tuple[str, ...] = ()
    """Headings; empty for rows of a name and a value."""
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    """A sentence below."""

    def _repr_html_(self) -> str:
        return page(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(lines(self))

    def __rich__(self) -> "Group":
        return rich(self)

    def __str__(self) -> str:
        return lines(self)


class Showing:
    """Shows itself: HTML in a notebook, a Rich table by `rich.print`, plain text by `str`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return page(_card(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(lines(_card(self)))

    def __rich__(self) -> "Group":
        return rich(_card(self))

    def __str__(self) -> str:
        return lines(_card(self))


def _card(record: object) -> Shown:
    """By import when first shown: records lie below what knows how to show them."""
    found: Shown = importlib.import_module("encgraph.shows").card(record)
    return found


def lines(shown: Shown) -> str:
    """A card as aligned plain text."""
    table = [list(row) for row in ((shown.columns,) if shown.columns else ()) + _few(shown.rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))] if table else []
    written = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([shown.title, *(f"  {line}" for line in written), *_noted(shown)])


def _few(rows: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    if len(rows) <= _MOST_ROWS:
        return rows
    blank = ("",) * (len(rows[0]) - 1)
    more = (f"and {len(rows) - _MOST_ROWS + 1} more", *blank)
    return (*rows[: _MOST_ROWS - 1], more)


def _noted(shown: Shown) -> list[str]:
    return [f"  ({shown.note})"] if shown.note else []


_NUMBER = re.compile(r"-|-?[\d,.]+(%| [A-Za-z]{1,3})?")


def _sides(shown: Shown) -> list[str]:
    """Where each column's text stands: numbers at the right, so that their digits line up."""
    columns = list(zip(*shown.rows, strict=True))
    told = [[cell for cell in column if cell] for column in columns]
    return ["right" if t and all(map(_NUMBER.fullmatch, t)) else "left" for t in told]


def _cell(tag: str, text: str, side: str) -> str:
    return f'<{tag} style="text-align:{side}">{_esc(text)}</{tag}>'


def page(shown: Shown) -> str:
    """A card as HTML."""
    sides = _sides(shown)
    head = "".join(_cell("th", *pair) for pair in zip(shown.columns, sides, strict=False))
    rows = "".join(
        "<tr>" + "".join(_cell("td", *pair) for pair in zip(row, sides, strict=True)) + "</tr>"
        for row in _few(shown.rows)
    )
    body = f"<table>{f'<tr>{head}</tr>' if head else ''}{rows}</table>" if shown.rows else ""
    note = f'<div style="opacity:0.7">{_esc(shown.note)}</div>' if shown.note else ""
    return f"<div><b>{_esc(shown.title)}</b>{body}{note}</div>"


def _esc(value: str) -> str:
    return escaping.escape(value, quote=True)


def rich(shown: Shown) -> "Group":
    """A card for a Rich console: title, table and note; brackets in it are no markup."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(shown.title, style="bold")]
    if shown.rows:
        columns = shown.columns or ("",) * len(shown.rows[0])
        parts.append(table(columns, _few(shown.rows)))
    parts += [Text(line.strip(), style="dim") for line in _noted(shown)]
    return Group(*parts)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Fitted:
    """A table for a Rich console, whatever its width; columns of numbers are right-aligned."""
    return Fitted(tuple(columns), tuple(tuple(row) for row in rows))
