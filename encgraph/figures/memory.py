"""Draw what graphs cost in device memory, by what holds it."""

from collections.abc import Mapping

import plotly.graph_objects as go

from encgraph import tabular
from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Route
from encgraph.results import Memory


def memory_by_part(memories: Mapping[str, Memory]) -> go.Figure:
    """Stack slabs, pool and driver for each memory; a line marks the peak during capture.

    Args:
        memories: By name, drawn from the top; several compare, say measured with predicted.

    Raises:
        ValueError: If there are none.
    """
    require(bool(memories), "memory by part needs at least one memory")
    names = [template.wrapped(name, 16) for name in memories]
    parts = {
        "slabs": [m.slabs_bytes / tabular.MIB for m in memories.values()],
        "pool": [m.pool_bytes / tabular.MIB for m in memories.values()],
        "driver": [m.driver_bytes / tabular.MIB for m in memories.values()],
    }
    bars = [_bar(part, names, values) for part, values in parts.items()]
    peaks = [
        m.peak_bytes / tabular.MIB if m.peak_bytes is not None else None for m in memories.values()
    ]
    peak = go.Scatter(
        uid="peak",
        name="peak allocated",
        mode="markers",
        y=names,
        x=peaks,
        marker={
            "symbol": "line-ns",
            "size": 34,
            "line": {"width": 2.5, "color": template.ROUTE_COLOURS[Route.FALLBACK]},
        },
        hovertemplate="peak %{x:,.0f} MiB<extra></extra>",
    )
    measured = any(p is not None for p in peaks)
    drawn = template.figure(*bars, *([peak] if measured else []), x="device memory, MiB", y="")
    drawn.update_xaxes(rangemode="tozero").update_yaxes(autorange="reversed")
    return drawn.update_layout(barmode="stack", height=150 + 70 * len(names))


def _bar(part: str, names: list[str], values: list[float]) -> go.Bar:
    """One part of every memory."""
    return go.Bar(
        uid=part,
        name=part,
        orientation="h",
        y=names,
        x=values,
        marker_color=template.PART_COLOURS[part],
        hovertemplate=f"{part} %{{x:,.0f}} MiB<extra></extra>",
    )
