"""Data parallel: one burst shared among ranks by a rule, what each rank takes, and what is gathered."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from encgraph import balance, tabular
from encgraph import sharding as simulating
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.figures import template
from encgraph.fitting import judging
from encgraph.records import Item, Route
from encgraph.report.text import plural
from encgraph.sharding import Burst, Simulated
from encgraph.sizes import EncoderSize
from encgraph.traffic import Requests
from encgraph.widgets import asked, panels
from encgraph.widgets.plots import Plot, Sketch, Values

_GROUPS = {"one request": 0, "8 items": 8, "32 items": 32}
"""How many items a burst has, by what the control says; 0 keeps requests as they are."""
MOST_RANKS = 16
MOST_ITEMS = 1_000
"""Items simulated at most; of more, bursts at even steps stand for all."""
_COLUMNS = (
    "predicted", "makespan, ms", "lower bound, ms", "over the bound", "idle",
    "speed over one rank", "gather padded, MiB", "gather uneven, MiB",
)  # fmt: skip


def sharding(requests: Requests, size: EncoderSize, costs: Costs) -> "Sharding":
    """Share bursts among ranks and see who waits, how far from the bound, and what the gather moves.

    Args:
        requests: One burst each, unless they are regrouped by the control; `[batch]` for one batch.
        size: The encoder, whose outputs are gathered.
        costs: What replays and eager runs cost; a rank is predicted by an exact fit.

    Raises:
        ValueError: If no request has an item.
    """
    asked.requests(requests)
    asked.size(size)
    judging.check_costs(costs, size.name)
    return Sharding(requests, size, costs)


class Sharding(panels.Panel):
    """See `sharding`."""

    def __init__(self, requests: Requests, size: EncoderSize, costs: Costs) -> None:
        self.requests = [tuple(request) for request in requests if len(request)]
        require(bool(self.requests), "sharding needs at least one request with an item, got none")
        self.size, self.costs = size, costs
        self.ranks = panels.slider(
            "ranks", value=4, low=1, high=MOST_RANKS, tip="cards that share each burst"
        )
        self.rule = panels.dropdown(
            "balance rule", tuple(balance.RULES), tip="which rank encodes which item"
        )
        most = sum(map(len, self.requests))
        self.group = panels.dropdown(
            "a burst is",
            tuple(name for name, items in _GROUPS.items() if items <= most),
            tip="items that are shared at once",
        )
        self.burst = panels.slider("burst", value=1, low=1, high=2, tip="whose ranks are drawn")
        self.plot, self.table, self.note = Plot(), ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__(
            f"sharding: {plural(len(requests), 'request')}, {size.name}",
            panels.controls(self.ranks, self.rule, self.group, self.burst),
            self.plot,
            self.table,
            self.note,
        )
        self._known: dict[tuple[str, int, str], Simulated] = {}
        self.ranks.observe(self._show, "value")
        self.rule.observe(self._show, "value")
        self.group.observe(self._grouped, "value")
        self.burst.observe(self._show, "value")
        self._grouped()

    def _grouped(self, _: Any = None) -> None:
        items = _GROUPS[self.group.value]
        whole = simulating.bursts_of(self.requests, items) if items else self.requests
        self.bursts, self._kept = sampled(whole)
        with self.burst.hold_trait_notifications():
            self.burst.layout.display = None if len(self.bursts) > 1 else "none"
            self.burst.disabled = len(self.bursts) < 2
            self.burst.max = max(2, len(self.bursts))
            self.burst.value = 1 + max(
                range(len(self.bursts)), key=lambda i: (len(self.bursts[i]), -i)
            )
        self._show()

    def _show(self, _: Any = None) -> None:
        rule, ranks = self.rule.value, self.ranks.value
        shown = self.bursts[min(self.burst.value, len(self.bursts)) - 1]
        self.shared = balance.rule(rule, self.costs)(shown, ranks)
        self.looked = simulating.burst(
            shown,
            ranks,
            rule=lambda _items, _ranks: self.shared,
            costs=self.costs,
            token_bytes=simulating.token_bytes(self.size),
        )
        self.simulated = self._simulated(rule, ranks)
        one = balance.exact_ms(shown, self.costs)
        rows = [_row_of_burst(self.looked, one)]
        if len(self.bursts) > 1:
            rows.append(_row_of_all(self.simulated, len(self.bursts)))
        self.table.value = panels.table(_COLUMNS, rows)
        self.note.value = panels.note(
            f"{self._kept}; gathers summed over all ranks; {panels.priced(self.costs)}"
        )
        heights = _heights(self.looked, self.shared, shown)
        line = _across(self.looked.bound_ms)
        self.plot.fill(sketch(), _told(self.looked), traces=heights, layout={"shapes": [line]})

    def _simulated(self, rule: str, ranks: int) -> Simulated:
        key = (rule, ranks, str(self.group.value))
        if key not in self._known:
            self._known[key] = simulating.simulate(
                self.bursts, ranks, size=self.size, costs=self.costs, rule=rule
            )
        return self._known[key]


def sampled(bursts: Requests) -> tuple[list[tuple[Item, ...]], str]:
    """Bursts at even steps with about `MOST_ITEMS` items, and a sentence on what was kept."""
    step = -(-sum(map(len, bursts)) // MOST_ITEMS)
    kept = [tuple(burst[:MOST_ITEMS]) for burst in bursts[:: max(step, 1)]]
    cut = sum(len(burst) > MOST_ITEMS for burst in bursts)
    said = f"simulated {len(kept):,} of {len(bursts):,} bursts, evenly spaced"
    said = f"one rank's time by an exact fit; {said}" if len(bursts) > 1 else "one burst"
    return kept, f"{said}; of a larger one the first {MOST_ITEMS:,} items" if cut else said


def _row_of_burst(looked: Burst, one_rank_ms: float) -> list[str]:
    gather = looked.gather
    return [
        *_row("this burst", looked.makespan_ms, looked.over_bound_ratio),
        f"{looked.idle_ratio:.0%}",
        f"{one_rank_ms / looked.makespan_ms:.2f}",
        f"{gather.padded_bytes / tabular.MIB:,.2f}",
        f"{gather.uneven_bytes / tabular.MIB:,.2f}",
    ]


def _row_of_all(simulated: Simulated, count: int) -> list[str]:
    mean = simulated.latency.mean_ms
    return [
        *_row(f"mean of {count:,} bursts", mean, simulated.over_bound_ratio),
        f"{simulated.idle_ratio:.0%}",
        f"{simulated.speedup:.2f}",
        f"{simulated.padded_bytes / count / tabular.MIB:,.2f}",
        f"{simulated.uneven_bytes / count / tabular.MIB:,.2f}",
    ]


def _row(name: str, makespan_ms: float, over: float) -> list[str]:
    return [name, f"{makespan_ms:.2f}", f"{makespan_ms / over:.2f}", f"{over:.3f}"]


def _told(looked: Burst) -> str:
    loads = ", ".join(f"{ms:.2f}" for ms in looked.rank_ms)
    return (
        f"Bars of {len(looked.rank_ms)} ranks, {loads} ms; slowest {looked.makespan_ms:.2f} ms, "
        f"lower bound {looked.bound_ms:.2f} ms, {looked.idle_ratio:.0%} idle"
    )


def _heights(looked: Burst, shared: balance.Assignment, items: Sequence[Item]) -> dict[str, Values]:
    """What each rank takes, waits, and is bound by."""
    names = [f"rank {rank}" for rank in range(len(looked.rank_ms))]
    held = list(zip(map(len, shared.ranks), shared.tokens(items), strict=True))
    return {
        "busy": {"x": names, "y": looked.rank_ms, "customdata": held},
        "idle": {"x": names, "y": [looked.makespan_ms - ms for ms in looked.rank_ms]},
        "bound": {"x": names, "y": [looked.bound_ms] * len(names)},
    }


_BOUND = {"color": template.ROUTE_COLOURS[Route.FALLBACK], "width": 2}


def _across(bound_ms: float) -> Values:
    """The lower bound from edge to edge; its trace ends at the middle of the outer bars."""
    return {
        "type": "line", "xref": "x domain", "x0": 0, "x1": 1, "y0": bound_ms, "y1": bound_ms,
        "line": _BOUND,
    }  # fmt: skip


@cache
def sketch() -> Sketch:
    """A bar for each rank, waiting hatched above it, and the bound no assignment beats."""
    busy = go.Bar(
        uid="busy",
        name="encoding",
        marker={"color": template.PART_COLOURS["slabs"]},
        hovertemplate="%{y:.2f} ms: %{customdata[0]:,} items, %{customdata[1]:,} tokens"
        "<extra>%{x}</extra>",
    )
    idle = go.Bar(
        uid="idle",
        name="waiting for the slowest",
        marker={
            "color": "rgba(128,128,128,0.12)",
            "pattern": {"shape": "/", "size": 6, "fgcolor": template.INK},
        },
        hovertemplate="%{y:.2f} ms idle<extra>%{x}</extra>",
    )
    bound = go.Scatter(
        uid="bound",
        name="lower bound",
        mode="lines",
        line=_BOUND,
        hovertemplate="no assignment beats %{y:.2f} ms<extra></extra>",
    )
    drawn = template.figure(busy, idle, bound, x="", y="predicted time of a rank, ms")
    drawn.update_xaxes(type="category").update_yaxes(rangemode="tozero")
    return Sketch(drawn.update_layout(barmode="stack", uirevision="kept", margin={"t": 48}))
