"""Say in sentences what a plan is expected to give, with a range where few requests say it."""

from encgraph import intervals
from encgraph.budgets import Prediction
from encgraph.cli import planning
from encgraph.cli.planning import Planned
from encgraph.report.text import plural
from encgraph.results import Latency

LEAST_OF_RANGE = 10
"""Requests that a range is drawn from; of fewer it would be far too narrow."""


def expected(made: Planned) -> list[str]:
    """What to expect against the defaults and against graphs off, a sentence each."""
    under = "vLLM's packing" if made.engine == "vllm" else "encgraph's packing"
    if made.engine == "vllm" and made.doubling is None:
        under += " (vLLM itself has no graphs for this encoder)"
    what = "budgets so fitted, on a part of the requests," if made.is_refitted else "this plan"
    if made.plan.reasons == (planning.GRAPHS_OFF,):
        return [f"expected: {planning.GRAPHS_OFF}; raise it to have budgets planned"]
    if not made.plan.graphs:
        return [f"expected: leave graphs off; no plan within the limits beats eager under {under}"]
    mine, plain = made.prediction, made.body == "plain"
    others = [(made.eager, "leaving graphs off" + ("" if plain else f" ({made.body} block)"))]
    if made.doubling:
        others.insert(0, (made.doubling, "vLLM's defaults" + ("" if plain else " (plain block)")))
    said = [
        f"expected under {under}: {what} against {name}: mean {_mean(mine, other)}, "
        f"{_tail(mine.latency, other.latency)}"
        f"worst {_change(mine.latency.worst_ms, other.latency.worst_ms)}"
        for other, name in others
    ]
    if made.quick:
        said[-1] += f"; on a quick host mean {_mean(made.quick.plan, made.quick.eager)}"
    return said


def of_few(made: Planned) -> list[str]:
    """How far figures of few requests would move, in a sentence; none where there are enough."""
    latency, each = made.prediction.latency, made.prediction.by_request_ms
    if latency.tail_ms is not None:
        return []
    mover = "another --seed" if made.is_split else "other requests"
    said = f"figures are of {plural(latency.samples, 'request')}; {mover} would move them: "
    if not _has_range(made.prediction):
        return [f"{said}too few to say how far"]
    span = intervals.mean(each)
    return [
        f"{said}the plan's mean is {span.value:.2f} ms ({span.low:.2f} to {span.high:.2f}); ranges are "
        f"{intervals.LEVEL:.0%} intervals over the choice of requests, under the same budgets"
    ]


def slower(made: Planned) -> list[str]:
    """That a plan fitted to requests is slower on others than vLLM's defaults, and what to do."""
    mine, theirs = made.prediction, made.doubling
    if made.flags or not made.plan.graphs or made.method != "fitted" or theirs is None:
        return []
    if mine.latency.mean_ms <= theirs.latency.mean_ms:
        return []
    return [
        "this plan is predicted to be slower than vLLM's defaults on requests that it was not "
        "fitted on; more requests to fit on or fewer limits may help, or --method doubling"
    ]


def _tail(mine: Latency, other: Latency) -> str:
    return "" if mine.tail_ms is None else f"p99 {_change(mine.p99_ms, other.p99_ms)}, "


def _has_range(prediction: Prediction) -> bool:
    return len(prediction.by_request_ms) >= LEAST_OF_RANGE


def _mean(mine: Prediction, other: Prediction) -> str:
    """How many times faster in the mean, with its range where single requests were kept."""
    if not _has_range(mine):
        return _change(mine.mean_ms, other.mean_ms)
    span = intervals.ratio(other.by_request_ms, mine.by_request_ms)
    return _change(mine.mean_ms, other.mean_ms, f"{span.low:.2f} to {span.high:.2f}")


def _change(mine: float, other: float, within: str = "") -> str:
    """How many times faster, or slower.

    >>> _change(1.0, 2.0), _change(2.0, 1.0)
    ('2.00x as fast', '0.50x as fast (slower)')
    >>> _change(2.0, 1.0, "0.40 to 0.60")
    '0.50x as fast (slower; 0.40 to 0.60)'
    """
    factor = other / mine
    remarks = "; ".join([*(["slower"] if factor < 0.995 else []), *([within] if within else [])])
    return f"{factor:.2f}x as fast" + (f" ({remarks})" if remarks else "")
