"""Draw plotly figures in a notebook with one copy of plotly.js a page, and budgets that can be dragged.

A `plotly.graph_objects.FigureWidget` sends 5 MB of JavaScript each; a `Plot` sends a few kilobytes, and the first
one on a page asks for the library, which then serves all of them.
"""

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anywidget
import plotly.graph_objects as go
import plotly.io
import plotly.offline
import traitlets

from encgraph.widgets import panels


@cache
def library() -> bytes:
    """plotly.js, compressed."""
    return gzip.compress(plotly.offline.get_plotlyjs().encode(), 6, mtime=0)


Values = Mapping[str, Any]
"""What plotly is told of a trace or of the layout, by its own names."""


class Sketch:
    """A figure laid out and checked once; each move fills in numbers, which plotly need not check again."""

    def __init__(self, figure: go.Figure) -> None:
        self._plain: Values = figure.to_dict()

    def filled(self, traces: Mapping[str, Values], layout: Values) -> Values:
        """The figure as plain values, with others for some traces, by `uid`, and for the layout."""
        data = [_merged(trace, traces.get(trace["uid"], {})) for trace in self._plain["data"]]
        return {"data": data, "layout": _merged(self._plain["layout"], layout)}


def _merged(old: Values, new: Values) -> Values:
    inner = {
        key: _merged(old[key], value) if isinstance(value, Mapping) and key in old else value
        for key, value in new.items()
    }
    return {**old, **inner}


class Plot(anywidget.AnyWidget):
    """A plotly figure; with `tokens`, handles over its first x axis that can be dragged."""

    _esm = Path(__file__).with_name("plot.js").read_text(encoding="utf-8")
    _css = panels.PANEL_CSS + Path(__file__).with_name("plot.css").read_text(encoding="utf-8")
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
        self._shown: Values = {}
        self.on_msg(self._asked)

    @property
    def figure(self) -> go.Figure:
        """What is shown, checked by plotly."""
        return go.Figure(self._shown)

    def draw(self, figure: go.Figure, label: str) -> None:
        """Show a figure."""
        self._show(figure.to_dict(), label)

    def fill(
        self,
        sketch: Sketch,
        label: str,
        *,
        traces: Mapping[str, Values],
        layout: Values = MappingProxyType({}),
    ) -> None:
        """Show a sketch with these numbers in its traces, by `uid`, and in its layout."""
        self._show(sketch.filled(traces, layout), label)

    def _show(self, shown: Values, label: str) -> None:
        self._shown = shown
        # A page makes uids of its own, fit for CSS selectors.
        data = [{k: v for k, v in trace.items() if k != "uid"} for trace in shown["data"]]
        with self.hold_sync():  # one message
            self.label = label
            self.drawn = str(plotly.io.json.to_json_plotly({**shown, "data": data}))

    def _asked(self, _: Any, message: Any, __: Any) -> None:
        if isinstance(message, dict) and message.get("wants") == "plotly":
            self.send({"gives": "plotly"}, buffers=[library()])
