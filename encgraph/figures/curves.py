"""Draw a recorded curve: what a replay costs by what is in it, how steady it is, what bytes it took."""

from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph import tabular
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.figures import template
from encgraph.records import Route
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize


def replay_cost(points: Sequence[Measurement], costs: Costs) -> go.Figure:
    """Recorded replays over captured tokens: empty, full of many items, full of one; eager beside.

    A vertical pair of points at one budget is what the live load adds; the line below is what the
    fit says an empty replay costs whatever is in it.

    Args:
        points: A curve of one attention.
        costs: The model fitted to it.

    Raises:
        ValueError: If there are no replays.
    """
    replays = [m for m in points if m.route is Route.REPLAY and not m.numbers and m.latency]
    require(bool(replays), "replay cost needs recorded replays")
    groups: dict[str, list[Measurement]] = {"nearly empty": [], "full, one item": []}
    groups["full, 4 or more items"] = []
    for m in replays:
        assert m.load and m.capacity
        full = m.load.tokens >= 0.9 * m.capacity.tokens
        one = "full, one item" if m.load.items == 1 else "full, 4 or more items"
        groups[one if full else "nearly empty"].append(m)
    symbols = ("circle-open", "square", "circle")
    clouds = [
        _points(name, mine, symbol, Route.REPLAY)
        for symbol, (name, mine) in zip(symbols, groups.items(), strict=True)
        if mine
    ]
    eager = [m for m in points if m.route is Route.EAGER]
    lines = [_empty(replays, costs)]
    if eager:
        clouds.append(_points("eager", eager, "x", Route.EAGER))
    drawn = template.figure(*lines, *clouds, x="captured tokens (eager: real tokens)", y="time, ms")
    tokens = [m.capacity.tokens for m in replays if m.capacity]
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    times = [ms for trace in drawn.data for ms in trace.y]
    drawn.update_yaxes(template.log_values(min(times), max(times)))
    return drawn.update_layout(showlegend=True, height=440)


def _points(name: str, mine: Sequence[Measurement], symbol: str, route: Route) -> go.Scatter:
    return go.Scatter(
        uid=template.uid(name),
        name=name,
        mode="markers",
        x=[m.capacity.tokens if m.capacity else m.load.tokens for m in mine if m.load],
        y=[m.latency.p50_ms for m in mine if m.latency],
        customdata=[[m.load.tokens, m.load.items] for m in mine if m.load],
        marker={"color": template.ROUTE_COLOURS[route], "symbol": symbol, "size": 8},
        hovertemplate="%{y:.2f} ms for %{customdata[0]:,} tokens in %{customdata[1]} items"
        f"<extra>{name}</extra>",
    )


def _empty(replays: Sequence[Measurement], costs: Costs) -> go.Scatter:
    graphs = sorted({m.capacity for m in replays if m.capacity})
    return go.Scatter(
        uid="empty",
        name="fitted: whatever is in it",
        mode="lines",
        x=[graph.tokens for graph in graphs],
        y=[round(costs.capacity_ms(graph), 6) for graph in graphs],
        line={"color": template.ROUTE_COLOURS[Route.REPLAY], "width": 1.5, "dash": "dot"},
        hovertemplate="%{x:,} tokens: %{y:.2f} ms<extra>fitted</extra>",
    )


def spread(points: Sequence[Measurement]) -> go.Figure:
    """How far repeated runs of one load scatter, p90 over p10, by route.

    Raises:
        ValueError: If no point has a latency.
    """
    clouds = []
    for route in (Route.REPLAY, Route.EAGER):
        mine = [m for m in points if m.route is route and m.latency and m.load and not m.numbers]
        if mine:
            clouds.append(_spread(route, mine))
    require(bool(clouds), "spread needs points with a latency")
    drawn = template.figure(*clouds, x="real tokens", y="p90 ÷ p10 of repeated runs, ratio")
    tokens = [t for cloud in clouds for t in cloud.x]
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def _spread(route: Route, mine: Sequence[Measurement]) -> go.Scatter:
    clock = {Route.REPLAY: "replay, on the card's clock", Route.EAGER: "eager, on the host's clock"}
    return go.Scatter(
        uid=route.value,
        name=clock[route],
        mode="markers",
        x=[m.load.tokens for m in mine if m.load],
        y=[m.latency.p90_ms / m.latency.p10_ms for m in mine if m.latency],
        marker={
            "color": template.ROUTE_COLOURS[route],
            "symbol": template.ROUTE_SYMBOLS[route],
            "size": 7,
        },
        hovertemplate="%{x:,} tokens: %{y:.2f}<extra>" + route.value + "</extra>",
    )


def bytes_by_capacity(points: Sequence[Measurement], costs: Costs) -> go.Figure:
    """Measured slab and pool bytes of single captures over their tokens, with the predicted lines.

    Args:
        points: A curve of one attention.
        costs: The model fitted to it.

    Raises:
        ValueError: If there are no captures with memory.
    """
    captures = [m for m in points if m.route is Route.CAPTURE and m.memory and m.capacity]
    require(bool(captures), "bytes by capacity need captures with memory")
    found = {m.capacity.tokens: m for m in captures if m.capacity}
    tokens = sorted(found)
    patches = [found[t].capacity.patches for t in tokens]  # type: ignore[union-attr]
    rates = {"slabs": float(costs.row_bytes), "pool": costs.pool_bytes_per_patch}
    measured = {
        "slabs": [found[t].memory.slabs_bytes for t in tokens],  # type: ignore[union-attr]
        "pool": [found[t].memory.pool_bytes for t in tokens],  # type: ignore[union-attr]
    }
    traces = []
    for part, rate in rates.items():
        colour = template.PART_COLOURS[part]
        symbol = "circle" if part == "pool" else "square"
        traces.append(
            go.Scatter(
                uid=f"{part}-measured",
                name=f"{part}, measured",
                mode="markers",
                x=tokens,
                y=[b / tabular.MIB for b in measured[part]],
                marker={"color": colour, "symbol": symbol, "size": 8},
            )
        )
        traces.append(
            go.Scatter(
                uid=f"{part}-predicted",
                name=f"{part}, predicted",
                mode="lines",
                x=tokens,
                y=[rate * p / tabular.MIB for p in patches],
                line={"color": colour, "dash": "dot", "width": 1.5},
            )
        )
    drawn = template.figure(*traces, x="captured tokens", y="device memory of one graph, MiB")
    drawn.update_xaxes(template.log_tokens(min(tokens), max(tokens)))
    mib = [value for trace in traces for value in trace.y if value > 0]
    drawn.update_yaxes(template.log_values(min(mib), max(mib)))
    return drawn.update_layout(showlegend=True, height=400)


def floors(sizes_and_costs: Sequence[tuple[EncoderSize, Costs]]) -> go.Figure:
    """Empty-replay cost over captured patches for several encoders, with eager's floor of each.

    Raises:
        ValueError: If there are none.
    """
    require(bool(sizes_and_costs), "floors need at least one encoder")
    traces = []
    for place, (size, costs) in enumerate(sizes_and_costs):
        colour = template.colour(size.name, place)
        tokens = [p // size.rule.merge_area for p in costs.dense.patches]
        for name, ms, dash in (
            ("replay", list(costs.dense.ms), "solid"),
            ("mean floor of eager", [costs.eager_floor_ms] * len(tokens), "dot"),
        ):
            traces.append(
                go.Scatter(
                    uid=template.uid(f"{size.name} {name}"),
                    name=f"{template.label(size.name)}, {name}",
                    mode="lines",
                    x=tokens,
                    y=[round(value, 6) for value in ms],
                    line={"color": colour, "dash": dash, "width": 2},
                )
            )
    drawn = template.figure(*traces, x="captured tokens", y="time, ms")
    drawn.update_xaxes(template.log_tokens(min(traces[0].x), max(traces[0].x)))
    times = [ms for trace in traces for ms in trace.y]
    drawn.update_yaxes(template.log_values(min(times), max(times)))
    return drawn.update_layout(showlegend=True, height=420)
