"""Draw what a time is made of: a first token by the stages before it, a capture by what prepares it."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.results import Measurement

WAYS = ("eager", "eager_same_body", "encoder_graphs", "all_graphs", "cache_warm")
"""Ways of running a model, in the order of the ideas."""
FIRST_TOKEN_STAGES = {
    "preprocessing": "preprocessing_ms",
    "encoder": "encode_ms",
    "scatter": "scatter_ms",
    "prefill": "prefill_ms",
}
CAPTURE_STAGES = {"building the encoder": "build_s", "capturing its graphs": "capture_s"}
_COLOURS = ("#8C8C8C", "#2A7AB8", "#E3A008", "#7DB5DE")


def first_token_stages(lines: Sequence[Measurement]) -> go.Figure:
    """Stack the stages of a first token, a bar a way of running the model and number of requests at once.

    Bars are drawn over the first token of `eager` with as many requests at once, since batches of more
    requests take longer; beside each stand its milliseconds.

    Args:
        lines: Of `benchmarks/time_to_first_token.py` or `encgraph answer`.

    Raises:
        ValueError: If there are no first tokens, or none of `eager`.
    """
    found = {
        (int(m.numbers["concurrency_count"]), m.strategy): m
        for m in lines
        if m.request is None and "concurrency_count" in m.numbers and m.strategy in WAYS
    }
    require(bool(found), "stages of a first token need the summary of at least one way")
    rows = sorted(found, key=lambda key: (key[0], WAYS.index(key[1])))
    missing = sorted({count for count, _ in rows} - {c for c, way in rows if way == WAYS[0]})
    require(not missing, f"first tokens are drawn over {WAYS[0]!r}; it lacks {missing!r} at once")
    names = [f"{template.label(way)}, {count:,} at once" for count, way in rows]
    eager = [_sum(found[count, WAYS[0]], FIRST_TOKEN_STAGES) for count, _ in rows]
    told = [f"{_sum(found[row], FIRST_TOKEN_STAGES):,.0f} ms" for row in rows]
    drawn = _stacked([found[row] for row in rows], FIRST_TOKEN_STAGES, names, eager, told)
    axis = "mean time to first token ÷<br>that of eager with as many at once, ratio"
    return drawn.update_xaxes(title_text=axis)


def capture_stages(lines: Sequence[Measurement]) -> go.Figure:
    """Stack what a new process takes until its graphs are there, with empty compile caches and warm ones.

    Args:
        lines: Of `benchmarks/capture_time.py`.

    Raises:
        ValueError: If no capture with its caches is among them.
    """
    found = [m for m in lines if "warm_cache_count" in m.numbers]
    require(bool(found), "stages of a capture need a capture that says how its caches were")
    found.sort(key=lambda m: (m.compiled, m.fused, m.strategy, m.numbers["warm_cache_count"]))
    names = [
        f"{template.label(m.strategy)}, {m.numbers['graphs_count']:.0f} graphs<br>"
        f"{'warm' if m.numbers['warm_cache_count'] else 'empty'} caches"
        for m in found
    ]
    told = [f"{_sum(m, CAPTURE_STAGES):.1f} s" for m in found]
    drawn = _stacked(found, CAPTURE_STAGES, names, [1.0] * len(found), told)
    return drawn.update_xaxes(title_text="time until all graphs are captured, s")


def _sum(line: Measurement, stages: Mapping[str, str]) -> float:
    return sum(line.numbers[key] for key in stages.values())


def _stacked(
    found: Sequence[Measurement],
    stages: Mapping[str, str],
    names: Sequence[str],
    over: Sequence[float],
    told: Sequence[str],
) -> go.Figure:
    """A bar a line, its stages over a value of its own, and what is told of it on its right."""
    bars = [
        go.Bar(
            uid=template.uid(stage),
            name=stage,
            orientation="h",
            y=list(names),
            x=[round(m.numbers[key] / of, 6) for m, of in zip(found, over, strict=True)],
            customdata=[m.numbers[key] for m in found],
            marker_color=colour,
            hovertemplate=f"{stage} %{{customdata:.1f}} {key.rpartition('_')[2]}<extra></extra>",
        )
        for (stage, key), colour in zip(stages.items(), _COLOURS[-len(stages) :], strict=True)
    ]
    text = go.Scatter(
        uid="told",
        mode="text",
        x=[sum(bar.x[place] for bar in bars) for place in range(len(found))],
        y=list(names),
        text=[f" {one}" for one in told],
        textposition="middle right",
        textfont={"size": 11},
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    drawn = template.figure(*bars, text, x="", y="")
    drawn.update_xaxes(rangemode="tozero").update_yaxes(autorange="reversed")
    height = 150 + 30 * len(found)
    return drawn.update_layout(barmode="stack", showlegend=True, height=height, margin={"r": 56})
