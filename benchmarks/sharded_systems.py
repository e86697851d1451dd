"""Systems over one card and over several, and how `data_parallel` times and predicts them."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import distributed

from encgraph import (
    balance,
    budgets,
    cards,
    measure,
    meters,
    packing,
    proving,
    sharding,
    store,
    strategies,
    systems,
)
from encgraph.balance import RankMs
from encgraph.costs import Costs
from encgraph.encoders import inputs
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.parallel.ranks import Ranks
from encgraph.parallel.sharded import ShardedRunner
from encgraph.records import Item, Load, Plan
from encgraph.results import Latency, Measurement
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize
from encgraph.systems import Setting

Burst = tuple[Item, ...]
CARD = "h200"
"""Whose recorded costs balance the ranks and predict."""
STARTED_S = time.monotonic()


@dataclass(slots=True, kw_only=True, eq=False)
class System:
    """One way to run a burst, and the times it took."""

    name: str
    strategy: strategies.Strategy
    runner: EncoderRunner
    costs: Costs
    rank_ms: RankMs
    sharded: ShardedRunner | None = None
    """None for one card alone."""
    rule: str = "tokens"
    medians_ms: list[float] = field(default_factory=list)
    encode_ms: list[float] = field(default_factory=list)
    """Slowest rank's encoder alone, by burst."""
    idle_ratios: list[float] = field(default_factory=list)
    proven: dict[str, float] = field(default_factory=dict)
    """What was proven of its outputs, for its lines."""

    @property
    def attention(self) -> str:
        """What attends: the packed kernel, or one call an item in the untouched forward."""
        packed = self.strategy.eager == "varlen"
        return self.runner.encoder.spec.attention if packed else "sdpa an item"

    def execute(self, batch: Sequence[Input]) -> list[EncoderOutput]:
        """Run one burst as this system does, on this rank."""
        return (self.sharded or self.runner).execute(batch)

    def forget(self) -> None:
        """Drop the times, before bursts of another kind."""
        self.medians_ms, self.encode_ms, self.idle_ratios = [], [], []


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """What all systems share."""

    joined: Ranks
    setting: Setting
    given: argparse.Namespace

    def say(self, text: str) -> None:
        """Print a line on the first rank, with the seconds since the start."""
        if self.joined.rank == 0:
            print(f"{time.monotonic() - STARTED_S:6.1f} s  {text}", flush=True)

    def of_ranks(self, ms: float) -> list[float]:
        """A number of every rank, in rank order."""
        if self.joined.size == 1:
            return [ms]
        mine = torch.tensor([ms], device=self.joined.device, dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(self.joined.size)]
        distributed.all_gather(found, mine)
        return [float(one) for one in found]

    def timed(self, run: Callable[[], object]) -> list[float]:
        """Wall milliseconds of each rank, all started together."""
        self.of_ranks(0.0)
        return self.of_ranks(meters.wall_ms(run, self.joined.device))


def fixed_plan(bench: Bench, strategy: strategies.Strategy) -> Plan | None:
    """The ladder asked for, or None for the strategy's own."""
    given = bench.given
    if given.smallest is None or strategy.plan is None:
        return None
    return budgets.doubling(
        given.smallest, given.largest, target=bench.setting.target(strategy), items=given.items
    )


def systems_of(bench: Bench, name: str, stack: ExitStack) -> Iterator[System]:
    """One card, then each rule and gather over all of them; they share a captured runner."""
    strategy, joined = strategies.named(name), bench.joined
    costs = bench.setting.price(strategy)
    runner = systems.runner(strategy, bench.setting, planned=fixed_plan(bench, strategy))
    stack.enter_context(runner)
    rank_ms = predictor(runner.plan, costs, strategy.packing)
    shared: Any = {"strategy": strategy, "runner": runner, "costs": costs, "rank_ms": rank_ms}
    bench.say(f"{name}: encoder made, {len(runner.plan.graphs)} graphs planned")
    made = [
        ShardedRunner(
            runner=runner,
            ranks=joined,
            assign=balance.rule(rule, costs),
            gather=gather,
            ownership=bench.given.ownership,
        )
        for rule in bench.given.rules.split(",")
        for gather in bench.given.gathers.split(",")
    ]
    made[0].capture()
    bench.say(f"{name}: captured")
    yield System(name=f"{name}/1", **shared)
    for sharded in made:
        sharded.introduce()
        rule = sharded.assign((), joined.size).rule
        whole = f"{name}/{joined.size}/{rule}/{sharded.gather}"
        yield System(name=whole, sharded=sharded, rule=rule, **shared)


def prove(bench: Bench, made: Sequence[System], bursts: Sequence[Burst]) -> None:
    """Prove every system on the bursts that tell most, on every rank; what compiles late compiles here.

    Raises:
        ParityError: On the first wrong answer; names the system and the item.
    """
    untouched = proving.Untouched.of(made[0].runner.encoder)
    batches = {
        index: pixels(bursts[index], bench, index, where="device")
        for index in proving.telling(bursts)
    }
    found = proving.systems({one.name: one.execute for one in made}, batches, untouched)
    for one in made:
        one.proven = found[one.name].numbers
    bench.say("proven right: every system, before its time counts")


def predictor(plan: Plan, costs: Costs, rule: str) -> RankMs:
    """Predicted time of a rank's items, packed into the plan as the runner would."""
    if not plan.graphs:
        return lambda mine: costs.request_ms + costs.eager_ms(Load.of(mine)) if mine else 0.0
    pack = packing.packer(plan, costs, rule=rule)

    def predict(mine: Sequence[Item]) -> float:
        return packing.predicted_ms(pack(mine), mine, costs) if mine else 0.0

    return predict


def pixels(burst: Burst, bench: Bench, index: int, *, where: str) -> list[Input]:
    """The same inputs on every rank: on the device, on the host, or pinned there to copy from."""
    setting = bench.setting
    device = setting.device if where == "device" else torch.device("cpu")
    made = inputs.synthetic(
        burst, size=setting.size, device=device, dtype=setting.dtype, seed=index
    )
    if where == "pinned":
        made = [replace(value, pixels=value.pixels.pin_memory()) for value in made]
    return made


def run_burst(bench: Bench, made: Sequence[System], batch: Sequence[Input], turn: int) -> None:
    """Time one burst by every system, in an order that turns with each repeat and each burst."""
    samples: dict[str, list[float]] = {system.name: [] for system in made}
    rank, named = bench.joined.rank, {system.name: system for system in made}
    for name, counts in measure.turns(named, index=turn, repeats=bench.given.repeats):
        idle = named[name].sharded is None and rank != 0
        run = (lambda: None) if idle else partial(named[name].execute, batch)
        slowest = max(bench.timed(run))
        if counts:
            samples[name].append(slowest)
    for system in made:
        system.medians_ms.append(statistics.median(samples[system.name]))
        if system.sharded is None:  # it gathers nothing: its encoder alone is what was timed
            system.encode_ms.append(system.medians_ms[-1])
            continue
        shared = system.sharded.assign([value.item for value in batch], bench.joined.size)
        mine = [batch[index] for index in shared.ranks[rank]]
        each = bench.timed(partial(system.runner.execute, mine) if mine else lambda: None)
        system.encode_ms.append(max(each))
        system.idle_ratios.append(1 - statistics.fmean(each) / max(each))


def line(bench: Bench, system: System, bursts: Sequence[Burst], name: str) -> Measurement:
    """What a system took over the bursts measured, beside what was predicted for them."""
    setting, spec = bench.setting, system.runner.encoder.spec
    environment = meters.environment(setting.dtype, setting.device)
    moved, predicted = simulated(bench, system, bursts, gpu=environment.gpu)
    return Measurement(
        experiment=bench.given.name,
        encoder=setting.size.name,
        environment=environment,
        strategy=system.name,
        attention=system.attention,
        compiled=spec.compiled,
        fused=spec.fused,
        traffic=name,
        latency=Latency.of(system.medians_ms, clock="wall", warmups=1),
        memory=system.runner.memory if system.runner.has_graphs else None,
        costs=system.costs.source if system.strategy.packing == "cheapest" else None,
        numbers={
            "ranks_count": float(bench.joined.size if system.sharded else 1),
            "bursts_count": float(len(bursts)),
            "burst_items_count": statistics.fmean(len(burst) for burst in bursts),
            "encode_mean_ms": statistics.fmean(system.encode_ms),
            "idle_ratio": statistics.fmean(system.idle_ratios) if system.idle_ratios else 0.0,
            "repeats_count": float(bench.given.repeats),
            **moved,
            **predicted,
            **system.proven,
        },
    )


def simulated(
    bench: Bench, system: System, bursts: Sequence[Burst], *, gpu: str | None
) -> tuple[dict[str, float], dict[str, float]]:
    """The bytes gathered, and what was predicted: nothing unless costs of that very way are on record."""
    found = sharding.simulate(
        bursts,
        bench.joined.size if system.sharded else 1,
        size=bench.setting.size,
        costs=system.costs,
        rule=system.rule,
        rank_ms=system.rank_ms,
    )
    moved = {
        "padded_gather_bytes": float(found.padded_bytes),
        "uneven_gather_bytes": float(found.uneven_bytes),
    }
    attention = bench.setting.target(system.strategy).attention
    known = on_record(system.strategy, bench.setting.size, attention=attention, gpu=gpu or "cpu")
    if not known:
        return moved, {}
    return moved, {
        "predicted_encode_mean_ms": found.latency.mean_ms,
        "predicted_idle_ratio": found.idle_ratio,
        "predicted_over_bound_ratio": found.over_bound_ratio,
    }


def on_record(
    strategy: strategies.Strategy, size: EncoderSize, *, attention: str, gpu: str
) -> bool:
    """Whether costs of this body and attention were recorded on the card that runs it.

    The untouched forward never was; an attention left open is priced by the fastest on record.
    """
    if store.slug(gpu) != CARD or not systems.is_modelled(strategy):
        return False
    return any(
        (known.compiled, known.fused) == (strategy.compiled, strategy.fused)
        and attention in ("auto", known.attention)
        for known in cards.kernels(size, CARD)
    )
