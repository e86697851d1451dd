"""Price graphs and eager runs for the search: `costs` as plain numbers, looked up thousands of times a batch."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement, pairwise
from math import inf

from encgraph.costs import Costs
from encgraph.packers.lookup import Lookup, Size
from encgraph.records import Plan


@dataclass(frozen=True, slots=True)
class EagerRun:
    """`Costs.eager_ms` by bisection instead of a walk over what was recorded."""

    costs: Costs
    floors: tuple[float, ...]
    """Milliseconds of the runs that the host's launches bind, ascending, each as likely."""
    above: tuple[float, ...]
    """Sum of the floors from each on; one more entry, 0, at the end."""

    @classmethod
    def of(cls, costs: Costs) -> "EagerRun":
        """Sort what costs recorded."""
        floors = costs.host_bound_ms
        sums = list(accumulate(reversed(floors), initial=0.0))
        return cls(costs=costs, floors=floors, above=tuple(reversed(sums)))

    def ms(self, patches: float, items: int, square: float) -> float:
        """One batched eager run of at least one item."""
        costs, floors = self.costs, self.floors
        device = costs.eager_dense.at(patches) + costs.eager_square_ms * square
        hidden = bisect_right(floors, device)
        expected = (self.above[hidden] + device * hidden) / len(floors)
        return expected + costs.eager_item_ms * items


@dataclass(frozen=True, slots=True)
class Pairs:
    """The cheapest two graphs that hold so many tokens together, by bisection."""

    tokens: tuple[int, ...]
    """What pairs of graphs hold, ascending."""
    least_ms: tuple[float, ...]
    """Price of the cheapest pair that holds as many; one more entry, infinity, at the end."""

    @classmethod
    def of(cls, plan: Plan, prices: Sequence[float]) -> "Pairs":
        """Price every pair, a graph twice included."""
        priced = zip((graph.tokens for graph in plan.graphs), prices, strict=True)
        made = sorted(
            (one[0] + two[0], one[1] + two[1])
            for one, two in combinations_with_replacement(priced, 2)
        )
        least = list(accumulate((ms for _, ms in reversed(made)), min, initial=inf))
        return cls(tokens=tuple(tokens for tokens, _ in made), least_ms=tuple(reversed(least)))

    def ms(self, tokens: int) -> float:
        """Price of the cheapest pair; infinity if none holds so many."""
        return self.least_ms[bisect_left(self.tokens, tokens)]


@dataclass(frozen=True, slots=True)
class Prices:
    """A plan's graphs with their prices, arranged for the search."""

    costs: Costs
    lookup: Lookup
    """Cheapest graph first."""
    smallest: Lookup
    """Smallest graph first."""
    graph_ms: tuple[float, ...]
    edges: tuple[tuple[float, float], ...]
    """(a, b) such that every graph costs at least a + b x its tokens."""
    pairs: Pairs
    eager: EagerRun

    @classmethod
    def of(cls, plan: Plan, costs: Costs) -> "Prices":
        """Price a plan's graphs."""
        prices = tuple(costs.capacity_ms(graph) for graph in plan.graphs)
        return cls(
            costs=costs,
            lookup=Lookup(plan.graphs, prices.__getitem__),
            smallest=Lookup(plan.graphs),
            graph_ms=prices,
            edges=edges(plan, prices),
            pairs=Pairs.of(plan, prices),
            eager=EagerRun.of(costs),
        )

    def load_ms(self, size: Size) -> float:
        """What a live load adds to a replay."""
        costs = self.costs
        return costs.square_ms * size[6] + costs.patch_ms * size[1] + costs.item_ms * size[2]

    def eager_ms(self, size: Size) -> float:
        """One batched eager run of a load, beyond what the load adds to a replay; 0 for no items."""
        return self.eager.ms(size[1], size[2], size[6]) - self.load_ms(size) if size[2] else 0.0

    def at_least(self, load: Size) -> float:
        """Lower bound on any packing of a load but one bin for all and all eager."""
        costs = self.costs
        more = max([3 * a + b * load[0] for a, b in self.edges], default=inf)
        split = min(self.pairs.ms(load[0]), more)
        mixed = costs.eager_floor_ms + min(self.graph_ms, default=inf) - self.load_ms(load)
        return min(split, mixed)


def edges(plan: Plan, prices: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Affine lower bounds (a, b) of the prices: every graph costs at least a + b x its tokens."""
    points = sorted((g.tokens, ms) for g, ms in zip(plan.graphs, prices, strict=True))
    if not points:
        return ()
    slopes = {0.0}
    slopes.update((q[1] - p[1]) / (q[0] - p[0]) for p, q in pairwise(points) if q[0] > p[0])
    found = []
    for b in slopes:
        a = min(ms - b * tokens for tokens, ms in points)
        if a >= 0 and b >= 0:
            found.append((a, b))
    return tuple(found)
