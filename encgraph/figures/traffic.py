"""Draw the sizes of a traffic."""

import math
from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph import summaries
from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Route

_BINS_AN_OCTAVE = 4
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
