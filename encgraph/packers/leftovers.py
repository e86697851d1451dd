"""What packing leaves for eager: a whole batch for one reason, or items each for its own."""

from collections.abc import Iterable, Sequence

from encgraph.records import Fallback, FallbackReason, Item, Load, Packing


def all_eager(items: Sequence[Item], reason: FallbackReason) -> Packing:
    """Leave every item for the same reason."""
    left = tuple(Fallback(item=index, reason=reason) for index in range(len(items)))
    return Packing(bins=(), fallback=left)


def by_reason(fallback: Iterable[Fallback], items: Sequence[Item]) -> dict[FallbackReason, Load]:
    """Add up what was left, by reason.

    Args:
        fallback: What packing left.
        items: The batch that it indexes.
    """
    loads: dict[FallbackReason, Load] = {}
    for left in fallback:
        loads[left.reason] = loads.get(left.reason, Load()).plus(items[left.item])
    return loads
