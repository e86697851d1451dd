"""Run several strategies over one traffic on one machine, interleaved, into measurements.

One `bench-<traffic>` file a card holds, for each strategy: one line of its latency over all requests
with its memory, one for each size regime, one a request, and the floor: exact arithmetic at the card's
rate. The budgets are fitted on requests disjoint from those measured.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from encgraph import costs, graphs, measure, memory, meters, regimes, sizes, systems
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.measure import Execute
from encgraph.records import Item, Load, Route, Step
from encgraph.regimes import RequestTimes
from encgraph.results import Environment, Latency, Measurement, Memory
from encgraph.runner import EncoderRunner
from encgraph.strategies import Strategy
from encgraph.systems import Progress, Setting
from encgraph.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class System:
    """One system under the clock."""

    name: str
    execute: Execute
    attention: str
    compiled: bool
    runner: EncoderRunner | None = None
    """None for a system that is not ours."""
    memory: Memory | None = None
    """Bytes its graphs hold; None without graphs."""
    device_bytes: int = 0
    """What the device lost while its graphs were made, whatever took it; 0 off CUDA."""
    counted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """What one comparison shares."""

    traffic: Traffic
    setting: Setting
    environment: Environment
    repeats: int

    def line(self, system: System, **fields: Any) -> Measurement:
        """One measurement of a system."""
        return Measurement(
            experiment=f"bench-{self.traffic.name}",
            encoder=self.setting.size.name,
            environment=self.environment,
            strategy=system.name,
            attention=system.attention,
            compiled=system.compiled,
            traffic=self.traffic.name,
            **fields,
        )


def run(
    traffic: Traffic,
    strategies: Sequence[Strategy],
    setting: Setting,
    *,
    repeats: int = 5,
    others: Sequence[System] = (),
    progress: Progress = systems.silent,
) -> list[Measurement]:
    """Measure strategies on a traffic.

    Args:
        traffic: The requests to measure.
        strategies: At least one.
        setting: Size, device, traffic to fit on, limits.
        repeats: Timed runs a request and system.
        others: Further systems, such as another engine's manager, ready to run.
        progress: Wraps the requests.

    Returns:
        Measurements as the module says, summaries first.
    """
    require(bool(strategies), "bench needs at least one strategy, got none")
    environment = meters.environment(str(setting.dtype).removeprefix("torch."))
    bench = Bench(traffic=traffic, setting=setting, environment=environment, repeats=repeats)
    with ExitStack() as stack:
        made = [_system(strategy, setting, stack) for strategy in strategies]
        made += others
        medians = _time(bench, made, progress)
        lines = [line for system in made for line in _lines(bench, system, medians[system.name])]
    gc.collect()
    return lines


def _system(strategy: Strategy, setting: Setting, stack: ExitStack) -> System:
    counted: dict[str, int] = {}
    runner = systems.runner(strategy, setting)
    stack.enter_context(runner)
    before = _warmed(runner, setting)
    runner.capture()
    runner.observe = _counter(counted)
    spec = runner.encoder.spec
    return System(
        name=strategy.name,
        execute=runner.execute,
        attention=spec.attention if strategy.eager == "varlen" else "sdpa an item",
        compiled=spec.compiled,
        runner=runner,
        memory=runner.memory if runner.has_graphs else None,
        device_bytes=memory.used_bytes(setting.device) - before if runner.has_graphs else 0,
        counted=counted,
    )


def _warmed(runner: EncoderRunner, setting: Setting) -> int:
    """Device bytes in use once what loads on first use has loaded."""
    low = setting.size.rule.min_tokens
    grid = sizes.near_square_grid(low, setting.size.rule)
    warm = inputs.synthetic(
        [grid], size=setting.size, device=setting.device, dtype=setting.dtype, seed=0
    )
    runner.encoder.eager(warm)
    return memory.used_bytes(setting.device)


def _counter(counted: dict[str, int]) -> graphs.Observe:
    """Count items, real and computed tokens by route."""

    def observe(step: Step) -> Any:
        for name, amount in (
            (f"{step.route}_items", step.items),
            (f"{step.route}_steps", 1),
            (f"{step.route}_real", step.real_tokens),
            (f"{step.route}_budget", step.token_budget or 0),
        ):
            counted[name] = counted.get(name, 0) + amount
        return graphs.unobserved(step)

    return observe


def _time(bench: Bench, made: Sequence[System], progress: Progress) -> dict[str, list[float]]:
    medians: dict[str, list[float]] = {system.name: [] for system in made}
    executes = {system.name: system.execute for system in made}
    for batch in progress(_batches(bench), "bench"):
        timed = measure.interleaved(
            executes, [batch], device=bench.setting.device, repeats=bench.repeats
        )
        for name, [ms] in timed.items():
            medians[name].append(ms)
    return medians


def _batches(bench: Bench) -> list[list[Input]]:
    return list(systems.batches(bench.traffic, bench.setting))


def _lines(bench: Bench, system: System, medians: Sequence[float]) -> Iterator[Measurement]:
    requests = bench.traffic.requests
    floors = [_floor_ms(bench, request) for request in requests]
    yield bench.line(
        system,
        latency=Latency.of(medians, clock="wall", warmups=1),
        memory=system.memory,
        numbers={
            **_counts(system),
            "device_bytes": float(system.device_bytes),
            "arithmetic_floor_ms": sum(floors) / len(floors),
            "repeats_count": float(bench.repeats),
        },
    )
    times = [
        RequestTimes(
            request=index,
            tokens=sum(item.tokens for item in request),
            items=len(request),
            ours_ms=ms,
            eager_ms=ms,
        )
        for index, (request, ms) in enumerate(zip(requests, medians, strict=True))
    ]
    for regime in regimes.by_size(times):
        yield bench.line(
            system,
            latency=Latency.of([t.ours_ms for t in regime.times], clock="wall", warmups=1),
            numbers={
                "over_tokens": float(regime.over_tokens),
                "max_tokens": float(regime.max_tokens or 0),
            },
        )
    for index, (request, ms) in enumerate(zip(requests, medians, strict=True)):
        yield bench.line(
            system,
            request=index,
            load=Load.of(request),
            latency=Latency.of([ms], clock="wall", warmups=1),
        )


def _floor_ms(bench: Bench, request: Sequence[Item]) -> float:
    return costs.floor_ms(bench.setting.size, Load.of(request))


def _counts(system: System) -> dict[str, float]:
    """Padding, replay rate, capture seconds and graphs; empty for a system that is not ours."""
    if system.runner is None:
        return {}
    counted = system.counted
    replayed = counted.get(f"{Route.REPLAY}_items", 0)
    eager = counted.get(f"{Route.FALLBACK}_items", 0) + counted.get(f"{Route.EAGER}_items", 0)
    budget = counted.get(f"{Route.REPLAY}_budget", 0)
    made = system.runner.graphs.graphs if system.runner.graphs else []
    return {
        "replay_ratio": replayed / max(1, replayed + eager),
        "padding_ratio": 1 - counted.get(f"{Route.REPLAY}_real", 0) / budget if budget else 0.0,
        "capture_s": sum(graph.seconds for graph in made),
        "graphs_count": float(len(made)),
    }


def summaries(lines: Sequence[Measurement]) -> Mapping[str, Measurement]:
    """The one line of each strategy that speaks of all requests."""
    return {m.strategy: m for m in lines if m.request is None and "repeats_count" in m.numbers}
