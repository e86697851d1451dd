"""Draw how full replays were, and why items fell back."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.facts import quantile
from encgraph.figures import template
from encgraph.records import FallbackReason, Route, Step

_SINGLE_TICKS = 6
"""Below this count an axis of items has a tick for each."""
_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


def fill(steps: Sequence[Step]) -> go.Figure:
    """Spread of the fill ratio over the replays of each token budget.

    A bar reaches the median, so that replays all alike can be seen; the box on it spans half of the
    replays and its whiskers p10 to p90. The hover says how many there were.

    Raises:
        ValueError: If no step is a replay.
    """
    groups: dict[int, list[float]] = {}
    for step in steps:
        if step.route is Route.REPLAY and step.token_budget:
            ratio = step.real_tokens / step.token_budget
            groups.setdefault(step.token_budget, []).append(ratio)
    require(bool(groups), "fill needs at least one replay")
    budgets = sorted(groups)
    columns = [[quantile(groups[b], s) for b in budgets] for s in _SHARES]
    low, lower, median, upper, high = columns
    names = [f"{b:,}" for b in budgets]
    colour = template.ROUTE_COLOURS[Route.REPLAY]
    bars = go.Bar(
        uid="median",
        x=names,
        y=median,
        width=0.5,
        marker_color=colour,
        opacity=0.35,
        hoverinfo="skip",
    )
    boxes = go.Box(
        uid="fill",
        name="replays",
        x=names,
        width=0.3,
        lowerfence=low,
        q1=lower,
        median=median,
        q3=upper,
        upperfence=high,
        mean=[sum(groups[b]) / len(groups[b]) for b in budgets],
        marker_color=colour,
        line_width=1.5,
        hovertext=[f"{len(groups[b]):,} replays" for b in budgets],
    )
    drawn = template.figure(bars, boxes, x="token budget", y="fill ratio of a replay")
    drawn.update_xaxes(type="category")
    return drawn.update_yaxes(range=[0, 1.02]).update_layout(showlegend=False)


def fallback_reasons(counts: Mapping[FallbackReason, int]) -> go.Figure:
    """Items that fell back, by reason, most at the top.

    Raises:
        ValueError: If nothing fell back.
    """
    require(bool(counts), "fallback reasons need at least one fallback")
    reasons = sorted(counts, key=lambda reason: (counts[reason], reason))
    bars = go.Bar(
        uid="fallbacks",
        orientation="h",
        y=[template.wrapped(reason.value) for reason in reasons],
        x=[counts[reason] for reason in reasons],
        text=[f"{counts[reason]:,}" for reason in reasons],
        textposition="auto",
        marker_color=template.ROUTE_COLOURS[Route.FALLBACK],
        hovertemplate="%{y}: %{x:,} items<extra></extra>",
    )
    drawn = template.figure(bars, x="items that fell back", y="")
    drawn.update_xaxes(rangemode="tozero", tickformat=",d")
    if max(counts.values()) < _SINGLE_TICKS:
        drawn.update_xaxes(dtick=1)
    return drawn.update_layout(showlegend=False, height=120 + 46 * len(reasons))
