"""Draw a bench as a ladder: one bar a strategy, in the order of the ideas, over one of them."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph import intervals, readings, tabular
from encgraph.errors import require
from encgraph.figures import template, whiskers
from encgraph.results import Measurement


def ladder(
    lines: Sequence[Measurement],
    *,
    quantile: str = "mean",
    over: str = "eager_varlen",
    strategies: Sequence[str] = (),
) -> go.Figure:
    """One bar a strategy, in the order of the ideas, each with how many times as fast as one of them.

    Whiskers and the range after a ratio hold 95 % of draws over the choice of requests; see `intervals`. A
    line behind the bars marks the arithmetic floor: the same work at the card's rate of matrix products.

    Args:
        lines: A bench.
        quantile: What the bar shows: "mean", "p50", "p90", "p99" or "worst".
        over: The strategy that speeds are relative to; on record, drawn or not.
        strategies: Which to draw, in this order; all on record by default.

    Raises:
        ValueError: If a strategy is not on record, or the quantile is unknown.
    """
    found = {name: m for name, m in readings.summaries(lines).items() if m.latency}
    require(bool(found), "a ladder needs the summary of at least one strategy")
    names = whiskers.on_record(strategies, found)
    require(over in found, f"over must be a strategy on record, {list(found)}, got {over!r}")
    times = {
        name: whiskers.value(latency, quantile)
        for name, m in found.items()
        if (latency := m.latency)
    }
    kept = readings.requests(lines)
    spans = {name: whiskers.interval(kept.get(name, ()), quantile) for name in names}
    bars = go.Bar(
        uid="ladder",
        orientation="h",
        y=[template.label(name) for name in names],
        x=[times[name] for name in names],
        error_x=whiskers.bars([times[name] for name in names], list(spans.values())),
        marker_color=[template.colour(name, place) for place, name in enumerate(names)],
        hovertemplate="%{y}: %{x:.2f} ms<extra></extra>",
    )
    told = [_told(times, kept, name, over, quantile) for name in names]
    ends = [max(times[name], span.high if span else 0) for name, span in spans.items()]
    drawn = template.figure(
        bars,
        _beside(told, names, ends),
        x=f"{_called(found[over], quantile)} wall time of a request, ms<br>"
        f"{tabular.TIMES}: times as fast as {template.label(over)}",
        y="",
    )
    if quantile == "mean":
        _floor(drawn, [found[name] for name in names])
    drawn.update_xaxes(range=[0, 1.02 * max(ends)]).update_yaxes(autorange="reversed")
    height = 150 + 38 * len(names)
    return drawn.update_layout(showlegend=False, height=height, margin={"r": 128})


def _called(line: Measurement, quantile: str) -> str:
    return line.latency.tail_name if line.latency and quantile == "p99" else quantile


def _told(
    times: Mapping[str, float],
    kept: Mapping[str, Sequence[Measurement]],
    name: str,
    over: str,
    quantile: str,
) -> str:
    """A bar's time and its speed, with the range of the speed where both have the same requests."""
    said = f"{times[name]:.1f} ms<br> {times[over] / times[name]:.2f}{tabular.TIMES}"
    pairs = _pairs(kept.get(over, ()), kept.get(name, ()))
    if name == over or quantile == "worst" or len(pairs) < whiskers.fewest(quantile):
        return said
    span = intervals.ratio(*zip(*pairs, strict=True), share=whiskers.SHARES.get(quantile))
    return f"{said} ({span.low:.2f} to {span.high:.2f})"


def _pairs(over: Sequence[Measurement], of: Sequence[Measurement]) -> list[tuple[float, float]]:
    """What two strategies took of each request that both have."""
    base = {m.request: m.latency.p50_ms for m in over if m.latency}
    return [(base[m.request], m.latency.p50_ms) for m in of if m.latency and m.request in base]


def _beside(told: Sequence[str], names: Sequence[str], ends: Sequence[float]) -> go.Scatter:
    """What is written right of each bar and its whisker."""
    return go.Scatter(
        uid="told",
        mode="text",
        x=list(ends),
        y=[template.label(name) for name in names],
        text=[f" {text}" for text in told],
        textposition="middle right",
        textfont={"size": 11},
        cliponaxis=False,
        hoverinfo="skip",
    )


def _floor(drawn: go.Figure, lines: Sequence[Measurement]) -> None:
    floors = [ms for m in lines if (ms := m.numbers.get("arithmetic_floor_ms")) is not None]
    if floors:
        drawn.add_vline(
            x=min(floors),
            line={"color": template.INK, "width": 1.5},
            annotation_text="arithmetic floor",
            annotation_position="top",
            layer="below",
        )
