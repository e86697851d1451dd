"""Draw packings: a batch's bins as bars, and a plan's budgets over the tokens they pad."""

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph.budgets import Routed
from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Item, Packing, Route

_BINS_AN_OCTAVE = 8
_SHADES = ("#2A7AB8", "#7DB5DE", "#1B4F78", "#56A0D3")


def bins_of_batch(packings: Mapping[str, Packing], batch: Sequence[Item]) -> go.Figure:
    """Each packing of one batch as rows of bars: a row a replay, its items, its padding; eager last.

    Args:
        packings: By rule, drawn from the top.
        batch: The items they pack.

    Raises:
        ValueError: If nothing was packed.
    """
    rows = [
        (f"{rule} · {place}", parts)
        for rule, packed in packings.items()
        for place, parts in enumerate(_rows(packed, batch), start=1)
    ]
    require(bool(rows), "bins of a batch need at least one packed item")
    deepest = max(len(parts) for _, parts in rows)
    labels = [template.label(name) for name, _ in rows]
    bars = [
        go.Bar(
            uid=f"part-{depth}",
            orientation="h",
            y=labels,
            x=[parts[depth][0] if depth < len(parts) else 0 for _, parts in rows],
            text=[_written(parts, depth) for _, parts in rows],
            customdata=[parts[depth][1] if depth < len(parts) else "" for _, parts in rows],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            marker={
                "color": [_colour(parts, depth) for _, parts in rows],
                "line": {"color": template.INK, "width": 0.5},
                "pattern": {
                    **template.PADDING_PATTERN,
                    "shape": [_pattern(parts, depth) for _, parts in rows],
                },
            },
            hovertemplate="%{y}: %{customdata} %{x:,} tokens<extra></extra>",
        )
        for depth in range(deepest)
    ]
    drawn = template.figure(*bars, x="tokens computed; hatched: padding", y="")
    drawn.update_xaxes(rangemode="tozero").update_yaxes(autorange="reversed", type="category")
    return drawn.update_layout(
        barmode="stack",
        showlegend=False,
        height=110 + 30 * len(rows),
        bargap=0.2,
        uniformtext={"minsize": 9, "mode": "hide"},
    )


def _rows(packed: Packing, batch: Sequence[Item]) -> list[list[tuple[int, str]]]:
    """A row a bin: (tokens, what), padding last; then a row for what is left to eager."""
    rows = []
    for bin in packed.bins:
        parts = [(batch[i].tokens, f"{batch[i].tokens:,}") for i in bin.items]
        padding = [(bin.padding_tokens, "padding")] if bin.padding_tokens else []
        rows.append([*parts, *padding])
    left = [(batch[f.item].tokens, f"eager {batch[f.item].tokens:,}") for f in packed.fallback]
    return [*rows, left] if left else rows


def _written(parts: Sequence[tuple[int, str]], depth: int) -> str:
    """What stands in a bar; padding is told by its hatching."""
    what = parts[depth][1] if depth < len(parts) else ""
    return "" if what == "padding" else what


def _colour(parts: Sequence[tuple[int, str]], depth: int) -> str:
    if depth >= len(parts):
        return template.INK
    what = parts[depth][1]
    if what == "padding":
        return template.PADDING
    if what.startswith("eager"):
        return template.ROUTE_COLOURS[Route.FALLBACK]
    return _SHADES[depth % 2]


def _pattern(parts: Sequence[tuple[int, str]], depth: int) -> str:
    return "/" if depth < len(parts) and parts[depth][1] == "padding" else ""


def budget_ruler(routed: Routed) -> go.Figure:
    """Tokens of a traffic by request size: replayed, padding on top, eager; the budgets as lines.

    What a request's tokens go through is what the packing does with its items: a request over every
    budget may be split over several replays, and one that fits may run eager because that is faster.

    Args:
        routed: See `budgets.routed`.

    Raises:
        ValueError: If there are no requests.
    """
    require(bool(routed.tokens), "a budget ruler needs at least one request")
    tokens = routed.tokens
    places = [math.floor(_BINS_AN_OCTAVE * math.log2(t) + 1e-9) for t in tokens]
    columns = {p: [0, 0, 0] for p in range(min(places), max(places) + 1)}
    for place, count, padding, eager in zip(
        places, tokens, routed.padding, routed.eager, strict=True
    ):
        for part, more in enumerate((count - eager, padding, eager)):
            columns[place][part] += more
    bars = [
        _column("real tokens replayed", columns, 0, template.ROUTE_COLOURS[Route.REPLAY]),
        _column("padding tokens", columns, 1, template.PADDING),
        _column("real tokens run eager", columns, 2, template.ROUTE_COLOURS[Route.EAGER]),
    ]
    top = max(sum(column) for column in columns.values()) / sum(tokens)
    lines = _marks(routed.plan.token_budgets, min(tokens), max(tokens), top)
    axis = f"tokens a request, packed by the rule {routed.pack}"
    drawn = template.figure(*bars, lines, x=axis, y="share of all real tokens")
    for bar in drawn.data[:3]:
        bar.y = [value / sum(tokens) for value in bar.y]
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    drawn.update_yaxes(rangemode="tozero")
    return drawn.update_layout(barmode="stack", bargap=0, showlegend=True, height=380)


def _column(name: str, columns: Mapping[int, Sequence[int]], part: int, colour: str) -> go.Bar:
    edges = [2 ** (place / _BINS_AN_OCTAVE) for place in columns]
    step = 2 ** (1 / _BINS_AN_OCTAVE)
    return go.Bar(
        uid=template.uid(name),
        name=name,
        x=[round(edge * (1 + step) / 2, 3) for edge in edges],
        width=[round(edge * (step - 1), 3) for edge in edges],
        y=[column[part] for column in columns.values()],
        marker={
            "color": colour,
            "line": {"width": 0},
            "pattern": template.PADDING_PATTERN if colour == template.PADDING else None,
        },
        hovertemplate="around %{x:,.0f} tokens: %{y:.3f}<extra>" + name + "</extra>",
    )


def _marks(budgets: Sequence[int], lowest: int, highest: int, top: float) -> go.Scatter:
    shown = [b for b in budgets if lowest / 2 <= b <= highest * 2]
    return go.Scatter(
        uid="budgets",
        name="budgets",
        mode="lines",
        x=[x for b in shown for x in (b, b, None)],
        y=[y for _ in shown for y in (0, top, None)],
        line={"color": template.INK, "dash": "dot", "width": 1.2},
        hovertemplate="budget %{x:,} tokens<extra></extra>",
    )
