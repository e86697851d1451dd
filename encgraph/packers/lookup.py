"""Find the graph of a plan that holds a load, by plain numbers: the inner loop of every packing.

A load is a tuple here, not a record: packing runs on the request path and adds up loads thousands
of times for each one it keeps.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from encgraph.records import (
    DIMENSIONS,
    Bin,
    Capacity,
    Fallback,
    FallbackReason,
    Item,
    Load,
    Packing,
    Plan,
)

Size = tuple[int, int, int, int, int, int, float]
"""Tokens, patches, items, segments, longest segment, frames, square: a `Load` as a tuple."""

ZERO_SIZE: Size = (0, 0, 0, 0, 0, 0, 0.0)
"""The load of no items."""


def size_of(item: Item) -> Size:
    """Load of one item alone."""
    patches, segments = item.patches, item.segments
    return (
        item.tokens,
        patches,
        1,
        segments,
        item.longest_segment,
        item.frames,
        patches * patches / segments,
    )


def joined(a: Size, b: Size) -> Size:
    """Load of two loads together."""
    longest = a[4] if a[4] > b[4] else b[4]
    return (
        a[0] + b[0],
        a[1] + b[1],
        a[2] + b[2],
        a[3] + b[3],
        longest,
        a[5] + b[5],
        a[6] + b[6],
    )


def total(sizes: Iterable[Size]) -> Size:
    """Load of any number of loads together."""
    tokens = patches = items = segments = longest = frames = 0
    square = 0.0
    for size in sizes:
        tokens += size[0]
        patches += size[1]
        items += size[2]
        segments += size[3]
        longest = size[4] if size[4] > longest else longest
        frames += size[5]
        square += size[6]
    return tokens, patches, items, segments, longest, frames, square


def load_of(size: Size) -> Load:
    """The record of a load."""
    tokens, patches, items, segments, longest, frames, square = size
    return Load(
        tokens=tokens,
        patches=patches,
        items=items,
        segments=segments,
        longest_segment=longest,
        frames=frames,
        square=square,
    )


class Lookup:
    """The graphs of a plan in an order of preference, cut at each token budget.

    Args:
        graphs: The capacities, smallest first, as in a plan.
        price: What to prefer least of; without it the plan's own order (tokens, then items, then
            longest segment).
    """

    __slots__ = ("_budgets", "_from", "budgets")

    def __init__(
        self, graphs: Sequence[Capacity], price: Callable[[int], float] | None = None
    ) -> None:
        self.budgets = [c.tokens for c in graphs]
        """Token budget of each graph."""
        self._budgets = sorted(set(self.budgets))
        limits = [
            (c.patches, c.items, c.segments, c.longest_segment, c.frames, index)
            for index, c in enumerate(graphs)
        ]
        order = list(range(len(graphs)))
        if price is not None:
            order.sort(key=price)
        self._from = [
            [limits[i] for i in order if self.budgets[i] >= budget] for budget in self._budgets
        ]
        self._from.append([])

    def find(self, size: Size) -> int:
        """Index of the first graph in order that holds a load, or -1."""
        _, patches, items, segments, longest, frames, _ = size
        for most in self._from[bisect_left(self._budgets, size[0])]:
            if (
                patches <= most[0]
                and items <= most[1]
                and segments <= most[2]
                and longest <= most[3]
                and frames <= most[4]
            ):
                return most[5]
        return -1


def nearest_reason(load: Load, plan: Plan) -> FallbackReason:
    """Why no graph holds a load: the first dimension over in the graph nearest to holding it.

    Nearest is the graph with the fewest dimensions exceeded, then with the smallest excess.
    """
    if not plan.graphs:
        return FallbackReason.NO_GRAPHS

    def distance(graph: Capacity) -> tuple[int, float]:
        ratios = [getattr(load, name) / getattr(graph, name) for name in DIMENSIONS]
        return sum(r > 1 for r in ratios), max(ratios)

    over = min(plan.graphs, key=distance).exceeded(load)
    assert over is not None, "a load that a graph holds has no reason to fall back"
    return over


def to_packing(
    sizes: Sequence[Size],
    plan: Plan,
    *,
    bins: Iterable[tuple[int, Sequence[int]]],
    left: Iterable[int],
    chosen: Lookup | None = None,
) -> Packing:
    """Build the records of a packing.

    Args:
        sizes: Load of each item of the batch.
        plan: Where the graph indices of the bins point.
        bins: Graph index and items of each bin.
        left: Items left for eager.
        chosen: The plan's look-up table where items that some graph holds may be among those left;
            they are there because eager is faster.
    """
    made = []
    for graph, members in bins:
        load = load_of(total([sizes[i] for i in members]))
        made.append(Bin(items=tuple(members), graph=graph, capacity=plan.graphs[graph], load=load))
    fallback = tuple(Fallback(item=i, reason=_reason(sizes[i], plan, chosen)) for i in left)
    return Packing(bins=tuple(made), fallback=fallback)


def _reason(size: Size, plan: Plan, chosen: Lookup | None) -> FallbackReason:
    if chosen is not None and chosen.find(size) >= 0:
        return FallbackReason.EAGER_IS_FASTER
    return nearest_reason(load_of(size), plan)
