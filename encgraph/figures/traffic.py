"""Draw traffic, and where a plan's budgets stand over it."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph import summaries
from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Plan, Route

_BINS_AN_OCTAVE = 4
_MOST_POINTS = 400
_LEAST_SHARE = 0.01
_NEAR = 2 ** (1 / 3)
"""Atoms nearer than this ratio would be labelled over one another."""


def traffic_histogram(tokens: Sequence[int], *, of: str = "request") -> go.Figure:
    """Count requests or items over their tokens, four bins to each doubling; sizes that recur stand alone.

    A size that one in a hundred shares is a mark of its own, at its tokens and as high as its count, since
    neighbours within a bin may be different budgets. Bins count them too.

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
    common = Counter(tokens).most_common(summaries.MOST_ATOMS)
    atoms = sorted(atom for atom in common if atom[1] >= max(2, _LEAST_SHARE * len(tokens)))
    traces = [steps, _stems(atoms, of)] if atoms else [steps]
    drawn = template.figure(*traces, x=f"tokens {'an' if of == 'item' else 'a'} {of}", y=f"{of}s")
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    drawn.update_yaxes(range=[0, 1.3 * max(counts)])
    return drawn.update_layout(showlegend=bool(atoms), annotations=_labels(atoms))


def _stems(atoms: Sequence[tuple[int, int]], of: str) -> go.Scatter:
    """A line from zero and a head at each (tokens, count)."""
    counts = [count for _, count in atoms]
    colour = template.ROUTE_COLOURS[Route.CAPTURE]
    return go.Scatter(
        uid="atoms",
        name="atoms: sizes that recur",
        x=[tokens for tokens, _ in atoms],
        y=counts,
        mode="markers",
        marker={"symbol": "diamond", "size": 6, "color": colour},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0] * len(counts),
            "arrayminus": counts,
            "width": 0,
            "thickness": 1.5,
            "color": colour,
        },
        hovertemplate=f"%{{y:,}} {of}s of exactly %{{x:,}} tokens<extra></extra>",
    )


def _labels(atoms: Sequence[tuple[int, int]]) -> list[dict[str, object]]:
    """The tokens of each atom above its head, upright; near ones fanned out."""
    groups: list[list[tuple[int, int]]] = []
    for atom in atoms:
        near = bool(groups) and atom[0] < groups[-1][-1][0] * _NEAR
        groups[-1].append(atom) if near else groups.append([atom])
    return [
        {
            "x": math.log10(tokens),
            "y": count,
            "text": f"{tokens:,}",
            "textangle": -90,
            "font": {"size": 11},
            "arrowcolor": template.INK,
            "arrowwidth": 0.7,
            "arrowhead": 0,
            "standoff": 4,
            "ax": 15 * (place - (len(group) - 1) / 2),
            "ay": -32,
        }
        for group in groups
        for place, (tokens, count) in enumerate(group)
    ]


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
