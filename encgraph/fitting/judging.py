"""Predict what a plan gives a traffic: times and routes by request, padding, replay rate, bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.fitting import sweep
from encgraph.fitting.bulk import Batches
from encgraph.intervals import Floats
from encgraph.records import Item, Plan
from encgraph.results import Latency, Memory
from encgraph.tabular import Showing


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Showing):
    """What a plan is predicted to give, and from what."""

    latency: Latency
    """Milliseconds a request; its clock is "predicted"."""
    by_request_ms: tuple[float, ...]
    """Predicted milliseconds of each request, in their order."""
    padding_ratio: float
    """Padding tokens over budget tokens, 0 to 1; 0 when nothing is replayed."""
    replay_rate: float
    """Items replayed over items, 0 to 1."""
    memory: Memory
    source: str
    """Where the costs come from."""
    recorded: bool
    """Whether they were recorded on a card; otherwise arithmetic."""

    @property
    def mean_ms(self) -> float:
        """Mean milliseconds a request."""
        return self.latency.mean_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Where the tokens of each request go under a plan, once its items are packed."""

    plan: Plan
    pack: str
    """The packing rule."""
    tokens: tuple[int, ...]
    """Of each request: its tokens, replayed and eager."""
    padding: tuple[int, ...]
    """Padding tokens of its replays."""
    eager: tuple[int, ...]
    """Those of its tokens that run eager, because no graph holds them or because that is faster."""


def judge(
    requests: Sequence[Sequence[Item]],
    plan: Plan,
    *,
    costs: Costs,
    pack: sweep.PackingRule = "cheapest",
    weights: Sequence[float] = (),
) -> Prediction:
    """Predict a plan on requests; use requests it was not fitted on.

    Each request is a batch of its own, or one a modality where it mixes them.

    Args:
        requests: At least one request of at least one item.
        plan: The plan to judge; one without graphs runs all eager.
        costs: What replays and eager runs cost.
        pack: The packing rule: a name in `packing.PACKINGS`, or a function of batch and plan.
        weights: How often each request counts; once by default.

    Raises:
        ValueError: If there are no requests, weights do not match them, or the costs are of another
            encoder.
    """
    check(requests, weights)
    check_plan(plan, costs)
    batches = Batches.of(requests)
    outcome = sweep.pack(batches, plan, costs=costs, rule=pack)
    each = np.asarray(weights, float) if len(weights) else np.ones(len(requests))
    return predict(batches, outcome, plan=plan, costs=costs, weights=each)


def check(requests: Sequence[Sequence[Item]], weights: Sequence[float] = ()) -> None:
    """Refuse requests that cannot be planned for."""
    if not isinstance(requests, Sequence):
        raise TypeError(
            "requests must be a sequence of requests, each a sequence of items, got "
            f"{type(requests).__name__}; a Traffic has them as `.requests`"
        )
    require(
        not any(isinstance(items, Item) for items in requests),
        "requests must be sequences of items, got items; put those of one request into a list",
    )
    require(
        any(len(items) for items in requests),
        "planning needs at least one request with an item, got none",
    )
    require(
        len(weights) in (0, len(requests)),
        f"weights must be one a request, got {len(weights)} for {len(requests)} requests",
    )
    require(
        not len(weights) or (min(weights) >= 0 and math.isfinite(sum(weights))),
        "weights must be finite and not negative",
    )
    require(
        not len(weights) or any(w and len(r) for w, r in zip(weights, requests, strict=True)),
        "weights must not be zero for every request with an item",
    )


def check_plan(plan: Plan, costs: Costs) -> None:
    """Refuse what is no plan, and costs of another encoder than the plan's."""
    require(
        isinstance(plan, Plan),
        f"plan must be a Plan, got {type(plan).__name__}; a fit has it as `fit.best.plan`",
    )
    check_costs(costs, plan.encoder)


def check_costs(costs: Costs, encoder: str) -> None:
    """Refuse costs that are not of an encoder; those of nobody's are taken."""
    require(
        isinstance(costs, Costs),
        f"costs must be Costs, got {type(costs).__name__}; `cards.price` has them for a size",
    )
    costs.refuse_other(encoder)


def predict(
    batches: Batches, outcome: sweep.Outcome, *, plan: Plan, costs: Costs, weights: Floats
) -> Prediction:
    """Turn a packed traffic into a prediction; requests past the weights are left out."""
    count = len(weights)
    by_request = batches.by_request(outcome.ms)[:count]
    every = np.concatenate([weights, np.zeros(batches.requests - count)])
    share = batches.weights(every)[outcome.batch]
    replayed = outcome.graph >= 0
    budgets = np.array([*(g.tokens for g in plan.graphs), 0])[outcome.graph]
    rows = float((share * budgets)[replayed].sum())
    real = float((share * outcome.loads[0])[replayed].sum())
    items = share * outcome.loads[2]
    return Prediction(
        latency=Latency.of(by_request, clock="predicted", weights=weights),
        by_request_ms=tuple(by_request.tolist()),
        padding_ratio=1 - real / rows if rows else 0.0,
        replay_rate=float(items[replayed].sum() / items.sum()),
        memory=costs.memory(plan),
        source=costs.source,
        recorded=costs.recorded,
    )


def routed(
    requests: Sequence[Sequence[Item]],
    plan: Plan,
    *,
    costs: Costs,
    pack: sweep.PackingRule = "cheapest",
) -> Routed:
    """Say which tokens of each request are replayed, how many rows pad them, and which run eager.

    Args:
        requests: At least one request of at least one item.
        plan: The plan to pack for; one without graphs runs all eager.
        costs: What replays and eager runs cost.
        pack: The packing rule: a name in `packing.PACKINGS`, or a function of batch and plan.

    Raises:
        ValueError: If there are no requests, or the costs are of another encoder.
    """
    check(requests)
    check_plan(plan, costs)
    batches = Batches.of(requests)
    return route(batches, sweep.pack(batches, plan, costs=costs, rule=pack), plan=plan, pack=pack)


def route(
    batches: Batches, outcome: sweep.Outcome, *, plan: Plan, pack: sweep.PackingRule = "cheapest"
) -> Routed:
    """Turn a packed traffic into the routes of its requests' tokens."""
    rows = np.array([*(g.tokens for g in plan.graphs), 0])[outcome.graph]
    real, replayed = outcome.loads[0], outcome.graph >= 0

    def by_request(tokens: Floats) -> tuple[int, ...]:
        of_batch = np.bincount(outcome.batch, tokens, len(batches.sizes)).astype(float)
        return tuple(batches.by_request(of_batch).astype(int).tolist())

    return Routed(
        plan=plan,
        pack=pack if isinstance(pack, str) else "a function",
        tokens=by_request(real),
        padding=by_request(np.where(replayed, rows - real, 0.0)),
        eager=by_request(np.where(replayed, 0.0, real)),
    )
