"""Draw what was predicted of a bench against what was measured: a point on the diagonal is right."""

from collections.abc import Callable, Mapping, Sequence

import plotly.graph_objects as go

from encgraph import readings, tabular
from encgraph.errors import require
from encgraph.figures import template
from encgraph.results import Measurement

BAND = 0.1
"""Within so much of the measured value, a prediction lies in the band."""
PREDICTED_MS = "predicted_ms"
"""Number of a request's line that holds what was predicted of it, where a bench has it."""
Points = Mapping[str, Sequence[tuple[float, float]]]
"""(predicted, measured) of each strategy, by name."""


def predicted_against_measured(lines: Sequence[Measurement], *, of: str = "time") -> go.Figure:
    """Measured over predicted on equal axes, with the diagonal and a band of a tenth around it.

    Of time a point is a request where each has a prediction of its own on record, else a strategy's mean
    (filled) and p99 (open). Of bytes a point is a strategy: what its graphs hold (filled), and what the
    device lost to it while they were captured (open).

    Args:
        lines: A bench.
        of: "time" or "bytes".

    Raises:
        ValueError: If `of` is unknown, or nothing was predicted.
    """
    drawings: Mapping[str, Callable[[Sequence[Measurement]], tuple[Points, str, str]]] = {
        "time": _times,
        "bytes": _bytes,
    }
    require(of in drawings, f"of must be one of {list(drawings)}, got {of!r}")
    points, x, y = drawings[of](lines)
    both = [value for pairs in points.values() for pair in pairs for value in pair]
    require(bool(both), f"nothing was predicted of the {of} of these strategies")
    low, high = 0.8 * min(both), 1.25 * max(both)
    by_request = max(len(pairs) for pairs in points.values()) > 2
    clouds = [_cloud(name, points[name], place, by_request) for place, name in enumerate(points)]
    drawn = template.figure(*_diagonal(low, high), *clouds, x=x, y=y)
    axis = template.log_values(low, high)
    return drawn.update_xaxes(axis).update_yaxes(axis).update_layout(showlegend=True, height=460)


def _times(lines: Sequence[Measurement]) -> tuple[Points, str, str]:
    requests = {
        name: [
            (m.numbers[PREDICTED_MS], m.latency.p50_ms)
            for m in mine
            if m.latency and m.numbers.get(PREDICTED_MS)
        ]
        for name, mine in readings.requests(lines).items()
    }
    if any(requests.values()):
        found = {name: pairs for name, pairs in requests.items() if pairs}
        return found, "predicted time of a request, ms", "measured time of a request, ms"
    points = {
        name: [
            (m.numbers["predicted_mean_ms"], m.latency.mean_ms),
            (m.numbers["predicted_p99_ms"], m.latency.p99_ms),
        ]
        for name, m in readings.summaries(lines).items()
        if m.latency and m.numbers.get("predicted_mean_ms")
    }
    return points, "predicted mean (filled) and p99 (open), ms", "measured, ms"


def _bytes(lines: Sequence[Measurement]) -> tuple[Points, str, str]:
    points: dict[str, list[tuple[float, float]]] = {}
    for name, m in readings.summaries(lines).items():
        predicted = m.numbers.get("predicted_bytes", 0.0) / tabular.MIB
        if predicted and m.memory:
            held = [m.memory.total_bytes, m.numbers.get("device_bytes", 0.0)]
            points[name] = [(predicted, b / tabular.MIB) for b in held if b > 0]
    return points, "predicted device memory, MiB", "held (filled) and taken (open), MiB"


def _diagonal(low: float, high: float) -> list[go.Scatter]:
    """The band, lower edge first, and the line where both are equal."""
    edges = [
        go.Scatter(
            uid=name,
            name=f"within {BAND:.0%}",
            showlegend=name == "upper",
            mode="lines",
            x=[low, high],
            y=[factor * low, factor * high],
            line={"width": 0},
            fill="tonexty" if name == "upper" else None,
            fillcolor=template.GRID,
            hoverinfo="skip",
        )
        for name, factor in (("lower", 1 / (1 + BAND)), ("upper", 1 / (1 - BAND)))
    ]
    line = go.Scatter(
        uid="equal",
        mode="lines",
        x=[low, high],
        y=[low, high],
        line={"color": template.INK, "dash": "dash", "width": 1.5},
        showlegend=False,
        hoverinfo="skip",
    )
    return [*edges, line]


def _cloud(
    name: str, pairs: Sequence[tuple[float, float]], place: int, by_request: bool
) -> go.Scatter:
    symbol = ("circle", "diamond", "square", "triangle-up", "cross")[place % 5]
    return go.Scatter(
        uid=template.uid(name),
        name=template.label(name),
        mode="markers",
        x=[round(predicted, 6) for predicted, _ in pairs],
        y=[round(measured, 6) for _, measured in pairs],
        marker={
            "color": template.colour(name, place),
            "symbol": symbol if by_request else [symbol, f"{symbol}-open"][: len(pairs)],
            "size": 5 if by_request else 10,
            "opacity": 0.6 if by_request else 1,
        },
        hovertemplate="%{x:.4g} predicted, %{y:.4g} measured<extra>"
        + template.label(name)
        + "</extra>",
    )
