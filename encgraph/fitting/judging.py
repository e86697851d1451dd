"""Predict what a plan gives a traffic: times by request, padding, replay rate, bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.fitting import sweep
from encgraph.fitting.bulk import Batches, Floats
from encgraph.records import Item, Plan
from encgraph.results import Latency, Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
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


def judge(
    requests: Sequence[Sequence[Item]],
    plan: Plan,
    *,
    costs: Costs,
    pack: sweep.Rule = "cheapest",
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
        ValueError: If there are no requests, or weights do not match them.
    """
    check(requests, weights)
    batches = Batches.of(requests)
    outcome = sweep.pack(batches, plan, costs=costs, rule=pack)
    each = np.asarray(weights, float) if len(weights) else np.ones(len(requests))
    return predict(batches, outcome, plan=plan, costs=costs, weights=each)


def check(requests: Sequence[Sequence[Item]], weights: Sequence[float] = ()) -> None:
    """Refuse requests that cannot be planned for."""
    require(
        any(len(items) for items in requests),
        "planning needs at least one request with an item, got none",
    )
    require(
        len(weights) in (0, len(requests)),
        f"weights must be one a request, got {len(weights)} for {len(requests)} requests",
    )
    require(
        not len(weights) or (min(weights) >= 0 and sum(weights) > 0),
        "weights must not be negative and not all zero",
    )


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
        latency=Latency.of(by_request.tolist(), clock="predicted", weights=weights.tolist()),
        by_request_ms=tuple(by_request.tolist()),
        padding_ratio=1 - real / rows if rows else 0.0,
        replay_rate=float(items[replayed].sum() / items.sum()),
        memory=costs.memory(plan),
        source=costs.source,
        recorded=costs.recorded,
    )
