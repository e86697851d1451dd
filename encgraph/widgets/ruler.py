"""The budget ruler: a traffic, budgets that can be moved over it, and what they are predicted to give."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import ipywidgets
import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from encgraph.budgets import Limits, Prediction
from encgraph.costs import Costs
from encgraph.figures import template
from encgraph.intervals import Floats
from encgraph.records import Plan, Route
from encgraph.report.text import plural
from encgraph.traffic import Traffic
from encgraph.widgets import panels, verdicts
from encgraph.widgets.cases import Case, PlanEffect
from encgraph.widgets.plots import Plot, Sketch, Values

BELOW = ("share of rows computed", "rows computed")
HINT = "drag a handle, or focus one and use the arrow keys, Home and End"
MOST_HANDLES = 32
"""Above so many graphs the handles would cover one another; the lines stay."""
_AN_OCTAVE = 6
_ATOMS = 8
_ABOVE = 104
"""Room for the legend, and below it for three rows of what handles say."""


def budget_ruler(traffic: Traffic, costs: Costs, *, limits: Limits | None = None) -> "BudgetRuler":
    """Lay budgets over a traffic and see what they give beside the optimum, doubling and eager.

    The slider takes the best plan for that many graphs, all from one fit; the handles over the
    histogram move single budgets, by mouse or by arrow keys.

    Args:
        traffic: Half of it is fitted on, the other half judged.
        costs: What replays and eager runs cost; see `cards.price`.
        limits: Graphs, bytes and packing rule of the fit.

    Raises:
        ValueError: If the traffic is empty or too large to be packed while somebody waits.
    """
    return BudgetRuler(Case.of(traffic, costs, limits=limits))


class BudgetRuler(panels.Panel):
    """See `budget_ruler`; `plan` is what the controls say."""

    def __init__(self, case: Case, count: int | None = None) -> None:
        self.case = case
        case.judge_ahead()
        frontier = case.fit.frontier
        start = len(case.fit.best.plan.graphs) if count is None else count
        self.count = panels.slider(
            "number of graphs",
            value=start,
            low=0,
            high=len(frontier) - 1,
            tip="takes the best budgets for at most so many graphs",
        )
        self.below = panels.dropdown(
            "below", BELOW, tip="what the lower bars count in each range of sizes"
        )
        self.plot = Plot(limits=[1, _highest(case)])
        self.said, self.table, self.note = (ipywidgets.HTML() for _ in range(3))
        traffic = case.traffic
        super().__init__(
            f"budget ruler: {plural(len(traffic.requests), 'request')} of {traffic.name}, {traffic.encoder}",
            panels.controls(self.count, self.below, panels.hint(HINT)),
            self.said,
            self.plot,
            self.table,
            self.note,
        )
        self._others = verdicts.others(case)
        self._sketch = cache(lambda shares: sketch(case, shares=shares))
        self._optima: dict[int, list[str]] = {}
        self._settling = False
        self.count.observe(self._counted, "value")
        self.plot.observe(self._dragged, "tokens")
        self.below.observe(self._redraw, "value")
        self._counted()

    @property
    def fitted(self) -> Plan:
        """The best plan for the number of graphs chosen; for its own number, the one `fitted` chose."""
        fit, count = self.case.fit, self.count.value
        plan: Plan = fit.best.plan
        return plan if count == len(plan.graphs) else fit.frontier[count].plan

    def _counted(self, _: Any = None) -> None:
        plan = self.fitted
        self._settling = True
        try:
            self.plot.tokens = [g.tokens for g in plan.graphs[:MOST_HANDLES]]
        finally:  # an interrupt here must not leave the handles dead
            self._settling = False
        self._show(plan)

    def _optimum(self, plan: Plan, judged: PlanEffect) -> list[str]:
        """The row of the best plan for the number chosen, which is judged once."""
        count = self.count.value
        if count not in self._optima:
            best = self.fitted
            found = judged if plan is best else None
            name = f"optimum for {plural(count, 'graph')}"
            self._optima[count] = verdicts.row(name, best, found, self.case)
        return self._optima[count]

    def _dragged(self, _: Any = None) -> None:
        if not self._settling:
            rest = [g.tokens for g in self.fitted.graphs[MOST_HANDLES:]]
            tokens = [max(1, t) for t in self.plot.tokens] + rest
            if len(tokens) == len(self.fitted.graphs):
                self._show(self.case.moved(self.fitted, tokens))
            else:  # as many handles as before, where they were
                self._counted()

    def _show(self, plan: Plan) -> None:
        case = self.case
        self.judged = judged = case.judged(plan)
        self._drawn = plan
        self._redraw()  # before the parts that follow the plan
        self.plan = plan
        # Last, while a page draws: budgets set by hand are judged on what was fitted on too.
        rows = [verdicts.row("these budgets", plan, judged, case), self._optimum(plan, judged)]
        self.table.value = panels.table(verdicts.COLUMNS, rows + self._others)
        self.said.value = f"<b>{panels.note(verdicts.verdict(case, judged))}</b>"
        self.note.value = panels.note(verdicts.note(case, judged))

    def _redraw(self, _: Any = None) -> None:
        shares = self.below.value == BELOW[0]
        plan = self._drawn
        edges = _edges(self.case.held_out.tokens, plan.token_budgets)
        self.plot.fill(
            self._sketch(shares),
            _told(plan, self.judged.prediction),
            traces=_heights(self.case.held_out.tokens, edges, self.judged, shares=shares),
            layout=_span(edges, plan),
        )


def _told(plan: Plan, prediction: Prediction) -> str:
    budgets = ", ".join(f"{b:,}" for b in plan.token_budgets[:MOST_HANDLES]) or "none"
    return (
        f"Histogram of tokens a request with token budgets {budgets}; "
        f"padding {prediction.padding_ratio:.1%}, mean {prediction.mean_ms:.2f} ms held out"
    )


def _highest(case: Case) -> int:
    return int(max(case.held_out.tokens.max(), case.fit_on.tokens.max(), 2) * 2)


def sketch(case: Case, *, shares: bool = True) -> Sketch:
    """Requests with their atoms above; below, the rows computed for them: real, padding, eager."""
    drawn = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    drawn.add_trace(_bars("requests", "%{y:,} requests"), row=1, col=1)
    drawn.add_trace(_atoms(case.held_out.tokens), row=1, col=1)
    for name in _PARTS:
        drawn.add_trace(_bars(name, "%{y:.1%}" if shares else "%{y:,.0f} rows"), row=2, col=1)
    title = "share of rows" if shares else "rows computed"
    drawn.update_yaxes(title_text=title, rangemode="tozero", row=2, col=1)
    if shares:
        drawn.update_yaxes(range=[0, 1], tickformat=".0%", row=2, col=1)
    drawn.update_layout(
        template=template.TEMPLATE,
        barmode="stack",
        bargap=0,
        height=470,
        uirevision="kept",
        margin={"l": 8, "r": 12, "t": _ABOVE, "b": 8},
        legend={"yref": "container", "y": 1, "yanchor": "top"},
    )
    drawn.update_xaxes(title_text="tokens a request", row=2, col=1)
    drawn.update_yaxes(title_text="requests", rangemode="tozero", row=1, col=1)
    return Sketch(drawn)


def _heights(
    tokens: Floats, edges: Floats, judged: PlanEffect, *, shares: bool
) -> dict[str, Values]:
    """Bars of each trace over the ranges between edges."""
    real, padding, eager = tokens - judged.eager, judged.padding, judged.eager
    requests, *rows = _sums(tokens, edges, np.ones_like(tokens), real, padding, eager)
    whole = np.maximum(sum(rows), 1) if shares else 1
    at = {"x": np.sqrt(edges[:-1] * edges[1:]).tolist(), "width": np.diff(edges).tolist()}
    parts = zip(_PARTS, rows, strict=True)
    return {
        "requests": {**at, "y": requests.tolist()},
        **{name: {**at, "y": (values / whole).tolist()} for name, values in parts},
    }


def _span(edges: Floats, plan: Plan) -> Values:
    """Both axes from edge to edge, and a line a budget."""
    span = [float(np.log10(edges[0] * 0.94)), float(np.log10(edges[-1]))]
    axis = {**template.log_tokens(int(edges[0]), int(edges[-1])), "range": span}
    shapes = [_line(budget) for budget in plan.token_budgets]
    return {"xaxis": axis, "xaxis2": axis, "shapes": shapes}


_FILLS = {
    "requests": template.TRAFFIC,
    "real tokens": template.ROUTE_COLOURS[Route.REPLAY],
    "padding": template.PADDING,
    "eager": template.ROUTE_COLOURS[Route.EAGER],
}
_PATTERNS = {"padding": "/", "eager": "x"}
_PARTS = ("real tokens", "padding", "eager")


def _edges(tokens: Floats, budgets: Sequence[int]) -> Floats:
    low = min(float(tokens.min()), *budgets, 1e9)
    high = max(float(tokens.max()), *budgets, 1)
    first, last = np.floor(_AN_OCTAVE * np.log2(low)), np.floor(_AN_OCTAVE * np.log2(high)) + 1
    found: Floats = 2 ** (np.arange(first, last + 1) / _AN_OCTAVE)
    return found


def _sums(tokens: Floats, edges: Floats, *values: Floats) -> list[Floats]:
    """Of each value of a request its sums over the ranges between edges."""
    at = np.clip(np.searchsorted(edges, tokens * (1 + 1e-9), side="right") - 1, 0, len(edges) - 2)
    return [np.bincount(at, each, len(edges) - 1).astype(float) for each in values]


def _bars(name: str, hover: str) -> go.Bar:
    return go.Bar(
        uid=name,
        name=name,
        marker={
            "color": _FILLS[name],
            "line": {
                "width": int(name == "requests"),
                "color": template.ROUTE_COLOURS[Route.REPLAY],
            },
            "pattern": {"shape": _PATTERNS.get(name, ""), "size": 5, "fillmode": "overlay"},
        },
        hovertemplate=f"about %{{x:,.0f}} tokens: {hover}<extra>{name}</extra>",
    )


def _atoms(tokens: Floats) -> go.Scatter:
    """The sizes that come back most often, as many requests as they have."""
    values, counts = np.unique(tokens, return_counts=True)
    top = np.sort(np.argsort(counts)[::-1][:_ATOMS])
    top = top[counts[top] > 1]
    return go.Scatter(
        uid="atoms",
        name="atoms: sizes that recur most",
        mode="markers",
        x=values[top].tolist(),
        y=counts[top].tolist(),
        marker={"symbol": "diamond", "size": 9, "color": template.ROUTE_COLOURS[Route.CAPTURE]},
        hovertemplate="%{y:,} requests of exactly %{x:,} tokens<extra></extra>",
    )


def _line(budget: int) -> dict[str, Any]:
    return {
        "type": "line", "x0": budget, "x1": budget, "y0": 0, "y1": 1, "xref": "x", "yref": "paper",
        "line": {"color": template.INK, "width": 1.5, "dash": "dot"},
    }  # fmt: skip
