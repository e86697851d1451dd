"""Run a traffic through everything, write the report, and say the gist of it."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from encgraph import (
    budgets,
    codec,
    export,
    graphs,
    meters,
    regimes,
    sizes,
    store,
    study,
    systems,
    traces,
)
from encgraph.cli import (
    forecast,
    glossary,
    listing,
    machines,
    options,
    output,
    pacing,
    planning,
    sources,
)
from encgraph.cli.machines import Machine
from encgraph.cli.running import ReadyRun, WantedRun
from encgraph.costs import Costs
from encgraph.facts import CardPrediction, Report
from encgraph.measure import Recorder
from encgraph.records import Plan
from encgraph.report import headline, page
from encgraph.sizes import EncoderSize
from encgraph.strategies import Strategy
from encgraph.systems import Setting
from encgraph.traffic import Requests, Traffic


def show(ready: ReadyRun, *, as_json: bool) -> None:
    """Run, write both reports, print the gist.

    Raises:
        typer.Exit: With status 130 if it was interrupted; the partial reports are written.
    """
    wanted = ready.wanted
    machine = machines.chosen(wanted.backend)
    options.check_calibrate(wanted.calibrate, machine.backend)
    recorder = None if wanted.trace is None else Recorder(machine.device)
    output.note(machine.said)
    report = _run(ready, recorder or graphs.unobserved, machine=machine)
    files = [wanted.out / "report.json", wanted.out / "report.html"]
    output.write(files[0], codec.dumps(report) + "\n")
    page.write(report, files[1])
    if wanted.trace is not None and recorder is not None:
        requests = [timed.request for timed in report.steps]
        wanted.trace.parent.mkdir(parents=True, exist_ok=True)
        files.append(traces.perfetto(recorder.steps, wanted.trace, requests=requests))
    if as_json:
        output.machine(_brief(report, files))
    else:
        _tell(report, files)
    if not report.complete:
        raise typer.Exit(130)


def _run(ready: ReadyRun, observe: graphs.Observe, *, machine: Machine) -> Report:
    on_card = machine.backend == "cuda"
    wanted, size, strategy, plan = ready.wanted, ready.size, ready.strategy, ready.plan
    count = sources.CARD_COUNT if on_card and wanted.count is None else None
    traffic = sources.ready(ready.traffic, size, count=count, seed=wanted.seed)
    if plan is None:
        given = sources.to_run(traffic, size, seed=wanted.seed)
        traffic, fit_on = given.traffic, given.fit_on
    else:
        fit_on = ()
    others = (*_stand_in(size), *_other_body(plan, strategy))
    traffic = replace(traffic, notes=(*traffic.notes, *others))
    setting = Setting(
        size=size,
        device=machine.device,
        dtype=machine.dtype,
        backend=machine.backend,
        costs=machines.costs_of(size, strategy, machine),
        fit_on=fit_on,
        largest=_largest(wanted, strategy, fit_on),
        seed=wanted.seed,
        calibrate=wanted.calibrate,
    )
    plan = plan or systems.plan(strategy, setting)
    costs = setting.price(strategy)
    here = meters.environment(machine.dtype, machine.device).gpu
    # Of another card than the one that runs, a prediction beside measurements would mislead.
    known = not on_card or costs.are_of(size.name, here)
    prediction = predicted(traffic, plan, costs, strategy) if known else None
    options = study.Procedure(
        command=shlex.join(wanted.command),
        repeats=wanted.repeats or machine.repeats,
        jitter_samples=6 * machine.repeats,
        prediction=prediction,
        planned=plan,
        progress=partial(pacing.bar, weights=forecast.shares(traffic, size)),
        expect=lambda eager, passes: forecast.say(eager, traffic, setting, passes=passes),
        observe=observe,
    )
    return study.run(traffic, setting, strategy, options)


def _other_body(plan: Plan | None, strategy: Strategy) -> list[str]:
    if plan is None or strategy.compiled or not plan.compiled:
        return []
    return [
        f"the plan was made for a compiled block; strategy {strategy.name!r} runs the plain one"
    ]


def _stand_in(size: EncoderSize) -> list[str]:
    other = machines.costed(size)
    if other == size:
        return []
    return [f"planned and predicted with the costs of {other.name}; {size.name} stands in for it"]


def _largest(wanted: WantedRun, strategy: Strategy, fit_on: Requests) -> int:
    """Tokens of the largest budget: vLLM's default for its strategies, else the largest request."""
    if wanted.largest is not None:
        return wanted.largest
    if strategy.plan == "doubling" or not fit_on:
        return export.VLLM_LARGEST
    return max(sum(item.tokens for item in request) for request in fit_on)


def predicted(
    traffic: Traffic, plan: Plan, costs: Costs, strategy: Strategy
) -> CardPrediction | None:
    """What the same requests are expected to take on a card, beside vLLM's defaults and eager.

    None where no model of ours speaks of the strategy.
    """
    if not systems.is_modelled(strategy):
        return None
    size = machines.costed(sizes.named(traffic.encoder))
    off = replace(plan, graphs=(), reasons=())
    ours = budgets.judge(traffic.requests, plan, costs=costs, pack=strategy.packing)
    eager = budgets.judge(traffic.requests, off, costs=costs, pack="ascending")
    doubling = budgets.judge(
        traffic.requests, planning.defaults(size), costs=costs, pack="ascending"
    )
    return CardPrediction(
        card=store.slug(costs.gpu).upper() if costs.gpu else machines.DEFAULT_CARD.upper(),
        encoder=size.name,
        source=costs.source,
        recorded=costs.recorded,
        ours=ours.latency,
        doubling=doubling.latency,
        eager=eager.latency,
        memory=ours.memory,
        replay_rate=ours.replay_rate,
        times=regimes.times(traffic.requests, ours.by_request_ms, eager.by_request_ms),
    )


def _brief(report: Report, files: Sequence[Path]) -> dict[str, object]:
    """The report without what there is one of a request, and where all of it is."""
    prediction = report.prediction and replace(report.prediction, times=())
    return {
        "report_json": str(files[0]),
        "report_html": str(files[1]),
        "trace": str(files[2]) if files[2:] else None,
        "complete": report.complete,
        "interrupted": report.interrupted,
        "environment": report.environment,
        "encoder": report.encoder,
        "plan": report.plan,
        "packing": report.packing,
        "fallbacks": report.fallbacks,
        "parity": report.parity,
        "latencies": report.latencies,
        "memory": report.memory,
        "prediction": prediction,
        "skipped": report.traffic.skipped,
        "notes": report.traffic.notes,
        "recommendations": report.recommendations,
    }


def _words(report: Report) -> list[str]:
    """What the verdicts say that is worth a gloss."""
    words = ["error ratio"] if report.parity else []
    words += ["slab", "pool", "driver"] if report.memory or report.prediction else []
    return words + (["fallback"] if report.fallbacks else [])


def _tell(report: Report, files: Sequence[Path]) -> None:
    console = output.console()
    if not report.complete:
        console.print(f"{report.interrupted}; the report has what was there")
    for sentence in listing.left_out(report.traffic.skipped):
        console.print(f"{sentence}; the report lists all")
    for verdict in headline.verdicts(report):
        detail = f" ({'; '.join(verdict.lines)})" if verdict.lines else ""
        colon = "" if verdict.question.endswith("?") else ":"
        console.print(f"{verdict.question}{colon} {verdict.answer}{detail}")
    glossary.footnote(console, *_words(report))
    if report.recommendations:
        console.print(f"What to change: {report.recommendations[0]}")
    for file in files:
        console.print(f"written: {file}")
