"""Build the tables of times: measured, predicted for a card, and on a card one beside the other."""

from collections.abc import Iterable

from encgraph import regimes
from encgraph.facts import CardPrediction, Report
from encgraph.report import findings
from encgraph.report.text import (
    Html,
    bare_ms,
    element,
    esc,
    factor,
    paragraph,
    plural,
    section,
    table,
)
from encgraph.results import Latency

HEADERS = ("ms", "mean", "p50", "p90", "p99", "worst")
Named = tuple[str, Latency | None]


def predicted(prediction: CardPrediction) -> Html:
    """The predicted latencies as a table, named as a prediction."""
    kind = "recorded curve" if prediction.recorded else "modelled, nothing recorded"
    title = (
        f"Prediction for {prediction.encoder} on {prediction.card} ({kind}), "
        f"{plural(prediction.ours.samples, 'request')}"
    )
    named = (
        ("this plan", prediction.ours),
        ("doubling budgets", prediction.doubling),
        ("eager", prediction.eager),
    )
    return element(
        "div", element("p", element("strong", esc(title))), _times(named), _few(prediction.ours)
    )


def _few(latency: Latency) -> Html:
    return (
        paragraph(f"{latency.tail_note.capitalize()}.", "soft") if latency.tail_note else Html("")
    )


def measured(report: Report) -> Html:
    """Latencies in numbers, overall and by size regime; on a card beside what was predicted."""
    if report.latencies is None:
        return Html("")
    found, prediction = report.latencies, report.prediction if report.on_card else None
    named = (
        ("ours, wall", found.ours_wall),
        *((("ours, predicted", prediction.ours),) if prediction else ()),
        ("eager, wall", found.eager_wall),
        *((("eager, predicted", prediction.eager),) if prediction else ()),
        ("ours, device", found.ours_device),
        ("eager, device", found.eager_device),
    )
    wall = found.ours_wall
    how = f"{plural(wall.samples, 'sample')} after {plural(wall.warmups, 'warm-up')}, interleaved."
    how += f" {wall.tail_note.capitalize()}." if wall.tail_note else ""
    if not report.on_card:
        title = "Times of the reference backend: no statement about a card"
        return section(title, _times(named), paragraph(how, "soft"))
    how += " By size: means."
    if prediction:
        other = findings.other_packing(report)
        how += f" Predicted before the run: {prediction.source}{f'; {other}' if other else ''}."
    pair = element("div", _times(named), _by_size(report), css="pair")
    return section("Latency in numbers", pair, paragraph(how, "soft"))


def _times(named: Iterable[Named]) -> Html:
    rows = [_row(name, latency) for name, latency in named if latency is not None]
    return element("div", table(HEADERS, rows), css="scroll")


def _row(name: str, latency: Latency) -> tuple[str, ...]:
    times = (latency.mean_ms, latency.p50_ms, latency.p90_ms, latency.tail_ms, latency.worst_ms)
    return (name, *(bare_ms(t) for t in times))


def _by_size(report: Report) -> Html:
    rows = [
        (r.label, f"{len(r.times):,}", bare_ms(r.ours_ms), bare_ms(r.eager_ms), factor(r.speedup))
        for r in regimes.by_size(report.times)
    ]
    headers = ("tokens", "requests", "ours ms", "eager ms", "speedup")
    return element("div", table(headers, rows), css="scroll")
