"""Pack the distinct batches of a traffic under one plan, and say what each is predicted to take.

The same packings as `packing`, on the arrays of `bulk`; whatever has no array form here goes through
`packing` itself, one batch at a time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from encgraph import packing
from encgraph.costs import Costs
from encgraph.fitting import bulk
from encgraph.fitting.bulk import Batches, Group, Ints, Priced
from encgraph.intervals import Floats
from encgraph.packers import lookup
from encgraph.records import Item, Packing, Plan

PackingRule = str | Callable[[Sequence[Item], Plan], Packing]
"""A name in `packing.PACKINGS`, or a function that packs a batch for a plan."""

Part = tuple[Ints, Floats, Ints]
"""Rows (of a group or of all batches), their loads (fields first), and graph or -1 for eager."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What packing did with every distinct batch."""

    ms: Floats
    """Predicted milliseconds of each distinct batch."""
    batch: Ints
    """Distinct batch of each bin and of each eager run."""
    loads: Floats
    """Their loads, the seven fields along the first axis."""
    graph: Ints
    """Their graphs; -1 for an eager run."""


def pack(batches: Batches, plan: Plan, *, costs: Costs, rule: PackingRule = "cheapest") -> Outcome:
    """Pack every distinct batch under a plan."""
    priced = Priced.of(plan, costs)
    parts: list[Part] = []
    one_by_one = batches.rest
    if rule == "cheapest" or rule == "ascending":
        for group in batches.groups:
            if rule == "ascending":
                found = _ascending(group, priced)
            else:
                found = _exact(group, priced) if group.exact else _wide(group, priced)
            parts += [(group.rows[rows], loads, graph) for rows, loads, graph in found]
    else:
        one_by_one = np.arange(len(batches.sizes))
    if len(one_by_one):
        parts.append(_singly(batches, one_by_one, plan=plan, costs=costs, rule=rule))
    return _outcome(parts, len(batches.sizes), priced)


def _outcome(parts: Sequence[Part], count: int, priced: Priced) -> Outcome:
    batch = np.concatenate([p[0] for p in parts]) if parts else np.zeros(0, np.int64)
    loads = np.concatenate([p[1] for p in parts], 1) if parts else np.zeros((7, 0))
    graph = np.concatenate([p[2] for p in parts]) if parts else np.zeros(0, np.int64)
    costs = priced.costs
    replay = priced.graph_ms[graph] + bulk.load_ms(loads, costs)
    ms = np.where(graph >= 0, replay, bulk.eager_ms(loads, costs))
    total = np.bincount(batch, ms, count).astype(float) + costs.request_ms
    return Outcome(total, batch, loads, graph)


def _singly(batches: Batches, rows: Ints, *, plan: Plan, costs: Costs, rule: PackingRule) -> Part:
    """Pack batches one at a time."""
    if isinstance(rule, str):
        make = packing.packer(plan, costs, rule=rule)
    else:
        function = rule

        def make(batch: Sequence[Item]) -> Packing:
            return function(batch, plan)

    batch, loads, graph = [], [], []
    for row in rows.tolist():
        sizes = batches.sizes[row]
        packed = make([_item(size) for size in sizes])
        left = [f.item for f in packed.fallback]
        members = [(b.graph, b.items) for b in packed.bins] + ([(-1, left)] if left else [])
        for index, items in members:
            batch.append(row)
            graph.append(index)
            loads.append(lookup.total([sizes[i] for i in items]))
    return np.asarray(batch, np.int64), np.asarray(loads, float).reshape(-1, 7).T, np.asarray(graph)


def _item(size: lookup.Size) -> Item:
    return Item(
        tokens=size[0],
        patches=size[1],
        segments=size[3],
        longest_segment=size[4],
        frames=size[5],
    )


def _part(rows: Ints, loads: Floats, graph: Ints) -> Part:
    """Drop what holds no items."""
    some = loads[2] > 0
    return rows[some], loads[:, some], graph[some]


@lru_cache(maxsize=128)
def _bins_of(mask: int) -> Ints:
    """Subsets of a set that hold its lowest item."""
    low = mask & -mask
    rest = others = mask ^ low
    found = [mask]
    while others:
        others = (others - 1) & rest
        found.append(others | low)
    return np.asarray(found)


def _exact(group: Group, priced: Priced) -> list[Part]:
    """The optimum over all partitions and all sets left for eager; see `search.exact`."""
    loads_FCR = group.bins
    graph_CR = bulk.find(loads_FCR, priced.limits, priced.cheapest)
    ms_CR = priced.graph_ms[graph_CR]
    row_R = np.arange(ms_CR.shape[1])
    best_CR, pick_CR = np.zeros_like(ms_CR), np.zeros_like(graph_CR)
    full = len(ms_CR) - 1
    for mask in range(1, full + 1):
        bins = _bins_of(mask)
        tried = ms_CR[bins] + best_CR[mask ^ bins]
        least = tried.argmin(0)
        best_CR[mask], pick_CR[mask] = tried[least, row_R], bins[least]
    beyond = bulk.eager_ms(loads_FCR, priced.costs) - bulk.load_ms(loads_FCR, priced.costs)
    left_R = (best_CR[::-1] + beyond).argmin(0)
    parts = [_part(row_R, loads_FCR[:, left_R, row_R], np.full(len(row_R), -1))]
    mask_R = full ^ left_R
    while mask_R.any():
        bin_R = pick_CR[mask_R, row_R]
        parts.append(_part(row_R, loads_FCR[:, bin_R, row_R], graph_CR[bin_R, row_R]))
        mask_R = mask_R ^ bin_R
    return parts


def _wide(group: Group, priced: Priced) -> list[Part]:
    """The better of contiguous partitions and first fit; see `search`."""
    items_FNR = group.items
    forced_NR = (bulk.find(items_FNR, priced.limits, priced.roomiest) < 0) & (items_FNR[2] > 0)
    kept_FNR, loads_FCR = items_FNR, group.bins
    if forced_NR.any():
        kept_FNR = np.where(forced_NR, 0.0, items_FNR)
        loads_FCR = bulk.runs(kept_FNR)
    always_FR = np.where(forced_NR, items_FNR, 0.0).sum(1)
    ms_R, parts = _contiguous(loads_FCR, always_FR, priced=priced, count=kept_FNR.shape[1])
    tokens_R = kept_FNR[0].sum(0)
    least_R = np.max([np.zeros_like(tokens_R), *(a + b * tokens_R for a, b in priced.edges)], 0)
    rows = np.nonzero(least_R + _beyond(always_FR, priced.costs) < ms_R)[0]
    if not len(rows):
        return parts
    first_R, others = _first_fit(kept_FNR[:, :, rows], always_FR[:, rows], priced)
    better = np.zeros(len(ms_R), np.bool_)
    better[rows] = first_R < ms_R[rows] - 1e-9
    parts = [_of(part, ~better) for part in parts]
    return parts + [_of((rows[part[0]], *part[1:]), better) for part in others]


def _of(part: Part, which: np.typing.NDArray[np.bool_]) -> Part:
    """The rows of a part that were chosen."""
    mine = which[part[0]]
    return part[0][mine], part[1][:, mine], part[2][mine]


def _contiguous(
    loads_FCR: Floats, always_FR: Floats, *, priced: Priced, count: int
) -> tuple[Floats, list[Part]]:
    graph_CR = bulk.find(loads_FCR, priced.limits, priced.cheapest)
    ms_CR = np.where(loads_FCR[2] > 0, priced.graph_ms[graph_CR], 0.0)
    first, end = bulk.ends(count)
    row_R = np.arange(ms_CR.shape[1])
    before, cut = np.zeros((count + 1, len(row_R))), np.zeros((count + 1, len(row_R)), np.int64)
    after, on = np.zeros_like(before), np.full_like(cut, count)
    for j in range(1, count + 1):
        tried = before[:j] + ms_CR[end == j]
        cut[j] = tried.argmin(0)
        before[j] = tried[cut[j], row_R]
        i = count - j
        tried = after[i + 1 :] + ms_CR[first == i]
        least = tried.argmin(0)
        on[i], after[i] = least + i + 1, tried[least, row_R]
    eager_FCR = loads_FCR + always_FR[:, None]
    totals_CR = before[first] + after[end] + _beyond(eager_FCR, priced.costs)
    none_R = before[count] + _beyond(always_FR, priced.costs)
    run_R = totals_CR.argmin(0)
    runs_R = totals_CR[run_R, row_R] < none_R
    i_R, j_R = np.where(runs_R, first[run_R], count), np.where(runs_R, end[run_R], count)
    eager_FR = np.where(runs_R, eager_FCR[:, run_R, row_R], always_FR)
    parts = [_part(row_R, eager_FR, np.full(len(row_R), -1))]
    while i_R.any() or (j_R < count).any():
        low_R = cut[i_R, row_R]
        parts.append(_run(loads_FCR, graph_CR, low_R, i_R))
        i_R = low_R
        high_R = on[j_R, row_R]
        parts.append(_run(loads_FCR, graph_CR, j_R, high_R))
        j_R = high_R
    return np.minimum(totals_CR[run_R, row_R], none_R), parts


def _beyond(loads: Floats, costs: Costs) -> Floats:
    """What eager costs beyond the live load."""
    return bulk.eager_ms(loads, costs) - bulk.load_ms(loads, costs)


def _run(loads_FCR: Floats, graph_CR: Ints, first_R: Ints, end_R: Ints) -> Part:
    """The bins of the runs first..end; empty where they are equal."""
    rows = np.nonzero(first_R < end_R)[0]
    first, end = first_R[rows], end_R[rows]
    index = end * (end - 1) // 2 + first
    return _part(rows, loads_FCR[:, index, rows], graph_CR[index, rows])


def _first_fit(kept_FNR: Floats, always_FR: Floats, priced: Priced) -> tuple[Floats, list[Part]]:
    """First fit decreasing; the items are sorted, so it takes them from the end."""
    bins: list[Floats] = []
    row_R = np.arange(kept_FNR.shape[2])
    for item_FR in np.swapaxes(kept_FNR, 0, 1)[::-1]:
        rows = np.nonzero(item_FR[2] > 0)[0]
        b = 0
        while len(rows):
            if b == len(bins):
                bins.append(np.zeros((7, len(row_R))))
            both = bulk.joined(bins[b][:, rows], item_FR[:, rows])
            ok = bulk.fits(both, priced)
            bins[b][:, rows[ok]] = both[:, ok]
            rows, b = rows[~ok], b + 1
    ms_R = _beyond(always_FR, priced.costs)
    parts = [_part(row_R, always_FR, np.full(len(row_R), -1))]
    for bin_FR in bins:
        graph_R = bulk.find(bin_FR, priced.limits, priced.cheapest)
        ms_R = ms_R + np.where(bin_FR[2] > 0, priced.graph_ms[graph_R], 0.0)
        parts.append(_part(row_R, bin_FR, graph_R))
    return ms_R, parts


def _ascending(group: Group, priced: Priced) -> list[Part]:
    """Smallest first with the defer rule; see `packing.ascending`."""
    order = range(len(priced.limits))
    budgets = np.append(priced.limits[:, 0], 0)
    rows = group.items.shape[2]
    row_R, bin_FR, graph_R = np.arange(rows), np.zeros((7, rows)), np.full(rows, -1)
    always_FR = np.zeros((7, rows))
    parts: list[Part] = []
    for item_FR in np.swapaxes(group.items, 0, 1):
        some_R = item_FR[2] > 0
        own_R = bulk.find(item_FR, priced.limits, order)
        always_FR = np.where(some_R & (own_R < 0), bulk.joined(always_FR, item_FR), always_FR)
        takes_R = some_R & (own_R >= 0)
        both_FR = bulk.joined(bin_FR, item_FR)
        with_R = bulk.find(both_FR, priced.limits, order)
        own, now, then = budgets[own_R], budgets[graph_R], budgets[with_R]
        defers_R = (bin_FR[2] > 0) & (own >= now) & (now + own < then)
        joins_R = takes_R & (with_R >= 0) & ~defers_R
        closes_R = takes_R & ~joins_R
        closed = np.nonzero(closes_R)[0]
        parts.append(_part(closed, bin_FR[:, closed], graph_R[closed]))
        bin_FR = np.where(joins_R, both_FR, np.where(closes_R, item_FR, bin_FR))
        graph_R = np.where(joins_R, with_R, np.where(closes_R, own_R, graph_R))
    parts.append(_part(row_R, bin_FR, graph_R))
    parts.append(_part(row_R, always_FR, np.full(rows, -1)))
    return parts
