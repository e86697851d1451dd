"""Show records as a table: HTML in a notebook, a Rich table in a terminal, aligned text in a log.

`card` turns a record or a handle into a title and rows; `html`, `rich` and `text` write it, escaped.
`magic` teaches an IPython shell to do so for the last line of a cell.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from encgraph import facts, handles, readings, tabular
from encgraph.budgets import Fit, Prediction
from encgraph.facts import Report
from encgraph.records import Packing, Plan
from encgraph.results import Environment, Latency, Measurement, Memory
from encgraph.summaries import TrafficSummary
from encgraph.tabular import Shown
from encgraph.tradeoffs import Defer, Gap, Judged
from encgraph.traffic import Traffic

if TYPE_CHECKING:
    from rich.console import Group


def _plan(plan: Plan) -> Shown:
    title = f"Plan of {len(plan.graphs)} graphs for {plan.encoder} ({plan.dtype}"
    title += ", compiled)" if plan.compiled else ")"
    if not plan.graphs:
        return Shown(title=title, note="; ".join(plan.reasons))
    reasons = plan.reasons or ("",) * len(plan.graphs)
    rows = tuple(
        (f"{g.tokens:,}", f"{g.items:,}", f"{g.longest_segment:,}", why)
        for g, why in zip(plan.graphs, reasons, strict=True)
    )
    return Shown(title=title, columns=("budget", "items", "longest segment", "why"), rows=rows)


def _packing(packed: Packing) -> Shown:
    title = (
        f"Packing: {_counted(len(packed.bins), 'replay')}, "
        f"{_counted(len(packed.fallback), 'item')} eager, "
        f"padding ratio {packed.padding_ratio:.3f}, replay rate {packed.replay_rate:.2f}"
    )
    rows = [
        (
            f"replay {b.token_budget:,}",
            _indices(b.items),
            f"{b.load.tokens:,}",
            f"{b.padding_tokens:,}",
        )
        for b in packed.bins
    ]
    rows += [("eager", str(f.item), "", f.reason.value) for f in packed.fallback]
    columns = ("route", "items", "real tokens", "padding or reason")
    return Shown(title=title, columns=columns, rows=tuple(rows))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _indices(values: Sequence[int]) -> str:
    return " ".join(str(value) for value in values)


def _latency(latency: Latency) -> Shown:
    values: dict[str, float | None] = {
        "mean": latency.mean_ms,
        "p10": latency.p10_ms,
        "p50": latency.p50_ms,
        "p90": latency.p90_ms,
        "p95": latency.p95_ms,
        "p99": latency.tail_ms,
        "worst": latency.worst_ms,
    }
    title = f"Latency, {latency.clock} clock, {latency.samples:,} samples"
    rows = tuple((name, tabular.ms(ms)) for name, ms in values.items())
    return Shown(title=title, rows=rows, note=latency.tail_note)


def _memory(memory: Memory) -> Shown:
    rows = [
        ("slabs", tabular.mib(memory.slabs_bytes)),
        ("pool", tabular.mib(memory.pool_bytes)),
        ("driver", tabular.mib(memory.driver_bytes)),
    ]
    rows += [("peak during capture", tabular.mib(memory.peak_bytes))] if memory.peak_bytes else []
    return Shown(title=f"Memory of graphs: {tabular.mib(memory.total_bytes)}", rows=tuple(rows))


def _prediction(found: Prediction) -> Shown:
    rows = (
        *_latency(found.latency).rows,
        ("padding ratio", f"{found.padding_ratio:.3f}"),
        ("replay rate", f"{found.replay_rate:.3f}"),
        ("device memory", tabular.mib(found.memory.total_bytes)),
    )
    note = "; ".join(filter(None, (found.source, found.latency.tail_note)))
    return Shown(title=f"Prediction over {found.latency.samples:,} requests", rows=rows, note=note)


def _fit(fit: Fit) -> Shown:
    rows = tuple(
        (
            f"{len(c.plan.graphs)}",
            " ".join(f"{b:,}" for b in c.plan.token_budgets) or "eager",
            tabular.ms(c.prediction.mean_ms),
            f"{c.prediction.padding_ratio:.3f}",
            tabular.mib(c.prediction.memory.total_bytes),
        )
        for c in fit.frontier
    )
    return Shown(
        title=f"Fit of up to {len(fit.frontier) - 1} graphs; best has {len(fit.best.plan.graphs)}",
        columns=("graphs", "budgets", "mean", "padding", "memory"),
        rows=rows,
        note="on the requests it was fitted on",
    )


def _environment(where: Environment) -> Shown:
    values: Mapping[str, str | None] = {
        "gpu": where.gpu,
        "driver": where.driver,
        "cuda": where.cuda,
        "cpu": where.cpu,
        "torch": where.torch,
        "transformers": where.transformers,
        "python": where.python,
        "dtype": where.dtype,
        "utc": where.utc,
    }
    rows = tuple((name, value) for name, value in values.items() if value is not None)
    return Shown(title=f"Environment: {where.gpu or 'no card'}", rows=rows)


def _measurement(found: Measurement) -> Shown:
    title = f"Measurement: {found.strategy} on {found.encoder}, {found.experiment}"
    rows = [("attention", found.attention), ("compiled", "yes" if found.compiled else "no")]
    rows += [("traffic", found.traffic)] if found.traffic else []
    rows += [("request", f"{found.request:,}")] if found.request is not None else []
    rows += [("route", found.route.value)] if found.route else []
    rows += [("budget", f"{found.capacity.tokens:,} tokens")] if found.capacity else []
    rows += [("real tokens", f"{found.load.tokens:,}")] if found.load else []
    rows += [(name, ms) for name, ms in _latency(found.latency).rows] if found.latency else []
    rows += [("device memory", tabular.mib(found.memory.total_bytes))] if found.memory else []
    rows += [(name, f"{value:.4g}") for name, value in sorted(found.numbers.items())]
    where = found.environment
    note = f"{where.gpu or where.cpu}, torch {where.torch}, {where.utc[:10]}"
    return Shown(title=title, rows=tuple(rows), note=note)


def _summary(about: TrafficSummary) -> Shown:
    counted = {
        "items a request": about.items_per_request,
        "tokens an item": about.tokens_per_item,
        "tokens a request": about.tokens_per_request,
    }
    rows = [
        (name, f"{q.mean:,.1f}", *map(tabular.whole, (q.p50, q.p90, q.p99, q.max)))
        for name, q in counted.items()
    ]
    atoms = ", ".join(f"{a.tokens:,} ({a.share_ratio:.0%})" for a in about.atoms)
    return Shown(
        title=f"{about.requests:,} requests, {about.items:,} items",
        columns=("", "mean", "p50", "p90", "p99", "max"),
        rows=tuple(rows),
        note=f"most frequent tokens an item: {atoms}" if atoms else "no token count recurs",
    )


def _traffic(traffic: Traffic) -> Shown:
    summed = _summary(traffic.about())
    title = f"Traffic {traffic.name} for {traffic.encoder}: {summed.title}"
    return Shown(title=title, columns=summed.columns, rows=summed.rows, note=summed.note)


def _report(report: Report) -> Shown:
    rows = [("requests", f"{len(report.times):,}"), ("steps", f"{len(report.steps):,}")]
    rows += [("graphs", f"{len(report.plan.graphs)}")]
    if report.latencies:
        rows += [
            (f"ours, {name}", value) for name, value in _latency(report.latencies.ours_wall).rows
        ]
    rows += [("device memory", tabular.mib(report.memory.total_bytes))] if report.memory else []
    return Shown(title=f"Run of {report.plan.encoder}", rows=tuple(rows))


def _defer(one: Defer) -> Shown:
    def priced(ms: float | None) -> str:
        return "no budget holds both" if ms is None else tabular.ms(ms)

    apart = one.bin_budget + one.item_budget
    together = one.joint_budget
    relation = "<" if together is not None and apart < together else "≥"
    rows = (
        ("rows", f"{one.bin_budget:,} + {one.item_budget:,} {relation} {together or 0:,}"),
        ("apart", tabular.ms(one.apart_ms)),
        ("together", priced(one.together_ms)),
    )
    title = f"Bin of {one.bin_tokens:,}, next item of {one.item_tokens:,}: "
    return Shown(title=title + ("close the bin" if one.closes else "share the bin"), rows=rows)


def strategies(lines: Sequence[Measurement]) -> Shown:
    """A bench as a table, a row a strategy."""
    rows, note = [], ""
    for name, m in readings.summaries(lines).items():
        if m.latency is None:
            continue
        times = (m.latency.mean_ms, m.latency.p50_ms, m.latency.tail_ms, m.latency.worst_ms)
        note = "; ".join(filter(None, (readings.source(lines), m.latency.tail_note)))
        ratios = [m.numbers.get(key) for key in ("padding_ratio", "replay_ratio")]
        shares = ["" if r is None else f"{r:.3f}" for r in ratios]
        held = tabular.mib(m.memory.total_bytes) if m.memory else ""
        rows.append((name, m.attention, *(tabular.ms(t) for t in times), *shares, held))
    columns = ("", "attention", "mean", "p50", "p99", "worst", "padding", "replayed", "memory")
    return Shown(title="Wall time of a request", columns=columns, rows=tuple(rows), note=note)


def plans(judged: Sequence[Judged]) -> Shown:
    """Plans judged on held-out requests, a row a plan."""
    rows = tuple(
        (
            j.rule,
            str(j.graphs),
            f"{j.prediction.padding_ratio:.3f}",
            f"{j.prediction.replay_rate:.3f}",
            tabular.ms(j.prediction.mean_ms),
            tabular.ms(j.prediction.latency.p99_ms),
            tabular.mib(j.prediction.memory.total_bytes),
        )
        for j in judged
    )
    tail = judged[0].prediction.latency.tail_name if judged else "p99"
    columns = ("rule", "graphs", "padding", "replayed", "mean", tail, "memory")
    note = judged[0].prediction.source if judged else ""
    return Shown(title="Predicted on held-out requests", columns=columns, rows=rows, note=note)


def gaps(found: Sequence[Gap]) -> Shown:
    """Packing rules against the optimum, a row a rule."""
    rows = tuple(
        (
            g.rule,
            f"{facts.quantile(g.ratios, 0.5):.2f}",
            f"{g.ratios[-1]:.2f}",
            tabular.ms(g.lost_ms),
        )
        for g in found
    )
    title = f"Time over the optimum, {len(found[0].ratios) if found else 0:,} requests"
    return Shown(title=title, columns=("rule", "median", "worst", "lost a request"), rows=rows)


CARDS: Mapping[type, Callable[[Any], Shown]] = {
    Defer: _defer,
    Environment: _environment,
    Fit: _fit,
    Latency: _latency,
    Measurement: _measurement,
    Memory: _memory,
    Packing: _packing,
    Plan: _plan,
    Prediction: _prediction,
    Report: _report,
    Traffic: _traffic,
    TrafficSummary: _summary,
}
"""How each type of record is shown."""


def card(record: object) -> Shown:
    """What is shown of a record or a handle.

    Raises:
        TypeError: If it is of no type in `CARDS` and no handle in `handles.CARDS_BY_NAME`.
    """
    made = handles.card(record)
    if made is not None:
        return made
    make = CARDS.get(type(record))
    if make is None:
        known = sorted([k.__name__ for k in CARDS] + [name for _, name in handles.CARDS_BY_NAME])
        raise TypeError(f"record must be one of {known}, got {type(record).__name__}")
    return make(record)


def text(record: object) -> str:
    """A record as aligned plain text, of at most 24 rows."""
    return tabular.lines(card(record))


def html(record: object) -> str:
    """A record as an HTML table without ids, scripts or colours, so that it follows the page."""
    return tabular.page(card(record))


def rich(record: object) -> "Group":
    """A record as a Rich table with its title, for `rich.print` and the command line."""
    return tabular.rich(card(record))
