"""Draw data parallel: speed over ranks, simulated and measured, and the loads of one burst."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from encgraph import readings
from encgraph.errors import require
from encgraph.figures import template
from encgraph.results import Measurement
from encgraph.sharding import Burst, Simulated

_COLOURS = ("#2A7AB8", "#E3A008", "#009E73", "#CC79A7", "#8E8E8E", "#6A51A3")
_SYMBOLS = ("circle", "diamond", "square", "x", "cross", "triangle-up")


def speedup_by_ranks(simulated: Sequence[Simulated]) -> go.Figure:
    """Mean time on one rank over the mean makespan, one line a balance rule; dashed is ideal.

    Raises:
        ValueError: If nothing was simulated.
    """
    require(bool(simulated), "speedup by ranks needs at least one simulation")
    rules = list(dict.fromkeys(s.rule for s in simulated))
    counts = sorted({s.ranks for s in simulated})
    ideal = go.Scatter(
        uid="ideal",
        name="ideal",
        mode="lines",
        x=counts,
        y=counts,
        line={"color": template.INK, "dash": "dash", "width": 1.5},
    )
    lines = [
        go.Scatter(
            uid=template.uid(rule),
            name=template.label(rule),
            mode="lines+markers",
            x=[s.ranks for s in simulated if s.rule == rule],
            y=[round(s.speedup, 6) for s in simulated if s.rule == rule],
            # rules often agree: the ones drawn first are wider, so that they show below
            line={"color": template.colour(rule, place), "width": max(2, 4 - place)},
            marker={"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": max(7, 11 - 2 * place)},
            hovertemplate="%{x} ranks: %{y:.2f}<extra>" + template.label(rule) + "</extra>",
        )
        for place, rule in enumerate(rules)
    ]
    drawn = template.figure(ideal, *lines, x="ranks", y="time on one rank ÷ makespan, ratio")
    drawn.update_xaxes(tickvals=counts)
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True)


def burst_loads(bursts: Mapping[str, Burst]) -> go.Figure:
    """Predicted time of each rank for one burst, by rule; the dotted line is the lower bound.

    Raises:
        ValueError: If there are none.
    """
    require(bool(bursts), "burst loads need at least one burst")
    ranks = len(next(iter(bursts.values())).rank_ms)
    bars = [
        go.Bar(
            uid=f"rank-{rank}",
            name=f"rank {rank}",
            x=[template.label(rule) for rule in bursts],
            y=[round(burst.rank_ms[rank], 6) for burst in bursts.values()],
            marker_color=template.PART_COLOURS[("slabs", "pool", "driver")[rank % 3]],
        )
        for rank in range(ranks)
    ]
    drawn = template.figure(*bars, x="balance rule", y="predicted time of a rank, ms")
    drawn.add_hline(
        y=max(burst.bound_ms for burst in bursts.values()),
        line={"color": template.INK, "dash": "dot", "width": 1.5},
        annotation_text="lower bound",
    )
    drawn.update_yaxes(rangemode="tozero")
    return drawn.update_layout(barmode="group", showlegend=True)


def gain_of_ranks(lines: Sequence[Measurement]) -> go.Figure:
    """Measured time of a burst on one card over that on several, by its items; dotted is what was predicted.

    Measured are whole bursts, gather included; predicted is the encoder alone, where costs are on record.

    Args:
        lines: Of `benchmarks/data_parallel.py`.

    Raises:
        ValueError: If no strategy is there on one card and on several.
    """
    alone = {(m.traffic, _strategy(m)): m for m in lines if m.numbers.get("ranks_count") == 1}
    pairs = [
        (alone[m.traffic, _strategy(m)], m)
        for m in lines
        if m.numbers.get("ranks_count", 1) > 1 and (m.traffic, _strategy(m)) in alone
    ]
    require(bool(pairs), "a gain of ranks needs a strategy on one card and on several")
    looks = _looks(several.strategy for _, several in pairs)
    traces = [
        trace
        for way, look in looks.items()
        for trace in _gains([pair for pair in pairs if pair[1].strategy == way], look)
    ]
    counts = sorted({_items(several) for _, several in pairs})
    ranks = sorted({int(several.numbers["ranks_count"]) for _, several in pairs})
    axis = f"time on one card ÷ on {' or '.join(map(str, ranks))}, ratio"
    drawn = template.figure(*traces, x="items of a burst", y=axis)
    drawn.add_hline(y=1, line={"color": template.INK, "dash": "dash", "width": 1.5})
    drawn.update_xaxes(type="log", tickvals=counts, ticktext=[f"{n:,.0f}" for n in counts])
    return drawn.update_yaxes(rangemode="tozero").update_layout(showlegend=True, height=380)


def _strategy(line: Measurement) -> str:
    """What runs on each rank, without how the ranks share."""
    return line.strategy.partition("/")[0]


def _items(line: Measurement) -> float:
    return line.numbers["burst_items_count"]


@dataclass(frozen=True, slots=True)
class _Look:
    name: str
    colour: str
    symbol: str


def _looks(strategies: Iterable[str]) -> dict[str, _Look]:
    """A colour and symbol a strategy; where one is shared in several ways, a colour a rule, a symbol a gather."""
    every = sorted(set(strategies))
    names = readings.ordered(way.partition("/")[0] for way in every)
    ways = sorted(every, key=lambda way: names.index(way.partition("/")[0]))
    if len(ways) == len(names):
        return {
            way: _Look(name, template.colour(name, place), _SYMBOLS[place % len(_SYMBOLS)])
            for place, (way, name) in enumerate(zip(ways, names, strict=True))
        }
    found = {}
    rules = list(dict.fromkeys(way.rpartition("/")[0] for way in ways))
    gathers = list(dict.fromkeys(way.rpartition("/")[2] for way in ways))
    for way in ways:
        rule, _, gather = way.rpartition("/")
        colour = _COLOURS[rules.index(rule) % len(_COLOURS)]
        symbol = _SYMBOLS[gathers.index(gather) % len(_SYMBOLS)]
        found[way] = _Look(f"{rule.rpartition('/')[2]}, {gather}", colour, symbol)
    return found


def _gains(pairs: Sequence[tuple[Measurement, Measurement]], look: _Look) -> list[go.Scatter]:
    """What was measured of one way of sharing, and what was predicted."""
    key = "predicted_encode_mean_ms"
    measured, predicted = {}, {}
    for one, several in sorted(pairs, key=lambda pair: _items(pair[1])):
        if one.latency and several.latency:
            measured[_items(several)] = one.latency.mean_ms / several.latency.mean_ms
        if key in one.numbers and key in several.numbers:
            predicted[_items(several)] = one.numbers[key] / several.numbers[key]
    name = template.label(look.name)
    return [
        go.Scatter(
            uid=template.uid(f"{look.name} {about}"),
            name=name,
            showlegend=about == "measured",
            mode="lines+markers",
            x=list(gains),
            y=[round(gain, 6) for gain in gains.values()],
            line={"color": look.colour, "width": 2 if dash == "solid" else 1.2, "dash": dash},
            marker={"symbol": symbol, "size": 8},
            hovertemplate=f"%{{x}} items: %{{y:.2f}} {about}<extra>{name}</extra>",
        )
        for about, dash, symbol, gains in (
            ("measured", "solid", look.symbol, measured),
            ("predicted", "dot", "line-ew-open", predicted),
        )
        if gains
    ]
