"""Draw latency: by route and size, by quantile, against eager, under alternation, by strategy."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph import facts, readings, regimes
from encgraph.errors import require
from encgraph.facts import Jitter, TimedStep
from encgraph.figures import template
from encgraph.records import Route
from encgraph.regimes import RequestTimes
from encgraph.results import Latency, Measurement

_DRAWN_ROUTES = (Route.REPLAY, Route.FALLBACK, Route.EAGER)
_MOST_POINTS = 1500


def latency_by_route_and_size(steps: Sequence[TimedStep]) -> go.Figure:
    """Time of each replay, fallback and eager run over its real tokens; captures are left out.

    Of more than 1,500 steps of a route every n-th by size is drawn, the slowest always.

    Raises:
        ValueError: If no step is a replay, fallback or eager run.
    """
    groups = {route: [s for s in steps if s.step.route is route] for route in _DRAWN_ROUTES}
    tokens = [s.step.real_tokens for group in groups.values() for s in group]
    require(bool(tokens), "latency by route and size needs at least one replay or fallback")
    clouds = [_cloud(route, _thinned(group)) for route, group in groups.items() if group]
    drawn = template.figure(*clouds, x="real tokens of the step", y="time of the step, ms")
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def _thinned(steps: list[TimedStep]) -> list[TimedStep]:
    """Few enough steps to draw, smallest first, with the slowest among them."""
    ordered = sorted(steps, key=lambda s: (s.step.real_tokens, s.ms))
    stride = -(-len(ordered) // _MOST_POINTS)
    kept = ordered[::stride]
    slowest = max(ordered, key=lambda s: s.ms)
    return kept if slowest in kept else [*kept, slowest]


def _cloud(route: Route, steps: list[TimedStep]) -> go.Scatter:
    """The steps of one route as points."""
    return go.Scatter(
        uid=route.value,
        name=route.value,
        mode="markers",
        x=[s.step.real_tokens for s in steps],
        y=[s.ms for s in steps],
        marker={
            "color": template.ROUTE_COLOURS[route],
            "symbol": template.ROUTE_SYMBOLS[route],
            "size": 6,
            "opacity": 0.7,
        },
        hovertemplate="%{x:,} tokens, %{y:.2f} ms<extra>" + route.value + "</extra>",
    )


def _quantiles(latency: Latency) -> dict[str, float]:
    """What is drawn of a latency, by the name on the axis."""
    return {
        "mean": latency.mean_ms,
        "p50": latency.p50_ms,
        "p90": latency.p90_ms,
        **({"p99": latency.p99_ms} if latency.tail_ms is not None else {}),
        "worst": latency.worst_ms,
    }


def latency_quantiles(latencies: Mapping[str, Latency]) -> go.Figure:
    """Mean, p50, p90, p99 and worst of several latencies side by side; no p99 of few samples.

    Args:
        latencies: By strategy or route, in the order drawn; all of one clock.

    Raises:
        ValueError: If there are none, or their clocks differ.
    """
    clocks = sorted({latency.clock for latency in latencies.values()})
    require(len(clocks) == 1, f"latencies must be of one clock, got {clocks!r}; draw them apart")
    bars = [
        go.Bar(
            uid=name,
            name=template.label(name),
            x=list(_quantiles(latency)),
            y=list(_quantiles(latency).values()),
            marker_color=template.colour(name, position),
            hovertemplate="%{x} %{y:.2f} ms<extra>" + template.label(name) + "</extra>",
        )
        for position, (name, latency) in enumerate(latencies.items())
    ]
    drawn = template.figure(*bars, x="over requests", y=f"{clocks[0]} time of a request, ms")
    return drawn.update_yaxes(rangemode="tozero").update_layout(barmode="group", showlegend=True)


def speedup_by_size(
    times: Sequence[RequestTimes], *, edges: Sequence[int] = regimes.SIZE_EDGES
) -> go.Figure:
    """Eager's mean over the runner's in each size regime; whiskers span p10 to p90 of requests.

    A bar has the colour of the one that is faster.

    Args:
        times: Requests through both.
        edges: Tokens at which regimes end, increasing.

    Raises:
        ValueError: If there are no requests.
    """
    found = regimes.by_size(times, edges=edges)
    require(bool(found), "speedup by size needs at least one request")
    ratios = [[t.eager_ms / t.ours_ms for t in r.times] for r in found]
    speedups = [r.speedup for r in found]
    high = [facts.quantile(r, 0.9) for r in ratios]
    low = [facts.quantile(r, 0.1) for r in ratios]
    ours, eager = template.ROUTE_COLOURS[Route.REPLAY], template.ROUTE_COLOURS[Route.EAGER]
    bars = go.Bar(
        uid="speedup",
        x=[f"{r.label}<br>({len(r.times):,} requests)" for r in found],
        y=speedups,
        text=[f"{s:.2f}\N{MULTIPLICATION SIGN}" for s in speedups],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        marker_color=[ours if s >= 1 else eager for s in speedups],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, h - s) for h, s in zip(high, speedups, strict=True)],
            "arrayminus": [max(0.0, s - v) for v, s in zip(low, speedups, strict=True)],
            "color": template.INK,
            "thickness": 1.2,
        },
        hovertemplate="%{x}: %{y:.2f} times as fast as eager<extra></extra>",
    )
    drawn = template.figure(bars, x="tokens a request", y="eager time ÷ our time, ratio")
    drawn.add_hline(y=1, line={"color": template.INK, "dash": "dash", "width": 1.5})
    drawn.update_yaxes(rangemode="tozero")
    return drawn.update_layout(showlegend=False)


def jitter(measured: Jitter) -> go.Figure:
    """Times of one replay and one fallback, each repeated alone and then alternating."""
    samples = {
        "replay alone": (Route.REPLAY, measured.replay_alone_ms),
        "replay after fallback": (Route.REPLAY, measured.replay_alternating_ms),
        "fallback alone": (Route.FALLBACK, measured.fallback_alone_ms),
        "fallback after replay": (Route.FALLBACK, measured.fallback_alternating_ms),
    }
    boxes = [
        go.Box(
            uid=name,
            name=name.replace(" ", "<br>", 1),
            y=list(times),
            marker={"color": template.ROUTE_COLOURS[route], "size": 4, "opacity": 0.6},
            line_width=1.5,
            boxpoints="all",
            pointpos=0,
            jitter=0.6,
        )
        for name, (route, times) in samples.items()
        if times
    ]
    drawn = template.figure(*boxes, x="", y="wall time of a step, ms")
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=False)


def strategies_compared(measurements: Sequence[Measurement]) -> go.Figure:
    """Mean, p50, p90, p99 and worst over requests for each strategy of a bench.

    A request counts with the median of its repeats; measurements of no request are left out.

    Raises:
        ValueError: If none is a request's latency, or their clocks differ.
    """
    samples: dict[str, list[float]] = {}
    clocks: set[str] = set()
    for measurement in measurements:
        if measurement.request is not None and measurement.latency is not None:
            samples.setdefault(measurement.strategy, []).append(measurement.latency.p50_ms)
            clocks.add(measurement.latency.clock)
    require(bool(samples), "comparing strategies needs measurements of requests with a latency")
    require(len(clocks) == 1, f"measurements must be of one clock, got {sorted(clocks)!r}")
    clock = clocks.pop()
    return latency_quantiles(
        {n: Latency.of(samples[n], clock=clock) for n in readings.ordered(samples)}
    )
