"""Show what lives on a device: graph sets, runners and ranks, and what a model runner may do and took.

Handles are known here by the names of their types and read by attribute, so that nothing imports torch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from encgraph import tabular
from encgraph.results import Measurement
from encgraph.tabular import Shown

FIRST_TOKEN = "time_to_first_token-"
GRAPH_COLUMNS = ("budget", "items", "state", "memory")


def card(handle: object) -> Shown | None:
    """What is shown of a handle; None if it is none of `CARDS_BY_NAME`."""
    kind = type(handle)
    make = CARDS_BY_NAME.get((kind.__module__, kind.__name__))
    return None if make is None else make(handle)


def _graph_set(graphs: Any) -> Shown:
    """A row a graph, smallest budget first, with its bytes or why it failed."""
    rows = _graph_rows(graphs)
    usable = sum(one.is_captured for one in graphs.graphs)
    return Shown(
        title=f"Graph set of {graphs.plan.encoder}, backend {graphs.backend}: {graphs.state}, "
        f"{usable} of {len(graphs.plan.graphs)} graphs usable",
        columns=GRAPH_COLUMNS if rows else (),
        rows=rows,
        note=_held(graphs),
    )


def _exact_set(graphs: Any) -> Shown:
    """A row a layout held, and what became of the others."""
    most = "any number" if graphs.keep.max_graphs is None else f"{graphs.keep.max_graphs:,}"
    rows = _graph_rows(graphs)
    captures = "captures no more" if graphs.frozen else f"captures at hit {graphs.keep.min_hits:,}"
    return Shown(
        title=f"Exact set of {graphs.plan.encoder}, backend {graphs.backend}: {graphs.state}, "
        f"{len(rows)} of at most {most} layouts held",
        columns=GRAPH_COLUMNS if rows else (),
        rows=rows,
        note=f"{_held(graphs)}; {captures}; {len(graphs.hits):,} layouts remembered, "
        f"{graphs.evicted:,} evicted, {len(graphs.failures):,} failed",
    )


def _held(graphs: Any) -> str:
    return f"holds {tabular.mib(graphs.memory.total_bytes)}; {graphs.generation:,} replays so far"


def _graph_rows(graphs: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(_graph(one) for one in sorted(graphs.graphs, key=lambda g: g.capacity))


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
        why = "by layout, none yet; call capture()" if runner.layouts else why
        return Shown(title=title, note=f"no graphs: {why}; every batch runs eager")
    shown = card(runner.graphs) or _graph_set(runner.graphs)
    state = shown.title.split(": ", 1)[1]
    return Shown(title=f"{title}: {state}", columns=shown.columns, rows=shown.rows, note=shown.note)


def _part(runner: Any) -> str:
    """A runner that is part of another, in a few words."""
    return _encoder_runner(runner).title.partition(": ")[2] or "no graphs: every batch runs eager"


def _mixed_runner(mixed: Any) -> Shown:
    """A row a modality; one runner may have several."""
    rows = tuple(
        (str(modality), runner.plan.encoder, runner.backend, _part(runner))
        for modality, runner in mixed.runners.items()
    )
    title = f"Mixed runner of {len({id(runner) for runner in mixed.runners.values()})} encoders"
    return Shown(title=title, columns=("modality", "encoder", "backend", "state"), rows=rows)


def _sharded_runner(sharded: Any) -> Shown:
    """This rank's own runner, and what it did of the last batch."""
    shown = _encoder_runner(sharded.runner)
    last = sharded.last
    did = f"{last.tokens:,} tokens of the last batch" if last else "no batch yet"
    return Shown(
        title=f"Sharded runner, {_which(sharded.ranks)}, {sharded.gather} gather: {did}",
        columns=shown.columns,
        rows=shown.rows,
        note=f"{shown.title}; {shown.note}" if shown.note else shown.title,
    )


def _ranks(ranks: Any) -> Shown:
    lost = "; a rank is lost" if ranks.board.lost else ""
    return Shown(title=f"Ranks: this is {_which(ranks)} on {ranks.device}{lost}")


def _which(ranks: Any) -> str:
    return f"rank {ranks.rank} of {ranks.size}"


def _model_runner(runner: Any) -> Shown:
    """Encoder, cache and decoder: what each holds, or why it has no graphs."""
    decided = runner.decision
    encoder = _part(runner.encoders) if runner.encoders else "the tower's own forward"
    rows = [("encoder", str(decided.encoder_off or encoder))]
    if runner.cache is not None:
        facts = runner.cache.facts
        held, most = tabular.mib(facts.held_bytes), tabular.mib(facts.max_bytes)
        rows.append(("cache", f"{facts.entries:,} outputs, {held} of {most}"))
    if runner.decoder is not None:
        captured = ", ".join(f"{n:,}" for n in runner.decoder.batch_sizes)
        state = f"graphs of {captured} prompts" if captured else "nothing captured"
        rows.append(("decoder", str(decided.decoder_off or state)))
    return Shown(
        title=f"Model runner of {runner.size.name}, backend {runner.options.backend}",
        rows=tuple(rows),
        note=decided.warning or "",
    )


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


CARDS_BY_NAME: Mapping[tuple[str, str], Callable[[Any], Shown]] = {
    ("encgraph.exact", "ExactSet"): _exact_set,
    ("encgraph.graphs", "GraphSet"): _graph_set,
    ("encgraph.mixed", "MixedRunner"): _mixed_runner,
    ("encgraph.model_runner.facts", "CaptureReport"): _capture_report,
    ("encgraph.model_runner.runner", "ModelRunner"): _model_runner,
    ("encgraph.parallel.ranks", "Ranks"): _ranks,
    ("encgraph.parallel.sharded", "ShardedRunner"): _sharded_runner,
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
            note="`encgraph bench --first-token` measures it on a machine with a card",
        )
    names = {m.latency.tail_name for m in found if m.latency}
    tail = "p99" if names == {"p99"} else "slowest"
    rows = tuple(_first_token(m, tail) for m in sorted(found, key=_concurrency))
    where = found[0].environment
    columns = (
        *("", "requests a batch", "first token, p50", f"first token, {tail}"),
        *("encode, mean", "prefill, mean", "encoder's share, mean"),
    )
    counts = sorted({m.latency.samples for m in found if m.latency})
    batches = " to ".join(f"{n:,}" for n in sorted({counts[0], counts[-1]}))
    note = f"{found[0].encoder} on {where.gpu or where.cpu}, torch {where.torch}, {where.utc[:10]}"
    note += f"; {batches} batches of {found[0].traffic}"
    return Shown(title="Time to first token, wall clock", columns=columns, rows=rows, note=note)


def _concurrency(line: Measurement) -> float:
    return line.numbers["concurrency_count"]


def _first_token(line: Measurement, tail: str) -> tuple[str, ...]:
    assert line.latency is not None
    numbers = line.numbers
    return (
        line.strategy,
        f"{numbers['concurrency_count']:.0f}",
        tabular.ms(line.latency.p50_ms),
        tabular.ms(line.latency.p99_ms if tail == "p99" else line.latency.worst_ms),
        tabular.ms(numbers["encode_ms"]),
        tabular.ms(numbers["prefill_ms"]),
        f"{numbers['encode_share_ratio']:.2f}",
    )
