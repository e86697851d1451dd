"""Draw plotly figures in a notebook with one copy of plotly.js a page, and budgets that can be dragged.

A `plotly.graph_objects.FigureWidget` sends 5 MB of JavaScript each; a `Plot` sends a few kilobytes, and the first
one on a page asks for the library, which then serves all of them.
"""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import plotly.graph_objects as go
import plotly.offline
import traitlets

from encgraph.widgets import panels


@cache
def library() -> bytes:
    """plotly.js, compressed."""
    return gzip.compress(plotly.offline.get_plotlyjs().encode(), 6, mtime=0)


class Plot(anywidget.AnyWidget):
    """A plotly figure; with `tokens`, handles over its first x axis that can be dragged."""

    _esm = Path(__file__).with_name("plot.js").read_text(encoding="utf-8")
    _css = panels.CSS + Path(__file__).with_name("plot.css").read_text(encoding="utf-8")
    drawn = traitlets.Unicode("").tag(sync=True)
    """JSON of the figure."""
    label = traitlets.Unicode("").tag(sync=True)
    """What the drawing shows, for readers who cannot see it."""
    tokens = traitlets.List(traitlets.Int()).tag(sync=True)
    """Token budgets with a handle each; empty for none."""
    limits = traitlets.List(traitlets.Int(), [1, 2]).tag(sync=True)
    """Least and most tokens a handle may say."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.figure = go.Figure()
        self.on_msg(self._asked)

    def draw(self, figure: go.Figure, label: str) -> None:
        """Show a figure."""
        self.figure, self.label = figure, label
        self.drawn = str(figure.to_json(validate=False))

    def _asked(self, _: Any, message: Any, __: Any) -> None:
        if isinstance(message, dict) and message.get("wants") == "plotly":
            self.send({"gives": "plotly"}, buffers=[library()])
