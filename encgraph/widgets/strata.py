"""Memory strata: what each budget's graph holds, with slabs and pool shared or not, beside what was measured."""

from collections.abc import Sequence
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from encgraph.costs import Costs
from encgraph.figures import template
from encgraph.records import Capacity, Plan, Route
from encgraph.results import Measurement, Memory
from encgraph.widgets import panels
from encgraph.widgets.panels import MIB
from encgraph.widgets.plots import Plot

PARTS = ("slabs", "pool", "driver")
MOST_BARS = 32


def memory_strata(
    plan: Plan, costs: Costs, measurements: Sequence[Measurement] = ()
) -> "MemoryStrata":
    """Show the bytes of each budget by what holds them, and what sharing saves.

    Args:
        plan: The capacities to capture.
        costs: Bytes a patch and a graph; see `cards.price`.
        measurements: Recorded captures of the same encoder, such as `cards.recorded` gives; drawn
            beside what `costs` predicts for them.
    """
    return MemoryStrata(plan, costs, measurements)


class MemoryStrata(panels.Panel):
    """See `memory_strata`."""

    def __init__(self, plan: Plan, costs: Costs, measurements: Sequence[Measurement] = ()) -> None:
        self.costs = costs
        self.captures = captures(measurements)
        self.sharing = panels.checkbox(
            "share one slab and one pool",
            value=True,
            tip="off: buffers and a pool of its own for each graph",
        )
        self.plot, self.table, self.note = Plot(), ipywidgets.HTML(), ipywidgets.HTML()
        self.measured = Plot() if self.captures else None
        super().__init__(
            f"memory strata: {plan.encoder}",
            panels.controls(self.sharing),
            self.plot,
            self.table,
            *([self.measured] if self.measured else []),
            self.note,
        )
        if self.measured:
            self.measured.draw(compared(self.captures, costs), _agreement(self.captures, costs))
        said = _agreement(self.captures, costs) if self.captures else "no capture on record for it"
        self.note.value = panels.note(f"{said}; {panels.priced(costs)}")
        self.sharing.observe(self._show, "value")
        self.observe(self._show, "plan")
        self.plan = plan

    def _show(self, _: Any = None) -> None:
        shared = added(self.plan, self.costs, sharing=True)
        private = added(self.plan, self.costs, sharing=False)
        self.held = shared if self.sharing.value else private
        total = sum(m.total_bytes for m in self.held) / MIB
        self.plot.draw(
            drawing(self.plan, self.held, private),
            f"Stacked bars of {len(self.held)} graphs, {total:,.0f} MiB in all",
        )
        rows = [_row("shared", shared), _row("each graph its own", private)]
        columns = ("predicted, MiB", *PARTS, "in all")
        self.table.value = panels.table(columns, rows)


def added(plan: Plan, costs: Costs, *, sharing: bool) -> list[Memory]:
    """Bytes each graph adds, smallest first; shared slabs and pool are the largest graph's."""
    alone = [costs.memory(_only(plan, i)) for i in range(len(plan.graphs))]
    if not sharing or not alone:
        return alone
    largest = max(range(len(alone)), key=lambda i: plan.graphs[i].patches)
    return [
        Memory(
            slabs_bytes=m.slabs_bytes if i == largest else 0,
            pool_bytes=m.pool_bytes if i == largest else 0,
            driver_bytes=m.driver_bytes,
        )
        for i, m in enumerate(alone)
    ]


def _only(plan: Plan, index: int) -> Plan:
    return Plan(graphs=(plan.graphs[index],), encoder=plan.encoder, dtype=plan.dtype)


def _row(name: str, held: Sequence[Memory]) -> list[str]:
    parts = [sum(_part(m, part) for m in held) for part in PARTS]
    return [name, *(f"{n:,.0f}" for n in parts), f"{sum(parts):,.0f}"]


def _part(memory: Memory, part: str) -> float:
    held = {
        "slabs": memory.slabs_bytes,
        "pool": memory.pool_bytes,
        "driver": memory.driver_bytes,
    }
    return held[part] / MIB


def _name(graph: Capacity) -> str:
    return f"{graph.tokens:,} x{graph.items}"


def drawing(plan: Plan, held: Sequence[Memory], private: Sequence[Memory]) -> go.Figure:
    """Bars by graph; an outline where a graph sees what another one owns."""
    kept = range(len(held))[-MOST_BARS:]
    names = [_name(plan.graphs[i]) for i in kept]
    bars = [_bar(part, names, [_part(held[i], part) for i in kept]) for part in PARTS]
    spared = [(private[i].total_bytes - held[i].total_bytes) / MIB for i in kept]
    outline = go.Bar(
        uid="spared",
        name="seen through the largest graph's slab and pool: costs nothing",
        x=names,
        y=spared,
        marker={
            "color": "rgba(0,0,0,0)",
            "line": {"width": 1.5, "color": template.PART_COLOURS["pool"]},
            "pattern": {"shape": ".", "fgcolor": template.PART_COLOURS["pool"], "size": 6},
        },
        hovertemplate="%{x}: %{y:,.0f} MiB not taken<extra></extra>",
    )
    drawn = template.figure(*bars, outline, x="graph: token budget x items", y="device memory, MiB")
    drawn.update_xaxes(type="category").update_yaxes(rangemode="tozero")
    return drawn.update_layout(barmode="stack", uirevision="kept", margin={"t": 60})


_PATTERNS = {"slabs": "", "pool": "", "driver": "x"}


def _bar(part: str, names: Sequence[str], values: Sequence[float], **more: Any) -> go.Bar:
    return go.Bar(
        uid=part,
        name=part,
        x=names,
        y=values,
        marker={
            "color": template.PART_COLOURS[part],
            "pattern": {"shape": _PATTERNS[part], "size": 5, "fillmode": "overlay"},
        },
        hovertemplate=f"{part} %{{y:,.1f}} MiB<extra>%{{x}}</extra>",
        **more,
    )


def captures(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Recorded captures with their bytes, one a capacity, smallest first."""
    found = {
        m.capacity: m
        for m in measurements
        if m.route is Route.CAPTURE and m.capacity is not None and m.memory is not None
    }
    return [found[capacity] for capacity in sorted(found)]


def _both(measurement: Measurement, costs: Costs) -> tuple[Memory, Memory]:
    assert measurement.capacity is not None and measurement.memory is not None
    plan = Plan(graphs=(measurement.capacity,), encoder=measurement.encoder)
    return costs.memory(plan), measurement.memory


def compared(found: Sequence[Measurement], costs: Costs) -> go.Figure:
    """Predicted and measured bytes of single captures, side by side."""
    both = [_both(m, costs) for m in found]
    names = [_name(m.capacity) for m in found if m.capacity is not None]
    lines = [
        go.Scatter(
            uid=f"{what} {part}",
            name=f"{part}, {what}",
            x=names,
            y=[_part(pair[index], part) for pair in both],
            mode="lines" if what == "predicted" else "markers",
            line={"color": template.PART_COLOURS[part], "dash": _DASHES[part]},
            marker={"color": template.PART_COLOURS[part], "symbol": _SYMBOLS[part], "size": 9},
            hovertemplate=f"{part} {what} %{{y:,.1f}} MiB<extra>%{{x}}</extra>",
        )
        for index, what in enumerate(("predicted", "measured"))
        for part in PARTS
    ]
    drawn = template.figure(*lines, x="capture alone: token budget x items", y="device memory, MiB")
    drawn.update_xaxes(type="category").update_yaxes(rangemode="tozero")
    return drawn.update_layout(margin={"t": 84})


_DASHES = {"slabs": "solid", "pool": "dash", "driver": "dot"}
_SYMBOLS = {"slabs": "circle", "pool": "square", "driver": "diamond"}


def _agreement(found: Sequence[Measurement], costs: Costs) -> str:
    """How far prediction is from the largest capture, in words."""
    predicted, measured = _both(found[-1], costs)
    ratio = predicted.total_bytes / max(1, measured.total_bytes)
    assert found[-1].capacity is not None
    return (
        f"the largest capture on record, {found[-1].capacity.tokens:,} tokens, took "
        f"{measured.total_bytes / MIB:,.0f} MiB; predicted {predicted.total_bytes / MIB:,.0f} MiB "
        f"({ratio - 1:+.0%})"
    )
