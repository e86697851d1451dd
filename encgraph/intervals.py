"""Say how far a figure over requests would move had other requests come: intervals by resampling them.

Requests are drawn again with replacement, as many as there are, and the figure is taken of each draw (the
bootstrap); an interval holds the middle share of what comes out. It covers the choice of requests from
traffic like this one. It does not cover repeats of a request, of which a bench keeps the median, nor
another card, host or day. All functions draw the same requests for one seed and count, so what two
strategies took of the same requests stays paired. Far out, where fewer than some ten requests lie beyond
a quantile, the interval is as rough as the quantile.

Source:
    B. Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 7(1), 1979; the
    percentile interval.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encgraph.errors import require
from encgraph.results import at_shares

_DRAWS = 2000
LEVEL = 0.95
"""Share of the draws that an interval holds."""
_AT_ONCE = 2_000_000

Floats = npt.NDArray[np.float64]
Figure = Callable[[Floats], Floats]
"""One number of each row of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure over requests, and where it would lie for most other choices of requests."""

    value: float
    """Of the requests there are."""
    low: float
    high: float
    samples: int
    """Requests."""

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def mean(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Interval of the mean over requests.

    Args:
        values: One a request.
        seed: Of the draws.

    Raises:
        ValueError: If there are no values.

    >>> print(mean([1, 2, 3, 4]))
    2.5 (1.5 to 3.5)
    """
    return _interval((values,), lambda drawn: _mean(drawn[0]), seed)


def quantile(values: Sequence[float], share: float, *, seed: int = 0) -> Interval:
    """Interval of a quantile over requests: the smallest value with that share at or below it.

    Args:
        values: One a request.
        share: 0 to 1.
        seed: Of the draws.

    Raises:
        ValueError: If there are no values, or the share is not one.

    >>> quantile([4, 1, 3, 2], 0.5).value
    2.0
    """
    at = _at(share)
    return _interval((values,), lambda drawn: at(drawn[0]), seed)


def ratio(
    over: Sequence[float], of: Sequence[float], *, share: float | None = None, seed: int = 0
) -> Interval:
    """Interval of a mean over a mean, or of a quantile over a quantile, of the same requests.

    Each draw takes a request with both its values, so that what makes it slow for both cancels.

    Args:
        over: The numerator's values, one a request.
        of: The denominator's, of the same requests in the same order.
        share: Of the quantile, 0 to 1; the mean if None.
        seed: Of the draws.

    Raises:
        ValueError: If there are no values, as many of one as of the other, or a value of the denominator is
            not over 0.

    >>> print(ratio([2, 4, 6, 8], [1, 2, 3, 4]))
    2 (2 to 2)
    """
    require(
        len(over) == len(of),
        f"a ratio needs two values of each request, got {len(over)} and {len(of)}",
    )
    require(all(v > 0 for v in of), "a ratio needs values over 0 in its denominator")
    at = _mean if share is None else _at(share)
    return _interval((over, of), lambda drawn: at(drawn[0]) / at(drawn[1]), seed)


def _mean(rows: Floats) -> Floats:
    found: Floats = rows.mean(1)
    return found


def _at(share: float) -> Figure:
    require(0 <= share <= 1, f"share must be 0 to 1, got {share!r}")

    def figure(rows: Floats) -> Floats:
        place = at_shares(range(rows.shape[1]), (share,))[0]
        found: Floats = np.partition(rows, place, 1)[:, place]
        return found

    return figure


def _interval(
    values: tuple[Sequence[float], ...], figure: Callable[[list[Floats]], Floats], seed: int
) -> Interval:
    given = [np.asarray(v, float) for v in values]
    count = len(given[0])
    require(count > 0, "an interval needs the value of at least one request, got none")
    found = [figure([v[picks] for v in given]) for picks in _draws(count, seed)]
    low, high = np.quantile(np.concatenate(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = float(figure([v[None] for v in given])[0])
    return Interval(
        value=value, low=min(float(low), value), high=max(float(high), value), samples=count
    )


def _draws(count: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Which requests each draw takes, some draws at a time."""
    source = np.random.default_rng(seed)
    step = max(1, _AT_ONCE // count)
    for first in range(0, _DRAWS, step):
        yield source.integers(0, count, (min(step, _DRAWS - first), count))
