"""Draw where the time of one replay goes, kernel by kernel, as one idea after another is added."""

from collections.abc import Sequence
from itertools import pairwise

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.results import Measurement

_PARTS = {
    "attention": ("attention_ms",),
    "matrix products": ("products_ms",),
    "norms and GELU": ("norms_ms", "gelu_ms"),
    "rotary": ("rotary_ms",),
    "copies": ("copies_ms",),
    "other": ("other_ms",),
}
"""Parts of a bar and the numbers they add up. Norms and GELUs are one: a compiler joins them, and then
a kernel's name has both."""
BODIES = {
    "plain": "packed attention, nothing compiled",
    "compiled": "+ block compiled",
    "norms_joined": "+ norms joined across blocks, front compiled",
    "gelu_in_product": "+ GELU inside the product",
    "rotary_kernel": "+ a kernel for the rotary embedding",
    "tuned": "+ the compiler's tuning",
}
"""Bodies in the order of the ideas and what each adds to all above it: those `benchmarks/inside_the_tower.py`
has and has had."""
_COLOURS = ("#2A7AB8", "#7DB5DE", "#E3A008", "#009E73", "#CC79A7", "#8C8C8C")


def kernels_by_kind(lines: Sequence[Measurement], tokens: int) -> go.Figure:
    """Stack the milliseconds of a replay's kernels by kind, one bar a body, in the order of the ideas.

    Each body has one idea more than the one above it; beside a bar stand its total and what the idea changed.

    Args:
        lines: Of `benchmarks/inside_the_tower.py`.
        tokens: Of the graph and of the one item in it; its kernels must have been listed.

    Raises:
        ValueError: If no body's kernels are there for so many tokens.
    """
    found = [m for m in lines if m.capacity and m.capacity.tokens == tokens and m.numbers]
    require(bool(found), f"no kernels of a graph of {tokens:,} tokens are on record")
    known = list(BODIES)
    found.sort(key=lambda m: known.index(m.strategy) if m.strategy in known else len(known))
    names = [_named(m.strategy) for m in found]
    bars = [
        go.Bar(
            uid=template.uid(part),
            name=part,
            orientation="h",
            y=names,
            x=[sum(m.numbers.get(key, 0.0) for key in keys) for m in found],
            marker_color=colour,
            hovertemplate=f"{part} %{{x:.2f}} ms<extra></extra>",
        )
        for (part, keys), colour in zip(_PARTS.items(), _COLOURS, strict=True)
    ]
    totals = [_total(m) for m in found]
    told = _beside(names, totals)
    drawn = template.figure(*bars, told, x="time of the kernels of one replay, ms", y="")
    drawn.update_xaxes(range=[0, 1.02 * max(totals)]).update_yaxes(autorange="reversed")
    height = 180 + 56 * len(names)
    return drawn.update_layout(barmode="stack", height=height, margin={"r": 72})


def _named(body: str) -> str:
    added = BODIES.get(body)
    return f"<b>{template.label(body)}</b>" + (f"<br>{template.wrapped(added)}" if added else "")


def _beside(names: Sequence[str], totals: Sequence[float]) -> go.Scatter:
    """The total of each bar, and its change from the bar above."""
    changes = ["", *(f"<br> {now - then:+.2f}" for then, now in pairwise(totals))]
    return go.Scatter(
        uid="told",
        mode="text",
        x=list(totals),
        y=list(names),
        text=[f" {ms:.2f} ms{more}" for ms, more in zip(totals, changes, strict=True)],
        textposition="middle right",
        textfont={"size": 11},
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )


def _total(line: Measurement) -> float:
    return sum(ms for name, ms in line.numbers.items() if name.endswith("_ms"))
