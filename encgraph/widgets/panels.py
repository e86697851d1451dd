"""What every explorer is: a column of controls and drawings that also shows itself without a front end."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ipywidgets
import traitlets

from encgraph.costs import Costs

WIDE = {"width": "100%"}
PANEL_CSS = Path(__file__).with_name("panel.css").read_text(encoding="utf-8")
"""Style of every explorer; travels with its drawings."""
_CELL = "padding:2px 12px 2px 0;text-align:"
_WRAPS = {"td": "nowrap", "th": "normal"}
"""Headings of columns wrap, so that a table of many fits a narrow page."""


class Panel(ipywidgets.VBox):  # type: ignore[misc]
    """An explorer: a title, controls, drawings and tables, one below the other.

    A saved notebook has no widgets; it keeps the tables, as HTML beside the widget.
    """

    plan = traitlets.Any(None, allow_none=True)
    """The plan looked at; explorers with one redraw when it changes."""

    def __init__(self, title: str, *rows: Any) -> None:
        self.title = title
        heading = ipywidgets.HTML(f"<b>{html.escape(title)}</b>")
        super().__init__((heading, *rows), layout={**WIDE, "padding": "4px 0 12px 0"})
        self.add_class("encgraph-explorer")

    def tables(self) -> list[str]:
        """HTML of what the explorer says now, apart from drawings."""
        return [row.value for row in _htmls(self.children[1:])]

    def close(self) -> None:
        """Close every control and drawing too, so that a cell run again leaves nothing behind."""
        for child in self.children:
            close(child)
        layout = self.layout
        super().close()
        layout.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        shown: dict[str, Any] = dict(super()._repr_mimebundle_(**kwargs) or {})
        body = "".join(f"<div>{table}</div>" for table in self.tables() if table)
        title = f"<b>{html.escape(self.title)}</b>"
        return {**shown, "text/plain": repr(self), "text/html": f"<div>{title}{body}</div>"}


def close(widget: Any) -> None:
    """Close a widget and what it holds, layouts and styles too."""
    for child in () if isinstance(widget, Panel) else getattr(widget, "children", ()):
        close(child)
    held = [getattr(widget, name, None) for name in ("layout", "style")]
    widget.close()
    for part in held:
        if part is not None:
            part.close()


def _htmls(rows: Sequence[Any]) -> list[ipywidgets.HTML]:
    found = []
    for row in rows:
        if isinstance(row, ipywidgets.HTML):
            found.append(row)
        elif isinstance(row, ipywidgets.Box) and not isinstance(row, Panel):
            found += _htmls(row.children)
    return found


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """HTML of a table, escaped; the first column is text, the others are numbers."""
    head = "".join(_cell("th", text, i) for i, text in enumerate(columns))
    body = "".join(
        "<tr>" + "".join(_cell("td", text, i) for i, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    note = f'<caption style="text-align:left">{html.escape(caption)}</caption>' if caption else ""
    return f"<table>{note}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str, column: int) -> str:
    side = "right" if column else "left"
    wraps = f"white-space:{_WRAPS[tag]};vertical-align:bottom"
    return f'<{tag} style="{_CELL}{side};{wraps}">{html.escape(text)}</{tag}>'


def note(text: str) -> str:
    """HTML of one sentence, escaped."""
    return f"<span>{html.escape(text)}</span>"


def priced(costs: Costs) -> str:
    """Where predictions come from, in words: a recorded card, or arithmetic and that it is so."""
    return f"costs {'' if costs.recorded else 'not measured on this card: '}{costs.source}"


def step(number: int, text: str) -> ipywidgets.HTML:
    """A numbered heading above what a reader does next, and why."""
    return ipywidgets.HTML(f'<div class="encgraph-step">{number}. {html.escape(text)}</div>')


def hint(text: str) -> ipywidgets.Label:
    """A sentence beside controls."""
    return ipywidgets.Label(text)


def slider(description: str, *, value: int, low: int, high: int, tip: str) -> ipywidgets.IntSlider:
    """A labelled slider of whole numbers, reachable by keyboard."""
    return ipywidgets.IntSlider(
        value=value,
        min=low,
        max=max(low, high),
        description=description,
        tooltip=tip,
        style={"description_width": "initial"},
        layout={"width": "min(420px, 100%)"},
        disabled=high <= low,
    )


def dropdown(description: str, options: Sequence[Any], *, tip: str) -> ipywidgets.Dropdown:
    """A labelled choice, the first option chosen."""
    return ipywidgets.Dropdown(
        options=options,
        description=description,
        tooltip=tip,
        style={"description_width": "initial"},
        layout={"width": "auto"},
    )


def checkbox(description: str, *, value: bool, tip: str) -> ipywidgets.Checkbox:
    """A labelled switch."""
    return ipywidgets.Checkbox(
        value=value, description=description, tooltip=tip, indent=False, layout={"width": "auto"}
    )


def controls(*widgets: Any) -> ipywidgets.HBox:
    """Controls side by side, on a new line where they do not fit."""
    return ipywidgets.HBox(
        widgets, layout={"flex_flow": "row wrap", "grid_gap": "4px 24px", "align_items": "center"}
    )
