"""Pack many batches at once, by arrays: what `packing` does one batch at a time, for planning.

Planning packs every request under hundreds of plans. Batches are counted by their distinct loads,
grouped by their number of items, and packed a group at a time; tests hold the times equal to those
of `packing`, batch for batch.

Array axes: F the seven fields of a load, C candidate bins of a batch, N items, R batches of a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from encgraph.costs import Costs
from encgraph.intervals import Floats
from encgraph.packers import lookup
from encgraph.packers.prices import EagerRun, edges
from encgraph.packers.search import EXACT_ITEMS
from encgraph.records import DIMENSIONS, Capacity, Item, Plan

Ints = npt.NDArray[np.int64]

LONGEST, SQUARE = 4, 6
"""Rows of a load that are not plain limits on a sum."""
WIDEST_ITEMS = 48
"""Most items of a batch packed by arrays; larger ones are rare and go one at a time."""
_WIDTHS = (8, 12, 16, 24, 32, WIDEST_ITEMS)


@dataclass(frozen=True, slots=True)
class Group:
    """Batches packed together, items sorted by size, short ones filled up with empty loads."""

    rows: Ints
    """Which distinct batch each is."""
    items: Floats
    """Axes FNR."""
    bins: Floats
    """Axes FCR: every subset of up to 6 items by bit mask, or every run of neighbours above."""
    exact: bool


@dataclass(frozen=True, slots=True)
class Batches:
    """Distinct batches of one modality each, and the requests they come from."""

    sizes: tuple[tuple[lookup.Size, ...], ...]
    """Loads of the items of each distinct batch, sorted."""
    batch: Ints
    """Distinct batch of each batch."""
    request: Ints
    """Request of each batch; one of mixed modalities has several."""
    requests: int
    groups: tuple[Group, ...]
    rest: Ints
    """Distinct batches too long for a group."""

    @classmethod
    def of(cls, requests: Sequence[Sequence[Item]]) -> "Batches":
        """Count the distinct batches of requests."""
        known: dict[tuple[lookup.Size, ...], int] = {}
        batch, request = [], []
        for index, items in enumerate(requests):
            for sizes in _by_modality(items):
                batch.append(known.setdefault(sizes, len(known)))
                request.append(index)
        distinct = tuple(known)
        groups, rest = _grouped(distinct)
        return cls(
            sizes=distinct,
            batch=np.asarray(batch, np.int64),
            request=np.asarray(request, np.int64),
            requests=len(requests),
            groups=groups,
            rest=rest,
        )

    def weights(self, by_request: Floats) -> Floats:
        """Weight of each distinct batch from that of each request."""
        return np.bincount(self.batch, by_request[self.request], len(self.sizes)).astype(float)

    def by_request(self, by_batch: Floats) -> Floats:
        """Sum of a figure of distinct batches over each request."""
        return np.bincount(self.request, by_batch[self.batch], self.requests).astype(float)


def _by_modality(items: Sequence[Item]) -> list[tuple[lookup.Size, ...]]:
    if len(items) == 1:
        return [(lookup.size_of(items[0]),)]
    kinds = {item.modality for item in items}
    return [
        tuple(sorted(lookup.size_of(item) for item in items if item.modality is kind))
        for kind in sorted(kinds)
    ]


def _grouped(distinct: Sequence[tuple[lookup.Size, ...]]) -> tuple[tuple[Group, ...], Ints]:
    width = {}
    for n in {len(sizes) for sizes in distinct}:
        width[n] = n if n <= EXACT_ITEMS else next((w for w in _WIDTHS if w >= n), 0)
    rows: dict[int, list[int]] = {}
    for row, sizes in enumerate(distinct):
        rows.setdefault(width[len(sizes)], []).append(row)
    rest = np.asarray(rows.pop(0, []), np.int64)
    groups = []
    for n, members in sorted(rows.items()):
        items_RNF = np.zeros((len(members), n, 7))
        for r, row in enumerate(members):
            items_RNF[r, : len(distinct[row])] = distinct[row]
        items_FNR = np.ascontiguousarray(items_RNF.transpose(2, 1, 0))
        is_exact = n <= EXACT_ITEMS
        bins_FCR = subsets(items_FNR) if is_exact else runs(items_FNR)
        groups.append(Group(np.asarray(members), items_FNR, bins_FCR, is_exact))
    return tuple(groups), rest


def joined(a: Floats, b: Floats) -> Floats:
    """Loads of a and b together, field by field along the first axis."""
    both: Floats = a + b
    np.maximum(a[LONGEST], b[LONGEST], out=both[LONGEST])
    return both


def subsets(items_FNR: Floats) -> Floats:
    """Load of every subset of the items, by bit mask."""
    fields, count, rows = items_FNR.shape
    loads_FCR = np.zeros((fields, 1 << count, rows))
    for i in range(count):
        low = 1 << i
        loads_FCR[:, low : 2 * low] = joined(loads_FCR[:, :low], items_FNR[:, i : i + 1])
    return loads_FCR


@lru_cache(maxsize=64)
def ends(count: int) -> tuple[Ints, Ints]:
    """First item and end of every run of neighbours, in the order of `runs`: by end, then first."""
    first = np.concatenate([np.arange(j) for j in range(1, count + 1)])
    return first, np.repeat(np.arange(1, count + 1), np.arange(1, count + 1))


def runs(items_FNR: Floats) -> Floats:
    """Load of every run of neighbouring items, in the order of `ends`."""
    first, end = ends(items_FNR.shape[1])
    sums = np.concatenate([np.zeros_like(items_FNR[:, :1]), items_FNR.cumsum(1)], 1)
    loads_FCR: Floats = sums[:, end] - sums[:, first]
    # Items are sorted by tokens, but a clip's segments may be shorter than a smaller image's.
    at = 0
    longest_NR = items_FNR[LONGEST]
    for j in range(1, items_FNR.shape[1] + 1):
        loads_FCR[LONGEST, at : at + j] = np.maximum.accumulate(longest_NR[j - 1 :: -1])[::-1]
        at += j
    return loads_FCR


def find(loads: Floats, limits: Floats, order: Sequence[int]) -> Ints:
    """Index of the first graph in order that holds each load, or -1.

    Args:
        loads: The seven fields of a load along the first axis.
        limits: The six fields of each graph's capacity along the second axis.
        order: Graphs by preference.
    """
    flat = loads.reshape(7, -1)
    found = np.full(flat.shape[1], -1, np.int64)
    if not len(order) or not flat.shape[1]:
        return found.reshape(loads.shape[1:])
    most = flat[:6].max(1)
    # Patches a token seldom vary, so tokens mostly settle patches too.
    ratio = float((flat[1] / np.maximum(flat[0], 1)).max())
    binds = limits < most
    binds[:, 1] &= limits[:, 1] < ratio * limits[:, 0]
    for index in reversed(order):
        ok = flat[0] <= limits[index, 0]
        for field in np.nonzero(binds[index, 1:])[0] + 1:
            ok &= flat[field] <= limits[index, field]
        np.putmask(found, ok, index)
    return found.reshape(loads.shape[1:])


def fits(loads_FR: Floats, priced: "Priced") -> npt.NDArray[np.bool_]:
    """Whether any graph holds each load."""
    found = np.zeros(loads_FR.shape[1], np.bool_)
    for index in priced.roomiest:
        found |= (loads_FR[:6] <= priced.limits[index, :, None]).all(0)
    return found


def eager_ms(loads: Floats, costs: Costs) -> Floats:
    """`Costs.eager_ms` of each load."""
    patches, items, square = loads[1], loads[2], loads[SQUARE]
    xs, ys = np.asarray(costs.eager_dense.patches, float), np.asarray(costs.eager_dense.ms)
    dense = np.interp(patches, xs, ys)
    if len(xs) > 1:
        slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
        dense += np.maximum(patches - xs[-1], 0) * slope
    device = dense + costs.eager_square_ms * square
    run = EagerRun.of(costs)
    hidden = np.searchsorted(run.floors, device)
    ms = (hidden * device + np.asarray(run.above)[hidden]) / len(run.floors)
    ms += costs.eager_item_ms * items
    return np.where(items > 0, ms, 0.0)


def load_ms(loads: Floats, costs: Costs) -> Floats:
    """`Costs.load_ms` of each load."""
    square, patches, items = loads[SQUARE], loads[1], loads[2]
    ms: Floats = costs.square_ms * square + costs.patch_ms * patches + costs.item_ms * items
    return ms


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan's graphs and their prices."""

    limits: Floats
    """The six fields of each graph's capacity along the second axis."""
    graph_ms: Floats
    """One a graph, then infinity, so that index -1 costs infinity."""
    costs: Costs
    cheapest: tuple[int, ...]
    """Graphs by price."""
    edges: tuple[tuple[float, float], ...]
    """Lower bounds on prices by tokens; see `prices.edges`."""
    roomiest: tuple[int, ...]
    """Graphs that no other graph covers: if none of them holds a load, none does."""

    @classmethod
    def of(cls, plan: Plan, costs: Costs) -> "Priced":
        """Price a plan's graphs."""
        prices = [costs.capacity_ms(graph) for graph in plan.graphs]
        limits = [[getattr(graph, name) for name in DIMENSIONS] for graph in plan.graphs]
        return cls(
            limits=np.array(limits, float).reshape(-1, 6),
            graph_ms=np.array([*prices, np.inf]),
            costs=costs,
            cheapest=tuple(sorted(range(len(prices)), key=prices.__getitem__)),
            edges=edges(plan, prices),
            roomiest=_roomiest(plan.graphs),
        )


def _roomiest(graphs: Sequence[Capacity]) -> tuple[int, ...]:
    limits = [tuple(getattr(g, name) for name in DIMENSIONS) for g in graphs]
    return tuple(
        i
        for i, mine in enumerate(limits)
        if not any(j != i and all(map(int.__le__, mine, other)) for j, other in enumerate(limits))
    )
