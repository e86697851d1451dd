"""Bring every rank's rows to every rank: padded to the fullest, or each rank's own rows and no more.

Both write in place: a rank's own rows go straight into its part of the gathered rows, so nothing is
copied to send it. Both are entered by every rank, with rows or without; all know from the plan how
many rows each has.

Shape legend: R ranks, F rows of the fullest rank, T rows of all ranks, W widths of all outputs side
by side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from encgraph.errors import require


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Room for the rows of all ranks."""

    whole: Tensor
    """(R * F, W) padded or (T, W) uneven, uninitialised."""
    parts: tuple[Tensor, ...]
    """For each rank a view of its real rows in `whole`."""
    rank: int

    @property
    def mine(self) -> Tensor:
        """This rank's rows, to be written before the exchange."""
        return self.parts[self.rank]


def padded_rows(counts: Sequence[int], rank: int, *, width: int, like: Tensor) -> Rows:
    """Room for as many rows a rank as the fullest has."""
    fullest = max(counts)
    whole = like.new_empty(len(counts) * fullest, width)
    starts = [index * fullest for index in range(len(counts))]
    parts = tuple(whole[start : start + n] for start, n in zip(starts, counts, strict=True))
    return Rows(whole=whole, parts=parts, rank=rank)


def uneven_rows(counts: Sequence[int], rank: int, *, width: int, like: Tensor) -> Rows:
    """Room for the real rows alone."""
    whole = like.new_empty(sum(counts), width)
    return Rows(whole=whole, parts=torch.split(whole, list(counts)), rank=rank)


def padded_exchange(rows: Rows) -> None:
    """One all-gather of equal shares; what lies in padding rows is sent as it is."""
    share = rows.whole.chunk(len(rows.parts))[rows.rank]
    # torch 2.13 renamed it and warns of the old name.
    if hasattr(distributed, "all_gather_single"):
        distributed.all_gather_single(rows.whole, share)
    else:
        distributed.all_gather_into_tensor(rows.whole, share)


def uneven_exchange(rows: Rows) -> None:
    """One broadcast for each rank that has rows, all under way at once."""
    works = [
        distributed.broadcast(part, src=rank, async_op=True)
        for rank, part in enumerate(rows.parts)
        if len(part)
    ]
    for work in works:
        assert work is not None
        work.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """A way to gather: how rows are laid out, and how they cross."""

    name: str
    rows: Callable[..., Rows]
    exchange: Callable[[Rows], None]

    def sent_bytes(self, rows: Rows) -> int:
        """Bytes this rank sends to others."""
        share = len(rows.mine) if self.name == "uneven" else len(rows.whole) // len(rows.parts)
        row_bytes = rows.whole.shape[1] * rows.whole.element_size()
        return share * row_bytes * (len(rows.parts) - 1)


GATHERS: Mapping[str, Gather] = {
    "padded": Gather(name="padded", rows=padded_rows, exchange=padded_exchange),
    "uneven": Gather(name="uneven", rows=uneven_rows, exchange=uneven_exchange),
}


def named(name: str) -> Gather:
    """Look a gather up by name.

    Raises:
        ValueError: If there is none of that name.
    """
    require(name in GATHERS, f"gather must be one of {sorted(GATHERS)}, got {name!r}")
    return GATHERS[name]
