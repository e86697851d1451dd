"""Show what lives on a device: graph sets and runners, and what a model runner may do and took.

Handles are known here by the names of their types and read by attribute, so that nothing imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from encgraph import tabular
from encgraph.results import Measurement
from encgraph.tabular import Shown

FIRST_TOKEN = "time_to_first_token-"


def card(handle: object) -> Shown | None:
    """What is shown of a handle; None if it is none of `CARDS`."""
    kind = type(handle)
    make = CARDS.get((kind.__module__, kind.__name__))
    return None if make is None else make(handle)


def _graph_set(graphs: Any) -> Shown:
    """A row a graph, smallest budget first, with its bytes or why it failed."""
    rows = tuple(_graph(one) for one in sorted(graphs.graphs, key=lambda g: g.capacity))
    usable = sum(one.is_captured for one in graphs.graphs)
    return Shown(
        title=f"Graph set of {graphs.plan.encoder}, backend {graphs.backend}: {graphs.state}, "
        f"{usable} of {len(graphs.plan.graphs)} graphs usable",
        columns=("budget", "items", "state", "memory") if rows else (),
        rows=rows,
        note=f"holds {tabular.mib(graphs.memory.total_bytes)}; {graphs.generation:,} replays so far",
    )


def _graph(one: Any) -> tuple[str, ...]:
    state = one.failure or ("captured" if one.is_captured else "not captured")
    held = tabular.mib(one.memory.total_bytes) if one.memory else ""
    return (f"{one.capacity.tokens:,}", f"{one.capacity.items:,}", state, held)


def _encoder_runner(runner: Any) -> Shown:
    """The runner, and its graphs where it has any."""
    title = f"Encoder runner of {runner.plan.encoder}, backend {runner.backend}"
    if runner.graphs is None:
        planned = len(runner.plan.graphs)
        why = f"{planned} planned; call capture()" if planned else "the plan has none"
        return Shown(title=title, note=f"no graphs: {why}; every batch runs eager")
    shown = _graph_set(runner.graphs)
    state = shown.title.split(": ", 1)[1]
    return Shown(title=f"{title}: {state}", columns=shown.columns, rows=shown.rows, note=shown.note)


def _capture_report(report: Any) -> Shown:
    """Encoder and decoder apart; no seconds, which differ from run to run."""
    parts = {"encoder": report.encoder, "decoder": report.decoder}
    rows = tuple(
        (
            name,
            f"{part.graphs}",
            tabular.mib(part.memory.total_bytes),
            "; ".join(part.failures) or part.skipped or "captured",
        )
        for name, part in parts.items()
    )
    return Shown(
        title="Capture of a model runner",
        columns=("", "graphs", "memory", "state"),
        rows=rows,
        note=f"keys and values of the decoder hold {tabular.mib(report.key_value_bytes)}",
    )


CARDS: Mapping[tuple[str, str], Callable[[Any], Shown]] = {
    ("encgraph.graphs", "GraphSet"): _graph_set,
    ("encgraph.model_runner.facts", "CaptureReport"): _capture_report,
    ("encgraph.runner", "EncoderRunner"): _encoder_runner,
}
"""How each type of handle is shown, by module and name."""


def gates(rows: Sequence[Any], conditions: Sequence[str]) -> Shown:
    """The table of `model_runner.gates`: what must hold, and what is then captured.

    Args:
        rows: Its `TABLE`, or some of it.
        conditions: Its `CONDITIONS`, names of the columns.
    """
    words = {True: "yes", False: "no", None: "any"}
    written = tuple(
        (
            *(words[wanted] for wanted in row.when),
            str(row.encoder_off or "captured"),
            str(row.decoder_off or "captured"),
            str(row.said),
        )
        for row in rows
    )
    names = (*(name.replace("_", " ") for name in conditions), "encoder", "decoder", "said")
    return Shown(title=f"{len(written)} rows of the gates", columns=names, rows=written)


def first_tokens(lines: Sequence[Measurement]) -> Shown:
    """Time to first token by what is graphed and how many requests share a batch, where on record."""
    found = [m for m in lines if m.request is None and m.latency is not None]
    if not found:
        return Shown(
            title="Time to first token is not on record yet",
            note="benchmarks/time_to_first_token.py measures it on a machine with a card",
        )
    rows = tuple(_first_token(m) for m in found)
    where = found[0].environment
    columns = ("", "requests a batch", "p50", "p99", "encode", "prefill", "encoder's share")
    counts = sorted({m.latency.samples for m in found if m.latency})
    batches = " to ".join(f"{n:,}" for n in sorted({counts[0], counts[-1]}))
    note = f"{found[0].encoder} on {where.gpu or where.cpu}, torch {where.torch}, {where.utc[:10]}"
    note += f"; {batches} batches of {found[0].traffic}"
    return Shown(title="Time to first token, wall clock", columns=columns, rows=rows, note=note)


def _first_token(line: Measurement) -> tuple[str, ...]:
    assert line.latency is not None
    numbers = line.numbers
    return (
        line.strategy,
        f"{numbers['concurrency_count']:.0f}",
        tabular.ms(line.latency.p50_ms),
        tabular.ms(line.latency.p99_ms),
        tabular.ms(numbers["encode_ms"]),
        tabular.ms(numbers["prefill_ms"]),
        f"{numbers['encode_share_ratio']:.2f}",
    )
