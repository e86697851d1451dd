"""Draw traffic, and where a plan's budgets stand over it."""

import math
from bisect import bisect_left
from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Plan, Route

_BINS_AN_OCTAVE = 4
_MOST_POINTS = 400


def traffic_histogram(tokens: Sequence[int], *, of: str = "request") -> go.Figure:
    """Count requests or items over their tokens, four bins to each doubling.

    Args:
        tokens: Tokens of each.
        of: What is counted, in the singular: "request" or "item".

    Raises:
        ValueError: If there is nothing to count.
    """
    require(bool(tokens), f"a traffic histogram needs at least one {of}")
    bins = [math.floor(_BINS_AN_OCTAVE * math.log2(t) + 1e-9) for t in tokens]
    first, last = min(bins), max(bins)
    edges = [2 ** (n / _BINS_AN_OCTAVE) for n in range(first, last + 2)]
    counts = [bins.count(n) for n in range(first, last + 1)]
    steps = go.Scatter(
        uid="traffic",
        name=f"{of}s",
        x=edges,
        y=[*counts, counts[-1]],
        mode="lines",
        line={"shape": "hv", "color": template.ROUTE_COLOURS[Route.REPLAY], "width": 1.5},
        fill="tozeroy",
        fillcolor=template.TRAFFIC,
        hovertemplate=f"from %{{x:,.0f}} tokens: %{{y:,}} {of}s<extra></extra>",
    )
    drawn = template.figure(steps, x=f"tokens {'an' if of == 'item' else 'a'} {of}", y=f"{of}s")
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=False)


def _thinned(tokens: Sequence[int]) -> tuple[list[float], list[int]]:
    """Shares 0 to 1 and sorted tokens at them, few enough to draw, both ends kept."""
    ordered = sorted(tokens)
    count = min(len(ordered), _MOST_POINTS)
    picks = [round(i * (len(ordered) - 1) / max(1, count - 1)) for i in range(count)]
    return [(i + 1) / len(ordered) for i in picks], [ordered[i] for i in picks]


def budgets_over_traffic(plan: Plan, tokens: Sequence[int]) -> go.Figure:
    """Stand a plan's budgets over sorted requests; what lies between is padding.

    Each request is taken whole, in the smallest budget with enough tokens; a request over every
    budget falls back and has no padding.

    Args:
        plan: Its token budgets are drawn; other limits are not.
        tokens: Tokens of each request.

    Raises:
        ValueError: If there are no requests.
    """
    require(bool(tokens), "budgets over traffic need at least one request")
    shares, ordered = _thinned(tokens)
    budgets = plan.token_budgets
    held = bisect_left([t > budgets[-1] for t in ordered], True) if budgets else 0
    rows = [budgets[bisect_left(budgets, t)] for t in ordered[:held]]
    # past the largest budget its upper edge is the request itself, so that no area hangs over
    upper = [*rows, *ordered[held:]] if rows else []
    traces = [
        _area("requests", shares, ordered, fill=template.TRAFFIC),
        _area("padding", shares, upper, fill=template.PADDING_AREA),
        _area("fallback", shares[held:], ordered[held:], fill="rgba(217,84,26,0.55)"),
    ]
    drawn = template.figure(
        *(t for t in traces if t is not None),
        x="share of requests, smallest first",
        y="tokens a request",
    )
    drawn.update_xaxes(range=[0, 1])
    drawn.update_yaxes(template.log_tokens(ordered[0], max(ordered[-1], *budgets, 1)))
    low, high = ordered[0], max(ordered[-1], *rows, 1)
    drawn.update_yaxes(range=[math.log10(low * 0.8), math.log10(high * 1.25)])
    return drawn


def _area(name: str, shares: list[float], rows: list[int], *, fill: str) -> go.Scatter | None:
    """One curve with the area under it, down to the curve before it for padding."""
    if not rows:
        return None
    colours = {
        "requests": template.ROUTE_COLOURS[Route.REPLAY],
        "padding": template.PADDING,
        "fallback": template.ROUTE_COLOURS[Route.FALLBACK],
    }
    titles = {
        "requests": "tokens of the request",
        "padding": "padding up to its budget",
        "fallback": "over every budget: fallback",
    }
    return go.Scatter(
        uid=name,
        name=titles[name],
        x=shares,
        y=rows,
        mode="lines",
        line={"color": colours[name], "width": 0 if name == "padding" else 1.5},
        fill="tonexty" if name == "padding" else "tozeroy",
        fillcolor=fill,
        hovertemplate="%{y:,} tokens<extra></extra>",
    )
