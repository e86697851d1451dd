"""The timeline: the steps of one batch as they were recorded, end to end, with their kernels."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from encgraph import traces
from encgraph.errors import require
from encgraph.facts import TimedStep
from encgraph.figures import template
from encgraph.kernels import Kernel
from encgraph.records import Route
from encgraph.report.text import plural
from encgraph.widgets import panels
from encgraph.widgets.plots import Plot

_PATTERNS = {Route.REPLAY: "", Route.FALLBACK: "x", Route.EAGER: "/", Route.CAPTURE: "."}


_COLUMNS = ("step", "items", "real tokens", "budget", "fill", "why eager", "kernels", "time, ms")
MOST_STEPS = 100
"""Steps drawn and listed for a batch, the first ones; the total counts all of them."""
MOST_KERNELS = 2000
"""Kernels drawn for these steps, the longest ones; the tables count all of them."""

_WHENCE = "a run's `Report.steps` and `profilers.kernels` have them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A step and the kernels it launched."""

    timed: TimedStep
    kernels: tuple[Kernel, ...] = ()
    """By start; empty if no profile was given."""


def timeline(steps: Sequence[TimedStep], kernels: Sequence[Kernel] = ()) -> "Timeline":
    """Show one batch's steps from the records of a run.

    Args:
        steps: Such as `Report.steps` of a run; those of one request are a batch.
        kernels: Such as `profilers.kernels` of a profile of these steps, captures before them or not.

    Raises:
        ValueError: If no step belongs to a request, or the kernels are of other steps.
    """
    for name, given, kind in (("steps", steps, TimedStep), ("kernels", kernels, Kernel)):
        require(
            isinstance(given, Sequence),
            f"{name} must be a sequence, got {type(given).__name__}; {_WHENCE}",
        )
        wrong = next((type(one).__name__ for one in given if not isinstance(one, kind)), None)
        require(wrong is None, f"{name} must be of type {kind.__name__}, got {wrong}; {_WHENCE}")
    return Timeline(steps, kernels)


def profiled(steps: Sequence[TimedStep], kernels: Sequence[Kernel]) -> list[Profiled]:
    """Give every step its kernels: the profile's steps are the same ones, in the same order.

    Raises:
        ValueError: If the kernels are of other steps.
    """
    groups: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        if kernel.step is not None and not (kernel.title or "").startswith(_CAPTURE):
            groups.setdefault(kernel.step, []).append(kernel)
    found = [tuple(groups[number]) for number in sorted(groups)]
    require(
        not found or len(found) == len(steps),
        f"kernels must be of the same steps, got kernels of {len(found)} for {len(steps)} steps; "
        "profile the run that was recorded",
    )
    for timed, mine in zip(steps, found, strict=False):
        require(
            mine[0].title == traces.title(timed.step),
            f"kernels must be of the same steps, got {mine[0].title!r} "
            f"for {traces.title(timed.step)!r}; profile the run that was recorded",
        )
    of_each = found or [()] * len(steps)
    return [Profiled(timed=t, kernels=k) for t, k in zip(steps, of_each, strict=True)]


_CAPTURE = f"{traces.PREFIX}{Route.CAPTURE}"


class Timeline(panels.Panel):
    """See `timeline`; a slider chooses the batch, in order of the requests."""

    def __init__(self, steps: Sequence[TimedStep], kernels: Sequence[Kernel] = ()) -> None:
        batches: dict[int, list[Profiled]] = {}
        for step in profiled([s for s in steps if s.request is not None], kernels):
            batches.setdefault(step.timed.request or 0, []).append(step)
        require(bool(batches), "a timeline needs the steps of at least one request, got none")
        self.batches = [batches[key] for key in sorted(batches)]
        self.batch = panels.slider(
            "batch", value=1, low=1, high=len(self.batches), tip="whose steps are shown"
        )
        self.plot, self.table = Plot(), ipywidgets.HTML()
        self.modules = ipywidgets.HTML()
        super().__init__(
            f"timeline: {plural(sum(map(len, self.batches)), 'step')} of "
            f"{plural(len(self.batches), 'batch', 'batches')}",
            panels.controls(self.batch),
            self.plot,
            self.table,
            self.modules,
        )
        self.batch.observe(self._show, "value")
        self._show()

    def _show(self, _: Any = None) -> None:
        batch = self.batches[self.batch.value - 1]
        shown, cut = batch[:MOST_STEPS], ""
        took = f"{plural(len(batch), 'step')}, {_total_ms(batch):.2f} ms, end to end"
        if len(batch) > MOST_STEPS:
            cut = f"the first {MOST_STEPS} of {took}: {_total_ms(shown):.2f} ms of them"
        self.plot.draw(drawing(shown), cut or took)
        rows = [_row(n, p) for n, p in enumerate(shown, 1)]
        self.table.value = panels.table(_COLUMNS, rows, caption=cut)
        self.modules.value = _by_module([k for p in batch for k in p.kernels])

    def tables(self) -> list[str]:
        """Nothing: what was timed live has no place in a stored notebook."""
        return []


def _total_ms(steps: Sequence[Profiled]) -> float:
    return sum(p.timed.ms for p in steps)


def _row(number: int, shown: Profiled) -> list[str]:
    step = shown.timed.step
    budget = step.token_budget
    return [
        f"{number}. {step.route}",
        str(step.items),
        f"{step.real_tokens:,}",
        "" if budget is None else f"{budget:,}",
        "" if budget is None else f"{step.real_tokens / budget:.0%}",
        traces.why_eager(step),
        f"{len(shown.kernels):,}" if shown.kernels else "",
        f"{shown.timed.ms:.3g}",
    ]


def _by_module(kernels: Sequence[Kernel]) -> str:
    """HTML of the ten modules that took longest, a kernel outside of all of them by its own name."""
    if not kernels:
        return ""
    counts: Counter[str] = Counter()
    times: defaultdict[str, float] = defaultdict(float)
    for kernel in kernels:
        counts[kernel.module or kernel.name] += 1
        times[kernel.module or kernel.name] += kernel.ms
    longest = sorted(times, key=times.__getitem__, reverse=True)[:10]
    rows = [(name, f"{counts[name]:,}", f"{times[name]:.3g} ms") for name in longest]
    what = "kernels" if kernels[0].on_card else "CPU operators"
    caption = f"{what} by module or name, while profiled: longest {len(rows)} of {len(times)}"
    return panels.table(("module or name", what, "time"), rows, caption=caption)


def drawing(steps: Sequence[Profiled]) -> go.Figure:
    """Steps end to end, a colour and a pattern a route; the padded share is hatched."""
    bars = [*_bars([p.timed for p in steps]), *_lanes(steps)]
    drawn = template.figure(*bars, x="milliseconds since the batch began", y="")
    rows = len({bar.y[0] for bar in bars})
    drawn.update_xaxes(rangemode="tozero").update_yaxes(
        autorange="reversed",
        type="category",
        categoryorder="array",
        # a row of kernels only where there are some: plotly keeps room for every name here
        categoryarray=[
            name for n, p in enumerate(steps, 1) for name in _rows(n, p)[: 1 + bool(p.kernels)]
        ],
    )
    return drawn.update_layout(
        barmode="overlay", height=140 + 34 * rows, uirevision="kept", bargap=0.25
    )


def _rows(number: int, shown: Profiled) -> tuple[str, str]:
    """Names of a step's row and of its kernels' row."""
    step = shown.timed.step
    what = "kernels" if not shown.kernels or shown.kernels[0].on_card else "CPU operators"
    return f"{number}. {step.route}, items: {step.items}", f"{number}. {what}"


def _lanes(steps: Sequence[Profiled]) -> list[go.Bar]:
    """Kernels below their steps, from the first one's start on."""
    kept = sorted((k.ms for p in steps for k in p.kernels), reverse=True)[:MOST_KERNELS]
    starts = [0.0]
    for shown in steps:
        starts.append(starts[-1] + shown.timed.ms)
    lanes = []
    for number, (shown, at) in enumerate(zip(steps, starts, strict=False), 1):
        drawn = [k for k in shown.kernels if k.ms >= kept[-1]]
        if drawn:
            lanes.append(_lane(_rows(number, shown)[1], drawn, at - (drawn[0].start_ms or 0)))
            lanes[-1].showlegend = len(lanes) == 1
    return lanes


def _lane(row: str, kernels: Sequence[Kernel], at: float) -> go.Bar:
    return go.Bar(
        uid=template.uid(f"row {row}"),
        name=f"{row.partition('. ')[2]}, while profiled",
        legendgroup="kernels",
        orientation="h",
        y=[row] * len(kernels),
        x=[k.ms for k in kernels],
        base=[at + (k.start_ms or 0) for k in kernels],
        marker={"color": template.INK, "line": {"width": 0.5, "color": template.GRID}},
        customdata=[(template.label(k.name), template.label(k.module or "")) for k in kernels],
        hovertemplate="%{customdata[1]}<br>%{customdata[0]}<br>%{x:.4f} ms<extra></extra>",
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
    colour = template.PADDING if padding else template.ROUTE_COLOURS[step.route]
    budget = f" of {step.token_budget:,}" if step.token_budget else ""
    return go.Bar(
        uid=template.uid(f"step {number} {name}"),
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
