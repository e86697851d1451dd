"""Build the system a strategy names: an encoder, a plan and a runner, from the same pieces for all.

A `Setting` is what the compared systems share: encoder size, device, traffic to fit budgets on, cost
model, limits. Each system gets an encoder object of its own with the same seed, hence the same weights,
so that none profits from or disturbs another's buffers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from encgraph import budgets, graphs, packing
from encgraph.budgets import Target
from encgraph.costs import Costs
from encgraph.encoders import inputs, registry
from encgraph.encoders.protocol import Encoder, Input
from encgraph.graphs import Observe
from encgraph.records import Item, Plan
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize
from encgraph.strategies import Strategy
from encgraph.traffic import Traffic

Value = TypeVar("Value")
Progress = Callable[[Iterable[Any], str], Iterable[Any]]
"""Wraps an iterable and says what it is about."""
TUNED_ITEMS = 8
"""The one item cap of `vllm_tuned`."""
VLLM_ITEMS = 64
"""Items a graph under vLLM's defaults, whose range of budgets starts at 64 tokens."""


def silent(values: Iterable[Value], about: str) -> Iterable[Value]:
    """Show no progress."""
    return values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """What the systems of one comparison share."""

    size: EncoderSize
    device: torch.device
    dtype: torch.dtype
    backend: str
    costs: Costs
    """Of the plain body."""
    fit_on: Sequence[Sequence[Item]]
    """Requests that budgets are fitted on; disjoint from those measured."""
    largest: int
    """Tokens of the largest budget."""
    max_graphs: int = 16
    max_bytes: int | None = None
    compiled_costs: Costs | None = None
    """Of the compiled body; None prices it as the plain one."""
    attention: str = "auto"
    """Used where the strategy leaves it open."""
    seed: int = 0

    def price(self, strategy: Strategy) -> Costs:
        """The cost model of the body a strategy runs."""
        return self.compiled_costs or self.costs if strategy.compiled else self.costs

    def target(self, strategy: Strategy) -> Target:
        """What a plan is made for."""
        return Target(
            size=self.size,
            dtype=str(self.dtype).removeprefix("torch."),
            attention=self.attention if strategy.attention == "auto" else strategy.attention,
            compiled=strategy.compiled,
        )


def plan(strategy: Strategy, setting: Setting) -> Plan:
    """The plan a strategy makes for a setting."""
    target = setting.target(strategy)
    if strategy.plan is None:
        return Plan(graphs=(), encoder=setting.size.name, dtype=target.dtype)
    smallest = setting.size.rule.min_tokens
    if strategy.plan == "doubling":
        return budgets.doubling(smallest, setting.largest, target=target, items=VLLM_ITEMS)
    if strategy.plan == "fitted":
        return _fitted(strategy, setting, target)
    raise ValueError(f"no way to make a plan of kind {strategy.plan!r}")


def _fitted(strategy: Strategy, setting: Setting, target: Target) -> Plan:
    fit = budgets.fitted(
        setting.fit_on,
        target=target,
        costs=setting.price(strategy),
        limits=budgets.Limits(
            max_graphs=setting.max_graphs,
            max_bytes=setting.max_bytes,
            largest=setting.largest,
            one_cap=strategy.slabs == "private",
            items=TUNED_ITEMS if strategy.slabs == "private" else None,
            pack=strategy.packing,
        ),
    )
    return fit.best.plan


def predictions(
    strategies: Sequence[Strategy], setting: Setting, requests: Sequence[Sequence[Item]]
) -> dict[str, budgets.Prediction]:
    """What each strategy's plan is predicted to take on requests, by the setting's cost model."""
    return {
        strategy.name: budgets.judge(
            requests, plan(strategy, setting), costs=setting.price(strategy), pack=strategy.packing
        )
        for strategy in strategies
    }


def encoder(strategy: Strategy, setting: Setting) -> Encoder:
    """The encoder as a strategy runs it, random weights from the setting's seed."""
    return registry.named(
        setting.size.name,
        device=setting.device,
        dtype=setting.dtype,
        seed=setting.seed,
        attention=setting.target(strategy).attention,
        metadata=strategy.metadata,
        eager_forward=strategy.eager,
        fill_rule=strategy.fill,
        attention_slab=strategy.slabs == "shared",
        compiled=strategy.compiled,
    )


def runner(
    strategy: Strategy,
    setting: Setting,
    *,
    planned: Plan | None = None,
    observe: Observe = graphs.unobserved,
) -> EncoderRunner:
    """The runner of a strategy, not captured yet.

    Args:
        strategy: Which pieces.
        setting: What all systems share.
        planned: A plan to use instead of the strategy's own.
        observe: Subscriber to its steps.
    """
    return EncoderRunner(
        encoder=encoder(strategy, setting),
        plan=planned or plan(strategy, setting),
        backend=setting.backend,
        packer=partial(_packer, rule=strategy.packing, costs=setting.price(strategy)),
        slabs=strategy.slabs,
        ownership=strategy.ownership,
        observe=observe,
    )


def _packer(captured: Plan, *, rule: str, costs: Costs) -> packing.Packer:
    return packing.packer(captured, costs, rule=rule)


def batches(traffic: Traffic, setting: Setting) -> Iterator[list[Input]]:
    """Inputs of each request: the files' own pixels, else random ones of the same grids."""
    for index, request in enumerate(traffic.requests):
        if traffic.paths and all(traffic.paths[index]):
            yield inputs.from_files(
                traffic.paths[index], setting.size, device=setting.device, dtype=setting.dtype
            )
        else:
            yield inputs.synthetic(
                request,
                size=setting.size,
                device=setting.device,
                dtype=setting.dtype,
                seed=setting.seed + index,
            )
