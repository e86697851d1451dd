"""Pack a batch into the graphs of a plan; what no graph holds is left for eager, with a reason.

Every packing keeps these promises:

* each index of the batch occurs once, in a bin or in `fallback`;
* no bin exceeds its graph in any field of `Capacity`;
* a bin takes the smallest graph that holds it (`cheapest`: the one with the least replay time);
* an item that fits no graph alone falls back with the first dimension it exceeds in the graph
  nearest to holding it; the items left for eager run as one batched call.

A batch is of one modality: the runner groups before it packs.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.packers.lookup import ZERO_SIZE, Lookup, Size, joined, size_of, to_packing, total
from encgraph.packers.prices import Prices
from encgraph.packers.search import (
    CONTIGUOUS_ITEMS,
    EXACT_ITEMS,
    Bins,
    PricedBins,
    contiguous,
    exact,
    one_step,
)
from encgraph.records import Item, Load, Packing, Plan

Packer = Callable[[Sequence[Item]], Packing]
"""Packs batches for one plan, whose look-up tables it has already made."""


def smallest(plan: Plan, load: Load) -> int | None:
    """Index of the smallest graph that holds a load, by the order of plans.

    Plans sort graphs by tokens, then items, then longest segment, then patches.

    Returns:
        An index into `plan.graphs`, or None when no graph holds the load.
    """
    return next((i for i, graph in enumerate(plan.graphs) if graph.holds(load)), None)


def ascending(batch: Sequence[Item], plan: Plan, *, defer: bool = True) -> Packing:
    """Pack the smallest items first into one open bin, closed when the next does not fit.

    The defer rule also closes it where two replays compute fewer rows than one: with B(x) the
    smallest token budget that holds x, when B(bin) + B(item) < B(bin + item) and
    B(item) >= B(bin); the second half keeps a flood of small items together.

    Args:
        batch: N items. Their order survives as indices in the packing.
        plan: The capacities captured for this encoder.
        defer: Whether the defer rule applies.

    Returns:
        A packing in which each index 0..N-1 occurs once, in a bin or in `fallback`.

    Source:
        The greedy packing of vLLM 0.33's encoder graphs, extended to every field of `Capacity`.

    >>> from encgraph import budgets, sizes
    >>> target = budgets.Target(size=sizes.named("qwen3-vl-8b"))
    >>> plan = budgets.doubling(64, 512, target=target)
    >>> batch = [Item(tokens=n, patches=4 * n) for n in (250, 60, 4)]
    >>> [(bin.token_budget, bin.items) for bin in ascending(batch, plan).bins]
    [(64, (2, 1)), (256, (0,))]
    """
    return _ascending(batch, plan, lookup=Lookup(plan.graphs), defer=defer)


def _sizes(batch: Sequence[Item]) -> list[Size]:
    try:
        return list(map(size_of, batch))
    except (AttributeError, TypeError) as error:  # a look at each item would cost every batch
        raise TypeError(f"batch must be a sequence of Items, got {batch!r:.60}") from error


def _ascending(batch: Sequence[Item], plan: Plan, *, lookup: Lookup, defer: bool) -> Packing:
    sizes = _sizes(batch)
    bins, left = _ascend(sizes, lookup, defer=defer)
    return to_packing(sizes, plan, bins=bins, left=left)


def _ascend(sizes: Sequence[Size], lookup: Lookup, *, defer: bool) -> tuple[Bins, list[int]]:
    find, budgets = lookup.find, lookup.budgets
    bins: Bins = []
    left: list[int] = []
    members: list[int] = []
    load, graph = ZERO_SIZE, -1
    for i in sorted(range(len(sizes)), key=sizes.__getitem__):
        size = sizes[i]
        own = find(size)
        if own < 0:
            left.append(i)
            continue
        if members:
            both = joined(load, size)
            with_it = find(both)
            if with_it >= 0 and not (
                defer
                and budgets[own] >= budgets[graph]
                and budgets[graph] + budgets[own] < budgets[with_it]
            ):
                members.append(i)
                load, graph = both, with_it
                continue
            bins.append((graph, members))
        members, load, graph = [i], size, own
    if members:
        bins.append((graph, members))
    return bins, left


def first_fit_decreasing(batch: Sequence[Item], plan: Plan) -> Packing:
    """Pack a batch, largest item first, each into the first bin that still holds it.

    A bin's graph is the smallest that holds what it ends up with, so late small items cost nothing.

    Args:
        batch: N items. Their order survives as indices in the packing.
        plan: The capacities captured for this encoder, smallest first.

    Returns:
        A packing in which each index 0..N-1 occurs once, in a bin or in `fallback`.

    Source:
        D. S. Johnson, Near-optimal bin packing algorithms, MIT, 1973.

    >>> from encgraph import budgets, sizes
    >>> plan = budgets.doubling(64, 128, target=budgets.Target(size=sizes.named("qwen3-vl-8b")))
    >>> batch = [Item(tokens=n, patches=4 * n) for n in (60, 70, 60)]
    >>> [(bin.token_budget, bin.items) for bin in first_fit_decreasing(batch, plan).bins]
    [(128, (1,)), (128, (0, 2))]
    """
    sizes = _sizes(batch)
    bins, left = _first_fit(sizes, Lookup(plan.graphs))
    return to_packing(sizes, plan, bins=bins, left=left)


def _first_fit(sizes: Sequence[Size], lookup: Lookup) -> tuple[Bins, list[int]]:
    find, largest = lookup.find, max(lookup.budgets, default=0)
    loads: list[Size] = []
    members: list[list[int]] = []
    graphs: list[int] = []
    left: list[int] = []
    for i in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        size = sizes[i]
        for b, load in enumerate(loads):
            if load[0] + size[0] > largest:
                continue
            both = joined(load, size)
            graph = find(both)
            if graph >= 0:
                loads[b], graphs[b] = both, graph
                members[b].append(i)
                break
        else:
            graph = find(size)
            if graph < 0:
                left.append(i)
                continue
            loads.append(size)
            graphs.append(graph)
            members.append([i])
    return list(zip(graphs, members, strict=True)), left


def one_each(batch: Sequence[Item], plan: Plan) -> Packing:
    """Give each item a replay of its own."""
    sizes = _sizes(batch)
    bins, left = _alone(sizes, Lookup(plan.graphs))
    return to_packing(sizes, plan, bins=bins, left=left)


def _alone(sizes: Sequence[Size], lookup: Lookup) -> tuple[Bins, list[int]]:
    graphs = [lookup.find(size) for size in sizes]
    bins = [(graph, [i]) for i, graph in enumerate(graphs) if graph >= 0]
    return bins, [i for i, graph in enumerate(graphs) if graph < 0]


def cheapest(batch: Sequence[Item], plan: Plan, *, costs: Costs) -> Packing:
    """Pack for the least predicted time over replay, split and eager.

    Exact up to 6 items; above, the best of contiguous partitions and first fit decreasing. Never
    predicted slower than `ascending`, `first_fit_decreasing`, `one_each` or all items eager. A
    replay that eager would beat is left to eager, with the reason `EAGER_IS_FASTER`.

    Args:
        batch: N items of one modality. Their order survives as indices in the packing.
        plan: The capacities captured for this encoder.
        costs: What a replay and an eager run cost; `packer` keeps what is derived from them.

    Returns:
        A packing in which each index 0..N-1 occurs once, in a bin or in `fallback`.
    """
    return _cheapest_packer(plan, costs)(batch)


def _cheapest(batch: Sequence[Item], plan: Plan, prices: Prices) -> Packing:
    if not batch:
        return Packing(bins=())
    sizes = _sizes(batch)
    found, settled = one_step(sizes, prices)
    if not settled:
        found = _search(sizes, prices, found)
    return to_packing(sizes, plan, bins=found[1], left=found[2], chosen=prices.lookup)


def _search(sizes: Sequence[Size], prices: Prices, found: PricedBins) -> PricedBins:
    """Search on from the better of one bin and all eager; bins hold ascending sizes."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    ranked = [sizes[i] for i in order]
    if len(sizes) <= EXACT_ITEMS:
        best = exact(ranked, prices)
    else:
        tried = [_priced(_first_fit(ranked, prices.lookup), ranked, prices)]
        if len(sizes) <= CONTIGUOUS_ITEMS:
            tried.append(contiguous(ranked, prices))
        else:
            tried += [
                _priced(_ascend(ranked, prices.smallest, defer=True), ranked, prices),
                _priced(_ascend(ranked, prices.smallest, defer=False), ranked, prices),
                _priced(_alone(ranked, prices.smallest), ranked, prices),
            ]
        best = min(tried, key=lambda f: f[0])
    if found[0] <= best[0]:
        return found
    bins = [(graph, [order[i] for i in members]) for graph, members in best[1]]
    return best[0], bins, [order[i] for i in best[2]]


def _priced(packed: tuple[Bins, list[int]], sizes: Sequence[Size], prices: Prices) -> PricedBins:
    """Put the bins of a greedy packing into their cheapest graphs and price it."""
    left = packed[1]
    bins = [
        (prices.lookup.find(total([sizes[i] for i in members])), members)
        for _, members in packed[0]
    ]
    ms = sum(prices.graph_ms[graph] for graph, _ in bins)
    if left:
        ms += prices.eager_ms(total([sizes[i] for i in left]))
    return ms, bins, left


def predicted_ms(packing: Packing, batch: Sequence[Item], costs: Costs) -> float:
    """Predicted time of a packed batch in milliseconds.

    Request cost, replays, and one eager run of the rest. Raises ValueError for another's packing.
    """
    placed = sorted(chain(*(b.items for b in packing.bins), (f.item for f in packing.fallback)))
    require(
        placed == list(range(len(batch)))
        and all(b.load == Load.of(batch[i] for i in b.items) for b in packing.bins),
        f"the packing must be of this batch of {len(batch)} items, got another's; pack it first",
    )
    replays = sum(costs.replay_ms(bin.capacity, bin.load) for bin in packing.bins)
    left = Load.of(batch[f.item] for f in packing.fallback)
    return costs.request_ms + replays + costs.eager_ms(left)


def packer(plan: Plan, costs: Costs | None = None, *, rule: str = "cheapest") -> Packer:
    """Return a function that packs batches for one plan, its look-up tables made once.

    Args:
        plan: The capacities captured for this encoder.
        costs: Needed by "cheapest" alone.
        rule: A name in `PACKINGS`.

    Raises:
        ValueError: If there is no rule of that name, or "cheapest" has no costs.
    """
    if rule not in PACKINGS:
        raise ValueError(f"packing must be one of {sorted(PACKINGS)}, got {rule!r}")
    return PACKINGS[rule](plan, costs)


def _ascending_packer(plan: Plan, costs: Costs | None) -> Packer:
    lookup = Lookup(plan.graphs)
    return lambda batch: _ascending(batch, plan, lookup=lookup, defer=True)


def _cheapest_packer(plan: Plan, costs: Costs | None) -> Packer:
    if costs is None:
        raise ValueError("packing 'cheapest' needs costs, got None; load or model them first")
    costs.refuse_other(plan.encoder)
    prices = Prices.of(plan, costs)
    return lambda batch: _cheapest(batch, plan, prices)


PACKINGS: Mapping[str, Callable[[Plan, Costs | None], Packer]] = {
    "ascending": _ascending_packer,
    "cheapest": _cheapest_packer,
    "first_fit_decreasing": lambda plan, costs: lambda batch: first_fit_decreasing(batch, plan),
    "one_each": lambda plan, costs: lambda batch: one_each(batch, plan),
}
"""Packing rules by name, as strategies and commands give them."""
