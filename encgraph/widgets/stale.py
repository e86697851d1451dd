"""The stale-state microscope: take safeguards away and watch leftovers reach live rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets
import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.widgets import panels
from encgraph.widgets.plots import Plot

if TYPE_CHECKING:
    from encgraph.microscope import Look, Microscope

STATES = (
    "padding, as it should be",
    "live and right",
    "stale padding",
    "NaN in padding",
    "live but wrong",
    "live but NaN",
)
_COLOURS = ("#D9D9D9", "#7DB5DE", "#F0C75E", "#6A51A3", "#D9541A", "#E7298A")
_SWITCHES = {
    "zeroing": ("zero padding pixels", "off: the large batch's pixels stay behind the small one's"),
    "offsets": ("pad segment offsets", "off: unused offsets keep what the large batch wrote"),
    "clearing": (
        "attention slab zeroed each replay",
        "off: an earlier batch left NaN in its unused rows",
    ),
    "cloning": ("clone outputs", "off: the caller of the large batch holds a view of the slab"),
}


def stale_state(microscope: "Microscope | None" = None) -> "StaleState":
    """Look at every row after every layer when a small replay follows a large one.

    A tiny tower runs on the reference backend, which needs torch and transformers; the tensors are
    real, and so is what goes wrong.

    Args:
        microscope: One with other batches; see `encgraph.microscope.Microscope`.
    """
    from encgraph.microscope import Microscope  # only this explorer needs torch

    require(
        microscope is None or isinstance(microscope, Microscope),
        f"microscope must be a Microscope, got {type(microscope).__name__}; leave it out for one",
    )
    return StaleState(microscope or Microscope())


class StaleState(panels.Panel):
    """See `stale_state`."""

    def __init__(self, microscope: "Microscope") -> None:
        self.microscope = microscope
        self.switches = {
            name: panels.checkbox(text, value=True, tip=tip)
            for name, (text, tip) in _SWITCHES.items()
        }
        self.poison = panels.checkbox(
            "poison padding with NaN", value=False, tip="NaN in the pixels that are not written"
        )
        self.switches["poison"] = self.poison
        self.plot, self.note = Plot(), ipywidgets.HTML()
        self.table = ipywidgets.HTML()
        large, small = (_sizes(b) for b in (microscope.large, microscope.small))
        super().__init__(
            f"stale state: {small} tokens replayed after {large} in one budget",
            panels.controls(*self.switches.values()),
            self.note,
            self.plot,
            self.table,
        )
        for switch in self.switches.values():
            switch.observe(self._show, "value")
        self._show()

    def _show(self, _: Any = None) -> None:
        from encgraph.microscope import Safeguards  # only this explorer needs torch

        chosen = Safeguards(**{name: bool(s.value) for name, s in self.switches.items()})
        self.look = self.microscope.look(chosen)
        said = verdict(self.look)
        self.plot.draw(drawing(self.look), f"Rows by layers. {said}")
        self.note.value = f"<b>{panels.note(said)}</b>"
        columns = ("rows after the last layer", "count")
        rows = [[name, str(self.look.count(n))] for n, name in _present(self.look)]
        self.table.value = panels.table(columns, rows)


def _sizes(batch: Sequence[Any]) -> str:
    return " + ".join(str(value.item.tokens) for value in batch)


def _present(look: "Look") -> list[tuple[Any, str]]:
    found = {row[-1] for row in look.states}
    return [(state, STATES[state]) for state in sorted(found)]


def verdict(look: "Look") -> str:
    """What happened, one or two sentences."""
    live = [row for row in look.states[: look.live] if max(row) >= STATES.index("live but wrong")]
    held = sum(s >= STATES.index("live but wrong") for s in look.held)
    behind = sum(row[-1] in (2, 3) for row in look.states[look.live :])
    said = [
        f"{len(live)} of {look.live} live rows are wrong, first after {look.first_wrong()}"
        if live
        else f"all {look.live} live rows are right"
        + (f", though {behind} padding rows hold leftovers" if behind else "")
    ]
    if held:
        said.append(f"{held} of {len(look.held)} rows that the first caller holds have changed")
    return "; ".join(said)


def drawing(look: "Look") -> go.Figure:
    """One row a token, one column a layer, and what the first caller holds at the right."""
    rows = range(max(len(look.states), len(look.held)))
    beside = [look.held[i] if i < len(look.held) else None for i in rows]
    cells = [[*look.states[i], beside[i]] for i in rows]
    top = len(STATES)
    scale = [[at, _COLOURS[n]] for n in range(top) for at in (n / top, (n + 1) / top)]
    heat = go.Heatmap(
        uid="states",
        x=[*look.layers, "held by the first caller"],
        y=list(rows),
        z=cells,
        zmin=-0.5,
        zmax=top - 0.5,
        xgap=3,
        colorscale=scale,
        customdata=[[STATES[c] if c is not None else "" for c in row] for row in cells],
        hovertemplate="row %{y}, %{x}: %{customdata}<extra></extra>",
        colorbar={"tickvals": list(range(top)), "ticktext": list(STATES), "thickness": 14},
    )
    drawn = template.figure(heat, x="as it stands after", y="token row of the budget")
    drawn.update_yaxes(autorange="reversed", showgrid=False).update_xaxes(showgrid=False)
    end = look.live - 0.5
    drawn.add_shape(
        type="line", x0=-0.5, x1=len(look.layers) - 0.5, y0=end, y1=end,
        line={"color": "#1B1B1B", "width": 2, "dash": "dash"},
    )  # fmt: skip
    for text, side in (("live", "bottom"), ("padding", "top")):
        drawn.add_annotation(
            x=-0.48, y=end, text=text, showarrow=False, xanchor="left", yanchor=side,
            font={"color": "#1B1B1B", "size": 12}, bgcolor="rgba(255,255,255,0.7)",
        )  # fmt: skip
    return drawn.update_layout(height=440, uirevision="kept")
