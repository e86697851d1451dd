"""Simulate data parallel over recorded costs: idle ranks, distance to the lower bound, bytes gathered.

Each request is one burst, shared by a rule of `balance` and gathered before the next begins. A rank
takes what `rank_ms` predicts: by default an exact fit, so that only balance is judged; give the packed
replays of a plan and rounding up to budgets counts too. The gather's time is not part of it, its bytes
are.

The lower bound of a request is the larger of its slowest single item and its total work over the
ranks, work counted at the best rate the costs know: no assignment beats it.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from encgraph import balance
from encgraph.balance import RankMs, Rule
from encgraph.costs import Costs, Curve
from encgraph.errors import require
from encgraph.records import Item
from encgraph.results import Latency
from encgraph.sizes import EncoderSize

MAX_RANKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherBytes:
    """Bytes that cross between ranks in one gather, summed over all ranks."""

    padded_bytes: int
    """Every rank sends as many rows as the fullest has."""
    uneven_bytes: int
    """Every rank sends its own rows."""


def gather_bytes(rank_tokens: Sequence[int], token_bytes: int) -> GatherBytes:
    """What gathering these tokens moves: each rank's rows to each other rank.

    >>> gather_bytes([3, 1], 10)
    GatherBytes(padded_bytes=60, uneven_bytes=40)
    """
    others = len(rank_tokens) - 1
    fullest = max(rank_tokens, default=0)
    return GatherBytes(
        padded_bytes=others * len(rank_tokens) * fullest * token_bytes,
        uneven_bytes=others * sum(rank_tokens) * token_bytes,
    )


def token_bytes(size: EncoderSize) -> int:
    """Bytes of one token's outputs, all of them side by side, of 16 bits each."""
    return size.out * (1 + len(size.deepstack)) * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One request as the ranks would run it."""

    rank_ms: tuple[float, ...]
    """Predicted time of each rank; 0 for one without items."""
    bound_ms: float
    """No assignment's slowest rank is faster."""
    gather: GatherBytes

    @property
    def makespan_ms(self) -> float:
        """Time of the slowest rank."""
        return max(self.rank_ms)

    @property
    def idle_ratio(self) -> float:
        """Share of all ranks' time until the slowest is done that is spent waiting, 0 to 1."""
        busy = self.makespan_ms * len(self.rank_ms)
        return 1 - sum(self.rank_ms) / busy if busy else 0.0

    @property
    def over_bound_ratio(self) -> float:
        """Makespan over its lower bound, at least 1."""
        return self.makespan_ms / self.bound_ms if self.bound_ms else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What one rule gives on a number of ranks, over all requests."""

    rule: str
    ranks: int
    latency: Latency
    """Of the makespan, predicted, over requests."""
    one_rank_ms: float
    """Mean predicted time of a request on one rank."""
    idle_ratio: float
    """Waiting over all ranks' time, summed over requests, 0 to 1."""
    over_bound_ratio: float
    """Makespans over lower bounds, both summed over requests."""
    worst_over_bound_ratio: float
    """Of the worst request."""
    padded_bytes: int
    """Gathered in all, every rank padded to the fullest."""
    uneven_bytes: int
    """Gathered in all, no padding moved."""
    source: str
    """Where the costs come from."""

    @property
    def speedup(self) -> float:
        """Mean time on one rank over mean makespan."""
        return self.one_rank_ms / self.latency.mean_ms if self.latency.mean_ms else 1.0


def lower_bound_ms(
    items: Sequence[Item], ranks: int, *, costs: Costs, rank_ms: RankMs | None = None
) -> float:
    """Time under which no assignment of items to ranks can finish."""
    predict = rank_ms or partial(balance.exact_ms, costs=costs)
    alone = max((predict([item]) for item in items), default=0.0)
    work = sum(_least_ms(item, costs) for item in items)
    return max(alone, work / ranks)


def _least_ms(item: Item, costs: Costs) -> float:
    """The least an item can add to any replay or eager run, fixed costs left out."""
    replay = (_best_rate(costs.dense) + costs.patch_ms) * item.patches
    eager = _best_rate(costs.eager_dense) * item.patches
    square = min(costs.square_ms, costs.eager_square_ms) * item.square
    return min(replay, eager) + square + min(costs.item_ms, costs.eager_item_ms)


def _best_rate(curve: Curve) -> float:
    """Milliseconds a patch that the curve nowhere falls under, beyond its last point included."""
    rates = [ms / patches for patches, ms in zip(curve.patches, curve.ms, strict=True)]
    if len(curve.patches) > 1:
        span = curve.patches[-1] - curve.patches[-2]
        rates.append((curve.ms[-1] - curve.ms[-2]) / span)
    return min(rates)


def burst(
    items: Sequence[Item],
    ranks: int,
    *,
    rule: Rule,
    costs: Costs,
    token_bytes: int,
    rank_ms: RankMs | None = None,
) -> Burst:
    """Share one request by a rule and predict each rank."""
    predict = rank_ms or partial(balance.exact_ms, costs=costs)
    shared = rule(items, ranks)
    return Burst(
        rank_ms=tuple(predict([items[i] for i in mine]) for mine in shared.ranks),
        bound_ms=lower_bound_ms(items, ranks, costs=costs, rank_ms=predict),
        gather=gather_bytes(shared.tokens(items), token_bytes),
    )


def simulate(
    requests: Sequence[Sequence[Item]],
    ranks: int,
    *,
    size: EncoderSize,
    costs: Costs,
    rule: str = "longest_first",
    rank_ms: RankMs | None = None,
) -> Simulated:
    """Simulate requests, one burst each, on a number of ranks.

    Args:
        requests: At least one; a request may be empty.
        ranks: 1 to 64.
        size: The encoder, whose output is gathered.
        costs: Recorded or modelled; the result says which.
        rule: A name of `balance.RULES`.
        rank_ms: Predicts a rank's items, such as packed into a plan's graphs; exact fits if None.

    Returns:
        Times, idle share, distance to the lower bound, and bytes of both gathers.

    Raises:
        ValueError: If there is no request, no such rule, or ranks are out of range.
    """
    require(1 <= ranks <= MAX_RANKS, f"ranks must be within 1..{MAX_RANKS}, got {ranks!r}")
    require(bool(requests), "a simulation needs at least 1 request, got none")
    predict = rank_ms or partial(balance.exact_ms, costs=costs)
    chosen = balance.rule(rule, costs)
    moved = token_bytes(size)
    run = partial(burst, rule=chosen, costs=costs, token_bytes=moved, rank_ms=predict)
    bursts = [run(request, ranks) for request in requests]
    makespans = [one.makespan_ms for one in bursts]
    spent = ranks * sum(makespans)
    bound = sum(one.bound_ms for one in bursts)
    return Simulated(
        rule=rule,
        ranks=ranks,
        latency=Latency.of(makespans, clock="predicted"),
        one_rank_ms=statistics.fmean(predict(request) for request in requests),
        idle_ratio=1 - sum(sum(one.rank_ms) for one in bursts) / spent if spent else 0.0,
        over_bound_ratio=sum(makespans) / bound if bound else 1.0,
        worst_over_bound_ratio=max(one.over_bound_ratio for one in bursts),
        padded_bytes=sum(one.gather.padded_bytes for one in bursts),
        uneven_bytes=sum(one.gather.uneven_bytes for one in bursts),
        source=costs.source,
    )


def bursts_of(requests: Sequence[Sequence[Item]], items: int) -> tuple[tuple[Item, ...], ...]:
    """Regroup all items, in order, into bursts of this many; a shorter rest is left out.

    >>> tiny = [Item(tokens=n, patches=4 * n) for n in (1, 2, 3, 4, 5)]
    >>> [[item.tokens for item in one] for one in bursts_of([tiny[:3], tiny[3:]], 2)]
    [[1, 2], [3, 4]]
    """
    require(items >= 1, f"a burst must have at least 1 item, got {items!r}")
    every = [item for request in requests for item in request]
    whole = len(every) // items
    return tuple(tuple(every[i * items : (i + 1) * items]) for i in range(whole))
