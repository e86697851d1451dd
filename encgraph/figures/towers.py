"""Draw where the time of one replay goes, kernel by kernel, before and after each joined pass."""

from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.results import Measurement

PARTS = {
    "attention": ("attention_ms",),
    "matrix products": ("products_ms",),
    "norms and GELU": ("norms_ms", "gelu_ms"),
    "rotary": ("rotary_ms",),
    "copies": ("copies_ms",),
    "other": ("other_ms",),
}
"""Parts of a bar and the numbers they add up. Norms and GELUs are one: a compiler joins them, and then
a kernel's name has both."""
COLOURS = ("#2A7AB8", "#7DB5DE", "#E3A008", "#009E73", "#CC79A7", "#8C8C8C")


def kernels_by_kind(lines: Sequence[Measurement], tokens: int) -> go.Figure:
    """Stack the milliseconds of a replay's kernels by kind, one bar a body, the slowest on top.

    Args:
        lines: Of `benchmarks/inside_the_tower.py`.
        tokens: Of the graph and of the one item in it; its kernels must have been listed.

    Raises:
        ValueError: If no body's kernels are there for so many tokens.
    """
    found = [m for m in lines if m.capacity and m.capacity.tokens == tokens and m.numbers]
    require(bool(found), f"no kernels of a graph of {tokens:,} tokens are on record")
    found.sort(key=_total, reverse=True)
    names = [m.strategy or "" for m in found]
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
        for (part, keys), colour in zip(PARTS.items(), COLOURS, strict=True)
    ]
    drawn = template.figure(*bars, x="time of the kernels of one replay, ms", y="")
    drawn.update_yaxes(autorange="reversed")
    return drawn.update_layout(barmode="stack", height=170 + 40 * len(names))


def _total(line: Measurement) -> float:
    return sum(ms for name, ms in line.numbers.items() if name.endswith("_ms"))
