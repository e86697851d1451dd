"""Measure the time to first token of a whole model and write it: `bench --first-token`."""

from collections.abc import Sequence

from encgraph import first_token, handles, loads, store, strategies, systems, tabular
from encgraph.cli import comparing, keeping, listing, machines, options, output, pacing
from encgraph.cli.benching import ReadyBench
from encgraph.cli.comparing import Prepared
from encgraph.errors import require
from encgraph.loads import Workload
from encgraph.records import Item
from encgraph.report.text import plural
from encgraph.results import Interrupted, Measurement
from encgraph.ways import Graphed

CPU_SAMPLES, CARD_SAMPLES = 10, 50
"""Of the jitter; few on a CPU, which proves no latency."""
BUILTIN_COUNT = 64
"""Requests of a built-in traffic on a card: each is answered several times for each way to run."""
CPU_CONCURRENCY, CARD_CONCURRENCY = "1,4", "1,4,16"


def show(ready: ReadyBench, *, as_json: bool) -> None:
    """Measure, write one line a figure, and print the summaries.

    On a card graphs have budgets, packing and body of `encgraph`; elsewhere of `encgraph_plain`, since
    a compiled block proves nothing more there.

    Raises:
        typer.Exit: With status 130 if it was interrupted; what was measured is kept.
    """
    wanted = ready.wanted
    machine = machines.chosen(wanted.backend)
    on_card = machine.backend == "cuda"
    small = sorted(machines.STAND_IN)
    require(
        on_card or wanted.encoder in machines.STAND_IN,
        f"off a card the first token is measured of {small} alone, whose weights a CPU can run, "
        f"got {wanted.encoder!r}",
    )
    prepared = comparing.prepare(ready, machine, card_count=BUILTIN_COUNT)
    file = prepared.file(f"{handles.FIRST_TOKEN}{wanted.encoder}")
    keeping.announce(file, wanted.encoder)
    load = Workload(
        concurrency=concurrency(
            wanted.concurrency, prepared.given.traffic.requests, on_card=on_card
        ),
        repeats=wanted.repeats or machine.repeats,
        samples=CARD_SAMPLES if on_card else CPU_SAMPLES,
    )
    lines = _measured(prepared, load)
    keeping.bench(file, lines)
    if as_json:
        found = {"file": str(file), "summaries": first_token.summaries(lines)}
        output.machine(found | {"jitter": [m for m in lines if m.strategy == first_token.JITTER]})
        return
    output.console().print(handles.first_tokens(lines))
    output.line(jitter(lines))
    for sentence in listing.left_out(prepared.given.traffic.skipped):
        output.line(f"{sentence}; `encgraph traffic` lists more")
    if not on_card:
        output.line("latencies are the reference backend's on a CPU: no statement about a card")
    output.line(f"written: {file}")


def concurrency(
    given: str | None, requests: Sequence[Sequence[Item]], *, on_card: bool
) -> tuple[int, ...]:
    """Requests a batch: those asked for, else the usual ones of which there are requests enough."""
    if given is not None:
        return options.numbers(given)
    usual = options.numbers(CARD_CONCURRENCY if on_card else CPU_CONCURRENCY)
    fitting = sum(loads.tokens(request) <= Workload().room for request in requests)
    return tuple(count for count in usual if count <= max(1, fitting))


def _measured(prepared: Prepared, load: Workload) -> list[Measurement]:
    """The lines; what was there at an interrupt is kept beside the file."""
    on_card = prepared.machine.backend == "cuda"
    strategy = strategies.ENCGRAPH if on_card else strategies.ENCGRAPH_PLAIN
    try:
        return first_token.run(
            prepared.given.traffic,
            prepared.setting,
            graphed=Graphed(plan=systems.plan(strategy, prepared.setting), strategy=strategy),
            load=load,
            progress=pacing.bar,
        )
    except Interrupted as stop:
        file = keeping.unfinished(prepared.file(stop.measured[0].experiment))
        store.write(file, stop.measured)
        batches = {
            (m.numbers["concurrency_count"], m.request)
            for m in stop.measured
            if m.request is not None
        }
        raise keeping.stopped(plural(len(batches), "batch", "batches"), file) from None


def jitter(lines: Sequence[Measurement]) -> str:
    """What alternating with fallbacks does to a replay's first token, in a sentence."""
    found = next((m.numbers for m in lines if m.strategy == first_token.JITTER), None)
    if found is None:
        return "jitter: not measured, no prompt holds an image over every budget"
    ms = {name: tabular.ms(value) for name, value in found.items()}
    return (
        f"jitter: slowest first token of a replayed prompt {ms['replay_alone_p99_ms']} alone, "
        f"{ms['replay_alternating_p99_ms']} in turn with fallbacks; of a fallback "
        f"{ms['fallback_alone_p99_ms']} and {ms['fallback_alternating_p99_ms']}"
    )
