"""The break-even map: where one replay, several replays or eager is fastest, and where the traffic lies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from encgraph import costs as costing
from encgraph.budgets import Limits
from encgraph.costs import Costs
from encgraph.figures import template
from encgraph.fitting import judging
from encgraph.packers import lookup
from encgraph.records import Plan, Route
from encgraph.results import Latency
from encgraph.traffic import Traffic
from encgraph.widgets import fastest, panels
from encgraph.widgets.cases import Case, PlanEffect
from encgraph.widgets.fastest import CHOICES
from encgraph.widgets.plots import Plot, Sketch, Values

_COLOURS = ("#8AB6D8", "#F0CB77", "#C1C1C1")
"""Opaque, since a legend of a map has no opacity; light, so that dots stand out."""
COMPILED = "this plan, compiled"
_MARGIN = {"t": 76}
"""Room for the legend of either drawing, so that both start at one height."""
_MOST_DOTS = 400


def break_even(
    costs: Costs,
    traffic: Traffic,
    *,
    plan: Plan | None = None,
    limits: Limits | None = None,
    compiled: Costs | None = None,
) -> "BreakEven":
    """Map captured against real tokens by what is predicted fastest, the traffic laid over it.

    Args:
        costs: What replays and eager runs cost; see `cards.price`.
        traffic: What is laid over the map and whose latencies are drawn beside it.
        plan: The plan to look at; the best fitted one by default.
        limits: Of that fit.
        compiled: What replays and eager runs cost with a compiled block; one more strategy.

    Raises:
        ValueError: If the traffic is empty or too large to be packed while somebody waits.
    """
    case = Case.of(traffic, costs, limits=limits)
    if plan is not None:
        judging.check_plan(plan, costs)
    if compiled is not None:
        judging.check_costs(compiled, traffic.encoder)
    return BreakEven(case, plan or case.fit.best.plan, compiled=compiled)


class BreakEven(panels.Panel):
    """See `break_even`."""

    def __init__(self, case: Case, plan: Plan, *, compiled: Costs | None = None) -> None:
        self.case = case
        self.compiled = replace(case, costs=compiled) if compiled else None
        self.laid = panels.dropdown(
            "by strategy",
            ("this plan", "vLLM's doubling", *([COMPILED] if compiled else [])),
            tip="whose costs colour the map and whose replays are laid over it",
        )
        self.items = panels.slider(
            "items of a request", value=4, low=1, high=64, tip="how finely a request can be split"
        )
        self.percentile = panels.slider(
            "percentile", value=99, low=1, high=100, tip="read off the latency curves"
        )
        self.map, self.latency = Plot(), Plot()
        self.table, self.note = ipywidgets.HTML(), ipywidgets.HTML()
        self.map.layout.flex = self.latency.layout.flex = "1 1 420px"
        drawings = ipywidgets.HBox(
            (self.map, self.latency), layout={"flex_flow": "row wrap", "width": "100%"}
        )
        super().__init__(
            f"break-even: {case.traffic.name}, {case.traffic.encoder}",
            panels.controls(self.laid, self.items, self.percentile),
            drawings,
            self.table,
            self.note,
        )
        self._doubled = case.judged(case.doubling, pack="ascending")
        self._sides = fastest.sides(case)
        self._map = _map(self._sides)
        self._charts: dict[tuple[int, bool], tuple[Values, str]] = {}
        fixed = {
            "vLLM's doubling": self._doubled.prediction.by_request_ms,
            "eager": case.judged(case.off).prediction.by_request_ms,
            "floor: exact graphs": case.exact_ms(),
            "floor: arithmetic": _arithmetic_ms(case),
        }
        self._fixed = {name: np.sort(ms) for name, ms in fixed.items()}
        self.laid.observe(self._planned, "value")
        self.items.observe(self._draw_map, "value")
        self.percentile.observe(self._draw_latency, "value")
        self.observe(self._planned, "plan")
        self.plan = plan

    @property
    def _seen(self) -> Case:
        """The traffic as the strategy chosen runs it."""
        return self.compiled if self.compiled and self.laid.value == COMPILED else self.case

    def _planned(self, _: Any = None) -> None:
        self.note.value = panels.note(
            f"coloured by predicted time, {panels.priced(self._seen.costs)}; a request over a "
            "budget is split into as many equal replays as it needs, if it has the items"
        )
        self._draw_map()
        self._draw_latency()

    def _draw_map(self, _: Any = None) -> None:
        doubled, seen = self.laid.value == "vLLM's doubling", self._seen
        key = (self.items.value, seen is self.case)
        if key not in self._charts:
            cells = fastest.choice(seen, self._sides[:, None], self._sides, self.items.value)
            shares = [float((cells == n).mean()) for n in range(3)]
            said = ", ".join(f"{c} {s:.0%}" for c, s in zip(CHOICES, shares, strict=True))
            self._charts[key] = _coloured(cells), f"Break-even map: {said} of the cells"
        coloured, told = self._charts[key]
        dots = _laid(self._doubled if doubled else seen.judged(self.plan))
        self.map.fill(self._map, told, traces={"map": coloured, "traffic": dots})

    def _draw_latency(self, _: Any = None) -> None:
        share = self.percentile.value / 100
        curves = {"this plan": np.sort(self.case.judged(self.plan).prediction.by_request_ms)}
        if self._seen is not self.case:
            curves[COMPILED] = np.sort(self._seen.judged(self.plan).prediction.by_request_ms)
        curves |= self._fixed
        read = {name: float(_at(ms, [share])[0]) for name, ms in curves.items()}
        self.latency.fill(
            _lines(tuple(curves)),
            f"Latency by percentile; at {self.percentile.value}: "
            + ", ".join(f"{n} {ms:.2f} ms" for n, ms in read.items()),
            traces={name: {"y": _at(ms, _SHARES).tolist()} for name, ms in curves.items()},
            layout={"shapes": [_mark(self.percentile.value)], "yaxis": _span(curves)},
        )
        best = read["this plan"]
        rows = [[n, f"{ms:.2f}", f"{ms / best:.2f}"] for n, ms in read.items()]
        named = self._named(self.case.judged(self.plan).prediction.latency)
        columns = (f"{named} of held-out requests", "ms", "ratio to this plan")
        self.table.value = panels.table(columns, rows)

    def _named(self, latency: Latency) -> str:
        """The percentile, unless it is the slowest request by another name."""
        percentile = self.percentile.value
        if percentile == 99:
            return latency.tail_name
        return "slowest" if percentile == 100 else f"p{percentile}"


def _span(curves: Mapping[str, Any]) -> Values:
    """The axis of times, as long as the curves."""
    return template.log_values(
        min(float(ms[0]) for ms in curves.values()), max(float(ms[-1]) for ms in curves.values())
    )


def _at(ascending: Any, shares: Any) -> Any:
    """Smallest values with these shares at or below; as `numpy.quantile`, of what is sorted."""
    index = np.ceil(np.asarray(shares) * len(ascending) - 1e-9).astype(int) - 1
    return ascending[np.maximum(index, 0)]


def _arithmetic_ms(case: Case) -> Any:
    batches, size = case.held_out.batches, case.target.size
    return batches.by_request(
        np.array(
            [costing.floor_ms(size, lookup.load_of(lookup.total(items))) for items in batches.sizes]
        )
    )


def _map(tokens: Any) -> Sketch:
    scale = [[at, _COLOURS[n]] for n in range(3) for at in (n / 3, (n + 1) / 3)]
    heat = go.Heatmap(
        uid="map",
        x=tokens.tolist(),
        y=tokens.tolist(),
        zmin=0,
        zmax=2,
        colorscale=scale,
        hovertemplate="%{x:,} real, %{y:,} captured: %{customdata}<extra></extra>",
        colorbar={
            "tickvals": [1 / 3, 1, 5 / 3],
            "ticktext": list(CHOICES),
            "thickness": 12,
            "len": 0.6,
            "title": {"text": "fastest"},
        },
    )
    drawn = template.figure(heat, _DOTS, x="real tokens", y="captured tokens")
    ticks = template.log_tokens(int(tokens[0]), int(tokens[-1]))
    span = [float(np.log10(tokens[0])), float(np.log10(tokens[-1]))]
    drawn.update_xaxes(**ticks, range=span).update_yaxes(**ticks, range=span)
    return Sketch(drawn.update_layout(height=400, uirevision="kept", margin=_MARGIN))


def _coloured(cells: Any) -> Values:
    """Choices of the cells, as numbers and by name."""
    return {"z": cells.tolist(), "customdata": np.array(CHOICES)[cells].tolist()}


_DOTS = go.Scatter(
    uid="traffic",
    name="replays of the traffic, larger where more frequent",
    showlegend=True,
    mode="markers",
    marker={"color": "rgba(255,255,255,0.55)", "line": {"width": 1.6, "color": "#1B1B1B"}},
    hovertemplate="%{customdata:,.0f} replays: %{x:,} of %{y:,} tokens<extra></extra>",
)


def _laid(judged: PlanEffect) -> Values:
    """One dot for each size of replay, larger where it occurs more often."""
    counted: dict[tuple[int, int], float] = {}
    for real, budget, often in judged.replays:
        counted[real, budget] = counted.get((real, budget), 0) + often
    top = sorted(counted.items(), key=lambda pair: -pair[1])[:_MOST_DOTS]
    most = max(counted.values(), default=1)
    return {
        "x": [key[0] for key, _ in top],
        "y": [key[1] for key, _ in top],
        "marker": {"size": [4 + 22 * (n / most) ** 0.5 for _, n in top]},
        "customdata": [n for _, n in top],
    }


_LINES = {
    COMPILED: ("#7B68C8", "longdash"),
    "this plan": (template.STRATEGY_COLOURS["ours"], "solid"),
    "vLLM's doubling": (template.STRATEGY_COLOURS["doubling"], "dash"),
    "eager": (template.ROUTE_COLOURS[Route.EAGER], "dashdot"),
    "floor: exact graphs": ("#009E73", "dot"),
    "floor: arithmetic": ("#CC79A7", "dot"),
}


_PERCENTILES = [*range(1, 100), 99.5, 100]
_SHARES = np.array(_PERCENTILES) / 100


@cache
def _lines(names: Sequence[str]) -> Sketch:
    lines = [
        go.Scatter(
            uid=name,
            name=name,
            x=_PERCENTILES,
            mode="lines",
            line={"color": _LINES[name][0], "dash": _LINES[name][1], "width": 2},
            hovertemplate=f"p%{{x}}: %{{y:.2f}} ms<extra>{name}</extra>",
        )
        for name in names
    ]
    drawn = template.figure(*lines, x="percentile of requests", y="predicted ms a request")
    return Sketch(drawn.update_layout(height=400, uirevision="kept", margin=_MARGIN))


def _mark(percentile: int) -> Values:
    return {
        "type": "line", "x0": percentile, "x1": percentile, "xref": "x", "y0": 0, "y1": 1,
        "yref": "y domain", "line": {"color": template.INK, "width": 1.5, "dash": "dot"},
    }  # fmt: skip
