"""Run several strategies over one traffic on one machine, interleaved, into measurements.

One `bench-<traffic>` file a card holds, for each strategy: one line of its latency over all requests
with its memory, one for each size regime, one a request. Floors come from the same run: arithmetic at
the rate the card reaches on one large product, and, for a sample of the requests, an exact-shape graph
of the same kernels. The budgets are fitted on requests disjoint from those measured. Systems are proven
right before they are timed, exact graphs where they are made: `proving` says how.
"""

import gc
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from encgraph import (
    benched,
    floors,
    graphs,
    measure,
    memory,
    meters,
    proving,
    sidelines,
    sizes,
    systems,
)
from encgraph.benched import Bench, System, Timed
from encgraph.budgets import Prediction
from encgraph.curves import Kernels
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.floors import Exacts
from encgraph.proving import Proven, Untouched
from encgraph.records import Step
from encgraph.results import Interrupted, Measurement
from encgraph.runner import EncoderRunner
from encgraph.strategies import Strategy
from encgraph.systems import Progress, Setting
from encgraph.traffic import Traffic


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
        traffic, strategies: What to measure; at least one request and one strategy.
        setting: Size, device, traffic to fit on, limits.
        repeats: Timed runs a request and system.
        others: Further systems, such as another engine's manager, ready to run.
        progress: Wraps the requests; where it ends early, those timed until then are reported.

    Returns:
        Measurements as the module says, summaries first.

    Raises:
        ParityError: If a system gives a wrong answer; names it, before anything is timed.
        Interrupted: On Ctrl-C once a request was timed; carries the lines of those timed until then.
    """
    for needed, name in ((strategies, "strategy"), (traffic.requests, "request")):
        require(bool(needed), f"bench needs at least one {name}, got none")
    environment = meters.environment(setting.dtype, setting.device)
    bench = Bench(
        traffic=traffic,
        setting=setting,
        environment=environment,
        repeats=repeats,
        tflops=_rate(setting),
    )
    with ExitStack() as stack:
        ours = _systems(strategies, setting, stack)
        made, batches = [*ours, *others], list(systems.batches(traffic, setting))
        exacts = _exacts(ours, setting, stack)
        proven = _proven(bench, made, batches, exacts.untouched)
        timed, whole = _measured(bench, made, exacts, batches, progress)
        done = len(timed.latencies[made[0].name])
        bench = replace(bench, traffic=_first(traffic, done))
        for system in made:
            timed.more[system.name] = proven[system.name].numbers | timed.more.get(system.name, {})
        for strategy, system in zip(strategies, ours, strict=True):
            found = _predicted(bench, strategy, system.runner)
            if found is not None:
                timed.predicted[system.name] = found
        lines = [line for system in made for line in benched.lines(bench, system, timed)]
    gc.collect()
    if not whole:
        raise Interrupted(lines)
    return lines


def _proven(
    bench: Bench,
    made: Sequence[System],
    batches: Sequence[Sequence[Input]],
    untouched: Untouched,
) -> dict[str, Proven]:
    """Prove every system on a few requests, and forget the steps that this took."""
    chosen = {index: batches[index] for index in proving.telling(bench.traffic.requests)}
    found = proving.systems({s.name: s.outputs for s in made}, chosen, untouched)
    for system in made:
        system.counted.clear()
    return found


def _measured(
    bench: Bench,
    made: Sequence[System],
    exacts: Exacts,
    batches: Sequence[Sequence[Input]],
    progress: Progress,
) -> tuple[Timed, bool]:
    """What was timed, and whether nobody interrupted it."""
    timed = Timed(
        latencies={system.name: [] for system in made},
        routes={system.name: [] for system in made},
        floors={kernels: {} for kernels in exacts.runners},
        left_out=exacts.left_out,
    )
    try:
        _time(bench, made, exacts, timed, batches=progress(batches, "bench"))
        for system in made:
            routes = timed.routes[system.name]
            timed.more[system.name] = _more(bench, system, batches[: len(routes)], routes)
    except KeyboardInterrupt:
        done = len(timed.routes[made[-1].name])
        if not done:
            raise
        for name in timed.latencies:
            del timed.latencies[name][done:], timed.routes[name][done:]
        return timed, False
    return timed, True


def _first(traffic: Traffic, count: int) -> Traffic:
    """The first requests, which are all where no time ran out."""
    return replace(
        traffic,
        requests=traffic.requests[:count],
        paths=traffic.paths[:count],
        arrivals_s=traffic.arrivals_s[:count],
    )


def _predicted(bench: Bench, strategy: Strategy, runner: EncoderRunner | None) -> Prediction | None:
    """What the strategy was predicted to take on these requests, by the costs it was planned with.

    Nothing unless those were recorded for this encoder on this card: beside what another machine
    measured they would be read as a comparison.
    """
    assert runner is not None
    setting, size = bench.setting, bench.setting.size
    gpu = bench.environment.gpu if setting.device.type == "cuda" else None
    if not setting.price(strategy).are_of(size.name, gpu):
        return None
    return systems.predicted(strategy, setting, runner.plan, bench.traffic.requests)


def _rate(setting: Setting) -> float | None:
    on_card = setting.device.type == "cuda"
    return floors.matmul_tflops(setting.device, setting.dtype) if on_card else None


def _exacts(made: Sequence[System], setting: Setting, stack: ExitStack) -> Exacts:
    """One runner of exact graphs for each set of kernels that some strategy graphs.

    One untouched tower proves all, since all systems have the same weights.
    """
    first = made[0].runner
    assert first is not None
    graphed = [s for s in made if s.runner and s.runner.plan.graphs]
    # Shared slabs last, which win: they compute metadata in the graph, so the floor has no host work.
    graphed.sort(key=lambda s: s.runner is not None and s.runner.slabs == "shared")
    encoders = {s.kernels: s.runner.encoder for s in graphed if s.runner}
    runners = {
        kernels: floors.exact_runner(encoder, setting.backend, stack)
        for kernels, encoder in encoders.items()
    }
    return Exacts(runners=runners, untouched=Untouched.of(first.encoder))


def _systems(strategies: Sequence[Strategy], setting: Setting, stack: ExitStack) -> list[System]:
    """Make all; what torch records itself first, since it frees the workspaces of graphs made before."""
    first = sorted(strategies, key=lambda strategy: strategy.plan != "compile")
    made = {strategy.name: _system(strategy, setting, stack) for strategy in first}
    return [made[strategy.name] for strategy in strategies]


def _system(strategy: Strategy, setting: Setting, stack: ExitStack) -> System:
    counted: dict[str, int] = {}
    runner = systems.runner(strategy, setting)
    stack.enter_context(runner)
    before = _warmed(runner, setting)
    systems.ready(runner, setting)
    costs = systems.calibrated(runner, strategy, setting)
    runner.observe = _counter(counted)
    spec = runner.encoder.spec
    return System(
        name=strategy.name,
        execute=runner.execute,
        attention=spec.attention if strategy.eager == "varlen" else "sdpa an item",
        compiled=spec.compiled,
        fused=spec.fused,
        runner=runner,
        memory=runner.memory if runner.has_graphs else None,
        device_bytes=memory.used_bytes(setting.device) - before if runner.has_graphs else 0,
        counted=counted,
        costs=costs.source if costs else None,
    )


def _warmed(runner: EncoderRunner, setting: Setting) -> int:
    """Device bytes in use once what loads on first use has loaded."""
    runner.encoder.eager(_smallest(setting, 1))
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


def _time(
    bench: Bench,
    made: Sequence[System],
    exacts: Exacts,
    timed: Timed,
    *,
    batches: Iterable[Sequence[Input]],
) -> None:
    """Add each request's times to what was timed before it."""
    chosen = set(floors.sampled(len(bench.traffic.requests)))
    for index, batch in enumerate(batches):
        exact = exacts.proven(index, batch) if index in chosen else {}
        before = {system.name: dict(system.counted) for system in made}
        executes = {s.name: s.execute for s in made} | {_floor(k): e for k, e in exact.items()}
        found = measure.interleaved(
            executes,
            [batch],
            device=bench.setting.device,
            repeats=bench.repeats,
            warmups=benched.WARMUPS,
            first=index,
        )
        for system in made:
            timed.latencies[system.name] += found[system.name]
            routes = sidelines.counted(system.counted, before[system.name])
            timed.routes[system.name].append(routes)
        for kernels in exact:
            [floor] = found[_floor(kernels)]
            timed.floors[kernels][index] = floor.p50_ms


def _floor(kernels: Kernels) -> str:
    return f"exact graph of {kernels.about}"


def _more(
    bench: Bench,
    system: System,
    batches: Sequence[Sequence[Input]],
    routes: Sequence[sidelines.Routes],
) -> dict[str, float]:
    """Jitter, and host time before the launch of several small items; of our own systems alone."""
    runner = system.runner
    if runner is None or not runner.has_graphs:
        return {}
    runner.observe = graphs.unobserved  # what was counted is what was timed
    small = _smallest(bench.setting, sidelines.HOST_ITEMS)
    return {
        **sidelines.jitter_numbers(runner, batches, routes, samples=4 * bench.repeats),
        **sidelines.host_numbers(runner, small, batches, routes),
    }


def _smallest(setting: Setting, count: int) -> list[Input]:
    """So many of the smallest items."""
    grid = sizes.near_square_grid(setting.size.rule.min_tokens, setting.size.rule)
    return inputs.synthetic(
        [grid] * count, size=setting.size, device=setting.device, dtype=setting.dtype, seed=0
    )
