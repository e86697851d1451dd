"""Draw a bench: strategies over size, by regime and request by request; their memory."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph import facts, readings, tabular
from encgraph.errors import require
from encgraph.figures import memory, template, whiskers
from encgraph.readings import RegimeLatency
from encgraph.results import Measurement

_MOST_POINTS = 400


def latency_against_tokens(
    lines: Sequence[Measurement], *, strategies: Sequence[str] = ()
) -> go.Figure:
    """Time of each request over its tokens, one cloud a strategy.

    Args:
        lines: A bench.
        strategies: Which to draw, in this order; all on record by default.

    Raises:
        ValueError: If there are no requests, or a strategy is not on record.
    """
    found = readings.requests(lines)
    require(bool(found), "latency against tokens needs requests with a latency and a load")
    names = whiskers.on_record(strategies, found)
    clouds = [_cloud(name, found[name], place) for place, name in enumerate(names)]
    tokens = [m.load.tokens for m in found[names[0]] if m.load]
    drawn = template.figure(*clouds, x="tokens of the request", y="wall time of the request, ms")
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    times = [ms for cloud in clouds for ms in cloud.y]
    drawn.update_yaxes(template.log_values(min(times), max(times)))
    return drawn.update_layout(showlegend=True, height=420)


def _cloud(name: str, requests: Sequence[Measurement], place: int) -> go.Scatter:
    pairs = sorted((m.load.tokens, m.latency.p50_ms) for m in requests if m.load and m.latency)
    kept = pairs[:: -(-len(pairs) // _MOST_POINTS)]
    return go.Scatter(
        uid=template.uid(name),
        name=template.label(name),
        mode="markers",
        x=[tokens for tokens, _ in kept],
        y=[round(ms, 3) for _, ms in kept],
        marker={
            "color": template.colour(name, place),
            "symbol": ("circle", "x", "diamond", "square", "cross", "triangle-up")[place % 6],
            "size": 6,
            "opacity": 0.75,
        },
        hovertemplate="%{x:,} tokens, %{y:.2f} ms<extra>" + template.label(name) + "</extra>",
    )


def regimes_compared(lines: Sequence[Measurement], *, quantile: str = "mean") -> go.Figure:
    """One group of bars a size regime, one bar a strategy, whiskers over the choice of its requests.

    Args:
        lines: A bench.
        quantile: "mean", "p50", "p90", "p99" or "worst".

    Raises:
        ValueError: If no regime is on record, or the quantile is unknown.
    """
    found = readings.regimes(lines)
    require(bool(found), "comparing regimes needs the lines of at least one regime")
    names = readings.ordered(f.strategy for f in found)
    kept = readings.requests(lines)
    bars = []
    for place, name in enumerate(names):
        mine = [f for f in found if f.strategy == name]
        bars.append(
            go.Bar(
                uid=template.uid(name),
                name=template.label(name),
                x=[f"{f.label} tokens<br>({f.latency.samples:,} requests)" for f in mine],
                y=[whiskers.value(f.latency, quantile) for f in mine],
                error_y=whiskers.bars(
                    [whiskers.value(f.latency, quantile) for f in mine],
                    [whiskers.interval(_within(kept.get(name, ()), f), quantile) for f in mine],
                ),
                marker_color=template.colour(name, place),
                hovertemplate="%{x}: %{y:.2f} ms<extra>" + template.label(name) + "</extra>",
            )
        )
    drawn = template.figure(*bars, x="tokens a request", y=f"{quantile} wall time of a request, ms")
    drawn.update_yaxes(rangemode="tozero")
    return drawn.update_layout(barmode="group", showlegend=True, height=400)


def _within(requests: Sequence[Measurement], regime: RegimeLatency) -> list[Measurement]:
    most = regime.max_tokens or math.inf
    return [m for m in requests if m.load and regime.over_tokens < m.load.tokens <= most]


def speedups(lines: Sequence[Measurement], *, of: str, over: str) -> go.Figure:
    """Every request's time by one strategy over its time by another, sorted.

    Args:
        lines: A bench.
        of: The strategy in the denominator: above 1 it is the faster one.
        over: The strategy in the numerator.

    Raises:
        ValueError: If either is not on record.
    """
    found = readings.requests(lines)
    for name in (of, over):
        require(name in found, f"strategy must be one on record, {list(found)}, got {name!r}")
    base = {m.request: m.latency.p50_ms for m in found[over] if m.latency}
    ratios = sorted(base[m.request] / m.latency.p50_ms for m in found[of] if m.latency)
    shares = [(i + 1) / len(ratios) for i in range(len(ratios))]
    line = go.Scatter(
        uid="speedups",
        mode="lines",
        x=shares,
        y=ratios,
        line={"color": template.colour(of), "width": 2},
        hovertemplate="%{x:.0%} of requests gain at most %{y:.2f}<extra></extra>",
    )
    drawn = template.figure(
        line, x="share of requests, least gain first", y=f"{over} ÷ {of}, time ratio"
    )
    drawn.add_hline(y=1, line={"color": template.INK, "dash": "dash", "width": 1.5})
    median = facts.quantile(ratios, 0.5)
    drawn.add_annotation(
        x=0.02,
        y=1,
        xref="paper",
        yref="paper",
        text=f"median {median:.2f}{tabular.TIMES}",
        showarrow=False,
    )
    drawn.update_yaxes(rangemode="tozero").update_xaxes(range=[0, 1])
    return drawn.update_layout(showlegend=False, height=380)


def memory_by_strategy(lines: Sequence[Measurement]) -> go.Figure:
    """Slabs, pool and driver of every strategy that holds graphs, as measured.

    Raises:
        ValueError: If none does.
    """
    found = readings.summaries(lines)
    held = {name: m.memory for name, m in found.items() if m.memory is not None}
    return memory.memory_by_part(held)
