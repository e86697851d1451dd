"""Run a traffic through everything, write the report, and say the gist of it."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import typer

from encgraph import (
    budgets,
    codec,
    graphs,
    meters,
    packing,
    sizes,
    store,
    strategies,
    study,
    systems,
    traces,
)
from encgraph.cli import glossary, machines, output, pacing, planning, sources
from encgraph.cli.machines import Machine
from encgraph.cli.options import Backend
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.facts import CardPrediction, Report
from encgraph.measure import Recorder
from encgraph.records import Plan
from encgraph.regimes import RequestTimes
from encgraph.report import headline, page
from encgraph.sizes import EncoderSize
from encgraph.strategies import Strategy
from encgraph.systems import Setting
from encgraph.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked of `run`."""

    command: Sequence[str]
    source: str
    encoder: str
    plan_file: Path | None = None
    backend: Backend | None = None
    strategy: str = "encgraph_plain"
    count: int | None = None
    largest: int | None = None
    repeats: int | None = None
    seed: int = 0
    calibrate: bool = False
    out: Path = Path()
    trace: Path | None = None


def show(wanted: Wanted, *, as_json: bool) -> None:
    """Run, write both reports, print the gist.

    Raises:
        typer.Exit: With status 130 if it was interrupted; the partial reports are written.
    """
    size, strategy = sizes.named(wanted.encoder), strategies.named(wanted.strategy)
    planning.check_largest(wanted.largest, size)
    machine = machines.chosen(wanted.backend)
    machines.check_calibrate(wanted.calibrate, machine)
    plan = None if wanted.plan_file is None else load_plan(wanted.plan_file, size)
    out = output.folder(wanted.out)
    trace = None if wanted.trace is None else output.file(wanted.trace)
    recorder = None if trace is None else Recorder(machine.device)
    output.note(machine.said)
    observe = recorder or graphs.unobserved
    report = _run(wanted, observe, size=size, strategy=strategy, machine=machine, plan=plan)
    files = [out / "report.json", out / "report.html"]
    output.write(files[0], codec.dumps(report) + "\n")
    page.write(report, files[1])
    if trace is not None and recorder is not None:
        requests = [timed.request for timed in report.steps]
        files.append(traces.perfetto(recorder.steps, trace, requests=requests))
    if as_json:
        output.machine(_brief(report, files))
    else:
        _tell(report, files)
    if not report.complete:
        raise typer.Exit(130)


def _run(
    wanted: Wanted,
    observe: graphs.Observe,
    *,
    size: EncoderSize,
    strategy: Strategy,
    machine: Machine,
    plan: Plan | None,
) -> Report:
    on_card = machine.backend == "cuda"
    traffic = sources.read(
        wanted.source, size, count=wanted.count, seed=wanted.seed, on_card=on_card
    )
    if plan is None:
        given = sources.to_run(traffic, size, seed=wanted.seed)
        traffic, fit_on = given.traffic, given.fit_on
    else:
        fit_on = ()
    traffic = replace(traffic, notes=(*traffic.notes, *_stand_in(size)))
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
    here = meters.environment(machine.dtype).gpu
    # Of another card than the one that runs, a prediction beside measurements would mislead.
    known = not on_card or costs.are_of(size.name, here)
    prediction = predicted(traffic, plan, costs, strategy) if known else None
    options = study.Options(
        command=shlex.join(wanted.command),
        repeats=wanted.repeats or machine.repeats,
        jitter_samples=6 * machine.repeats,
        prediction=prediction,
        planned=plan,
        progress=partial(pacing.bar, weights=[float(n) for n in traffic.tokens_by_request]),
        expect=pacing.forewarn,
        observe=observe,
    )
    return study.run(traffic, setting, strategy, options)


def _stand_in(size: EncoderSize) -> list[str]:
    other = machines.costed(size)
    if other == size:
        return []
    return [f"planned and predicted with the costs of {other.name}; {size.name} stands in for it"]


def _largest(wanted: Wanted, strategy: Strategy, fit_on: planning.Requests) -> int:
    """Tokens of the largest budget: vLLM's default for its strategies, else the largest request."""
    if wanted.largest is not None:
        return wanted.largest
    if strategy.plan == "doubling" or not fit_on:
        return planning.VLLM_LARGEST
    return max(sum(item.tokens for item in request) for request in fit_on)


def load_plan(path: Path, size: EncoderSize) -> Plan:
    """Read a plan for an encoder.

    Raises:
        ValueError: If it is no plan, of a newer schema, for another encoder or useless for this one.
    """
    new = path.with_name("new-plan.json") if path.exists() else path
    make = f"make it with `encgraph plan SOURCE --encoder {size.name} -o {new}`"
    try:
        plan = codec.loads(Plan, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"plan {str(path)!r} cannot be read: {error.strerror}; {make}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"plan {str(path)!r} is not JSON: {error}; {make}") from error
    except ValueError as error:
        raise ValueError(f"plan {str(path)!r}: {error}") from error
    require(
        plan.encoder == size.name,
        f"plan {str(path)!r} is for encoder {plan.encoder!r}, got --encoder {size.name!r}; {make}",
    )
    smallest = size.rule.min_tokens
    low = [budget for budget in plan.token_budgets if budget < smallest]
    require(
        not low,
        f"plan {str(path)!r} has budgets {low!r}, under the smallest item of {size.name!r}, "
        f"{smallest} tokens; raise or drop them",
    )
    return plan


def predicted(
    traffic: Traffic, plan: Plan, costs: Costs, strategy: Strategy
) -> CardPrediction | None:
    """What the same requests are expected to take on a card, beside vLLM's defaults and eager.

    None for a strategy that packs in a way of its own: no model of ours speaks of it.
    """
    if strategy.packing not in packing.PACKINGS:
        return None
    size = machines.costed(sizes.named(traffic.encoder))
    off = replace(plan, graphs=(), reasons=())
    ours = budgets.judge(traffic.requests, plan, costs=costs, pack=strategy.packing)
    eager = budgets.judge(traffic.requests, off, costs=costs, pack="ascending")
    doubling = budgets.judge(
        traffic.requests, planning.defaults(size), costs=costs, pack="ascending"
    )
    times = zip(traffic.requests, ours.by_request_ms, eager.by_request_ms, strict=True)
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
        times=tuple(
            RequestTimes(
                request=index,
                tokens=sum(item.tokens for item in request),
                items=len(request),
                ours_ms=mine,
                eager_ms=theirs,
            )
            for index, (request, mine, theirs) in enumerate(times)
        ),
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
    if report.traffic.skipped:
        console.print(f"Skipped: {len(report.traffic.skipped)}; the report says which and why")
    for verdict in headline.verdicts(report):
        detail = f" ({'; '.join(verdict.lines)})" if verdict.lines else ""
        colon = "" if verdict.question.endswith("?") else ":"
        console.print(f"{verdict.question}{colon} {verdict.answer}{detail}")
    glossary.footnote(console, *_words(report))
    if report.recommendations:
        console.print(f"What to change: {report.recommendations[0]}")
    for file in files:
        console.print(f"written: {file}")
