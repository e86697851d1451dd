"""Draw what graphs give each encoder family: replay over eager for few items and for many."""

from collections.abc import Sequence

import plotly.graph_objects as go

from encgraph.errors import require
from encgraph.figures import template
from encgraph.results import Measurement

_SYMBOLS = ("circle", "diamond", "square", "x")
_COLOURS = ("#2A7AB8", "#E3A008", "#8E8E8E", "#CC79A7")


def speedup_by_encoder(lines: Sequence[Measurement]) -> go.Figure:
    """Eager time over replay time of each encoder, one mark a number of items; most gain on top.

    Args:
        lines: Of `benchmarks/encoder_table.py`.

    Raises:
        ValueError: If no encoder was timed.
    """
    ratios = {
        (m.encoder, int(m.numbers["items_count"])): m.numbers["speedup_ratio"]
        for m in lines
        if "speedup_ratio" in m.numbers
    }
    require(bool(ratios), "speedup by encoder needs an encoder that was timed")
    counts = sorted({count for _, count in ratios})
    gains = {name: ratios.get((name, counts[0]), 0.0) for name, _ in ratios}
    names = sorted(gains, key=lambda name: (-gains[name], name))
    clouds = [
        go.Scatter(
            uid=f"items-{count}",
            name=f"{count} item{'s' if count > 1 else ''}",
            mode="markers",
            x=[ratios[name, count] for name in names if (name, count) in ratios],
            y=[template.label(name) for name in names if (name, count) in ratios],
            marker={
                "color": _COLOURS[place % len(_COLOURS)],
                "symbol": _SYMBOLS[place % len(_SYMBOLS)],
                "size": 9,
            },
            hovertemplate="%{y}: %{x:.2f}<extra>" + f"{count} items" + "</extra>",
        )
        for place, count in enumerate(counts)
    ]
    drawn = template.figure(*clouds, x="eager time ÷ replay time, ratio", y="")
    drawn.add_vline(x=1, line={"color": template.INK, "dash": "dash", "width": 1.5}, layer="below")
    drawn.update_xaxes(template.log_values(min(ratios.values()), max(ratios.values())))
    drawn.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    return drawn.update_layout(showlegend=True, height=130 + 24 * len(names))
