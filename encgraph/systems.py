"""Build the system a strategy names: an encoder, a plan and a runner, from the same pieces for all.

A `Setting` is what the compared systems share: encoder size, device, traffic to fit budgets on, cost
model, limits. Each system gets an encoder object of its own with the same seed, hence the same weights,
so that none profits from or disturbs another's buffers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch._dynamo.exc import TorchDynamoException

from encgraph import budgets, calibrating, capturing, cards, exact, graphs, memory, packing, peers
from encgraph.attention import plain
from encgraph.budgets import Target
from encgraph.costs import Costs
from encgraph.encoders import compiling, fusing, inputs, registry
from encgraph.encoders.protocol import Encoder, Input
from encgraph.errors import CaptureError
from encgraph.exact import ExactSet
from encgraph.graphs import Observe
from encgraph.layouts import Keep
from encgraph.records import Item, Plan
from encgraph.runner import EncoderRunner, PackerOf
from encgraph.sizes import EncoderSize
from encgraph.strategies import UNPLANNED, Strategy
from encgraph.traffic import Traffic

_Value = TypeVar("_Value")
Progress = Callable[[Iterable[Any], str], Iterable[Any]]
"""Wraps an iterable and says what it is about."""
TUNED_ITEMS = 8
"""The one item cap of `vllm_tuned`."""
FITTED = ("fitted", "exact_items")
"""Kinds of plan whose budgets follow the requests to fit on."""
VLLM_ITEMS = 64
"""Items a graph under vLLM's defaults, whose range of budgets starts at 64 tokens."""


def silent(values: Iterable[_Value], about: str) -> Iterable[_Value]:
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
    """Of every body, unless `priced` tells them apart."""
    fit_on: Sequence[Sequence[Item]]
    """Requests that budgets are fitted on; disjoint from those measured."""
    largest: int
    """Tokens of the largest budget."""
    max_graphs: int = 16
    max_bytes: int | None = None
    priced: Callable[[Strategy], Costs] | None = None
    """Costs of the body that a strategy runs; see `prices`."""
    attention: str = "auto"
    """Used where the strategy leaves it open."""
    seed: int = 0
    calibrate: bool = False
    """Whether packing by predicted time goes by costs measured on the captured graphs themselves."""

    def price(self, strategy: Strategy) -> Costs:
        """The cost model of the body a strategy runs; of nobody where another size stands in."""
        costs = (self.priced(strategy) if self.priced else self.costs).lent_to(self.size.name)
        return costs.with_private_slabs() if strategy.slabs == "private" else costs

    def target(self, strategy: Strategy) -> Target:
        """What a plan is made for."""
        own = strategy.attention != "auto" and self.device.type == "cuda"
        return Target(
            size=self.size,
            dtype=str(self.dtype).removeprefix("torch."),
            attention=strategy.attention if own else self.attention,
            compiled=strategy.compiled,
        )


def prices(size: EncoderSize, *, on: str, attention: str = "auto") -> Callable[[Strategy], Costs]:
    """Cost models by strategy from what is on record for a card.

    Args:
        size: The encoder.
        on: A card of `cards.known()`.
        attention: Of strategies that leave it open; "auto" is the fastest on record.

    Returns:
        A function that gives the curve of a strategy's attention and body; of the fastest attention
        where its own is not on record, and of the plain body where the compiled one is not.
    """

    def priced(strategy: Strategy) -> Costs:
        bodies = partial(cards.bodies, size, on, fused=strategy.fused)
        compiled = strategy.compiled and bool(bodies(compiled=True))
        wanted = strategy.attention if strategy.attention != "auto" else attention
        known = {kernels.attention for kernels in bodies(compiled=compiled)}
        named = wanted if wanted in known else "auto"
        return cards.price(size, on=on, attention=named, compiled=compiled, fused=strategy.fused)

    return cache(priced)


def plan(strategy: Strategy, setting: Setting) -> Plan:
    """The plan a strategy makes for a setting."""
    target = setting.target(strategy)
    if strategy.plan in UNPLANNED:
        return Plan(graphs=(), encoder=setting.size.name, dtype=target.dtype)
    if strategy.plan == "doubling":
        # Every budget has the same item cap, so none is smaller than that.
        smallest = min(max(setting.size.rule.min_tokens, VLLM_ITEMS), setting.largest)
        items = min(VLLM_ITEMS, smallest)
        return budgets.doubling(smallest, setting.largest, target=target, items=items)
    if strategy.plan == "fitted":
        return _fitted(strategy, setting, target)
    if strategy.plan == "exact_items":
        return peers.by_item_count(
            setting.fit_on, target=target, largest=setting.largest, max_graphs=setting.max_graphs
        )
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
            one_cap=strategy.item_caps == "one",
            items=TUNED_ITEMS if strategy.item_caps == "one" else None,
            pack=strategy.packing,
        ),
    )
    return fit.best.plan


def is_modelled(strategy: Strategy) -> bool:
    """Whether costs say what a strategy takes: not where it packs in a way of its own, nor of the
    untouched tower, item by item."""
    return strategy.eager != "stock" and strategy.packing in packing.PACKINGS


def predicted(
    strategy: Strategy, setting: Setting, made: Plan, requests: Sequence[Sequence[Item]]
) -> budgets.Prediction | None:
    """What a plan is predicted to take, by the setting's costs; None where none are; see `is_modelled`."""
    if not is_modelled(strategy):
        return None
    return budgets.judge(requests, made, costs=setting.price(strategy), pack=strategy.packing)


def encoder(strategy: Strategy, setting: Setting) -> Encoder:
    """The encoder as a strategy runs it, random weights from the setting's seed.

    Raises:
        CaptureError: If its blocks cannot be compiled here.
        ValueError: If a switch or the attention cannot be had here, or the strategy cannot run here.
    """
    _check(strategy, setting)
    whole, family = strategy.plan == "compile", setting.size.family
    switches = strategy.switches | {
        "compiled": strategy.compiled and not whole and family in compiling.COMPILED_FAMILIES,
        "fused": strategy.fused and family in fusing.FUSED_FAMILIES,
    }
    try:
        made = registry.named(
            setting.size.name,
            device=setting.device,
            dtype=setting.dtype,
            seed=setting.seed,
            attention=_attention(strategy, setting),
            **switches,
        )
    except TorchDynamoException as error:
        raise CaptureError(
            f"the blocks of {setting.size.name!r} cannot be compiled: {capturing.explain(error)}; "
            "choose a strategy that does not compile"
        ) from error
    if strategy.plan == "exact_items":
        return peers.DummySegment(made, setting.size)
    return peers.ReduceOverhead(made) if whole else made


def _attention(strategy: Strategy, setting: Setting) -> str:
    """The attention asked for; "auto" without captures of ours is the one that needs no measuring."""
    name, measured = setting.target(strategy).attention, strategy.plan not in (None, "compile")
    if name != "auto" or measured or setting.size.layout in ("fixed", "ragged"):
        return name  # slots of one length have an attention of their own
    return plain.first(setting.device, setting.dtype)


def _check(strategy: Strategy, setting: Setting) -> None:
    if strategy.plan == "compile" and setting.backend != "cuda":
        raise ValueError(
            f"strategy {strategy.name!r} needs backend 'cuda', got {setting.backend!r}: off a card "
            "torch.compile's reduce-overhead records no graphs; leave it out"
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
        packer=packer(strategy, setting),
        slabs=strategy.slabs,
        ownership=strategy.ownership,
        observe=observe,
        layouts=_layouts(strategy, setting, observe),
    )


def _layouts(
    strategy: Strategy, setting: Setting, observe: Observe
) -> Callable[[Encoder], ExactSet] | None:
    """How the exact strategies open their set; None for the others."""
    if strategy.plan == "exact":
        keep = Keep(max_graphs=setting.max_graphs)
        return partial(exact.open_set, keep=keep, backend=setting.backend, observe=observe)
    if strategy.plan == "compile":
        # Compiled graphs are made by running: the set keeps buffers and counts, and runs.
        return partial(
            exact.open_set,
            keep=Keep(min_hits=1, max_graphs=peers.RECOMPILES, evict=False),
            backend="reference",
            observe=observe,
            record=peers.recorded_by_running,
        )
    return None


def ready(made: EncoderRunner, setting: Setting) -> None:
    """Capture a runner's graphs; those by exact layout as the traffic to fit on would have left them."""
    memory.check_room(made.encoder, made.plan, setting.size, slabs=made.slabs)
    made.capture()
    if isinstance(made.graphs, ExactSet):
        made.graphs.warm(setting.fit_on)


def calibrated(made: EncoderRunner, strategy: Strategy, setting: Setting) -> Costs | None:
    """The costs a captured runner packs by, now measured on its graphs if the setting says so.

    None for a strategy that packs by none; those of before, with the reason, where too little could be
    timed.
    """
    if strategy.packing != "cheapest":
        return None
    costs = setting.price(strategy)
    is_timed = setting.calibrate and made.has_graphs
    return calibrating.tried(made, setting.size, otherwise=costs) if is_timed else costs


def packer(strategy: Strategy, setting: Setting) -> PackerOf:
    """How a strategy packs, once it is known what was captured."""
    if strategy.packing == "exact_items":
        return peers.item_count_packer
    return partial(packing.packer, costs=setting.price(strategy), rule=strategy.packing)


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
