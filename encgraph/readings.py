"""Read what a bench or a curve recorded: summaries, size regimes and requests, and a line on the source.

A bench file holds lines of several kinds; see `bench`. These functions sort them out for figures and
notebooks, without torch, and take whatever strategies are on record.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from encgraph import cards, curves
from encgraph.errors import require
from encgraph.regimes import Regime
from encgraph.results import Latency, Measurement
from encgraph.strategies import STRATEGIES

NAMED_ENCODERS = 3
"""Encoders that a source names; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeLatency:
    """One strategy's latency over the requests of one size regime."""

    strategy: str
    over_tokens: int
    max_tokens: int | None
    """None for the open regime."""
    latency: Latency

    @property
    def label(self) -> str:
        """The range of tokens in words of an axis."""
        return Regime(over_tokens=self.over_tokens, max_tokens=self.max_tokens, times=()).label


def ordered(names: Iterable[str]) -> list[str]:
    """Strategies from stock eager to ours; another system after the one its name begins with.

    >>> ordered(["encgraph", "vllm_manager", "eager", "vllm"])
    ['eager', 'vllm', 'vllm_manager', 'encgraph']
    """
    return sorted(set(names), key=lambda name: (_rank(name), name))


def _rank(name: str) -> int:
    known = list(STRATEGIES)
    if name in known:
        return known.index(name)
    near = [known.index(k) for k in known if name.startswith(f"{k}_")]
    return max(near, default=len(known))


def summaries(lines: Sequence[Measurement]) -> Mapping[str, Measurement]:
    """The line of each strategy that speaks of all requests, in the order of `ordered`.

    Raises:
        ValueError: If the lines are of more than one run.
    """
    whole = [m for m in lines if m.request is None and "repeats_count" in m.numbers]
    found = {m.strategy: m for m in whole}
    _require_one_run(len(whole) == len(found))
    return {name: found[name] for name in ordered(found)}


def _require_one_run(is_one: bool) -> None:
    require(
        is_one,
        "measurements must be of one run, got lines of several; their times were not interleaved, "
        "so read each by itself",
    )


def regimes(lines: Sequence[Measurement]) -> tuple[RegimeLatency, ...]:
    """Latency by strategy and size regime, strategies in the order of `ordered`.

    Raises:
        ValueError: If the lines are of more than one run.
    """
    found = [
        RegimeLatency(
            strategy=m.strategy,
            over_tokens=int(m.numbers["over_tokens"]),
            max_tokens=int(m.numbers["max_tokens"]) or None,
            latency=m.latency,
        )
        for m in lines
        if m.latency is not None and "over_tokens" in m.numbers
    ]
    _require_one_run(len(found) == len({(f.strategy, f.over_tokens) for f in found}))
    rank = {name: place for place, name in enumerate(ordered(f.strategy for f in found))}
    return tuple(sorted(found, key=lambda f: (rank[f.strategy], f.over_tokens)))


def requests(lines: Sequence[Measurement]) -> Mapping[str, tuple[Measurement, ...]]:
    """Each strategy's requests, in their order.

    Raises:
        ValueError: If the lines are of more than one run.
    """
    found: dict[str, list[Measurement]] = {}
    for m in lines:
        if m.request is not None and m.latency is not None and m.load is not None:
            found.setdefault(m.strategy, []).append(m)
    _require_one_run(all(len(ms) == len({m.request for m in ms}) for ms in found.values()))
    return {n: tuple(sorted(found[n], key=lambda m: m.request or 0)) for n in ordered(found)}


def preferred(points: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """The points of a curve's fastest attention with a plain body: those that prices come from."""
    names = [k.attention for k in curves.recorded(points) if not k.compiled]
    if not names:
        return ()
    chosen = next((name for name in cards.PREFERRED if name in names), names[0])
    return tuple(m for m in points if m.attention == chosen and not m.compiled)


def mean_speedup(lines: Sequence[Measurement], *, of: str, over: str) -> float:
    """Mean of one strategy over the mean of another: how many times as fast `of` is.

    Raises:
        ValueError: If either is not on record.
    """
    found = summaries(lines)
    for name in (of, over):
        require(name in found, f"strategy must be one on record, {list(found)}, got {name!r}")
    return _mean_ms(found[over]) / _mean_ms(found[of])


def _mean_ms(measurement: Measurement) -> float:
    latency = measurement.latency
    return latency.mean_ms if latency else math.nan


def source(lines: Sequence[Measurement]) -> str:
    """Where measurements come from, in one sentence: encoders, card, versions, dates, commit, counts.

    The commit is there where all are of one; a plus after it says that not all was committed.

    Raises:
        ValueError: If there are none.
    """
    require(bool(lines), "a source needs at least one measurement")
    where, days = lines[0].environment, [m.environment.utc[:10] for m in lines]
    encoders = list(dict.fromkeys(m.encoder for m in lines))
    named = ", ".join(encoders) if len(encoders) <= NAMED_ENCODERS else f"{len(encoders)} encoders"
    parts = [where.gpu or where.cpu]
    parts += [f"driver {where.driver}"] if where.driver else []
    parts += [f"torch {where.torch}", where.dtype, _between(days)]
    commits = {m.environment.commit for m in lines}
    parts += [f"commit {where.commit}"] if commits == {where.commit} and where.commit else []
    return f"{named} on {', '.join(parts)}; {_counts(lines)}"


def _counts(lines: Sequence[Measurement]) -> str:
    batches = {"ranks_count", "concurrency_count"}
    means = [m.latency.samples for m in lines if m.latency and batches & m.numbers.keys()]
    if means:
        return f"{len(means)} points, means over {_between(means)} batches"
    whole = summaries(lines)
    if whole:
        line = next(iter(whole.values()))
        count = line.latency.samples if line.latency else 0
        repeats = int(line.numbers["repeats_count"])
        of = f" of {line.traffic}" if line.traffic else ""
        return f"{count} requests{of}, each the median of {repeats}, interleaved"
    samples = [m.latency.samples for m in lines if m.latency]
    if not samples:
        return f"{len(lines)} captures"
    return f"{len(samples)} points, medians of {_between(samples)} runs"


def _between(values: Sequence[str] | Sequence[int]) -> str:
    """The least and the most of them, or the one that all are."""
    least, most = min(values), max(values)
    return f"{least}" if least == most else f"{least} to {most}"
