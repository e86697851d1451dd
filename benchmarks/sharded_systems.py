"""Systems over one card and over several, and how `data_parallel` times and predicts them."""

import argparse
import statistics
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
    measure,
    meters,
    packing,
    sharding,
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
from encgraph.systems import Setting

Burst = tuple[Item, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class System:
    """One way to run a burst, and the times it took."""

    name: str
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

    def execute(self, batch: Sequence[Input]) -> list[EncoderOutput]:
        """Run one burst as this system does, on this rank."""
        return (self.sharded or self.runner).execute(batch)

    def own(self, batch: Sequence[Input], rank: int) -> list[Input]:
        """This rank's items of a burst."""
        if self.sharded is None:
            return list(batch) if rank == 0 else []
        items = [value.item for value in batch]
        mine = self.sharded.assign(items, self.sharded.ranks.size)
        return [batch[index] for index in mine.ranks[rank]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """What all systems share."""

    joined: Ranks
    setting: Setting
    given: argparse.Namespace

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
        return self.of_ranks(measure.wall_ms(run, self.joined.device))


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
    shared: Any = {"runner": runner, "costs": costs, "rank_ms": rank_ms}
    first = True
    for rule in bench.given.rules.split(","):
        for gather in bench.given.gathers.split(","):
            sharded = ShardedRunner(
                runner=runner,
                ranks=joined,
                assign=balance.rule(rule, costs),
                gather=gather,
                ownership=bench.given.ownership,
            )
            if first:
                sharded.capture()
                yield System(name=f"{name}/1", **shared)
            first = False
            sharded.introduce()
            whole = f"{name}/{joined.size}/{rule}/{gather}"
            yield System(name=whole, sharded=sharded, rule=rule, **shared)


def predictor(plan: Plan, costs: Costs, rule: str) -> RankMs:
    """Predicted time of a rank's items, packed into the plan as the runner would."""
    if not plan.graphs:
        return lambda mine: costs.request_ms + costs.eager_ms(Load.of(mine)) if mine else 0.0
    pack = packing.packer(plan, costs, rule=rule)

    def predict(mine: Sequence[Item]) -> float:
        return packing.predicted_ms(pack(mine), mine, costs) if mine else 0.0

    return predict


def pixels(burst: Burst, bench: Bench, index: int) -> list[Input]:
    """The same inputs on every rank: on the device, or pinned host memory to copy from."""
    setting, where = bench.setting, bench.given.pixels
    device = setting.device if where == "device" else torch.device("cpu")
    made = inputs.synthetic(
        burst, size=setting.size, device=device, dtype=setting.dtype, seed=index
    )
    if where == "pinned":
        made = [replace(value, pixels=value.pixels.pin_memory()) for value in made]
    return made


def run_burst(bench: Bench, made: Sequence[System], batch: Sequence[Input], turn: int) -> None:
    """Time one burst by every system, in an order that turns each repeat."""
    samples: dict[str, list[float]] = {system.name: [] for system in made}
    rank, repeats = bench.joined.rank, bench.given.repeats
    for repeat in range(-1, repeats):
        start = (turn + repeat) % len(made)
        for system in [*made[start:], *made[:start]]:
            idle = system.sharded is None and rank != 0
            run = (lambda: None) if idle else partial(system.execute, batch)
            slowest = max(bench.timed(run))
            if repeat >= 0:
                samples[system.name].append(slowest)
    for system in made:
        system.medians_ms.append(statistics.median(samples[system.name]))
        mine = system.own(batch, rank)
        each = bench.timed(partial(system.runner.execute, mine) if mine else lambda: None)
        system.encode_ms.append(max(each))
        if system.sharded is not None:
            system.idle_ratios.append(1 - statistics.fmean(each) / max(each))


def line(bench: Bench, system: System, bursts: Sequence[Burst], name: str) -> Measurement:
    """What a system took over all bursts, beside what was predicted."""
    setting, size = bench.setting, bench.joined.size if system.sharded else 1
    found = sharding.simulate(
        bursts,
        size,
        size=setting.size,
        costs=system.costs,
        rule=system.rule,
        rank_ms=system.rank_ms,
    )
    spec = system.runner.encoder.spec
    return Measurement(
        experiment=bench.given.name,
        encoder=setting.size.name,
        environment=meters.environment(setting.dtype),
        strategy=system.name,
        attention=spec.attention,
        compiled=spec.compiled,
        fused=spec.fused,
        traffic=name,
        latency=Latency.of(system.medians_ms, clock="wall", warmups=1),
        memory=system.runner.memory if system.runner.has_graphs else None,
        numbers={
            "ranks_count": float(size),
            "burst_items_count": statistics.fmean(len(burst) for burst in bursts),
            "encode_mean_ms": statistics.fmean(system.encode_ms),
            "idle_ratio": statistics.fmean(system.idle_ratios) if system.idle_ratios else 0.0,
            "predicted_encode_mean_ms": found.latency.mean_ms,
            "predicted_idle_ratio": found.idle_ratio,
            "predicted_over_bound_ratio": found.over_bound_ratio,
            "padded_gather_bytes": float(found.padded_bytes),
            "uneven_gather_bytes": float(found.uneven_bytes),
            "repeats_count": float(bench.given.repeats),
        },
    )
