"""Choose the figures of a report and write the finding under each."""

from collections.abc import Iterator
from dataclasses import dataclass

import plotly.graph_objects as go

from encgraph import figures, regimes
from encgraph.facts import Report
from encgraph.records import Route
from encgraph.report import findings
from encgraph.report.text import Html, element, esc, join, prose

_CONFIG = {"responsive": True, "displaylogo": False, "displayModeBar": False}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawing:
    """One figure with its title and its finding."""

    key: str
    """Becomes the id of the figure's element."""
    title: str
    finding: str
    drawn: go.Figure


def evidence(report: Report) -> tuple[Drawing, ...]:
    """What holds on any machine: traffic, packing, memory."""
    return (*_traffic(report), *_steps(report), *_memory(report))


def latency(report: Report) -> tuple[Drawing, ...]:
    """What was timed on a card; else only what is predicted for one.

    Times of the reference backend are not drawn: a chart of them would be read as a result.
    """
    if not report.on_card:
        return tuple(_prediction(report))
    return (*_latencies(report), *_compared(report))


def html(drawings: tuple[Drawing, ...]) -> Html:
    """The figures in a grid; plotly itself must be on the page already."""
    return element("div", *(_figure(d) for d in drawings), css="figures")


def _figure(drawing: Drawing) -> Html:
    inside = drawing.drawn.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{drawing.key}",
        config=_CONFIG,
    )
    caption = element("figcaption", prose(drawing.finding))
    return element("figure", join([element("h3", esc(drawing.title)), caption, Html(inside)]))


def _traffic(report: Report) -> Iterator[Drawing]:
    traffic, routed = report.traffic, findings.routed(report)
    if traffic.request_tokens and not (report.plan.graphs and routed.tokens):
        yield Drawing(
            key="requests",
            title="Sizes of requests",
            finding=findings.of_traffic(report),
            drawn=figures.traffic_histogram(traffic.request_tokens),
        )
    elif traffic.request_tokens:
        yield Drawing(
            key="budgets",
            title="Budgets over the traffic",
            finding=findings.of_traffic(report),
            drawn=figures.budget_ruler(routed),
        )
    if traffic.item_tokens:
        yield Drawing(
            key="items",
            title="Sizes of items",
            finding=findings.of_items(report),
            drawn=figures.traffic_histogram(traffic.item_tokens, of="item"),
        )


def _steps(report: Report) -> Iterator[Drawing]:
    steps = [s.step for s in report.steps if s.step.route is not Route.CAPTURE]
    if any(s.route is Route.REPLAY for s in steps):
        yield Drawing(
            key="fill",
            title="Fill of each budget",
            finding=findings.of_fill(report),
            drawn=figures.fill(steps),
        )
    if report.fallbacks:
        yield Drawing(
            key="fallbacks",
            title="Why items fell back",
            finding=findings.of_fallbacks(report),
            drawn=figures.fallback_reasons({f.reason: f.items for f in report.fallbacks}),
        )


def _prediction(report: Report) -> Iterator[Drawing]:
    prediction = report.prediction
    if prediction is None:
        return
    named = {"ours": prediction.ours}
    named |= {"doubling": prediction.doubling} if prediction.doubling else {}
    named |= {"eager": prediction.eager} if prediction.eager else {}
    yield Drawing(
        key="prediction",
        title=f"Predicted latency of a request on {prediction.card}",
        finding=findings.of_prediction(prediction, findings.other_packing(report)),
        drawn=figures.latency_quantiles(named),
    )
    if prediction.times:
        found = regimes.by_size(prediction.times)
        yield Drawing(
            key="predicted-speedup",
            title=f"Predicted speedup over eager by size on {prediction.card}",
            finding=f"Predicted, not measured. {findings.of_speedup(found)}",
            drawn=figures.speedup_by_size(prediction.times),
        )


def _latencies(report: Report) -> Iterator[Drawing]:
    if report.latencies is not None:
        walls = {"ours": report.latencies.ours_wall, "eager": report.latencies.eager_wall}
        yield Drawing(
            key="latency",
            title="Latency of a request",
            finding=findings.of_latencies(report),
            drawn=figures.latency_quantiles(walls),
        )


def _compared(report: Report) -> Iterator[Drawing]:
    if report.times:
        found = regimes.by_size(report.times)
        yield Drawing(
            key="speedup",
            title="Speedup over eager by size",
            finding=findings.of_speedup(found),
            drawn=figures.speedup_by_size(report.times),
        )
    if any(s.step.route is not Route.CAPTURE for s in report.steps):
        yield Drawing(
            key="routes",
            title="Latency of a step by route",
            finding=findings.of_routes(report),
            drawn=figures.latency_by_route_and_size(report.steps),
        )
    if report.jitter is not None:
        yield Drawing(
            key="jitter",
            title="Jitter when replay and fallback alternate",
            finding=findings.of_jitter(report),
            drawn=figures.jitter(report.jitter),
        )


def _memory(report: Report) -> Iterator[Drawing]:
    measured = report.memory
    memories = {"measured": measured} if measured and measured.total_bytes else {}
    prediction = report.prediction
    if prediction is not None and prediction.memory is not None:
        memories[f"predicted, {prediction.card}"] = prediction.memory
    if memories:
        name, memory = next(iter(memories.items()))
        yield Drawing(
            key="memory",
            title="Device memory by part",
            finding=f"{name[:1].upper()}{name[1:]}: {findings.of_memory(memory)}",
            drawn=figures.memory_by_part(memories),
        )
