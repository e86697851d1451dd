"""Turn the times of a comparison into measurements: a summary, size regimes and requests a system."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from encgraph import costs, regimes, sidelines
from encgraph.budgets import Prediction
from encgraph.curves import Kernels
from encgraph.encoders.protocol import EncoderOutput, Execute, Input
from encgraph.records import Load, Route
from encgraph.results import Environment, Latency, Measurement, Memory
from encgraph.runner import EncoderRunner
from encgraph.systems import Setting
from encgraph.traffic import Traffic

WARMUPS = 1
"""Untimed runs of a request before its repeats."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class System:
    """One system under the clock."""

    name: str
    execute: Execute
    """What is timed."""
    attention: str
    compiled: bool
    fused: bool = False
    runner: EncoderRunner | None = None
    """None for a system that is not ours."""
    memory: Memory | None = None
    """Bytes its graphs hold; None without graphs."""
    device_bytes: int = 0
    """What the device lost while its graphs were made, whatever took it; 0 off CUDA."""
    counted: dict[str, int] = field(default_factory=dict)
    costs: str | None = None
    """Where the costs come from that it packs by; None for a packing that needs none."""
    read: Callable[[Any], list[EncoderOutput]] = list
    """Makes outputs of what `execute` returns, where that is something else; never timed."""

    def outputs(self, batch: Sequence[Input]) -> list[EncoderOutput]:
        """Run a batch for its answer."""
        return self.read(self.execute(batch))

    @property
    def kernels(self) -> Kernels:
        """What another system must share for its exact graphs to be this one's floor."""
        return Kernels(attention=self.attention, compiled=self.compiled, fused=self.fused)


@dataclass(slots=True, kw_only=True, eq=False)
class Timed:
    """What was timed: each request's time over its repeats, and the routes that it took."""

    latencies: dict[str, list[Latency]]
    routes: dict[str, list[sidelines.Routes]]
    """Replays and eager runs of each request, warm-up and repeats together."""
    floors: dict[Kernels, dict[int, float]]
    """Medians in ms of the exact graphs, of the sampled requests."""
    left_out: Mapping[Kernels, Mapping[int, str]]
    """Why a sampled request has no exact graph that counts."""
    more: dict[str, dict[str, float]] = field(default_factory=dict)
    """By system: jitter, host time, and what was proven of it."""
    predicted: dict[str, Prediction] = field(default_factory=dict)
    """By system: what it was predicted to take; nothing where its costs are not of this card."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """What one comparison shares."""

    traffic: Traffic
    setting: Setting
    environment: Environment
    repeats: int
    tflops: float | None = None
    """What the card was measured to do; None off a card."""

    def line(self, system: System, **fields: Any) -> Measurement:
        """One measurement of a system."""
        return Measurement(
            experiment=f"bench-{self.traffic.name}",
            encoder=self.setting.size.name,
            environment=self.environment,
            strategy=system.name,
            attention=system.attention,
            compiled=system.compiled,
            fused=system.fused,
            traffic=self.traffic.name,
            **fields,
        )


def lines(bench: Bench, system: System, timed: Timed) -> Iterator[Measurement]:
    """The summary of a system, a line a size regime, and a line a request."""
    requests, latencies = bench.traffic.requests, timed.latencies[system.name]
    medians = [latency.p50_ms for latency in latencies]
    exact = timed.floors.get(system.kernels, {})
    left_out = timed.left_out.get(system.kernels, {})
    predicted = timed.predicted.get(system.name)
    yield bench.line(
        system,
        latency=Latency.of(medians, clock="wall", warmups=WARMUPS),
        memory=system.memory,
        costs=system.costs,
        numbers={
            **_counts(system),
            **_floors(bench, exact, medians),
            **({"exact_left_out_count": float(len(left_out))} if left_out else {}),
            **timed.more.get(system.name, {}),
            **(_predicted(predicted) if predicted else {}),
            "device_bytes": float(system.device_bytes),
            "repeats_count": float(bench.repeats),
        },
    )
    for regime in regimes.by_size(regimes.times(requests, medians, medians)):
        yield bench.line(
            system,
            latency=Latency.of([t.ours_ms for t in regime.times], clock="wall", warmups=WARMUPS),
            numbers={
                "over_tokens": float(regime.over_tokens),
                "max_tokens": float(regime.max_tokens or 0),
            },
        )
    routes = timed.routes[system.name]
    for index, (request, latency) in enumerate(zip(requests, latencies, strict=True)):
        yield bench.line(
            system,
            request=index,
            load=Load.of(request),
            latency=latency,
            numbers={
                **_taken(bench, system, routes[index]),
                **({"exact_floor_ms": exact[index]} if index in exact else {}),
                **({"predicted_ms": predicted.by_request_ms[index]} if predicted else {}),
            },
        )


def _predicted(found: Prediction) -> dict[str, float]:
    return {
        "predicted_mean_ms": found.mean_ms,
        "predicted_p99_ms": found.latency.p99_ms,
        "predicted_bytes": float(found.memory.total_bytes),
    }


def _taken(bench: Bench, system: System, routes: sidelines.Routes) -> dict[str, float]:
    """Replays and eager runs that one execution of a request took; empty for a system not ours."""
    if system.runner is None:
        return {}
    names = ("replays_count", "eager_runs_count")
    runs = bench.repeats + WARMUPS
    return {name: count / runs for name, count in zip(names, routes, strict=True)}


def _floors(bench: Bench, exact: Mapping[int, float], medians: Sequence[float]) -> dict[str, float]:
    """Arithmetic over all requests at the card's own rate; exact graphs over the sampled ones, and this
    system on those."""
    found: dict[str, float] = {}
    if bench.tflops is not None:
        size, tflops = bench.setting.size, bench.tflops
        ideal = [costs.floor_ms(size, Load.of(r), tflops=tflops) for r in bench.traffic.requests]
        found |= {"arithmetic_floor_ms": statistics.fmean(ideal), "matmul_tflops": tflops}
    if exact:
        found["exact_floor_ms"] = statistics.fmean(exact.values())
        found["exact_sample_ms"] = statistics.fmean(medians[index] for index in exact)
        found["exact_sample_count"] = float(len(exact))
    return found


def _counts(system: System) -> dict[str, float]:
    """Padding, replay rate, capture seconds, graphs, and launch shapes by the attention chosen for
    them; empty for a system that is not ours."""
    if system.runner is None:
        return {}
    counted = system.counted
    replayed = counted.get(f"{Route.REPLAY}_items", 0)
    eager = counted.get(f"{Route.FALLBACK}_items", 0) + counted.get(f"{Route.EAGER}_items", 0)
    budget = counted.get(f"{Route.REPLAY}_budget", 0)
    made = system.runner.graphs.graphs if system.runner.graphs else []
    attended = Counter(c.name for graph in made for c in graph.attention)
    return {
        "replay_ratio": replayed / max(1, replayed + eager),
        "padding_ratio": 1 - counted.get(f"{Route.REPLAY}_real", 0) / budget if budget else 0.0,
        "capture_s": sum(graph.seconds for graph in made),
        "graphs_count": float(len(made)),
        **{f"attention_{name}_count": float(n) for name, n in attended.items()},
    }
