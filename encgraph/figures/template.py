"""Define the look of every figure once: the template `encgraph`, colours, symbols and labels."""

import html
import math
import re
import textwrap

import plotly.graph_objects as go
import plotly.io as pio

from encgraph.records import Route

ROUTE_COLOURS = {
    Route.REPLAY: "#2A7AB8",
    Route.FALLBACK: "#D9541A",
    Route.EAGER: "#8E8E8E",
    Route.CAPTURE: "#B07AA1",
}
"""One colour a route; told apart with red-green and blue-yellow blindness, on white and on black."""
ROUTE_SYMBOLS = {
    Route.REPLAY: "circle",
    Route.FALLBACK: "diamond",
    Route.EAGER: "x",
    Route.CAPTURE: "square",
}
STRATEGY_COLOURS = {
    "eager": ROUTE_COLOURS[Route.EAGER],
    "eager_varlen": "#BDBDBD",
    "eager_compiled": "#A48FB0",
    "eager_fused": "#7F6A94",
    "vllm": "#E3A008",
    "vllm_manager": "#F0C86B",
    "vllm_tuned": "#B5651D",
    "encgraph_plain": "#7DB5DE",
    "ladder_compile": "#4E9BD3",
    "encgraph": ROUTE_COLOURS[Route.REPLAY],
    "ours": ROUTE_COLOURS[Route.REPLAY],
    "doubling": "#E3A008",
}
"""Eager in greys, compiled in violet ones, vLLM and its doubling budgets in browns, ours in blues."""
PART_COLOURS = {
    "slabs": "#2A7AB8",
    "tensors": "#2A7AB8",
    "idle": "#BDBDBD",
    "pool": "#7DB5DE",
    "driver": "#7B68C8",
}
PADDING = "#E3A008"
"""Rows computed for nobody, hatched wherever a bar can be."""
PADDING_PATTERN = {"shape": "/", "size": 5, "fillmode": "overlay"}
TRAFFIC = "rgba(42,122,184,0.40)"
INK = "#808080"
GRID = "rgba(128,128,128,0.25)"
FONT = "Open Sans, Liberation Sans, DejaVu Sans, sans-serif"
_OTHER = ("#009E73", "#CC79A7", "#56B4E9", "#6A51A3", "#D55E00", "#A6761D", "#666666")


def colour(name: str, position: int = 0) -> str:
    """Colour of a strategy or route by name; other names take one by their position."""
    routes = {route.value: value for route, value in ROUTE_COLOURS.items()}
    return {**routes, **STRATEGY_COLOURS}.get(name, _OTHER[position % len(_OTHER)])


def label(text: str) -> str:
    """Text as plotly should draw it: its pseudo-HTML taken literally."""
    return html.escape(text, quote=False)


def uid(name: str) -> str:
    """A trace's `uid` from its name; plotly makes CSS selectors of it, so no punctuation."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", name)


def wrapped(text: str, width: int = 22) -> str:
    """A label broken into lines, so that long ones leave room for the figure."""
    return "<br>".join(label(line) for line in textwrap.wrap(text, width, break_long_words=False))


def _axis() -> dict[str, object]:
    return {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zerolinecolor": GRID,
        "tickcolor": GRID,
        "automargin": True,
        "separatethousands": True,
        "title": {"standoff": 10, "font": {"size": 13}},
    }


TEMPLATE = go.layout.Template(
    layout={
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": INK},
        "colorway": [ROUTE_COLOURS[Route.REPLAY], *_OTHER],
        "xaxis": _axis(),
        "yaxis": _axis(),
        "margin": {"l": 8, "r": 12, "t": 40, "b": 8},
        "height": 340,
        "hovermode": "closest",
        "bargap": 0.35,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
    }
)
pio.templates["encgraph"] = TEMPLATE


def figure(*traces: object, x: str, y: str) -> go.Figure:
    """A figure of traces in the template, its axes titled with their units."""
    drawn = go.Figure(list(traces))
    drawn.update_layout(template=TEMPLATE, xaxis_title_text=x, yaxis_title_text=y)
    return drawn


def log_tokens(lowest: int, highest: int) -> dict[str, object]:
    """A logarithmic axis of tokens with a tick at powers of two or four within the range."""
    powers = [2**n for n in range(40) if lowest / 2 < 2**n < highest * 2]
    ticks = powers if len(powers) < 9 else powers[len(powers) % 2 :: 2]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{t:,}" for t in ticks]}


def log_values(lowest: float, highest: float) -> dict[str, object]:
    """A logarithmic axis, ticks at 1, 2 and 5 times each power of ten; more over a short range, fewer over a long one."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    steps: tuple[float, ...] = (1, 2, 5) if highest < 2000 * lowest else (1,)
    if highest < 5 * lowest:
        steps = (1, 1.5, 2, 3, 4, 5, 7)
    every = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    ticks = [tick for tick in every if lowest / 2 <= tick <= highest * 2]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{t:,.6g}" for t in ticks]}


def sourced(drawn: go.Figure, source: str, *, width: int = 130) -> go.Figure:
    """The figure with where its numbers come from below it.

    Args:
        drawn: The figure; it is changed and returned.
        source: A sentence, such as `readings.source` or the `source` of a cost model.
        width: Characters a line.
    """
    return drawn.update_layout(
        title={
            "text": wrapped(source, width),
            "font": {"size": 10},
            "x": 0,
            "xanchor": "left",
            "y": 0.02,
            "yref": "container",
            "yanchor": "bottom",
            "pad": {"l": 8},
            "automargin": True,
        }
    )
