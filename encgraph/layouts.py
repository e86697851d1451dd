"""Name the exact layout of a batch, and say which layouts are worth a graph of their own."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from encgraph.errors import require
from encgraph.records import Capacity, Item, Load

Layout = tuple[tuple[int, int, int], ...]
"""Tokens, patches and segments of each item of a batch, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Which layouts get a graph, and how long it is kept."""

    min_hits: int = 2
    """Batches of a layout before it is captured, at least 1; the last of them is replayed."""
    max_graphs: int | None = 16
    """None for no limit, as SGLang's generic runner has it."""
    evict: bool = True
    """Whether a new layout takes the place of the one unused longest; else first come, first kept."""
    max_tokens: int | None = None
    """Larger batches run eager; None for no limit."""
    pools: Literal["private", "one"] = "private"

    def __post_init__(self) -> None:
        require(self.min_hits >= 1, f"min_hits must be at least 1, got {self.min_hits!r}")
        require(
            self.max_graphs is None or self.max_graphs >= 1,
            f"max_graphs must be at least 1, or None for no limit, got {self.max_graphs!r}",
        )
        require(
            self.pools in ("private", "one"),
            f"pools must be 'private' or 'one', got {self.pools!r}",
        )


def layout_of(items: Iterable[Item]) -> Layout:
    """The layout of a batch.

    >>> layout_of([Item(tokens=16, patches=64), Item(tokens=4, patches=16)])
    ((16, 64, 1), (4, 16, 1))
    """
    return tuple((item.tokens, item.patches, item.segments) for item in items)


def capacity_of(load: Load) -> Capacity:
    """The capacity that a load fills exactly."""
    return Capacity(
        tokens=load.tokens,
        patches=load.patches,
        items=load.items,
        segments=load.segments,
        longest_segment=load.longest_segment,
        frames=load.frames,
    )


def earned(requests: Iterable[Sequence[Item]], keep: Keep) -> list[Sequence[Item]]:
    """One batch of each layout that a traffic had often enough, most tokens first.

    The most frequent ones where there are more than are kept.
    """
    seen: dict[Layout, Sequence[Item]] = {}
    counts: Counter[Layout] = Counter()
    for items in requests:
        tokens = sum(item.tokens for item in items)
        if items and (keep.max_tokens is None or tokens <= keep.max_tokens):
            layout = layout_of(items)
            seen.setdefault(layout, items)
            counts[layout] += 1
    often = [
        seen[one] for one, count in counts.most_common(keep.max_graphs) if count >= keep.min_hits
    ]
    return sorted(often, key=lambda items: sum(item.tokens for item in items), reverse=True)
