"""Search the packing with the least predicted time: exact for few items, bounded above.

The time of a packing, after `costs`, is a constant of the batch plus what its bins' capacities cost
plus what eager costs beyond the live load:

    request + sum over items of load_ms + sum over bins of capacity_ms(graph) + (eager - load)(E)

so bins are worth only the price of their graph, and the items left for eager, E, run as one batched
call whose floor is paid once. Three steps, each only if the one before leaves doubt:

1. One bin for all, if a lower bound says no split and no eager run can be faster.
2. Up to `EXACT_ITEMS` items: the optimum over all partitions and all E, by subsets.
3. Above: the best of all contiguous partitions of the items sorted by size with E a contiguous run
   of them (which covers `ascending`, `one_each` and all-eager), and first fit decreasing.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf

from encgraph.packers.lookup import ZERO_SIZE, Lookup, Size, joined, total
from encgraph.packers.prices import Prices

EXACT_ITEMS = 6
"""Most items searched over all partitions."""
CONTIGUOUS_ITEMS = 48
"""Most items searched over contiguous partitions; beyond, greedy packings are compared."""

Bins = list[tuple[int, list[int]]]
"""Graph index and items of each bin."""
PricedBins = tuple[float, Bins, list[int]]
"""Milliseconds beyond the constant of the batch, bins, items left for eager."""


def one_step(sizes: Sequence[Size], prices: Prices) -> tuple[PricedBins, bool]:
    """The better of one bin for all and all eager, and whether nothing can beat it."""
    load = total(sizes)
    graph = prices.lookup.find(load)
    ms = prices.graph_ms[graph] if graph >= 0 else inf
    everything = list(range(len(sizes)))
    bound = prices.at_least(load) if len(sizes) > 1 else inf
    if ms <= min(bound, prices.costs.eager_floor_ms - prices.load_ms(load)):
        return (ms, [(graph, everything)], []), True
    eager_ms = prices.eager_ms(load)
    if ms <= eager_ms:
        return (ms, [(graph, everything)], []), ms <= bound
    return (eager_ms, [], everything), eager_ms <= bound


def exact(sizes: Sequence[Size], prices: Prices) -> PricedBins:
    """The optimum over all partitions and all sets of items left for eager."""
    full = (1 << len(sizes)) - 1
    loads, graphs = _subsets(sizes, prices.lookup)
    best, pick = _partitions(graphs, prices.graph_ms)
    costs = prices.costs
    found, left = best[full], 0
    lowest = costs.eager_floor_ms - prices.load_ms(loads[full])  # of an eager run of any of them
    for eager in range(1, full + 1):
        rest, load = best[full ^ eager], loads[eager]
        if rest + lowest >= found:
            continue
        least = costs.eager_floor_ms + costs.eager_item_ms * load[2] - prices.load_ms(load)
        if rest + least < found:
            ms = rest + prices.eager_ms(load)
            if ms < found:
                found, left = ms, eager
    bins: Bins = []
    mask = full ^ left
    while mask:
        bins.append((graphs[pick[mask]], _members(pick[mask])))
        mask ^= pick[mask]
    return found, bins, _members(left)


def _members(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _subsets(sizes: Sequence[Size], lookup: Lookup) -> tuple[list[Size], list[int]]:
    """Load of every subset and the graph that holds it."""
    loads, graphs = [ZERO_SIZE], [0]
    for i, size in enumerate(sizes):
        for mask in range(1 << i):
            load = joined(loads[mask], size) if mask else size
            loads.append(load)
            # What holds a set holds its subsets, so a subset without a graph settles it.
            graphs.append(lookup.find(load) if graphs[mask] >= 0 else -1)
    return loads, graphs


def _partitions(graphs: Sequence[int], graph_ms: Sequence[float]) -> tuple[list[float], list[int]]:
    """Least price of every subset in bins, and the bin that holds its lowest item."""
    prices = [graph_ms[g] if g >= 0 else inf for g in graphs]
    best, pick = [0.0] * len(graphs), [0] * len(graphs)
    for mask in range(1, len(graphs)):
        low = mask & -mask
        rest = others = mask ^ low
        least, choice = prices[mask], mask
        while others:
            others = (others - 1) & rest
            ms = prices[others | low] + best[rest ^ others]
            if ms < least:
                least, choice = ms, others | low
        best[mask], pick[mask] = least, choice
    return best, pick


def contiguous(sizes: Sequence[Size], prices: Prices) -> PricedBins:
    """The best contiguous partition of items sorted by size, a contiguous run of them eager.

    Items that no graph holds are taken out first and always run eager.
    """
    find = prices.lookup.find
    fits = [i for i, size in enumerate(sizes) if find(size) >= 0]
    held = [sizes[i] for i in fits]
    kept = set(fits)
    forced = [i for i in range(len(sizes)) if i not in kept]
    always = total([sizes[i] for i in forced])
    runs = _runs(held, prices)
    before, after = _walk(runs, len(held)), _walk_back(runs, len(held))
    ms, (i, j) = _eager_run(held, always, prices=prices, before=before, after=after)
    bins = _trace(before, runs, i) + _trace_on(after, runs, j)
    named: Bins = [(graph, fits[a:b]) for graph, a, b in bins]
    return ms, named, sorted(forced + fits[i:j])


Runs = list[list[tuple[float, int]]]
"""For each first item, (price, graph) of the runs of 1, 2, ... items that a graph holds."""


def _runs(sizes: Sequence[Size], prices: Prices) -> Runs:
    runs: Runs = []
    for i in range(len(sizes)):
        load, held = ZERO_SIZE, []
        for size in sizes[i:]:
            load = joined(load, size)
            graph = prices.lookup.find(load)
            if graph < 0:
                break
            held.append((prices.graph_ms[graph], graph))
        runs.append(held)
    return runs


Walk = tuple[list[float], list[int]]
"""Least price up to (or from) each item, and the cut that reaches it."""


def _walk(runs: Runs, count: int) -> Walk:
    best, cut = [0.0] + [inf] * count, [0] * (count + 1)
    for i, held in enumerate(runs):
        for length, (ms, _) in enumerate(held, 1):
            if best[i] + ms < best[i + length]:
                best[i + length], cut[i + length] = best[i] + ms, i
    return best, cut


def _walk_back(runs: Runs, count: int) -> Walk:
    best, cut = [inf] * count + [0.0], [count] * (count + 1)
    for i in range(count - 1, -1, -1):
        for length, (ms, _) in enumerate(runs[i], 1):
            if ms + best[i + length] < best[i]:
                best[i], cut[i] = ms + best[i + length], i + length
    return best, cut


def _trace(walk: Walk, runs: Runs, end: int) -> list[tuple[int, int, int]]:
    """Bins (graph, first, end) of the best walk from the start to an item."""
    bins = []
    while end:
        i = walk[1][end]
        bins.append((runs[i][end - i - 1][1], i, end))
        end = i
    return bins[::-1]


def _trace_on(walk: Walk, runs: Runs, start: int) -> list[tuple[int, int, int]]:
    """Bins (graph, first, end) of the best walk from an item to the end."""
    bins = []
    while start < len(runs):
        j = walk[1][start]
        bins.append((runs[start][j - start - 1][1], start, j))
        start = j
    return bins


def _eager_run(
    sizes: Sequence[Size], always: Size, *, prices: Prices, before: Walk, after: Walk
) -> tuple[float, tuple[int, int]]:
    """Least price with items i..j eager beside those that always are; i = j for none."""
    count, eager = len(sizes), prices.eager.ms
    best = before[0][count] + prices.eager_ms(always)
    where = (count, count)
    sums = list(accumulate(sizes, joined, initial=ZERO_SIZE))
    # What each prefix adds to a replay: an eager run saves it, and costs the floor at least.
    loads = [prices.load_ms(size) for size in sums]
    least = prices.costs.eager_floor_ms - prices.load_ms(always)
    for i in range(count):
        low, start = sums[i], before[0][i] + least + loads[i]
        if start - loads[count] >= best:
            continue
        for j in range(i + 1, count + 1):
            bound = start + after[0][j] - loads[j]
            if bound >= best:
                continue
            high = sums[j]
            patches, items = high[1] - low[1] + always[1], high[2] - low[2] + always[2]
            run = eager(patches, items, high[6] - low[6] + always[6])
            ms = bound - prices.costs.eager_floor_ms + run
            if ms < best:
                best, where = ms, (i, j)
    return best, where
