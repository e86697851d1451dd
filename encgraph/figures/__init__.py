"""Draw records: pure functions that return a plotly figure, and never show, write or recompute.

Every figure uses one template and one colour a route, reads on light and dark pages, and names each
trace by a stable `uid`.
"""

from encgraph.figures.latency import (
    jitter,
    latency_by_route_and_size,
    latency_quantiles,
    speedup_by_size,
    strategies_compared,
)
from encgraph.figures.memory import memory_by_part
from encgraph.figures.replays import fallback_reasons, fill
from encgraph.figures.traffic import budgets_over_traffic, traffic_histogram

__all__ = [
    "budgets_over_traffic",
    "fallback_reasons",
    "fill",
    "jitter",
    "latency_by_route_and_size",
    "latency_quantiles",
    "memory_by_part",
    "speedup_by_size",
    "strategies_compared",
    "traffic_histogram",
]
