"""The linked explorer: one traffic, one card, one plan in; everything else follows."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import ipywidgets
import traitlets

from encgraph import cards, codec, export
from encgraph.budgets import Limits
from encgraph.costs import Costs
from encgraph.packers.search import EXACT_ITEMS
from encgraph.records import Item, Plan
from encgraph.report.text import plural
from encgraph.sizes import EncoderSize
from encgraph.traffic import Traffic
from encgraph.widgets import asked, panels
from encgraph.widgets.breakeven import BreakEven
from encgraph.widgets.cases import Case
from encgraph.widgets.duels import PackingDuel
from encgraph.widgets.ruler import BudgetRuler
from encgraph.widgets.shards import Sharding
from encgraph.widgets.strata import MemoryStrata

ENGINES = ("encgraph", "vllm")
BATCHES = 12
_MOVE = (
    "move the budgets: a request is padded up to the next one, split over several, or runs eager"
)
_FOLLOWS = "see what follows: latency, packing and memory follow these budgets; ranks follow the card alone"


def explorer(
    traffic: Traffic,
    size: EncoderSize,
    *,
    costs: Costs | None = None,
    limits: Limits | None = None,
) -> "Explorer":
    """Link the explorers: move budgets, and packing, break-even, latency, memory and flags follow.

    Args:
        traffic: Read for `size`.
        size: The encoder.
        costs: What replays and eager runs cost; by default recorded on a card that is chosen.
        limits: Graphs, bytes and packing rule of the fit for encgraph; vLLM's rules are its own.

    Raises:
        ValueError: If the traffic is empty, too large to be packed while somebody waits, or was read
            for another encoder.
    """
    asked.traffic(traffic)
    asked.size(size)
    asked.limits(limits)
    if traffic.encoder != size.name:
        raise ValueError(
            f"the traffic was read for {traffic.encoder!r}, got size {size.name!r}; read it again"
        )
    return Explorer(traffic, size, costs=costs, limits=limits)


class Explorer(panels.Panel):
    """See `explorer`."""

    def __init__(
        self, traffic: Traffic, size: EncoderSize, *, costs: Costs | None, limits: Limits | None
    ) -> None:
        self.traffic, self.size, self.limits = traffic, size, limits or Limits()
        known = cards.known() or ("modelled",)
        self.card = panels.dropdown("card", known, tip="whose recorded curve predicts")
        self.card.layout.display = "none" if costs else None
        self.engine = panels.dropdown("plan for", ENGINES, tip="whose packing rules apply")
        self.busy = panels.hint("")
        self._given, self._links = costs, list[traitlets.dlink]()
        self._priced = cache(lambda card: costs or cards.price(size, on=card))
        self._cased = cache(self._case)
        self.parts = ipywidgets.VBox(layout=panels.WIDE)
        self.result = _Result()
        super().__init__(
            f"explorer: {plural(len(traffic.requests), 'request')} of {traffic.name}, {size.name}",
            panels.step(
                1, "choose the card whose recorded costs predict, and whose packing rules apply"
            ),
            panels.controls(self.card, self.engine, self.busy),
            self.parts,
            panels.step(4, "take the plan away: as vLLM's flags, or as JSON for encgraph"),
            self.result,
        )
        self.card.observe(self._build, "value")
        self.engine.observe(self._build, "value")
        self._build()

    def _case(self, card: str, engine: str) -> Case:
        limits = self.limits
        if engine == "vllm":
            limits = Limits(
                max_graphs=limits.max_graphs,
                max_bytes=limits.max_bytes,
                largest=export.VLLM_LARGEST,
                one_cap=True,
                pack="ascending",
            )
        costs = self._priced(card)
        if engine == "vllm":
            costs = costs.with_private_slabs()
        return Case.of(self.traffic, costs, limits=limits)

    def _build(self, _: Any = None) -> None:
        """Make the parts anew, and say so meanwhile."""
        self.busy.value = f"fitting graphs for {self.engine.value}, costs {self.card.value}; wait"
        try:
            self._rebuild()
        finally:
            self.busy.value = ""

    def _rebuild(self) -> None:
        """Fit for the card and engine chosen, and link the parts to the ruler's plan."""
        case = self._cased(self.card.value, self.engine.value)
        before, self._links = self._links, []
        for link in before:
            link.unlink()
        self.ruler = BudgetRuler(case)
        points = cards.recorded(self.size, self.card.value) if case.costs.recorded else ()
        plan, self.result.engine = self.ruler.plan, self.engine.value
        self.duel = PackingDuel(_batches(case), plan, case.costs)
        self.breakeven = BreakEven(case, plan, compiled=self._compiled())
        self.memory = MemoryStrata(plan, case.costs, points)
        self._links = [
            traitlets.dlink((self.ruler, "plan"), (part, "plan"))
            for part in (self.duel, self.breakeven, self.memory, self.result, self)
        ]
        self.sharding = Sharding(case.held_out.requests, self.size, case.costs)
        tabs = ipywidgets.Tab(
            (self.breakeven, self.duel, self.memory, self.sharding),
            titles=("latency", "packing of a batch", "memory", "several cards: ranks"),
        )
        old, self.parts.children = (
            self.parts.children,
            (panels.step(2, _MOVE), self.ruler, panels.step(3, _FOLLOWS), tabs),
        )
        for part in old:
            panels.close(part)

    def _compiled(self) -> Costs | None:
        """Costs with a compiled block, where they are on record for the card."""
        if self._given is not None or self.card.value not in cards.known():
            return None
        compiled = cards.price(self.size, on=self.card.value, compiled=True)
        return compiled if compiled.recorded else None

    def tables(self) -> list[str]:
        """The ruler's tables and the result."""
        return [*self.ruler.tables(), *self.result.tables()]


def _batches(case: Case) -> Sequence[Sequence[Item]]:
    """A few requests worth packing: held out, of one modality, several items where there are any."""
    pure = [r for r in case.held_out.requests if len({item.modality for item in r}) == 1]
    several = [r for r in pure if 2 <= len(r) <= BATCHES]
    chosen = sorted(several or pure, key=lambda r: abs(len(r) - EXACT_ITEMS))
    if not chosen:
        whole = case.held_out.requests[0]
        chosen = [[item for item in whole if item.modality is whole[0].modality]]
    return chosen[:: max(1, len(chosen) // BATCHES)][:BATCHES]


class _Result(panels.Panel):
    """The plan as JSON and as flags, to take away."""

    engine = ENGINES[0]
    """Whose rules the plan was made under; only vLLM's own are worth its flags."""

    def __init__(self) -> None:
        wide = {"width": "calc(100% - 8px)", "height": "96px"}
        self.flags = ipywidgets.Textarea(
            description="vLLM flags", disabled=False, layout=wide, tooltip="select and copy"
        )
        self.json = ipywidgets.Textarea(
            description="plan JSON", disabled=False, layout=wide, tooltip="select and copy"
        )
        super().__init__("the plan", self.flags, self.json)
        self.observe(self._show, "plan")

    def _show(self, _: Any = None) -> None:
        self.json.value = codec.dumps(self.plan)
        elsewhere = "no flags: planned under encgraph's packing; choose 'plan for' vllm"
        self.flags.value = flags(self.plan) if self.engine == "vllm" else elsewhere


def flags(plan: Plan) -> str:
    """Flags of vLLM for a plan, or why there are none."""
    try:
        return export.vllm(plan).command_line
    except ValueError as error:
        return f"no flags: {error}"
