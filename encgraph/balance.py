"""Share a batch among ranks: balance rules, without torch.

A rule maps items and a number of ranks to an `Assignment`. Every rule is deterministic, so ranks that
hold the same sizes reach the same assignment without a word between them.

`longest_first` weighs an item by its predicted time, so one giant counts for its quadratic attention
too; `tokens` and `patches` weigh by sizes alone (`patches` is vLLM's rule); `count` and `round_robin`
do not weigh at all.

None of them looks at the budgets a rank will round up to: moving and swapping items by predicted
replays was tried on recorded costs, gained under 0.5 % over `longest_first` and took the host longer.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from encgraph.costs import Costs, Curve
from encgraph.errors import require
from encgraph.records import Item, Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Which rank encodes which item; each index of the batch occurs once."""

    rule: str
    ranks: tuple[tuple[int, ...], ...]
    """For each rank its indices into the batch, ascending; a rank may have none."""

    def __post_init__(self) -> None:
        require(bool(self.ranks), "an assignment needs at least 1 rank, got none")
        indices = sorted(index for mine in self.ranks for index in mine)
        require(
            indices == list(range(len(indices))),
            f"an assignment must hold each item once, got {self.ranks!r}",
        )

    @classmethod
    def of(cls, rule: str, owners: Sequence[int], ranks: int) -> Self:
        """From the rank of each item."""
        mine: list[list[int]] = [[] for _ in range(ranks)]
        for index, owner in enumerate(owners):
            mine[owner].append(index)
        return cls(rule=rule, ranks=tuple(tuple(indices) for indices in mine))

    @property
    def owners(self) -> tuple[int, ...]:
        """Rank of each item."""
        found = {index: rank for rank, mine in enumerate(self.ranks) for index in mine}
        return tuple(found[index] for index in range(len(found)))

    def tokens(self, items: Sequence[Item]) -> tuple[int, ...]:
        """Output tokens of each rank."""
        return tuple(sum(items[index].tokens for index in mine) for mine in self.ranks)


Rule = Callable[[Sequence[Item], int], Assignment]
"""Shares items among ranks; made by `rule`."""
RankMs = Callable[[Sequence[Item]], float]
"""Predicted milliseconds of one rank's items, 0 for none."""


def price_ms(item: Item, costs: Costs) -> float:
    """What one more item adds to a rank: linear in patches, quadratic in segments, once an item."""
    dense = _slope(costs.dense)
    return dense * item.patches + costs.load_ms(Load().plus(item))


def _slope(curve: Curve) -> float:
    """Milliseconds a patch between the curve's ends; 0 for a single point."""
    span = curve.patches[-1] - curve.patches[0]
    return (curve.ms[-1] - curve.ms[0]) / span if span else 0.0


def exact_ms(items: Sequence[Item], costs: Costs) -> float:
    """Predicted time of items in one replay that fits them exactly, or eager where that is faster."""
    if not items:
        return 0.0
    load = Load.of(items)
    replay = costs.step_ms + costs.dense.at(load.patches) + costs.load_ms(load)
    return costs.request_ms + min(replay, costs.eager_ms(load))


def by_weight(
    items: Sequence[Item], ranks: int, weights: Sequence[float], *, name: str
) -> Assignment:
    """Give the heaviest item left to the least loaded rank; ties go to the first item and rank.

    Args:
        items: N items.
        ranks: At least 1.
        weights: One an item; the slowest rank is within 4/3 of the best possible in these.
        name: Of the rule, kept in the assignment.

    Source:
        R. L. Graham, Bounds on multiprocessing timing anomalies, 1969.

    >>> items = [Item(tokens=n, patches=4 * n) for n in (5, 9, 4)]
    >>> by_weight(items, 2, [5, 9, 4], name="tokens").ranks
    ((1,), (0, 2))
    """
    require(ranks >= 1, f"ranks must be at least 1, got {ranks!r}")
    owners = [0] * len(items)
    loads = [(0.0, rank) for rank in range(ranks)]
    for index in sorted(range(len(items)), key=lambda i: (-weights[i], i)):
        load, owners[index] = loads[0]
        heapq.heapreplace(loads, (load + weights[index], owners[index]))
    return Assignment.of(name, owners, ranks)


def longest_first(items: Sequence[Item], ranks: int, *, costs: Costs) -> Assignment:
    """Longest predicted time first, to the least loaded rank."""
    weights = [price_ms(item, costs) for item in items]
    return by_weight(items, ranks, weights, name="longest_first")


def tokens(items: Sequence[Item], ranks: int) -> Assignment:
    """Most tokens first, to the rank with the fewest."""
    return by_weight(items, ranks, [item.tokens for item in items], name="tokens")


def patches(items: Sequence[Item], ranks: int) -> Assignment:
    """Most patches first, to the rank with the fewest.

    Source:
        The load balance of vLLM 0.33's data parallel vision towers.
    """
    return by_weight(items, ranks, [item.patches for item in items], name="patches")


def round_robin(items: Sequence[Item], ranks: int) -> Assignment:
    """Item i to rank i modulo ranks."""
    require(ranks >= 1, f"ranks must be at least 1, got {ranks!r}")
    return Assignment.of("round_robin", [index % ranks for index in range(len(items))], ranks)


def count(items: Sequence[Item], ranks: int) -> Assignment:
    """Equal numbers of neighbours to each rank, the first ranks one more."""
    require(ranks >= 1, f"ranks must be at least 1, got {ranks!r}")
    share, more = divmod(len(items), ranks)
    owners = [rank for rank in range(ranks) for _ in range(share + (rank < more))]
    return Assignment.of("count", owners, ranks)


def rule(name: str, costs: Costs | None = None) -> Rule:
    """Return a rule by name.

    Args:
        name: One of `RULES`.
        costs: Needed by "longest_first" alone.

    Raises:
        ValueError: If there is no such rule, or it needs costs and has none.
    """
    require(name in RULES, f"balance rule must be one of {sorted(RULES)}, got {name!r}")
    return RULES[name](costs)


def _longest_first_rule(costs: Costs | None) -> Rule:
    if costs is None:
        raise ValueError(
            "balance rule 'longest_first' needs costs, got None; load or model them first"
        )
    return lambda items, ranks: longest_first(items, ranks, costs=costs)


RULES: Mapping[str, Callable[[Costs | None], Rule]] = {
    "longest_first": _longest_first_rule,
    "tokens": lambda costs: tokens,
    "patches": lambda costs: patches,
    "count": lambda costs: count,
    "round_robin": lambda costs: round_robin,
}
"""Balance rules by name, as commands give them."""
