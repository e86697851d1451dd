"""Draw what choices trade: padding and time by number of graphs, replay by eager, rule by optimum."""

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph import tabular
from encgraph.errors import require
from encgraph.facts import quantile
from encgraph.figures import template
from encgraph.records import Route
from encgraph.results import Memory
from encgraph.tradeoffs import BreakEvenGrid, Gap, Judged

RULE_COLOURS = {
    "doubling": template.STRATEGY_COLOURS["doubling"],
    "quantile": "#B5651D",
    "fitted": template.ROUTE_COLOURS[Route.REPLAY],
    "eager": template.ROUTE_COLOURS[Route.EAGER],
}


def padding_by_graphs(judged: Sequence[Judged]) -> go.Figure:
    """Padding ratio on held-out requests over the number of graphs, one line a budget rule.

    Raises:
        ValueError: If no plan has graphs.
    """
    values = {(j.rule, j.graphs): j.prediction.padding_ratio for j in judged}
    lines = _lines(judged, values)
    drawn = template.figure(*lines, x="graphs captured", y="padding tokens ÷ budget tokens, ratio")
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def latency_by_graphs(judged: Sequence[Judged], *, quantile: str = "mean") -> go.Figure:
    """Predicted time on held-out requests over the number of graphs, with eager as a line.

    Args:
        judged: Plans of several rules; see `tradeoffs.rules`.
        quantile: "mean" or "p99".

    Raises:
        ValueError: If no plan has graphs.
    """
    values = {
        (j.rule, j.graphs): (
            j.prediction.mean_ms if quantile == "mean" else j.prediction.latency.p99_ms
        )
        for j in judged
    }
    lines = _lines(judged, values)
    drawn = template.figure(
        *lines, x="graphs captured", y=f"predicted {quantile} time of a request, ms"
    )
    eager = values.get(("eager", 0))
    if eager is not None:
        drawn.add_hline(
            y=eager,
            line={"color": RULE_COLOURS["eager"], "dash": "dash", "width": 2},
            annotation_text="eager",
        )
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def _lines(judged: Sequence[Judged], values: Mapping[tuple[str, int], float]) -> list[go.Scatter]:
    rules = list(dict.fromkeys(j.rule for j in judged if j.graphs))
    require(bool(rules), "comparing rules needs at least one plan with graphs")
    traces = []
    for place, rule in enumerate(rules):
        counts = sorted(graphs for name, graphs in values if name == rule and graphs)
        colour = RULE_COLOURS.get(rule, template.colour(rule, place))
        traces.append(
            go.Scatter(
                uid=template.uid(rule),
                name=template.label(rule),
                mode="lines+markers",
                x=counts,
                y=[round(values[rule, n], 6) for n in counts],
                line={"color": colour, "width": 2},
                marker={"symbol": ("circle", "diamond", "square", "x")[place % 4], "size": 7},
                hovertemplate="%{x} graphs: %{y:.3f}<extra>" + template.label(rule) + "</extra>",
            )
        )
    return traces


_FASTER = (
    (0.0, "#8A3A0C"),
    (0.35, "#D9541A"),
    (0.5, "#E8E4DC"),
    (0.65, "#2A7AB8"),
    (1.0, "#123F63"),
)
"""From eager's side through even to replay's: dark ends, told apart by the colour-blind."""


def break_even_map(grid: BreakEvenGrid, *, tokens: Sequence[int] = ()) -> go.Figure:
    """Eager time over replay time for captured by real tokens; the line is where they are even.

    Args:
        grid: See `tradeoffs.break_even`.
        tokens: Tokens of requests, drawn as a rug at the left edge, if given.
    """
    labels = [f"{t:,}" for t in grid.captured_tokens]
    ratios = [[None if r is None else min(max(r, 0.25), 4.0) for r in row] for row in grid.ratios]
    heat = go.Heatmap(
        uid="ratio",
        x=labels,
        y=[f"{t:,}" for t in grid.real_tokens],
        z=[[None if r is None else round(math.log2(r), 4) for r in row] for row in ratios],
        zmin=-2,
        zmax=2,
        colorscale=[list(stop) for stop in _FASTER],
        colorbar={
            "title": {"text": "eager ÷<br>replay"},
            "tickvals": [-2, -1, 0, 1, 2],
            "ticktext": ["≤ ¼", "½", "1", "2", "≥ 4"],
        },
        text=[["" if r is None else f"{r:.1f}" for r in row] for row in grid.ratios],
        texttemplate="%{text}",
        hovertemplate="budget %{x}, %{y} real tokens: %{text}<extra></extra>",
    )
    drawn = template.figure(heat, x="captured tokens (the budget)", y="real tokens of the load")
    drawn.update_xaxes(type="category").update_yaxes(type="category")
    if tokens:
        drawn.update_yaxes(ticktext=_shares(grid, tokens), tickvals=list(heat.y))
    return drawn.update_layout(height=440, showlegend=False)


def _shares(grid: BreakEvenGrid, tokens: Sequence[int]) -> list[str]:
    """Row labels with the share of requests that fall between the row below and this one."""
    found, below = [], 0
    for row in grid.real_tokens:
        share = sum(below < t <= row for t in tokens) / len(tokens)
        found.append(f"{row:,} ({share:.0%} of requests)")
        below = row
    return found


def optimality_gap(gaps: Sequence[Gap]) -> go.Figure:
    """Time over the optimum's for each packing rule: p50, p90, p99 and worst over requests.

    Raises:
        ValueError: If there are no gaps.
    """
    require(bool(gaps), "an optimality gap needs at least one rule")
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}
    bars = [
        go.Bar(
            uid=template.uid(gap.rule),
            name=f"{template.label(gap.rule)} (+{gap.lost_ms:.2f} ms a request)",
            x=list(shares),
            y=[round(quantile(gap.ratios, share), 6) for share in shares.values()],
            marker_color=RULE_COLOURS["eager"] if gap.rule == "all eager" else _rule(place),
            hovertemplate="%{x}: %{y:.3f}<extra>" + template.label(gap.rule) + "</extra>",
        )
        for place, gap in enumerate(gaps)
    ]
    drawn = template.figure(*bars, x="over requests", y="predicted time ÷ optimum, ratio")
    drawn.add_hline(y=1, line={"color": template.INK, "dash": "dash", "width": 1.5})
    drawn.update_yaxes(rangemode="tozero")
    return drawn.update_layout(barmode="group", showlegend=True, height=380)


def _rule(place: int) -> str:
    return ("#E3A008", "#B5651D", "#CC79A7", "#6A51A3")[place % 4]


_HELD = (template.STRATEGY_COLOURS["ours"], template.STRATEGY_COLOURS["vllm"], "#CC79A7", "#6A51A3")


def memory_by_graphs(held: Mapping[str, Mapping[int, Memory]]) -> go.Figure:
    """Total bytes over the number of graphs, one line a way of holding them.

    Args:
        held: By name, bytes by number of graphs; see `tradeoffs.memory_by_graphs`.

    Raises:
        ValueError: If there are none.
    """
    require(any(held.values()), "memory by graphs needs at least one plan with graphs")
    lines = [
        go.Scatter(
            uid=template.uid(name),
            name=template.label(name),
            mode="lines+markers",
            x=sorted(mine),
            y=[round(mine[n].total_bytes / tabular.MIB, 3) for n in sorted(mine)],
            line={"color": _HELD[place % len(_HELD)], "width": 2},
            marker={"symbol": ("circle", "diamond", "square", "x")[place % 4], "size": 7},
            hovertemplate="%{x} graphs: %{y:,.0f} MiB<extra>" + template.label(name) + "</extra>",
        )
        for place, (name, mine) in enumerate(held.items())
    ]
    drawn = template.figure(*lines, x="graphs captured", y="predicted device memory, MiB")
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)
