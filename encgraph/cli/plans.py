"""Write a plan, and show it: each budget with its reason, then what it is predicted to give."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from encgraph import codec, sizes, tabular
from encgraph import traffic as traffics
from encgraph.budgets import Prediction
from encgraph.cli import beyond, expecting, flagging, glossary, listing, output, planning
from encgraph.cli.idle import Idle
from encgraph.cli.planning import Planned, WantedPlan
from encgraph.costs import MODEL_WITHIN
from encgraph.errors import require
from encgraph.report.text import plural
from encgraph.results import Latency
from encgraph.traffic import Traffic

_COLUMNS = ("predicted, ms", "mean", "p50", "p99", "worst", "padding", "replayed", "memory")


PLAN_IDLE: tuple[Idle[WantedPlan], ...] = (
    Idle(
        option="--engine-version",
        when=lambda wanted: wanted.export != "vllm" and not (wanted.for_vllm and wanted.as_json),
        why="without --export vllm, or --for vllm --json, whose flags it is for",
        cure="add --export vllm, or leave it out",
    ),
    Idle(
        option="--for",
        when=lambda wanted: wanted.export == "vllm" and not wanted.for_vllm,
        why="with --export vllm, whose flags are planned under vLLM's rules",
    ),
)
"""What may be asked of `plan` to no effect."""


def show(wanted: WantedPlan) -> None:
    """Plan, write what was asked for, and print the rest.

    Raises:
        ValueError: If two forms are asked for on one stdout, or the file holds something else.
    """
    require(
        not wanted.as_json or wanted.export is None,
        f"--json and --export both write on stdout, got --export {wanted.export}; give one of them: "
        "--for vllm --json has the flags too",
    )
    size = sizes.named(wanted.encoder)
    if wanted.plan_file is not None:
        output.file(wanted.plan_file, holds="plan")
    traffic = traffics.read(
        wanted.source, size, count=wanted.count, seed=wanted.seed, progress=output.reading
    )
    made = judged = planning.planned(wanted, traffic)
    if wanted.has_flags(size):
        made = flagging.with_flags(wanted, judged, traffic)
    if wanted.plan_file is not None:
        plan = judged.plan if wanted.as_json else made.plan
        output.write(wanted.plan_file, codec.dumps(plan) + "\n")
    if wanted.as_json:
        output.machine(_for_machines(judged, made, traffic, wanted))
        return
    console = output.console(stderr=wanted.export is not None)
    _told(console, made, traffic, wanted)
    if wanted.plan_file is not None:
        console.print(f"written: {wanted.plan_file}")
    _noted(console, _of_flags(made))
    if made.flags is not None:
        output.line(made.flags.command_line)
    elif wanted.export == "json":
        output.line(codec.dumps(made.plan))


def _for_machines(
    judged: Planned, made: Planned, traffic: Traffic, wanted: WantedPlan
) -> dict[str, Any]:
    """What is printed for people, as values: predictions without p99 where the table has none.

    `plan` is the one that was judged; `exported` has that of the flags, which all requests made.
    """
    found: dict[str, Any] = codec.encode(judged)
    if made.flags is not None:
        exported = {"plan": made.plan, "memory": made.memory, "traffic": made.parts}
        found |= {"flags": codec.encode(made.flags), "flags_of": made.flags_of}
        found["exported"] = {name: codec.encode(value) for name, value in exported.items()}
    for name in ("prediction", "doubling", "eager"):
        _without_single(found[name])
    for prediction in (found["quick"] or {}).values():
        _without_single(prediction)
    notes = [*_assumed(judged, traffic, wanted), *traffic.notes, *_of_verdict(judged)]
    notes += _of_flags(made)
    return {**found, "skipped": codec.encode(traffic.skipped), "notes": notes}


def _without_single(prediction: dict[str, Any] | None) -> None:
    """Take single requests out of an encoded prediction, and the p99 of too few."""
    if prediction is None:
        return
    del prediction["by_request_ms"]
    latency = prediction["latency"]
    latency["p99_ms"] = codec.decode(Latency, latency).tail_ms


def _told(console: Console, made: Planned, traffic: Traffic, wanted: WantedPlan) -> None:
    items = sum(len(request) for request in traffic.requests)
    console.print(
        f"{made.plan.encoder} over {traffic.name}: {plural(len(traffic.requests), 'request')}, "
        f"{plural(items, 'item')}"
    )
    _budgets(console, made)
    console.print()
    _predictions(console, made)
    console.print()
    console.print(f"costs: {made.costs}")
    console.print(f"traffic: {made.parts}")
    _noted(console, _assumed(made, traffic, wanted))
    listing.remarks(console, traffic)
    for sentence in expecting.expected(made):
        console.print(sentence)
    _noted(console, _of_verdict(made))


def _noted(console: Console, sentences: Sequence[str]) -> None:
    for sentence in sentences:
        console.print(f"note: {sentence}")


def _assumed(made: Planned, traffic: Traffic, wanted: WantedPlan) -> list[str]:
    """What predictions take for granted, and which requests no budget holds, a sentence each."""
    modelled = (
        "modelled times rank plans; what 19 encoders were measured to take on an H200 was up to "
        f"{MODEL_WITHIN:g} times less or more"
    )
    lacking = f"vLLM has no encoder graphs for {made.plan.encoder!r}, so that there are no flags"
    return [
        *([] if made.recorded else [modelled]),
        *([lacking] if wanted.for_vllm and made.doubling is None else []),
        *beyond.told(wanted, traffic, made),
        "each request is taken to be encoded alone; an engine may join several",
    ]


def _of_verdict(made: Planned) -> list[str]:
    return [*expecting.of_few(made), *expecting.slower(made)]


def _of_flags(made: Planned) -> list[str]:
    return flagging.remarks_on_flags(made, made.flags) if made.flags else []


def _budgets(console: Console, made: Planned) -> None:
    if not made.plan.graphs:
        console.print(f"the plan: {'; '.join(made.plan.reasons) or 'no graphs'}")
        return
    rows = [
        (f"{graph.tokens:,}", str(graph.items), f"{graph.longest_segment:,}", reason)
        for graph, reason in zip(made.plan.graphs, _reasons(made), strict=True)
    ]
    columns = ("budget, tokens", "items", "longest segment, patches", "reason")
    console.print(output.table(columns, rows))
    glossary.footnote(console, "budget", "fill", *(["tail smoothed"] if _is_smoothed(made) else []))


def _is_smoothed(made: Planned) -> bool:
    return any("tail smoothed" in reason for reason in made.plan.reasons)


def _reasons(made: Planned) -> list[str]:
    """Reasons without the sizes they begin with, which have columns of their own."""
    reasons = made.plan.reasons or ("",) * len(made.plan.graphs)
    return [reason.partition(": ")[2] or reason for reason in reasons]


def _predictions(console: Console, made: Planned) -> None:
    """The table; bodies are named where not all rows are of the same."""
    body = "" if made.body == "plain" else f"{made.body} block"
    mine = "fitted on a part" if made.is_refitted else "this plan"
    theirs = "vLLM's defaults (doubling" + (", plain block)" if body else ")")
    quick = "graphs off, quick host" + (f" ({body})" if body else "")
    rows = [
        _row(f"{mine} ({body})" if body else mine, made.prediction),
        *([_row(theirs, made.doubling)] if made.doubling else []),
        _row(f"graphs off (eager, {body})" if body else "graphs off (eager)", made.eager),
        *([_row(quick, made.quick.eager)] if made.quick else []),
    ]
    console.print(output.table(_COLUMNS, rows))
    glossary.footnote(console, "padding", "replayed", *(["quick host"] if made.quick else []))
    if made.is_refitted:
        taken = tabular.mib(made.memory.total_bytes)
        console.print(f"memory of the budgets listed above, fitted on all requests: {taken}")
    glossary.tail(console, made.prediction.latency.tail_note)


def _row(name: str, prediction: Prediction) -> tuple[str, ...]:
    latency = prediction.latency
    return (
        name,
        f"{latency.mean_ms:.2f}",
        f"{latency.p50_ms:.2f}",
        output.bare_ms(latency.tail_ms),
        f"{latency.worst_ms:.2f}",
        f"{prediction.padding_ratio:.0%}",
        f"{prediction.replay_rate:.0%}",
        tabular.mib(prediction.memory.total_bytes),
    )
