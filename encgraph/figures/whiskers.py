"""What a bar of a bench shows, and its whisker: where it would lie for other choices of requests."""

from collections.abc import Mapping, Sequence

from encgraph import intervals
from encgraph.errors import require
from encgraph.figures import template
from encgraph.intervals import Interval
from encgraph.results import LEAST_OF_P99, Latency, Measurement

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
"""Quantiles by name; the mean and the worst are none."""


def value(latency: Latency, quantile: str) -> float:
    """The mean, a quantile or the worst of a latency, in ms, by name.

    Raises:
        ValueError: If the name is unknown.
    """
    values = {
        "mean": latency.mean_ms,
        "p50": latency.p50_ms,
        "p90": latency.p90_ms,
        "p99": latency.p99_ms,
        "worst": latency.worst_ms,
    }
    require(quantile in values, f"quantile must be one of {list(values)}, got {quantile!r}")
    return values[quantile]


def on_record(wanted: Sequence[str], found: Mapping[str, object]) -> list[str]:
    """The strategies wanted, or all on record.

    Raises:
        ValueError: If one is not on record.
    """
    missing = sorted(set(wanted) - set(found))
    require(not missing, f"strategies must be on record, {list(found)}, got {missing!r}")
    return list(wanted) or list(found)


def interval(requests: Sequence[Measurement], quantile: str) -> Interval | None:
    """Of what a bar shows; None for the worst, which no draw exceeds, or where requests are too few."""
    values = [m.latency.p50_ms for m in requests if m.latency]
    if quantile == "worst" or len(values) < fewest(quantile):
        return None
    share = SHARES.get(quantile)
    return intervals.mean(values) if share is None else intervals.quantile(values, share)


def fewest(quantile: str) -> int:
    """Requests without which a figure has no whisker."""
    return LEAST_OF_P99 if quantile == "p99" else 2


def bars(values: Sequence[float], spans: Sequence[Interval | None]) -> dict[str, object]:
    """Error bars of values, in plotly's words; none is drawn where there is no interval."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, s.high - v) if s else 0 for v, s in zip(values, spans, strict=True)],
        "arrayminus": [max(0.0, v - s.low) if s else 0 for v, s in zip(values, spans, strict=True)],
        "color": template.INK,
        "thickness": 1.2,
        "width": 3,
        "visible": any(spans),
    }
