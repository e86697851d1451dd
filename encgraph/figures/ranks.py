"""Draw data parallel: speed over ranks by balance rule, and the loads of one burst."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.sharding import Burst, Simulated

_SYMBOLS = ("circle", "diamond", "square", "x", "cross", "triangle-up")


def speedup_by_ranks(simulated: Sequence[Simulated]) -> go.Figure:
    """Mean time on one rank over the mean makespan, one line a balance rule; dashed is ideal.

    Raises:
        ValueError: If nothing was simulated.
    """
    require(bool(simulated), "speedup by ranks needs at least one simulation")
    rules = list(dict.fromkeys(s.rule for s in simulated))
    counts = sorted({s.ranks for s in simulated})
    ideal = go.Scatter(
        uid="ideal",
        name="ideal",
        mode="lines",
        x=counts,
        y=counts,
        line={"color": template.INK, "dash": "dash", "width": 1.5},
    )
    lines = [
        go.Scatter(
            uid=template.uid(rule),
            name=template.label(rule),
            mode="lines+markers",
            x=[s.ranks for s in simulated if s.rule == rule],
            y=[round(s.speedup, 6) for s in simulated if s.rule == rule],
            # rules often agree: the ones drawn first are wider, so that they show below
            line={"color": template.colour(rule, place), "width": max(2, 4 - place)},
            marker={"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": max(7, 11 - 2 * place)},
            hovertemplate="%{x} ranks: %{y:.2f}<extra>" + template.label(rule) + "</extra>",
        )
        for place, rule in enumerate(rules)
    ]
    drawn = template.figure(ideal, *lines, x="ranks", y="time on one rank ÷ makespan, ratio")
    drawn.update_xaxes(tickvals=counts)
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def burst_loads(bursts: Mapping[str, Burst]) -> go.Figure:
    """Predicted time of each rank for one burst, by rule; the dotted line is the lower bound.

    Raises:
        ValueError: If there are none.
    """
    require(bool(bursts), "burst loads need at least one burst")
    ranks = len(next(iter(bursts.values())).rank_ms)
    bars = [
        go.Bar(
            uid=f"rank-{rank}",
            name=f"rank {rank}",
            x=[template.label(rule) for rule in bursts],
            y=[round(burst.rank_ms[rank], 6) for burst in bursts.values()],
            marker_color=template.PART_COLOURS[("slabs", "pool", "driver")[rank % 3]],
        )
        for rank in range(ranks)
    ]
    drawn = template.figure(*bars, x="balance rule", y="predicted time of a rank, ms")
    drawn.add_hline(
        y=max(burst.bound_ms for burst in bursts.values()),
        line={"color": template.INK, "dash": "dot", "width": 1.5},
        annotation_text="lower bound",
    )
    drawn.update_yaxes(rangemode="tozero")
    return drawn.update_layout(barmode="group", showlegend=True)
