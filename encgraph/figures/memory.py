"""Draw what graphs cost in device memory, by what holds it."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph import tabular
from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Route
from encgraph.results import Measurement, Memory


def memory_by_part(memories: Mapping[str, Memory]) -> go.Figure:
    """Stack slabs, pool and driver for each memory; a line marks the peak during capture.

    Args:
        memories: By name, drawn from the top; several compare, say measured with predicted.

    Raises:
        ValueError: If there are none.
    """
    require(bool(memories), "memory by part needs at least one memory")
    names = [template.wrapped(name, 16) for name in memories]
    parts = ("slabs", "pool", "driver")
    held = {part: [getattr(m, f"{part}_bytes") for m in memories.values()] for part in parts}
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
    return _stacked(held, names, *([peak] if measured else []))


def memory_taken_apart(lines: Sequence[Measurement]) -> go.Figure:
    """Stack what the device lost to graphs: tensors, what the allocator holds idle, pool and driver.

    Args:
        lines: Of `benchmarks/vllm_memory.py`, a line a system.

    Raises:
        ValueError: If none of them has those parts.
    """
    parts = ("tensors", "idle", "pool", "driver")
    found = [m for m in lines if all(f"{part}_bytes" in m.numbers for part in parts)]
    require(bool(found), f"memory taken apart needs a line with {', '.join(parts)}")
    held = {part: [m.numbers[f"{part}_bytes"] for m in found] for part in parts}
    held = {part: sizes for part, sizes in held.items() if any(sizes)}
    return _stacked(held, [template.label(m.strategy or "") for m in found])


def _stacked(
    held: Mapping[str, Sequence[float]], names: Sequence[str], *more: go.Scatter
) -> go.Figure:
    """A bar a name of its parts' bytes, in MiB, from the top."""
    bars = [_bar(part, names, [b / tabular.MIB for b in sizes]) for part, sizes in held.items()]
    drawn = template.figure(*bars, *more, x="device memory, MiB", y="")
    drawn.update_xaxes(rangemode="tozero").update_yaxes(autorange="reversed")
    return drawn.update_layout(barmode="stack", height=150 + 70 * len(names))


def _bar(part: str, names: Sequence[str], values: Sequence[float]) -> go.Bar:
    """One part of every memory."""
    return go.Bar(
        uid=part,
        name=part,
        orientation="h",
        y=list(names),
        x=list(values),
        marker_color=template.PART_COLOURS[part],
        hovertemplate=f"{part} %{{x:,.0f}} MiB<extra></extra>",
    )
