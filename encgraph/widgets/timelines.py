"""The timeline: the steps of one batch as they were recorded, end to end."""

from collections.abc import Sequence
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.facts import TimedStep
from encgraph.figures import template
from encgraph.records import Route
from encgraph.widgets import panels
from encgraph.widgets.plots import Plot

_PATTERNS = {Route.REPLAY: "", Route.FALLBACK: "x", Route.EAGER: "/", Route.CAPTURE: "."}


def timeline(steps: Sequence[TimedStep]) -> "Timeline":
    """Show one batch's steps from the records of a run.

    Args:
        steps: Such as `Report.steps` of a run; those of one request are a batch.

    Raises:
        ValueError: If no step belongs to a request.
    """
    return Timeline(steps)


class Timeline(panels.Panel):
    """See `timeline`; a slider chooses the batch, in order of the requests."""

    def __init__(self, steps: Sequence[TimedStep]) -> None:
        batches: dict[int, list[TimedStep]] = {}
        for step in steps:
            if step.request is not None:
                batches.setdefault(step.request, []).append(step)
        require(bool(batches), "a timeline needs the steps of at least one request, got none")
        self.batches = [batches[key] for key in sorted(batches)]
        self.batch = panels.slider(
            "batch", value=1, low=1, high=len(self.batches), tip="whose steps are shown"
        )
        self.plot, self.table = Plot(), ipywidgets.HTML()
        super().__init__(
            f"timeline: batches run {len(self.batches):,}, steps {sum(map(len, self.batches)):,}",
            panels.controls(self.batch),
            self.plot,
            self.table,
        )
        self.batch.observe(self._show, "value")
        self._show()

    def _show(self, _: Any = None) -> None:
        steps = self.batches[self.batch.value - 1]
        total = sum(s.ms for s in steps)
        self.plot.draw(drawing(steps), f"{len(steps)} steps, {total:.2f} ms, end to end")
        columns = ("step", "items", "real tokens", "budget", "padding", "why eager")
        self.table.value = panels.table(columns, [_row(n, s) for n, s in enumerate(steps, 1)])

    def tables(self) -> list[str]:
        """Nothing: what was timed live has no place in a stored notebook."""
        return []


def _row(number: int, timed: TimedStep) -> list[str]:
    step = timed.step
    budget = step.token_budget
    return [
        f"{number}. {step.route}",
        str(step.items),
        f"{step.real_tokens:,}",
        "" if budget is None else f"{budget:,}",
        "" if budget is None else f"{1 - step.real_tokens / budget:.0%}",
        step.reason or "",
    ]


def drawing(steps: Sequence[TimedStep]) -> go.Figure:
    """Steps end to end, a colour and a pattern a route; the padded share is hatched."""
    drawn = template.figure(*_bars(steps), x="milliseconds since the batch began", y="")
    drawn.update_xaxes(rangemode="tozero").update_yaxes(autorange="reversed", type="category")
    return drawn.update_layout(
        barmode="overlay", height=140 + 34 * len(steps), uirevision="kept", bargap=0.25
    )


def _bars(steps: Sequence[TimedStep]) -> list[go.Bar]:
    at, bars, seen = 0.0, [], set()
    for number, timed in enumerate(steps, 1):
        step = timed.step
        used = step.real_tokens / step.token_budget if step.token_budget else 1.0
        for name, share, start in (
            (str(step.route), used, at),
            ("share of padding", 1 - used, at + timed.ms * used),
        ):
            if share:
                bars.append(_bar(number, timed, name, start=start, ms=share * timed.ms))
                bars[-1].showlegend = name not in seen
                seen.add(name)
        at += timed.ms
    return bars


def _bar(number: int, timed: TimedStep, name: str, *, start: float, ms: float) -> go.Bar:
    step, padding = timed.step, name == "share of padding"
    colour = template.STRATEGY_COLOURS["vllm"] if padding else template.ROUTE_COLOURS[step.route]
    budget = f" of {step.token_budget:,}" if step.token_budget else ""
    return go.Bar(
        uid=f"{number} {name}",
        name=name,
        legendgroup=name,
        orientation="h",
        y=[f"{number}. {step.route}, items: {step.items}"],
        x=[ms],
        base=[start],
        marker={
            "color": colour,
            "pattern": {
                "shape": "/" if padding else _PATTERNS[step.route],
                "solidity": 0.3,
                "fillmode": "overlay",
            },
        },
        hovertemplate=(
            f"{step.route}: {step.real_tokens:,}{budget} tokens, {timed.ms:.3f} ms<extra></extra>"
        ),
    )
