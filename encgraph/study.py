"""Take one encoder, one traffic and one machine through everything, and report.

plan -> capture -> execute and verify -> poison -> measure against eager -> jitter -> predict. Each stage
adds facts; an interrupt keeps what is there and says what it stopped. A wrong output raises: no
report calls a run right that was not.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import encgraph
from encgraph import facts, graphs, measure, memory, meters, profilers, regimes, systems
from encgraph.checks import parity, poison
from encgraph.encoders.protocol import Execute, Input
from encgraph.errors import require
from encgraph.facts import Report
from encgraph.measure import Recorder
from encgraph.records import Load, Plan, Route
from encgraph.report import advice
from encgraph.results import Latency
from encgraph.runner import EncoderRunner
from encgraph.strategies import Strategy
from encgraph.systems import Progress, Setting
from encgraph.traffic import Traffic

PARITY_SOURCE = {
    True: "float32 against float32 eager: 1e-5 relative",
    False: "1.25 times the distance of same-dtype eager from the float32 oracle, item by item, and what "
    "chance adds over an item's values",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Procedure:
    """How a study is run."""

    command: str
    """Command line, for the report."""
    repeats: int = 5
    jitter_samples: int = 30
    prediction: facts.CardPrediction | None = None
    planned: Plan | None = None
    """A plan to use instead of the strategy's own."""
    progress: Progress = systems.silent
    expect: Callable[[Execute, int], None] = lambda eager, passes: None
    """Given eager, and how often each request will run, before anything does."""
    observe: graphs.Observe = graphs.unobserved
    """Sees the steps of capture and of the one verified pass; what is measured goes unobserved."""


@dataclass(slots=True, kw_only=True, eq=False)
class Study:
    """A run in progress: what it was given, and the facts gathered so far."""

    traffic: Traffic
    setting: Setting
    strategy: Strategy
    options: Procedure
    gathered: dict[str, Any] = field(default_factory=dict)
    stage: str = "planning"


def run(traffic: Traffic, setting: Setting, strategy: Strategy, options: Procedure) -> Report:
    """Run a traffic through a strategy and report, whole or up to an interrupt.

    Raises:
        ValueError: If the traffic has no requests.
        ParityError: If an output differs from eager; names the item.
        CaptureError: If no budget could be captured.
    """
    require(
        bool(traffic.requests), f"traffic {traffic.name!r} has no requests; there is nothing to run"
    )
    study = Study(traffic=traffic, setting=setting, strategy=strategy, options=options)
    plan = options.planned or systems.plan(strategy, setting)
    recorder = Recorder(setting.device)
    observe = profilers.several(recorder, options.observe)
    runner = systems.runner(strategy, setting, planned=plan, observe=observe)
    _introduce(study, runner, plan)
    try:
        with runner:
            for stage in (_forecast, _capture, _execute, _poison, _compare, _jitter):
                study.stage = stage.__name__.strip("_")
                stage(study, runner, recorder)
    except KeyboardInterrupt:
        study.gathered |= {"complete": False, "interrupted": f"interrupted during {study.stage}"}
    return advice.advised(Report(**study.gathered))


def _introduce(study: Study, runner: EncoderRunner, plan: Plan) -> None:
    spec, traffic = runner.encoder.spec, study.traffic
    study.gathered |= {
        "encgraph": encgraph.__version__,
        "command": study.options.command,
        "environment": meters.environment(spec.dtype, spec.device),
        "traffic": facts.TrafficFacts(
            name=traffic.name,
            source=traffic.source,
            request_tokens=tuple(sum(i.tokens for i in r) for r in traffic.requests),
            item_tokens=tuple(i.tokens for r in traffic.requests for i in r),
            skipped=tuple(facts.SkippedFile(path=s.path, reason=s.reason) for s in traffic.skipped),
            notes=traffic.notes,
        ),
        "encoder": facts.EncoderFacts(
            name=spec.name,
            parameters=study.setting.size.parameters,
            dtype=str(spec.dtype).removeprefix("torch."),
            attention=spec.attention,
            backend=study.setting.backend,
            strategy=study.strategy.name,
            fitted_on_run=_fitted_on_run(study, plan),
        ),
        "plan": plan,
        "prediction": study.options.prediction,
    }


def _fitted_on_run(study: Study, plan: Plan) -> bool:
    fit_on = [tuple(request) for request in study.setting.fit_on]
    fitted = bool(plan.graphs) and study.strategy.plan in systems.FITTED
    return fitted and fit_on == [tuple(request) for request in study.traffic.requests]


def _forecast(study: Study, runner: EncoderRunner, recorder: Recorder) -> None:
    """Let the caller say how long it will take."""
    passes = (2 if study.setting.dtype == torch.float32 else 3) + 2 * (1 + study.options.repeats)
    study.options.expect(runner.encoder.eager, passes)


def _capture(study: Study, runner: EncoderRunner, recorder: Recorder) -> None:
    memory.check_room(runner.encoder, runner.plan, study.setting.size, slabs=runner.slabs)
    runner.capture()
    costs = systems.calibrated(runner, study.strategy, study.setting)
    encoder = study.gathered["encoder"]
    study.gathered["encoder"] = replace(encoder, costs=costs.source if costs else None)
    states = runner.graphs.graphs if runner.graphs else []
    study.gathered["graphs"] = tuple(
        facts.GraphState(
            graph=index,
            captured=graph.is_captured,
            why=graph.failure,
            seconds=graph.seconds,
            num_bytes=graph.memory.pool_bytes + graph.memory.driver_bytes if graph.memory else None,
            attention=", ".join(choice.name for choice in graph.attention) or None,
        )
        for index, graph in enumerate(states)
    )
    if study.setting.device.type == "cuda" and study.setting.backend == "cuda":
        study.gathered["memory"] = runner.memory


def _execute(study: Study, runner: EncoderRunner, recorder: Recorder) -> None:
    """Every request once: steps recorded, every output compared."""
    exact = study.setting.dtype == torch.float32
    stock = runner.encoder.stock().eager
    oracle = None if exact else runner.encoder.oracle().eager
    found: list[parity.ItemParity] = []
    progress = study.options.progress
    for index, batch in enumerate(progress(_Batches(study), "verify")):
        before = len(recorder.steps)
        compared = parity.compare(runner.execute, [batch], eager=stock, oracle=oracle)
        found += [replace(item, item=len(found) + item.item) for item in compared.items]
        timed = [
            facts.TimedStep(step=t.step, ms=t.ms, request=index) for t in recorder.steps[before:]
        ]
        study.gathered["steps"] = (*study.gathered.get("steps", ()), *timed)
        parity.demand(compared)
    _settle(study, found, exact)


@dataclass(frozen=True, slots=True, eq=False)
class _Batches:
    """Batches with a length, for progress bars."""

    study: Study

    def __len__(self) -> int:
        return len(self.study.traffic.requests)

    def __iter__(self) -> Iterator[list[Input]]:
        return systems.batches(self.study.traffic, self.study.setting)


def _settle(study: Study, found: Sequence[parity.ItemParity], exact: bool) -> None:
    """Facts that follow from the executed steps and the comparison."""
    steps = [timed.step for timed in study.gathered.get("steps", ())]
    study.gathered |= {
        "packing": facts.PackingFacts.of(steps),
        "fallbacks": facts.FallbackFacts.by_reason(steps),
    }
    worst = parity.Parity(items=tuple(found), oracle="").worst
    if worst is not None:
        study.gathered["parity"] = facts.ParityFacts(
            items=len(found),
            worst_error_ratio=worst.error_ratio,
            worst_item=str(worst.item),
            tolerance_ratio=worst.tolerance_ratio,
            tolerance_source=PARITY_SOURCE[exact],
            oracle_dtype="float32",
        )


def _poison(study: Study, runner: EncoderRunner, recorder: Recorder) -> None:
    """Once: the first request that one graph holds, in the largest that does, and of which `fill` leaves
    the padding as it was; exact layouts leave no padding."""
    exact = study.strategy.packing == "exact"
    if runner.graphs is None or exact or "parity" not in study.gathered:
        return
    for batch in _Batches(study):
        load = Load.of(runner.encoder.item_spec(value) for value in batch)
        fits = [
            index
            for index, graph in enumerate(runner.graphs.graphs)
            if graph.is_captured
            and load.tokens < graph.capacity.tokens
            and graph.capacity.holds(load)
        ]
        if not fits:
            continue
        passed = poison.survives(runner.graphs, batch, graph=fits[-1])
        if passed is not None:
            study.gathered["parity"] = replace(study.gathered["parity"], poison_passed=passed)
            return


def _compare(study: Study, runner: EncoderRunner, recorder: Recorder) -> None:
    """Wall time of every request through the runner and through the best eager, interleaved."""
    with _unobserved(runner):
        medians: dict[str, list[float]] = {"ours": [], "eager": []}
        for index, batch in enumerate(study.options.progress(_Batches(study), "measure")):
            both = measure.interleaved(
                {"ours": runner.execute, "eager": runner.encoder.eager},
                [batch],
                device=study.setting.device,
                repeats=study.options.repeats,
                first=index,
            )
            for name, [latency] in both.items():
                medians[name].append(latency.p50_ms)
            _summarise(study, medians)


def _summarise(study: Study, medians: dict[str, list[float]]) -> None:
    requests = study.traffic.requests
    study.gathered["latencies"] = facts.Latencies(
        ours_wall=Latency.of(medians["ours"], clock="wall", warmups=1),
        eager_wall=Latency.of(medians["eager"], clock="wall", warmups=1),
    )
    study.gathered["times"] = regimes.times(
        requests[: len(medians["ours"])], medians["ours"], medians["eager"]
    )


@contextmanager
def _unobserved(runner: EncoderRunner) -> Iterator[None]:
    """Keep the recorder's events out of what is timed."""
    observe = runner.observe
    runner.observe = graphs.unobserved
    try:
        yield
    finally:
        runner.observe = observe


def _jitter(study: Study, runner: EncoderRunner, recorder: Recorder) -> None:
    """A typical replayed request alone and in turn with one that falls back, where both exist on a card."""
    by_route: dict[Route, list[int]] = {Route.REPLAY: [], Route.FALLBACK: []}
    for timed in study.gathered.get("steps", ()):
        by_route.setdefault(timed.step.route, []).append(timed.request)
    mixed = set(by_route[Route.REPLAY]) & set(by_route[Route.FALLBACK])
    replays = [r for r in by_route[Route.REPLAY] if r not in mixed]
    falls = [r for r in by_route[Route.FALLBACK] if r not in mixed]
    if not replays or not falls or study.setting.device.type != "cuda":
        return
    median = statistics.median_low(replays)
    wanted = {median: None, falls[0]: None}
    chosen = {i: batch for i, batch in enumerate(_Batches(study)) if i in wanted}
    with _unobserved(runner):
        study.gathered["jitter"] = measure.jitter(
            runner.execute,
            chosen[median],
            chosen[falls[0]],
            device=study.setting.device,
            samples=study.options.jitter_samples,
        )
