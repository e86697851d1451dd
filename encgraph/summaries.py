"""Sum up requests as quantiles and as atoms: the token counts that come back most often."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encgraph.errors import require
from encgraph.records import Item
from encgraph.results import LEAST_OF_P99, at_shares

MOST_ATOMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Values that occur, each the smallest that covers its share; and the mean."""

    mean: float
    p5: int
    p25: int
    p50: int
    p75: int
    p90: int
    p95: int
    p99: int | None
    """None of fewer than 100 values, where it would be the largest."""
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Atom:
    """One token count that many items share."""

    tokens: int
    share_ratio: float
    """Items with this count over all items, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSummary:
    """What a traffic looks like."""

    requests: int
    items: int
    items_per_request: Quantiles
    tokens_per_item: Quantiles
    tokens_per_request: Quantiles
    atoms: tuple[Atom, ...]
    """Most frequent token counts of an item, most frequent first; only those that recur."""


def quantiles(values: Sequence[int]) -> Quantiles:
    """Quantiles of whole numbers.

    >>> quantiles([1, 2, 3, 100]).p50
    2
    """
    require(len(values) > 0, "quantiles need at least one value, got none")
    p5, p25, p50, p75, p90, p95, p99 = (
        int(value) for value in at_shares(values, (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99))
    )
    return Quantiles(
        mean=float(np.mean(values)),
        p5=p5,
        p25=p25,
        p50=p50,
        p75=p75,
        p90=p90,
        p95=p95,
        p99=p99 if len(values) >= LEAST_OF_P99 else None,
        max=int(max(values)),
    )


def of(requests: Sequence[Sequence[Item]]) -> TrafficSummary:
    """Sum up requests.

    Raises:
        ValueError: If there are none.
    """
    tokens = [item.tokens for request in requests for item in request]
    common = Counter(tokens).most_common(MOST_ATOMS)
    return TrafficSummary(
        requests=len(requests),
        items=len(tokens),
        items_per_request=quantiles([len(request) for request in requests]),
        tokens_per_item=quantiles(tokens),
        tokens_per_request=quantiles([sum(i.tokens for i in request) for request in requests]),
        atoms=tuple(
            Atom(tokens=value, share_ratio=count / len(tokens))
            for value, count in common
            if count > 1
        ),
    )
