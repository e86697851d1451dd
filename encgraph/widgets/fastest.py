"""What is predicted fastest for a request of equal items: one replay, several, or eager."""

from functools import cache
from typing import Any

import numpy as np

from encgraph import sizes
from encgraph.fitting import bulk
from encgraph.intervals import Floats
from encgraph.widgets.cases import Case

CHOICES = ("replay", "split", "eager")
CELLS = 56
"""Most token counts along each side of a map."""


def sides(case: Case) -> Any:
    """Token counts along both sides of the map: rows captured, columns real."""
    top = max(float(case.held_out.tokens.max()), 2048.0)
    low = max(1, case.target.size.rule.min_pixels // case.target.size.rule.factor**2)
    return np.unique(np.geomspace(low, top, CELLS).astype(int))


def choice(case: Case, captured: Any, real: Any, items: int) -> Any:
    """Index into `CHOICES` of what is predicted fastest for a request of equal items.

    Args:
        case: Costs and token rule.
        captured: Tokens of the only graph there is: a number, or an array of them.
        real: Tokens of the request, likewise.
        items: How many items it has, at most its tokens.
    """
    costs, rule = case.costs, case.target.size.rule
    held = np.minimum(items, real)
    parts = -(-real // captured)
    each = np.maximum(-(-held // parts), 1)

    @cache
    def price(tokens: int, items: int) -> float:
        return costs.capacity_ms(sizes.capacity(int(tokens), rule, items=int(items)))

    prices = np.vectorize(price, otypes=[float])(captured, each)
    replays = parts * (
        prices + bulk.load_ms(_loads(real / parts, held / parts, rule.merge_area), costs)
    )
    eager = bulk.eager_ms(_loads(real, held, rule.merge_area), costs)
    replayed = np.where(parts == 1, CHOICES.index("replay"), CHOICES.index("split"))
    return np.where((parts > held) | (replays > eager), CHOICES.index("eager"), replayed)


def _loads(tokens: Any, items: Any, area: int) -> Floats:
    """Loads of equal images, their fields first, as `bulk` prices them."""
    patches = tokens * area
    square = patches * patches / np.maximum(items, 1)
    whole = np.maximum(1, np.rint(items))
    rows = np.broadcast_arrays(tokens, patches, whole, whole, patches / whole, whole, square)
    found: Floats = np.array([*map(np.rint, rows[:-1]), rows[-1]], float)
    return found
