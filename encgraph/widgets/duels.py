"""The packing duel: one batch packed item by item by three rules side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from encgraph import packing
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.fitting import judging
from encgraph.packers.search import EXACT_ITEMS
from encgraph.records import Bin, Item, Load, Packing, Plan
from encgraph.report.text import plural
from encgraph.widgets import asked, panels

_MOST_ITEMS = 32
"""Above so many items a step is too small to follow."""
_RULES = ("ascending", "first_fit_decreasing", "cheapest")
TITLES = {
    "ascending": "ascending with defer (vLLM's rule)",
    "first_fit_decreasing": "first fit decreasing",
    "cheapest": "cheapest",
}
JOINED = {
    "ascending": "the open bin",
    "first_fit_decreasing": "the first bin that still holds it",
    "cheapest": "others",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A rule after so many items, in the order in which it takes them."""

    rule: str
    packing: Packing
    order: tuple[int, ...]
    """Indices into the batch of the items taken so far; those of the packing point into this."""
    predicted_ms: float
    said: str
    """What the last item did."""
    deferred: bool = False
    """Whether a bin was closed although its graph's larger sisters would have held the item."""


def frames(batch: Sequence[Item], plan: Plan, costs: Costs, rule: str) -> list[Frame]:
    """A rule step by step: the packing of the first item it takes, of the first two, and so on.

    `ascending` and `first_fit_decreasing` never look ahead, so the packing of the first items is their
    state after so many steps; for `cheapest` it is the best packing of what has come so far.
    """
    pack = packing.packer(plan, costs, rule=rule)
    order = _order(batch, rule)
    found = [_frame(rule, pack, batch, order[:n], costs) for n in range(len(order) + 1)]
    shown = found[:1]
    for before, after in pairwise(found):
        shown.append(_explained(before, after, batch, plan, costs))
    return shown


def _order(batch: Sequence[Item], rule: str) -> list[int]:
    indices = list(range(len(batch)))
    if rule == "cheapest":
        return indices
    return sorted(indices, key=lambda i: batch[i].tokens, reverse=rule != "ascending")


def _frame(
    rule: str, pack: packing.Packer, batch: Sequence[Item], order: Sequence[int], costs: Costs
) -> Frame:
    taken = [batch[i] for i in order]
    packed = pack(taken)
    ms = packing.predicted_ms(packed, taken, costs) if taken else 0.0
    return Frame(rule=rule, packing=packed, order=tuple(order), predicted_ms=ms, said="")


def _explained(
    before: Frame, after: Frame, batch: Sequence[Item], plan: Plan, costs: Costs
) -> Frame:
    said, deferred = _said(before, after, batch, plan, costs)
    return Frame(
        rule=after.rule,
        packing=after.packing,
        order=after.order,
        predicted_ms=after.predicted_ms,
        said=said,
        deferred=deferred,
    )


def _said(
    before: Frame, after: Frame, batch: Sequence[Item], plan: Plan, costs: Costs
) -> tuple[str, bool]:
    """What the last item did, and whether a bin was deferred for it."""
    last = len(after.order) - 1
    item = batch[after.order[last]]
    name = f"item {after.order[last] + 1} ({item.tokens:,} tokens)"
    left = next((f for f in after.packing.fallback if f.item == last), None)
    if left is not None:
        return f"{name} is left for eager: {left.reason}", False
    mine = next(b for b in after.packing.bins if last in b.items)
    if len(mine.items) > 1:
        joined = JOINED[after.rule]
        return f"{name} joins {joined}: budget {mine.token_budget:,}, {_padding(mine)}", False
    if after.rule == "ascending" and before.packing.bins:
        deferred = _deferred(before.packing.bins[-1], mine, item, plan, costs)
        if deferred:
            return f"{name}: defer. {deferred}", True
    return f"{name} opens a bin: budget {mine.token_budget:,}, {_padding(mine)}", False


def _padding(bin: Bin) -> str:
    return f"{bin.padding_tokens:,} of padding"


def _deferred(open_bin: Bin, alone: Bin, item: Item, plan: Plan, costs: Costs) -> str:
    """The inequality that closed a bin, with what it is worth; empty if nothing could hold both."""
    together = open_bin.load.plus(item)
    graph = packing.smallest(plan, together)
    if graph is None:
        return ""
    both = plan.graphs[graph]
    apart_ms = costs.replay_ms(open_bin.capacity, open_bin.load) + costs.replay_ms(
        alone.capacity, alone.load
    )
    gain = costs.replay_ms(both, together) - apart_ms
    verdict = f"saves {gain:.2f} ms" if gain >= 0 else f"costs {-gain:.2f} ms"
    return (
        f"B({open_bin.load.tokens:,}) + B({item.tokens:,}) = {open_bin.token_budget:,} + "
        f"{alone.token_budget:,} < {both.tokens:,} = B({together.tokens:,}), and "
        f"{alone.token_budget:,} ≥ {open_bin.token_budget:,}; predicted {apart_ms:.2f} ms apart, "
        f"{apart_ms + gain:.2f} ms together: {verdict}"
    )


class Lanes(anywidget.AnyWidget):
    """Draws the bins of each rule after a step; runs without the kernel."""

    _esm = Path(__file__).with_name("lanes.js").read_text(encoding="utf-8")
    _css = panels.PANEL_CSS + Path(__file__).with_name("lanes.css").read_text(encoding="utf-8")
    lanes: traitlets.List[Any] = traitlets.List().tag(sync=True)
    """Of each rule its title and its frames, as plain values."""
    step = traitlets.Int(0).tag(sync=True)


def packing_duel(batch: Sequence[Item], plan: Plan, costs: Costs) -> "PackingDuel":
    """Pack one batch step by step by three rules side by side.

    Args:
        batch: At least one item, all of one modality.
        plan: The capacities to pack into.
        costs: What replays and eager runs cost.

    Raises:
        ValueError: If the batch is empty or mixes modalities.
    """
    asked.items("a batch", batch)
    judging.check_plan(plan, costs)
    return PackingDuel([batch], plan, costs)


class PackingDuel(panels.Panel):
    """See `packing_duel`; with several batches a slider chooses among them."""

    _linked: Sequence[Any] = ()

    def __init__(self, batches: Sequence[Sequence[Item]], plan: Plan, costs: Costs) -> None:
        require(
            bool(batches) and all(batches), "a duel needs a batch of at least one item, got none"
        )
        for batch in batches:
            kinds = {item.modality for item in batch}
            require(
                len(kinds) == 1,
                f"a batch is of one modality, got {sorted(kinds)!r}; pack each by itself",
            )
        self.batches, self.costs = batches, costs
        self.batch = panels.slider(
            "batch", value=1, low=1, high=len(batches), tip="which batch is packed"
        )
        self.batch.layout.display = None if len(batches) > 1 else "none"
        self.step = panels.slider("items packed", value=0, low=0, high=1, tip="step of every rule")
        self.play = ipywidgets.Play(interval=900, min=0, max=1, tooltip="pack item by item")
        self.lanes, self.table = Lanes(), ipywidgets.HTML()
        self._linked = [
            ipywidgets.jslink((self.play, "value"), (self.step, "value")),
            ipywidgets.jslink((self.step, "value"), (self.lanes, "step")),
        ]
        super().__init__(
            f"packing duel: {plural(len(batches), 'batch', 'batches')}",
            panels.controls(self.batch, self.play, self.step),
            self.lanes,
            self.table,
        )
        self.batch.observe(self._show, "value")
        self.observe(self._show, "plan")
        self.plan = plan

    def close(self) -> None:
        """Close the links too."""
        for link in self._linked:
            link.close()
        super().close()

    def _show(self, _: Any = None) -> None:
        batch = self.batches[self.batch.value - 1][:_MOST_ITEMS]
        self.found = {rule: frames(batch, self.plan, self.costs, rule) for rule in _RULES}
        steps = len(batch)
        self.play.max = self.step.max = steps
        self.step.disabled = False
        self.lanes.lanes = [_lane(rule, shown, batch) for rule, shown in self.found.items()]
        self.play.value = self.step.value = self.lanes.step = steps
        self.table.value = self._result(batch)

    def _result(self, batch: Sequence[Item]) -> str:
        eager = self.costs.request_ms + self.costs.eager_ms(Load.of(batch))
        rows = [_row(TITLES[rule], shown[-1]) for rule, shown in self.found.items()]
        rows.append(["all eager, batched", "0", "0", str(len(batch)), f"{eager:.2f}"])
        how = (
            "cheapest is the optimum over all partitions"
            if len(batch) <= EXACT_ITEMS
            else f"cheapest is exact up to {EXACT_ITEMS} items and a bounded search above"
        )
        columns = (
            "rule, at the end",
            "replays",
            "padding tokens",
            "items left for eager",
            "predicted, ms",
        )
        more = len(self.batches[self.batch.value - 1]) - len(batch)
        if more:
            how = f"the first {len(batch)} of {len(batch) + more:,} items; {how}"
        return panels.table(columns, rows) + panels.note(f"{how}; {panels.priced(self.costs)}")


def _row(title: str, frame: Frame) -> list[str]:
    bins = frame.packing.bins
    return [
        title,
        str(len(bins)),
        f"{sum(b.padding_tokens for b in bins):,}",
        str(len(frame.packing.fallback)),
        f"{frame.predicted_ms:.2f}",
    ]


def _lane(rule: str, shown: Sequence[Frame], batch: Sequence[Item]) -> dict[str, Any]:
    is_exact = rule == "cheapest" and len(batch) <= EXACT_ITEMS
    title = f"{TITLES[rule]}{': the optimum' if is_exact else ''}"
    return {"title": title, "frames": [_plain(frame, batch) for frame in shown]}


def _plain(frame: Frame, batch: Sequence[Item]) -> dict[str, Any]:
    """A frame as JSON: bins with their items in the batch's own numbers."""

    def item(at: int) -> dict[str, int]:
        return {"item": frame.order[at] + 1, "tokens": batch[frame.order[at]].tokens}

    return {
        "ms": round(frame.predicted_ms, 3),
        "said": frame.said,
        "deferred": frame.deferred,
        "bins": [
            {
                "budget": b.token_budget,
                "padding": b.padding_tokens,
                "items": [item(i) for i in b.items],
            }
            for b in frame.packing.bins
        ],
        "eager": [item(f.item) for f in frame.packing.fallback],
    }
