"""A title, rows and a note, written as aligned plain text or as HTML that is always escaped."""

import html as escaping
from dataclasses import dataclass

_MOST_ROWS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a record."""

    title: str
    columns: tuple[str, ...] = ()
    """Headings; empty for rows of a name and a value."""
    rows: tuple[tuple[str, ...], ...] = ()
    note: str = ""
    """A sentence below."""


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


def page(shown: Shown) -> str:
    """A card as HTML."""
    head = "".join(f'<th style="text-align:left">{_esc(name)}</th>' for name in shown.columns)
    rows = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{_esc(cell)}</td>' for cell in row) + "</tr>"
        for row in _few(shown.rows)
    )
    body = f"<table>{f'<tr>{head}</tr>' if head else ''}{rows}</table>" if shown.rows else ""
    note = f'<div style="opacity:0.7">{_esc(shown.note)}</div>' if shown.note else ""
    return f"<div><b>{_esc(shown.title)}</b>{body}{note}</div>"


def _esc(value: str) -> str:
    return escaping.escape(value, quote=True)
