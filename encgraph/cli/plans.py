"""Write a plan, and show it: each budget with its reason, then what it is predicted to give."""

from collections.abc import Mapping

from rich.console import Console

from encgraph import codec, sizes, tabular
from encgraph import traffic as traffics
from encgraph.budgets import Prediction
from encgraph.cli import beyond, glossary, listing, output, planning
from encgraph.cli.idle import Idle
from encgraph.cli.planning import FlagsOf, Planned, WantedPlan
from encgraph.costs import MODEL_WITHIN
from encgraph.errors import require
from encgraph.export import VllmFlags
from encgraph.report.text import plural
from encgraph.results import Latency, Memory
from encgraph.traffic import Traffic

_COLUMNS = ("predicted, ms", "mean", "p50", "p99", "worst", "padding", "replayed", "memory")


PLAN_IDLE: tuple[Idle[WantedPlan], ...] = (
    Idle(
        option="--engine-version",
        when=lambda wanted: wanted.export != "vllm",
        why="without --export vllm, whose flags it is for",
        cure="add --export vllm, or leave it out",
    ),
    Idle(
        option="--for",
        when=lambda wanted: wanted.export == "vllm" and not wanted.for_vllm,
        why="with --export vllm, whose flags are planned under vLLM's rules",
    ),
)
"""What may be asked of `plan` to no effect."""


def show(wanted: WantedPlan, *, as_json: bool) -> None:
    """Plan, write what was asked for, and print the rest.

    Raises:
        ValueError: If two forms are asked for on one stdout, or the file holds something else.
    """
    require(
        not as_json or wanted.export is None,
        f"--json and --export both write on stdout, got --export {wanted.export}; give one of them",
    )
    size = sizes.named(wanted.encoder)
    if wanted.plan_file is not None:
        output.file(wanted.plan_file, holds="plan")
    traffic = traffics.read(
        wanted.source, size, count=wanted.count, seed=wanted.seed, progress=output.reading
    )
    made = planning.planned(wanted, traffic)
    if wanted.plan_file is not None:
        output.write(wanted.plan_file, codec.dumps(made.plan) + "\n")
    if as_json:
        output.machine(made)
        return
    console = output.console(stderr=wanted.export is not None)
    _told(console, made, traffic, wanted)
    if wanted.plan_file is not None:
        console.print(f"written: {wanted.plan_file}")
    if made.flags is not None:
        for sentence in remarks_on_flags(made, made.flags):
            console.print(f"note: {sentence}")
        output.line(made.flags.command_line)
    elif wanted.export == "json":
        output.line(codec.dumps(made.plan))


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
    if not made.recorded:
        console.print(
            "note: modelled times rank plans; what 19 encoders were measured to take on an H200 was up to "
            f"{MODEL_WITHIN:g} times less or more"
        )
    console.print(f"traffic: {made.parts}")
    for sentence in beyond.told(wanted, traffic, made):
        console.print(f"note: {sentence}")
    console.print("note: each request is taken to be encoded alone; an engine may join several")
    listing.remarks(console, traffic)
    for sentence in [*expected(made), *slower(made)]:
        console.print(sentence)


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
    rows = [
        _row("fitted on a part" if made.is_refitted else "this plan", made.prediction),
        *([_row("vLLM's defaults (doubling)", made.doubling)] if made.doubling else []),
        _row("graphs off (eager)", made.eager),
        *([_row("graphs off, quick host", made.quick.eager)] if made.quick else []),
    ]
    console.print(output.table(_COLUMNS, rows))
    glossary.footnote(console, "padding", "replayed", *(["quick host"] if made.quick else []))
    if made.is_refitted:
        console.print(
            f"memory of the budgets listed above, fitted on all requests: {_mib(made.memory)}"
        )
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
        _mib(prediction.memory),
    )


def _mib(memory: Memory) -> str:
    return f"{memory.total_bytes / tabular.MIB:,.0f} MiB"


MADE_BY_FLAGS: Mapping[FlagsOf, str] = {
    "defaults": "the flags turn graphs on with vLLM's default budgets",
    "off": "the flags leave graphs off",
}


def remarks_on_flags(made: Planned, flags: VllmFlags) -> list[str]:
    """What somebody should know who hands the flags to vLLM, a sentence each."""
    said = []
    theirs = made.doubling or made.eager
    if made.flags_of != "plan":
        rival = made.eager if made.flags_of == "off" else theirs
        said.append(
            f"{MADE_BY_FLAGS[made.flags_of]}, not the plan's: on held-out requests those are "
            f"predicted to take a mean of {rival.latency.mean_ms:.3f} ms, the plan "
            f"{made.prediction.latency.mean_ms:.3f} ms"
        )
    elif made.plan.graphs and made.prediction.latency.mean_ms > theirs.latency.mean_ms:
        said.append(
            "the flags are predicted to be slower than vLLM's defaults, which are over the limits "
            f"asked for: a mean of {made.prediction.latency.mean_ms:.3f} ms against "
            f"{theirs.latency.mean_ms:.3f} ms"
        )
    taken = {"plan": made.memory, "defaults": theirs.memory, "off": made.eager.memory}
    said.append(f"the graphs of the flags are predicted to take {_mib(taken[made.flags_of])}")
    return [*said, *([flags.assumed] if flags.assumed else [])]


def expected(made: Planned) -> list[str]:
    """What to expect against the defaults and against graphs off, a sentence each."""
    under = "vLLM's packing" if made.engine == "vllm" else "encgraph's packing"
    what = "budgets so fitted, on a part of the requests," if made.is_refitted else "this plan"
    if made.plan.reasons == (planning.GRAPHS_OFF,):
        return [f"expected: {planning.GRAPHS_OFF}; raise it to have budgets planned"]
    if not made.plan.graphs:
        return [f"expected: leave graphs off; no plan within the limits beats eager under {under}"]
    mine = made.prediction.latency
    others = [(made.eager.latency, "leaving graphs off")]
    if made.doubling:
        others.insert(0, (made.doubling.latency, "vLLM's defaults"))
    said = [
        f"expected under {under}: {what} against {name}: mean {_change(mine.mean_ms, other.mean_ms)}, "
        f"{_tail(mine, other)}worst {_change(mine.worst_ms, other.worst_ms)}"
        for other, name in others
    ]
    if made.quick:
        change = _change(made.quick.plan.mean_ms, made.quick.eager.mean_ms)
        said[-1] += f"; on a quick host mean {change}"
    return said


def _tail(mine: Latency, other: Latency) -> str:
    return "" if mine.tail_ms is None else f"p99 {_change(mine.p99_ms, other.p99_ms)}, "


def slower(made: Planned) -> list[str]:
    """That a plan fitted to requests is slower on others than vLLM's defaults, and what to do."""
    mine, theirs = made.prediction, made.doubling
    if made.flags or not made.plan.graphs or made.method != "fitted" or theirs is None:
        return []
    if mine.latency.mean_ms <= theirs.latency.mean_ms:
        return []
    return [
        "note: this plan is predicted to be slower than vLLM's defaults on requests that it was not "
        "fitted on; more requests to fit on or fewer limits may help, or --method doubling"
    ]


def _change(mine: float, other: float) -> str:
    """How many times faster, or slower.

    >>> _change(1.0, 2.0), _change(2.0, 1.0)
    ('2.00x as fast', '0.50x as fast (slower)')
    """
    factor = other / mine
    return f"{factor:.2f}x as fast" + (" (slower)" if factor < 0.995 else "")
