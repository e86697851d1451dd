"""Prove and time an encoder's graphs against its eager forwards, batch by batch; see `encoder_table.py`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from encoder_rows import Table

from encgraph import measure, packing, proving
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput, Execute, Input
from encgraph.records import (
    DIMENSIONS,
    Bin,
    Capacity,
    Item,
    Load,
    Packing,
    Plan,
    Route,
    Step,
)
from encgraph.results import Latency, Measurement
from encgraph.runner import EncoderRunner

COUNTS = (1, 8, 32)
"""Typical items a batch."""
SETTLING = 2
"""Untimed rounds before the timed ones."""
FEWEST = 3
"""Timed rounds at least."""
BATCH_S = 3.0
"""Fewer rounds than asked for where they would take longer than this."""
AT_ONCE = 4
"""Items that the untouched module encodes at once for the proof: a mask over all may be too large."""


def speeds(table: Table, family: str) -> Iterator[Measurement]:
    """A row of what the graphs hold, and for each batch one of ours and one of each eager."""
    subject, steps = table.subject(family), []

    def observe(step: Step) -> AbstractContextManager[None]:
        steps.append(step)
        return nullcontext()

    batches = [subject.batch(*[table.choice(family).length] * count) for count in COUNTS]
    loads = [subject.load(batch) for batch in batches]
    encoder, spec = subject.encoder, subject.encoder.spec
    plan = Plan(graphs=tuple(map(exact, loads)), encoder=spec.name, attention=spec.attention)
    with EncoderRunner(
        encoder=encoder, plan=plan, backend=subject.backend, packer=one_replay
    ) as runner:
        memory = runner.capture()
        assert runner.graphs is not None
        seconds = sum(graph.seconds for graph in runner.graphs.graphs)
        yield table.row(
            spec.name,
            "encgraph",
            attention=spec.attention,
            route=Route.CAPTURE,
            memory=memory,
            numbers={"capture_s": seconds, "graphs_count": float(len(plan.graphs))},
        )
        right = proving.Untouched.of(encoder)
        systems = {
            "encgraph": runner.execute,
            "eager": encoder.eager,
            "eager_stock": encoder.stock().eager,
        }
        for batch, load in zip(batches, loads, strict=True):
            runner.observe = observe
            steps.clear()
            numbers = proven(right, runner.execute, batch)
            numbers["replays_count"] = float(sum(step.route is Route.REPLAY for step in steps))
            runner.observe = lambda step: nullcontext()
            able = {name: run for name, run in systems.items() if runs(run, batch)}
            for name in systems.keys() - able.keys():
                said = {"failed_count": 1.0, "items_count": float(load.items)}
                yield table.row(spec.name, name, load=load, numbers=said)
            latencies = timed(table, able, batch)
            yield from speed_rows(table, subject, load, latencies, numbers=numbers)


def one_replay(plan: Plan) -> packing.Packer:
    """Pack a whole batch into the smallest graph that holds it."""

    def pack(items: Sequence[Item]) -> Packing:
        load = Load.of(items)
        graph = next(i for i, capacity in enumerate(plan.graphs) if capacity.holds(load))
        everything = tuple(range(len(items)))
        part = Bin(items=everything, graph=graph, capacity=plan.graphs[graph], load=load)
        return Packing(bins=(part,))

    return pack


def proven(
    untouched: proving.Untouched, execute: Execute, batch: Sequence[Input]
) -> dict[str, float]:
    """Demand what the untouched module gives for a batch; how near the worst item came.

    Raises:
        ParityError: If an item is farther off than it may be.
    """
    eager: list[EncoderOutput] = []
    oracle: list[EncoderOutput] | None = [] if untouched.oracle else None
    for start in range(0, len(batch), AT_ONCE):
        part = untouched.right(batch[start : start + AT_ONCE])
        eager += part.eager
        if oracle is not None and part.oracle is not None:
            oracle += part.oracle
    right = proving.Right(batch=batch, eager=eager, oracle=oracle)
    return dict(proving.Proven.of([right.demand("encgraph", execute)]).numbers)


def exact(load: Load) -> Capacity:
    """The capacity that a load fills: what padding costs is a matter of the plan, not the encoder."""
    return Capacity(**{name: getattr(load, name) for name in DIMENSIONS})


def runs(run: Execute, batch: Sequence[Input]) -> bool:
    """Whether a system runs a batch: a mask of eager's may be too large for the card or a kernel."""
    try:
        run(batch)
    except RuntimeError:  # out of memory is one
        torch.cuda.empty_cache()
        return False
    return True


def timed(
    table: Table, systems: Mapping[str, Execute], batch: Sequence[Input]
) -> dict[str, Latency]:
    """Wall time of one batch by every system, in turning order, a sample a round."""
    device = torch.device(table.given.device)

    def run(rounds: int) -> dict[str, list[Latency]]:
        return measure.interleaved(systems, [batch] * rounds, device=device, repeats=1, warmups=0)

    run(SETTLING - 1)
    began_s = time.perf_counter()
    run(1)
    fit = int(BATCH_S / (time.perf_counter() - began_s))
    samples = run(min(table.given.samples, max(FEWEST, fit)))
    return {
        name: measure.latency([one.p50_ms for one in runs], warmups=SETTLING)
        for name, runs in samples.items()
    }


def speed_rows(
    table: Table,
    subject: Subject,
    load: Load,
    latencies: Mapping[str, Latency],
    *,
    numbers: Mapping[str, float],
) -> Iterator[Measurement]:
    """Each system's time; ours with its numbers, how many times faster than the best eager last."""
    best = min(latency.p50_ms for name, latency in latencies.items() if name != "encgraph")
    spec = subject.encoder.spec
    for name, latency in latencies.items():
        ours = name == "encgraph"
        extra = {**numbers, "speedup_ratio": best / latency.p50_ms}
        yield table.row(
            spec.name,
            name,
            attention=spec.attention if name != "eager_stock" else "sdpa",
            route=Route.REPLAY if ours else Route.EAGER,
            load=load,
            latency=latency,
            numbers={"items_count": float(load.items), **(extra if ours else {})},
        )
