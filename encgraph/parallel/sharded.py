"""Run a batch over several cards: share it on the host, replay locally, gather, put back in order.

Every rank is given the whole batch by its sizes and takes, loads and copies only its own pixels. A
rank without items skips its encoder and joins the gather all the same. Whatever can fail on one rank
(loading, packing, replaying, allocating) happens before the ranks agree over the store, which the host
does while the card works; only then does anybody enter a collective.

Outputs are the same on every rank.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from encgraph import incoming
from encgraph.balance import Assignment, Rule
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import require
from encgraph.parallel import contents, gathering, identity, notices
from encgraph.parallel.gathering import Rows
from encgraph.parallel.notices import RankError
from encgraph.parallel.ranks import Ranks
from encgraph.records import Item
from encgraph.results import Memory
from encgraph.runner import OWNERSHIPS, EncoderRunner
from encgraph.tabular import Showing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lazy:
    """An item whose pixels only the rank that encodes it loads."""

    item: Item
    """Its sizes, which all ranks plan by."""
    load: Callable[[], Input]
    """Makes the input; called once, on one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank did of one batch."""

    assignment: Assignment
    rank: int
    tokens: int
    """Output tokens this rank encoded."""
    pixel_bytes: int
    """Bytes of pixels this rank took; those of other ranks it never touched."""
    copied_bytes: int
    """Of them, those that were not on the encoder's device yet."""
    sent_bytes: int
    """Bytes this rank sent to the others in the gather."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Encoded:
    """This rank's rows in place, ready to gather."""

    counts: Sequence[int]
    """Output rows of each item."""
    share: Share
    rows: Rows


@dataclass(slots=True, kw_only=True, eq=False)
class ShardedRunner(Showing):
    """One rank's runner among those of all ranks; a context manager that clears on exit.

    All ranks make it alike and make the same calls in the same order.
    """

    runner: EncoderRunner
    """This rank's own, its encoder on this rank's device."""
    ranks: Ranks
    assign: Rule
    """Shares a batch; see `balance.rule`."""
    gather: str = "padded"
    """"padded" (one all-gather, ranks padded to the fullest) or "uneven" (no padding moved)."""
    ownership: str = "clone_each"
    """"clone_each": each item owns its memory; "one_copy": views of all gathered rows, which live
    as long as any of them is kept."""
    last: Share | None = None
    """What this rank did of the last batch; None before the first."""
    _introduced: bool = False

    def __post_init__(self) -> None:
        gathering.named(self.gather)
        require(
            self.ownership in OWNERSHIPS,
            f"ownership must be one of {[*OWNERSHIPS]}, got {self.ownership!r}",
        )

    def __enter__(self) -> "ShardedRunner":
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    def introduce(self) -> None:
        """Compare encoder, weights, plan and rules with the other ranks', once, before any work.

        Raises:
            ValueError: On all ranks alike, if they differ; names each difference.
            RankError: If a rank failed or did not come.
        """
        if self._introduced:
            return
        _, said = self.ranks.board.hear(lambda: (None, self._facts()), about="introducing ranks")
        found = identity.differences([json.loads(text) for text in said])
        require(not found, f"ranks must run the same encoder and plan; {'; '.join(found)}")
        self._introduced = True

    def capture(self) -> Memory:
        """Capture on every rank, once all hold the same encoder and plan.

        Returns:
            What the graphs of this rank hold.

        Raises:
            ValueError: If the ranks differ; nothing was captured then.
            RankError: The same on all ranks, if one could not capture; all are cleared then.
        """
        self.introduce()
        try:
            return self.ranks.board.agree(
                lambda: (self.runner.capture(), "captured"), about="capturing"
            )
        except Exception:
            self.runner.clear()
            raise

    def clear(self) -> int:
        """Drop this rank's graphs; idempotent, no other rank is asked. Returns the bytes given back."""
        return self.runner.clear()

    def execute(self, batch: Sequence[Input | Lazy]) -> list[EncoderOutput]:
        """Encode a batch over all ranks.

        Args:
            batch: N items, the same in the same order on every rank. Sizes are compared, contents by
                a few values of items that several ranks hold in host memory. Pixels of host tensors
                are copied by the rank that encodes them alone; those of a `Lazy` are not even made
                elsewhere.

        Returns:
            N outputs in batch order on every rank, each (tokens, width).

        Raises:
            ValueError: On all ranks alike, before the first batch, if encoders or plans differ.
            RankError: The same on all ranks: a rank that failed and why, batches that differ, or a
                rank that was lost. After a loss no batch can run; after the others the next can.
        """
        self.introduce()
        made, said = self.ranks.board.hear(lambda: self._encode(batch), about="this batch")
        plans, contents_said = zip(*(text.split("\n") for text in said), strict=True)
        notices.check_same(plans, about="this batch")
        contents.check_alike(contents_said)
        if self.ranks.size > 1 and len(made.rows.whole):
            self._exchange(made.rows)
        self.last = made.share
        return _in_order(made, self._cut)

    def _facts(self) -> str:
        encoder, mine = self.runner.encoder, self.ranks.device
        require(
            encoder.spec.device == mine,
            f"the encoder of rank {self.ranks.rank} must be on {mine}, got {encoder.spec.device}",
        )
        rules = {
            "backend": self.runner.backend,
            "balance rule": self.assign((), self.ranks.size).rule,
            "gather": self.gather,
        }
        return json.dumps(identity.facts(encoder, self.runner.plan, rules))

    def _encode(self, batch: Sequence[Input | Lazy]) -> tuple[_Encoded, str]:
        """Everything that may fail on one rank alone, and what all must agree on."""
        spec, rank = self.runner.encoder.spec, self.ranks.rank
        gather = gathering.named(self.gather)
        items = [_item(value, index) for index, value in enumerate(batch)]
        shared = self.assign(items, self.ranks.size)
        counts = [spec.rows(item) for item in items]
        like = torch.empty(0, dtype=spec.dtype, device=spec.device)
        each = [sum(counts[index] for index in mine) for mine in shared.ranks]
        rows = gather.rows(each, rank, width=sum(spec.widths), like=like)
        mine = [self._loaded(batch[index], index) for index in shared.ranks[rank]]
        if mine:
            _write(rows.mine, self.runner.execute(mine), spec.widths)
        share = Share(
            assignment=shared,
            rank=rank,
            tokens=shared.tokens(items)[rank],
            pixel_bytes=sum(value.pixels.nbytes for value in mine),
            copied_bytes=sum(v.pixels.nbytes for v in mine if v.pixels.device != spec.device),
            sent_bytes=gather.sent_bytes(rows),
        )
        values = contents.sampled(batch) if self.ranks.size > 1 else ""
        said = f"{_said(items, shared)}\n{values}"
        return _Encoded(counts=counts, share=share, rows=rows), said

    def _loaded(self, value: Input | Lazy, index: int) -> Input:
        """The input, if it is what the plan took it for."""
        try:
            made = value.load() if isinstance(value, Lazy) else value
            found = self.runner.encoder.item_spec(made)
        except Exception as error:
            raise ValueError(incoming.placed(str(error), index)) from error
        rows, item = self.runner.encoder.spec.rows, value.item
        require(
            (found.tokens, found.patches, rows(found)) == (item.tokens, item.patches, rows(item)),
            f"item {index} must have the {item.tokens} tokens it was planned with, to give "
            f"{rows(item)} rows, got pixels of {found.tokens} that give {rows(found)}; "
            "give sizes and pixels of the same item",
        )
        return made

    def _exchange(self, rows: Rows) -> None:
        try:
            gathering.named(self.gather).exchange(rows)
        except RuntimeError as error:
            lost = f"a rank was lost in the gather ({error}); all ranks stop; start them again"
            self.ranks.board.lost = lost
            raise RankError(lost) from error

    def _cut(self, rows_TW: Tensor) -> EncoderOutput:
        """One item's rows as an output, outputs apart."""
        owned = rows_TW.clone() if self.ownership == "clone_each" else rows_TW
        main, *extra = torch.split(owned, list(self.runner.encoder.spec.widths), dim=1)
        return EncoderOutput(main=main, extra=tuple(extra))


def _item(value: object, index: int) -> Item:
    if not isinstance(value, Input | Lazy):
        raise TypeError(f"item {index} must be an Input or Lazy, got {type(value).__name__}")
    return value.item


def _write(rows_TW: Tensor, outputs: Sequence[EncoderOutput], widths: Sequence[int]) -> None:
    """Write outputs end to end, all of an item side by side."""
    columns = torch.split(rows_TW, list(widths), dim=1)
    each = zip(*(output.tensors for output in outputs), strict=True)
    for column, tensors in zip(columns, each, strict=True):
        joined = torch.cat(tensors)
        assert joined.shape == column.shape, joined.shape  # or it would be broadcast
        column.copy_(joined)


def _said(items: Sequence[Item], shared: Assignment) -> str:
    """A batch and its assignment in a line: what a reader needs, and a digest of it all."""
    sizes = [(i.modality.value, i.tokens, i.patches, i.segments, i.frames) for i in items]
    text = f"{shared.ranks!r} {sizes!r}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{len(items)} items of {sum(item.tokens for item in items)} tokens ({digest})"


def _in_order(made: _Encoded, cut: Callable[[Tensor], EncoderOutput]) -> list[EncoderOutput]:
    found = {index: cut(rows) for index, rows in _each(made)}
    return [found[index] for index in range(len(made.counts))]


def _each(made: _Encoded) -> Iterator[tuple[int, Tensor]]:
    """Each item's index and its view of the gathered rows."""
    for part, mine in zip(made.rows.parts, made.share.assignment.ranks, strict=True):
        counts = [made.counts[index] for index in mine]
        yield from zip(mine, torch.split(part, counts), strict=True)
