"""Compare strategies and write their measurements."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from encgraph import bench, benched, export, meters, readings, store, strategies, systems
from encgraph.cli import (
    forecast,
    glossary,
    keeping,
    listing,
    machines,
    options,
    output,
    pacing,
    sources,
)
from encgraph.cli.benching import ReadyBench
from encgraph.cli.machines import Machine
from encgraph.cli.sources import TrafficToRun
from encgraph.report.text import plural
from encgraph.results import Interrupted, Measurement
from encgraph.strategies import Strategy
from encgraph.systems import Setting
from encgraph.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was read and chosen before anything is measured."""

    machine: Machine
    given: TrafficToRun
    setting: Setting
    out: Path

    def file(self, experiment: str) -> Path:
        """Where an experiment is kept."""
        gpu = meters.environment(self.machine.dtype, self.machine.device).gpu
        return store.path(gpu, experiment, root=self.out)


def prepare(
    ready: ReadyBench, machine: Machine, *, card_count: int = sources.CARD_COUNT
) -> Prepared:
    """Say where it runs, and choose what is measured there.

    Args:
        ready: What was asked.
        machine: Where it runs.
        card_count: Requests of a built-in profile on a card unless told.
    """
    wanted, size = ready.wanted, ready.size
    options.check_calibrate(wanted.calibrate, machine.backend)
    output.note(machine.said)
    count = card_count if machine.backend == "cuda" and wanted.count is None else None
    traffic = sources.ready(ready.traffic, size, count=count, seed=wanted.seed)
    given = sources.to_compare(traffic, size, fit_on=ready.fit_on, seed=wanted.seed)
    setting = Setting(
        size=size,
        device=machine.device,
        dtype=machine.dtype,
        backend=machine.backend,
        costs=machines.costs_of(size, strategies.ENCGRAPH_PLAIN, machine),
        priced=machines.prices(size, machine),
        fit_on=given.fit_on,
        largest=wanted.largest or export.VLLM_LARGEST,
        max_graphs=wanted.max_graphs,
        seed=wanted.seed,
        calibrate=wanted.calibrate,
    )
    return Prepared(machine=machine, given=given, setting=setting, out=wanted.out)


def show(ready: ReadyBench, *, as_json: bool) -> None:
    """Measure, write one line a figure, and print the summaries.

    Raises:
        ValueError: If what is written would take the place of strategies that are not measured.
        typer.Exit: With status 130 if it was interrupted; what was measured is kept.
    """
    wanted = ready.wanted
    prepared = prepare(ready, machines.chosen(wanted.backend))
    given, machine, chosen = prepared.given, prepared.machine, ready.strategies
    named = _named(given.traffic)
    file = prepared.file(f"bench-{named.name}")
    keeping.announce(file, ready.size.name, [strategy.name for strategy in chosen])
    repeats = wanted.repeats or machine.repeats
    _forewarn(named, chosen, prepared.setting, repeats)
    progress = partial(pacing.bar, weights=forecast.shares(named, ready.size))
    try:
        lines = bench.run(named, chosen, prepared.setting, repeats=repeats, progress=progress)
    except Interrupted as stop:
        file = keeping.unfinished(file)
        store.write(file, stop.measured)
        done = next(iter(readings.summaries(stop.measured).values())).latency
        of = f"{done.samples if done else 0:,} of {len(named.requests):,} requests"
        raise keeping.stopped(of, file) from None
    keeping.bench(file, lines)
    if as_json:
        output.machine({"file": str(file), "summaries": list(readings.summaries(lines).values())})
        return
    _tell(output.console(), lines, given, on_card=machine.backend == "cuda")
    output.line(f"written: {file}")


def _named(traffic: Traffic) -> Traffic:
    """The traffic under a name that a file can have."""
    name = "-".join(re.findall(r"[a-z0-9_.]+", traffic.name.lower())) or "traffic"
    return replace(traffic, name=name)


def _forewarn(traffic: Traffic, chosen: Sequence[Strategy], setting: Setting, repeats: int) -> None:
    """Off a card, where it may take hours, say how long it will be."""
    if setting.device.type == "cuda":
        return
    encoder = systems.encoder(strategies.EAGER_VARLEN, setting)
    passes = len(chosen) * (benched.WARMUPS + repeats)
    forecast.say(encoder.eager, traffic, setting, passes=passes)


def _tell(
    console: Console, lines: Sequence[Measurement], given: TrafficToRun, *, on_card: bool
) -> None:
    rows, few = [], ""
    for name, line in readings.summaries(lines).items():
        assert line.latency is not None
        latency, memory, few = line.latency, line.memory, line.latency.tail_note
        rows.append(
            (
                name,
                f"{latency.mean_ms:.2f}",
                f"{latency.p50_ms:.2f}",
                output.bare_ms(latency.tail_ms),
                f"{latency.worst_ms:.2f}",
                f"{line.numbers.get('padding_ratio', 0):.0%}",
                f"{line.numbers.get('replay_ratio', 0):.0%}",
                f"{memory.total_bytes / 2**20:,.0f} MiB" if memory else "",
            )
        )
    held = "memory" if on_card else "host memory"
    columns = ("wall, ms", "mean", "p50", "p99", "worst", "padding", "replayed", held)
    console.print(output.table(columns, rows))
    glossary.footnote(console, "wall", "padding", "replayed")
    glossary.tail(console, few)
    if not on_card:
        console.print(f"host memory: slabs of {lines[0].encoder} on the CPU, not what a card takes")
    for sentence in listing.left_out(given.traffic.skipped):
        console.print(f"{sentence}; `encgraph traffic` lists more")
    count = len(given.traffic.requests)
    console.print(f"traffic: {plural(count, 'request')}; {given.traffic.notes[-1]}")
    if count == 1:
        console.print("1 request: its one time is mean, p50 and worst at once")
