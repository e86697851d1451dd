"""Choose the token budgets of a plan: by rule, by quantiles of a traffic, or fitted to it."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from encgraph import sizes
from encgraph.costs import Costs
from encgraph.errors import MOST_GRAPHS, MOST_TOKENS, require, whole
from encgraph.fitting import judging, repacking
from encgraph.fitting.judging import Prediction, Routed, judge, routed
from encgraph.fitting.posing import Limits
from encgraph.fitting.repacking import Choice, Fit
from encgraph.fitting.shapes import Target
from encgraph.records import Item, Plan
from encgraph.results import at_shares

__all__ = [
    "Choice",
    "Fit",
    "Limits",
    "Prediction",
    "Routed",
    "Target",
    "auto",
    "doubling",
    "fitted",
    "judge",
    "quantile",
    "routed",
]

REASONABLE_TOKENS = 8192
"""Largest budget of `auto`: above it the card is busy with arithmetic and launches hide behind it."""
REASONABLE_PATCHES = 4 * REASONABLE_TOKENS
"""The same for encoders whose items are all alike."""
REASONABLE_ROWS = 16
"""Smallest budget of `auto`: matrix products come in tiles of at least so many rows."""
RANGE = 128
"""Largest over smallest budget of `auto`: what a smaller one saves is too little to see."""


def doubling(
    smallest: int, largest: int, *, target: Target, items: int | None = None, frames: int = 0
) -> Plan:
    """Double from the smallest budget while not above the largest, which is added if missing.

    Args:
        smallest: First token budget.
        largest: Last token budget.
        target: What the plan is for.
        items: Most items a replay, the same for all budgets; largest // smallest by default, at
            most the smallest budget.
        frames: Most temporal steps a replay; 0 for images only.

    Raises:
        ValueError: If the range is empty, items is not within 1..smallest, or one is no whole number.

    Source:
        The budget rule of vLLM 0.33's encoder graphs.

    >>> plan = doubling(64, 200, target=Target(size=sizes.named("qwen3-vl-8b")))
    >>> plan.token_budgets, plan.graphs[0].items
    ((64, 128, 200), 3)
    """
    smallest = whole("smallest", smallest, most=MOST_TOKENS)
    largest = whole("largest", largest, most=MOST_TOKENS)
    frames = whole("frames", frames, least=0, most=MOST_TOKENS)
    require(
        smallest <= largest,
        f"budgets must satisfy 1 <= smallest <= largest, got {smallest!r} and {largest!r}",
    )
    if items is None:
        items = min(largest // smallest, smallest)
        if items == 1:
            warnings.warn(
                f"budgets {smallest}..{largest} hold 1 item a replay; pass items to share replays",
                stacklevel=2,
            )
    items = whole("items", items)
    require(
        items <= smallest,
        f"items must be within 1..{smallest} (the smallest budget), got {items!r}",
    )
    budgets = [smallest]
    while budgets[-1] * 2 <= largest:
        budgets.append(budgets[-1] * 2)
    reasons = [f"{smallest} tokens: the smallest budget asked for"]
    reasons += [f"{b} tokens: twice the budget below" for b in budgets[1:]]
    if budgets[-1] < largest:
        budgets.append(largest)
        reasons.append(f"{largest} tokens: the largest budget asked for")
    return _uniform(budgets, target, items=items, frames=frames, reasons=reasons)


def _uniform(
    budgets: Iterable[int], target: Target, *, items: int, frames: int, reasons: Sequence[str]
) -> Plan:
    rule = target.size.rule
    graphs = [sizes.capacity(b, rule, items=items, frames=frames) for b in budgets]
    # Budgets that hold as many whole slots make one graph.
    made = dict(zip(graphs[::-1], reasons[::-1], strict=True))
    return target.plan(list(made)[::-1], list(made.values())[::-1])


def quantile(
    requests: Sequence[Sequence[Item]],
    count: int,
    *,
    target: Target,
    items: int | None = None,
    weights: Sequence[float] = (),
) -> Plan:
    """Put budgets at equal quantiles of the tokens a request.

    Args:
        requests: The traffic.
        count: Most budgets; equal ones are merged.
        target: What the plan is for.
        items: Most items a replay; that of the largest request by default, at most the smallest
            budget.
        weights: How often each request counts; once by default.

    Raises:
        ValueError: If there are no requests, or count or items is no whole number within limits.
    """
    judging.check(requests, weights)
    count = whole("count", count, most=MOST_GRAPHS)
    items = None if items is None else whole("items", items, most=MOST_TOKENS)
    return _at_quantiles(_seen(requests, weights), count, target=target, items=items)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What quantiles need of a traffic."""

    tokens: Sequence[int]
    """Of each request."""
    weights: Sequence[float]
    items: int
    frames: int
    """Most of a request."""


def _seen(requests: Sequence[Sequence[Item]], weights: Sequence[float]) -> _Seen:
    some = [i for i, items in enumerate(requests) if items]
    return _Seen(
        tokens=[sum(item.tokens for item in requests[i]) for i in some],
        weights=[weights[i] for i in some] if len(weights) else (),
        items=max(len(requests[i]) for i in some),
        frames=max(sum(item.frames for item in requests[i]) for i in some),
    )


def _at_quantiles(seen: _Seen, count: int, *, target: Target, items: int | None) -> Plan:
    shares = [step / count for step in range(1, count + 1)]
    budgets = sorted(set(at_shares(seen.tokens, shares, seen.weights)))
    most = min(seen.items if items is None else items, budgets[0])
    reasons = [f"{b} tokens: a quantile of tokens a request, {count} in all" for b in budgets]
    return _uniform(budgets, target, items=most, frames=seen.frames, reasons=reasons)


def auto(target: Target) -> Plan:
    """Infer the budgets from the encoder alone: doubling from its smallest item to a largest.

    >>> auto(Target(size=sizes.named("qwen3-vl-8b"))).token_budgets
    (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    """
    rule = target.size.rule
    if rule.slot_tokens:
        return _by_items(target)
    item = rule.max_tokens
    largest = min(item, REASONABLE_TOKENS)
    smallest = max(rule.min_tokens, largest // RANGE, min(largest, REASONABLE_ROWS))
    plan = doubling(smallest, largest, target=target)
    start = f"{smallest} tokens: the smallest item"
    if smallest > rule.min_tokens:
        share = "fewer rows cost as much"
        if smallest > REASONABLE_ROWS:
            share = f"1/{RANGE} of the largest"
        start = f"{smallest} tokens: {share}; the smallest item has {rule.min_tokens}"
    most = plan.graphs[0].items
    why = "it has tokens" if most == smallest else "the largest budget holds of it"
    first = f"{start}; {most} items, as many as {why}"
    last = f"{largest} tokens: the largest item"
    if largest < item:
        last = (
            f"{largest} tokens: above it arithmetic hides the launches that a graph saves; "
            f"larger items, up to {item} tokens, run eager"
        )
    reasons = (first, *plan.reasons[1:-1], last)
    return replace(plan, reasons=reasons if len(plan.graphs) > 1 else (first,))


def _by_items(target: Target) -> Plan:
    """Double the items of a replay, where every item takes as large a slot as the next.

    Where an item takes up to so many tiles, halve that down to one as well.
    """
    rule = target.size.rule
    one = sizes.capacity(rule.slot_tokens, rule, items=1)
    most, whole = max(1, REASONABLE_PATCHES // one.patches), rule.max_tiles
    counts = {-(-whole // 2**i) for i in range(whole.bit_length() + 1)}
    counts |= {whole * 2**i for i in range(most.bit_length())}
    graphs = [
        sizes.capacity(count * one.tokens, rule, items=count)
        for count in sorted(counts)
        if count <= most
    ]
    what = f"items of up to {one.patches} patches"
    if rule.is_cut:
        what = f"tiles of {one.patches} patches, of which an image takes up to {whole}"
    reasons = [f"{graph.tokens} tokens: {graph.items} {what}" for graph in graphs]
    return target.plan(graphs, reasons)


def fitted(
    requests: Sequence[Sequence[Item]],
    *,
    target: Target,
    costs: Costs,
    limits: Limits | None = None,
    weights: Sequence[float] = (),
) -> Fit:
    """Fit budgets to a traffic, for every number of graphs up to a limit.

    Dynamic programming gives the best budgets for given bins; the traffic is then packed again and
    the budgets fitted again, since bins depend on budgets. The doubling and quantile plans of at
    most as many graphs are among the candidates. A small weight of pseudo-requests on a log ladder
    keeps unseen large requests from falling into one huge budget.

    Args:
        requests: The traffic to fit; judge the plan on other requests.
        target: What the plan is for.
        costs: What replays and eager runs cost.
        limits: Graphs, bytes, largest budget, one item cap or several, and the packing rule.
        weights: How often each request counts; once by default.

    Raises:
        ValueError: If there are no requests, the costs are of another encoder than the target, or the
            byte limit is too small for one graph.
    """
    judging.check(requests, weights)
    require(
        isinstance(target, Target),
        f"target must be a Target, got {type(target).__name__}; `Target(size=...)` makes one",
    )
    judging.check_costs(costs, target.size.name)
    limits = limits or Limits()
    some = [i for i, items in enumerate(requests) if items]
    return repacking.fit(
        [requests[i] for i in some],
        target=target,
        costs=costs,
        limits=limits,
        baselines=_baselines(requests, target, limits=limits, weights=weights),
        weights=[weights[i] for i in some] if len(weights) else (),
    )


def _baselines(
    requests: Sequence[Sequence[Item]], target: Target, *, limits: Limits, weights: Sequence[float]
) -> list[Plan]:
    """Doubling and quantile plans of at most so many graphs."""
    seen, most = _seen(requests, weights), limits.max_graphs
    found = [
        _at_quantiles(seen, count, target=target, items=limits.items)
        for count in range(1, most + 1)
    ]
    smallest = min(item.tokens for items in requests for item in items)
    largest = max(seen.tokens)
    uppers = {smallest * 2**k for k in range(1, most)} | {largest, REASONABLE_TOKENS}
    frames = seen.frames if seen.frames > seen.items else 0
    for upper in sorted(uppers):
        if smallest <= upper < min(4 * max(largest, REASONABLE_TOKENS), MOST_TOKENS):
            cap = min(limits.items or max(upper // smallest, 1), smallest)
            found.append(doubling(smallest, upper, target=target, items=cap, frames=frames))
    return [plan for plan in found if len(plan.graphs) <= most]
