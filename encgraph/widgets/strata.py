"""Memory strata: what each budget's graph holds, with slabs and pool shared or not, beside what was measured."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from encgraph import readings, tabular
from encgraph.costs import Costs
from encgraph.figures import curves, template
from encgraph.fitting import judging
from encgraph.records import Capacity, Plan, Route
from encgraph.report.text import plural
from encgraph.results import Measurement, Memory
from encgraph.widgets import panels
from encgraph.widgets.plots import Plot, Sketch, Values

_PARTS = ("slabs", "pool", "driver")
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
    judging.check_plan(plan, costs)
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
        self.check = panels.dropdown(
            "check at",
            (),
            tip="which capture on record is compared; budgets of the plan come first",
        )
        self.check.layout.display = None if self.captures else "none"
        self.plot, self.table, self.note = Plot(), ipywidgets.HTML(), ipywidgets.HTML()
        self.measured = Plot() if self.captures else None
        self.agreement = ipywidgets.HTML() if self.captures else None
        super().__init__(
            f"memory strata: {plan.encoder}",
            panels.controls(self.sharing, self.check),
            self.plot,
            self.table,
            *(part for part in (self.measured, self.agreement) if part is not None),
            self.note,
        )
        if self.measured and self.agreement:
            told = f"Slab and pool bytes of {len(self.captures)} captures over their tokens, and predicted"
            self.measured.draw(curves.bytes_by_capacity(self.captures, costs), told)
        said = "" if self.captures else "no capture on record for it; "
        self.note.value = panels.note(said + panels.priced(costs))
        self.sharing.observe(self._show, "value")
        self.check.observe(self._checked, "value")
        self.observe(self._show, "plan")
        self.plan = plan

    def _show(self, _: Any = None) -> None:
        shared = added(self.plan, self.costs, sharing=True)
        private = added(self.plan, self.costs, sharing=False)
        self.held = shared if self.sharing.value else private
        total = sum(m.total_bytes for m in self.held) / tabular.MIB
        self.plot.fill(
            sketch(),
            f"Stacked bars of {len(self.held)} graphs, {total:,.0f} MiB in all",
            traces=_heights(self.plan, self.held, private),
        )
        rows = [_row("shared", shared), _row("each graph its own", private)]
        columns = ("predicted, MiB", *_PARTS, "in all")
        self.table.value = panels.table(columns, rows)
        offered = _offered(self.captures, self.plan)
        if offered != self.check.options:
            self.check.options = offered
            self.check.index = 0

    def _checked(self, _: Any = None) -> None:
        at = self.check.value
        if self.agreement and at is not None:
            self.agreement.value = _compared(self.captures[at], self.costs, self.check.label)


def _offered(captured: Sequence[Measurement], plan: Plan) -> tuple[tuple[str, int], ...]:
    """Captures by name and position: token budgets of the plan first, the largest first.

    Of several with one budget the one nearest to the plan's items comes first.
    """
    planned = {graph.tokens: graph.items for graph in plan.graphs}
    named = []
    for at, capture in enumerate(captured):
        assert capture.capacity is not None
        tokens, items = capture.capacity.tokens, capture.capacity.items
        where = "a budget of the plan" if tokens in planned else "not in the plan"
        name = f"{tokens:,} tokens, {plural(items, 'item')} ({where})"
        apart = abs(items - planned.get(tokens, items))
        named.append((tokens not in planned, -tokens, apart, -at, name))
    return tuple((name, -at) for *_, at, name in sorted(named))


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
    parts = [sum(_part(m, part) for m in held) for part in _PARTS]
    return [name, *(f"{n:,.0f}" for n in parts), f"{sum(parts):,.0f}"]


def _part(memory: Memory, part: str) -> float:
    held = {
        "slabs": memory.slabs_bytes,
        "pool": memory.pool_bytes,
        "driver": memory.driver_bytes,
    }
    return held[part] / tabular.MIB


def _name(graph: Capacity) -> str:
    return f"{graph.tokens:,} {tabular.TIMES}{graph.items}"


@cache
def sketch() -> Sketch:
    """Bars by graph; an outline where a graph sees what another one owns."""
    outline = go.Bar(
        uid="spared",
        name="seen through the largest graph's slab and pool: costs nothing",
        marker={
            "color": "rgba(0,0,0,0)",
            "line": {"width": 1.5, "color": template.PART_COLOURS["pool"]},
            "pattern": {"shape": ".", "fgcolor": template.PART_COLOURS["pool"], "size": 6},
        },
        hovertemplate="%{x}: %{y:,.0f} MiB not taken<extra></extra>",
    )
    bars = [_bar(part) for part in _PARTS]
    drawn = template.figure(
        *bars, outline, x=f"graph: token budget {tabular.TIMES} items", y="device memory, MiB"
    )
    drawn.update_xaxes(type="category").update_yaxes(rangemode="tozero")
    return Sketch(drawn.update_layout(barmode="stack", uirevision="kept", margin={"t": 60}))


def _heights(plan: Plan, held: Sequence[Memory], private: Sequence[Memory]) -> dict[str, Values]:
    """Bars of the largest graphs, by part."""
    kept = range(len(held))[-MOST_BARS:]
    names = [_name(plan.graphs[i]) for i in kept]
    spared = [(private[i].total_bytes - held[i].total_bytes) / tabular.MIB for i in kept]
    parts = {part: [_part(held[i], part) for i in kept] for part in _PARTS}
    return {uid: {"x": names, "y": y} for uid, y in {**parts, "spared": spared}.items()}


_PATTERNS = {"slabs": "", "pool": "", "driver": "x"}


def _bar(part: str) -> go.Bar:
    return go.Bar(
        uid=part,
        name=part,
        marker={
            "color": template.PART_COLOURS[part],
            "pattern": {"shape": _PATTERNS[part], "size": 5, "fillmode": "overlay"},
        },
        hovertemplate=f"{part} %{{y:,.1f}} MiB<extra>%{{x}}</extra>",
    )


def captures(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Recorded captures with their bytes, one a capacity, smallest first: of the body that costs are of."""
    found = {
        m.capacity: m
        for m in readings.preferred(measurements)
        if m.route is Route.CAPTURE and m.capacity is not None and m.memory is not None
    }
    return [found[capacity] for capacity in sorted(found)]


def _compared(captured: Measurement, costs: Costs, name: str) -> str:
    """HTML of one recorded capture: predicted and measured bytes by what holds them, and the difference."""
    assert captured.capacity is not None and captured.memory is not None
    predicted = costs.memory(Plan(graphs=(captured.capacity,), encoder=captured.encoder))
    rows = [_row("predicted", [predicted]), _row("measured", [captured.memory])]
    off = predicted.total_bytes / max(1, captured.memory.total_bytes) - 1
    rows.append(["predicted over measured", "", "", "", f"{off:+.1%}"])
    return panels.table((f"{name}, alone, MiB", *_PARTS, "in all"), rows)
