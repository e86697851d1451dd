"""Draw records: pure functions that return a plotly figure, and never show, write or recompute.

Every figure uses one template and one colour a route, reads on light and dark pages, and names each
trace by a stable `uid`.
"""

from encgraph.figures.benches import (
    latency_against_tokens,
    memory_by_strategy,
    regimes_compared,
    speedups,
)
from encgraph.figures.curves import bytes_by_capacity, floors, replay_cost, spread
from encgraph.figures.families import speedup_by_encoder
from encgraph.figures.ladders import ladder
from encgraph.figures.latency import (
    jitter,
    latency_by_route_and_size,
    latency_quantiles,
    speedup_by_size,
    strategies_compared,
)
from encgraph.figures.memory import memory_by_part, memory_taken_apart
from encgraph.figures.packings import bins_of_batch, budget_ruler
from encgraph.figures.predictions import predicted_against_measured
from encgraph.figures.ranks import burst_loads, gain_of_ranks, speedup_by_ranks
from encgraph.figures.replays import fallback_reasons, fill
from encgraph.figures.stages import capture_stages, first_token_stages
from encgraph.figures.template import sourced
from encgraph.figures.towers import kernels_by_kind
from encgraph.figures.tradeoffs import (
    break_even_map,
    latency_by_graphs,
    memory_by_graphs,
    optimality_gap,
    padding_by_graphs,
)
from encgraph.figures.traffic import traffic_histogram

__all__ = [
    "bins_of_batch",
    "break_even_map",
    "budget_ruler",
    "burst_loads",
    "bytes_by_capacity",
    "capture_stages",
    "fallback_reasons",
    "fill",
    "first_token_stages",
    "floors",
    "gain_of_ranks",
    "jitter",
    "kernels_by_kind",
    "ladder",
    "latency_against_tokens",
    "latency_by_graphs",
    "latency_by_route_and_size",
    "latency_quantiles",
    "memory_by_graphs",
    "memory_by_part",
    "memory_by_strategy",
    "memory_taken_apart",
    "optimality_gap",
    "padding_by_graphs",
    "predicted_against_measured",
    "regimes_compared",
    "replay_cost",
    "sourced",
    "speedup_by_encoder",
    "speedup_by_ranks",
    "speedup_by_size",
    "speedups",
    "spread",
    "strategies_compared",
    "traffic_histogram",
]
