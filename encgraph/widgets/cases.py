"""One traffic on one card, prepared for exploring: fitted once, so that every move of a control is a look-up."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from encgraph import budgets, export, sizes
from encgraph.budgets import Fit, Limits, Prediction, Target
from encgraph.costs import Costs
from encgraph.fitting import judging, sweep
from encgraph.fitting.bulk import Batches
from encgraph.intervals import Floats
from encgraph.packers import lookup
from encgraph.records import Capacity, Plan
from encgraph.traffic import Requests, Traffic, parted
from encgraph.widgets import asked

_MOST_KNOWN = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """Requests with their distinct batches counted."""

    requests: Requests
    batches: Batches
    tokens: Floats
    """Tokens of each request."""

    @classmethod
    def of(cls, requests: Requests) -> "Side":
        """Count the distinct batches of requests."""
        tokens = np.array([sum(item.tokens for item in items) for items in requests], float)
        return cls(requests=requests, batches=Batches.of(requests), tokens=tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanEffect:
    """What a plan does with one side, request by request."""

    prediction: Prediction
    padding: Floats
    """Padding tokens of each request."""
    eager: Floats
    """Tokens of each request that run eager."""
    replays: tuple[tuple[int, int, float], ...]
    """Real tokens of a bin, its token budget, and how often it occurs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One traffic, one cost model, one fit."""

    traffic: Traffic
    costs: Costs
    target: Target
    limits: Limits
    fit_on: Side
    held_out: Side
    how: str
    """How the traffic was parted, one sentence."""
    fit: Fit
    doubling: Plan
    """The budgets that vLLM infers."""
    _known: dict[tuple[Plan, str, bool], PlanEffect] = field(default_factory=dict, init=False)
    _kept: dict[tuple[Plan, str, bool], PlanEffect] = field(default_factory=dict, init=False)
    """What was judged ahead: plans set by hand never push it out."""

    @classmethod
    def of(cls, traffic: Traffic, costs: Costs, *, limits: Limits | None = None) -> "Case":
        """Part a traffic, fit every number of graphs on one part, and keep the other to judge on.

        Raises:
            ValueError: If the traffic is empty or too large, or what is given is of another type.
        """
        asked.traffic(traffic)
        asked.limits(limits)
        judging.check_costs(costs, traffic.encoder)
        limits = limits or Limits()
        target = Target(size=sizes.named(traffic.encoder))
        parts = parted(traffic)
        return cls(
            traffic=traffic,
            costs=costs,
            target=target,
            limits=limits,
            fit_on=Side.of(parts.fit),
            held_out=Side.of(parts.held_out.requests),
            how=parts.how,
            fit=budgets.fitted(parts.fit, target=target, costs=costs, limits=limits),
            doubling=_doubling(target),
        )

    @property
    def off(self) -> Plan:
        """No graphs: every batch runs eager."""
        return Plan(graphs=(), encoder=self.target.size.name)

    def judge_ahead(self) -> None:
        """Judge each fitted plan, doubling and eager once and for all."""
        asked = [(choice.plan, self.limits.pack) for choice in self.fit.frontier]
        for plan, rule in (*asked, (self.doubling, "ascending"), (self.off, "ascending")):
            self._kept[plan, str(rule), False] = self.judged(plan, pack=rule)

    def judged(
        self, plan: Plan, *, pack: sweep.PackingRule = "", fit_on: bool = False
    ) -> PlanEffect:
        """Judge a plan on the held-out requests, or on those it was fitted on."""
        rule = pack or self.limits.pack
        key = (plan, str(rule), fit_on)
        found = self._kept.get(key) or self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            found = self._judged(plan, rule, self.fit_on if fit_on else self.held_out)
            self._known[key] = found
        return found

    def _judged(self, plan: Plan, rule: sweep.PackingRule, side: Side) -> PlanEffect:
        # Ascending is vLLM's rule, and vLLM's graphs share no buffers.
        costs = self.costs.with_private_slabs() if rule == "ascending" else self.costs
        outcome = sweep.pack(side.batches, plan, costs=costs, rule=rule)
        every = np.ones(len(side.requests))
        prediction = judging.predict(side.batches, outcome, plan=plan, costs=costs, weights=every)
        routed = judging.route(side.batches, outcome, plan=plan, pack=rule)
        rows = np.array([*(g.tokens for g in plan.graphs), 0])[outcome.graph]
        real, replayed = outcome.loads[0], outcome.graph >= 0
        often = side.batches.weights(every)[outcome.batch]
        return PlanEffect(
            prediction=prediction,
            padding=np.array(routed.padding, float),
            eager=np.array(routed.eager, float),
            replays=tuple(
                (int(t), int(b), float(w))
                for t, b, w in zip(real[replayed], rows[replayed], often[replayed], strict=True)
            ),
        )

    def fitted_ms(self, plan: Plan, pack: sweep.PackingRule = "") -> float:
        """Mean milliseconds of a plan on the requests it was fitted on."""
        for choice in self.fit.frontier:
            if choice.plan is plan:
                return choice.prediction.mean_ms
        return self.judged(plan, pack=pack, fit_on=True).prediction.mean_ms

    def moved(self, plan: Plan, tokens: Sequence[int]) -> Plan:
        """The plan with its token budgets set to others, graph by graph; equal graphs merge."""
        rule = self.target.size.rule
        found = {}
        for graph, budget in zip(plan.graphs, tokens, strict=True):
            whole = graph.longest_segment >= graph.patches
            new = sizes.capacity(
                budget,
                rule,
                items=graph.items,
                frames=min(graph.frames, budget),
                longest_segment=0 if whole else graph.longest_segment,
            )
            found[new.tokens, new.items, new.longest_segment] = new
        graphs = tuple(found[key] for key in sorted(found))
        if graphs == plan.graphs:
            return plan
        reasons = tuple(f"{g.tokens} tokens: set by hand" for g in graphs)
        return replace(plan, graphs=graphs, reasons=reasons)

    def exact_ms(self) -> Floats:
        """Each held-out request replayed alone in a graph of exactly its size: the graphs' floor."""
        batches = self.held_out.batches
        return batches.by_request(np.array([_exact_ms(b, self.costs) for b in batches.sizes]))


def _exact_ms(items: Sequence[lookup.Size], costs: Costs) -> float:
    load = lookup.load_of(lookup.total(items))
    capacity = Capacity(
        tokens=load.tokens,
        patches=load.patches,
        items=load.items,
        segments=load.segments,
        longest_segment=load.longest_segment,
        frames=load.frames,
    )
    return costs.request_ms + costs.replay_ms(capacity, load)


def _doubling(target: Target) -> Plan:
    rule = target.size.rule
    smallest = max(1, rule.min_pixels // rule.factor**2)
    largest = max(smallest, export.VLLM_LARGEST)
    return budgets.doubling(smallest, largest, target=target, items=smallest)
