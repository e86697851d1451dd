"""Watch what a large replay leaves behind for a small one, with the safeguards taken away one by one.

The tensors are real: a tower on the reference backend replays a large batch and then a small one in
the same budget, and the state of every row after every block is compared with what the small batch
gives in fresh buffers. What a card would do to memory in between, other graphs scribbling over it,
is done by hand: NaN is written where nobody but the safeguard would have written.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from encgraph import graphs, sizes, watch
from encgraph.encoders import inputs, registry
from encgraph.encoders.protocol import Buffers, EncoderOutput, Input
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.errors import require
from encgraph.records import Capacity, Item, Plan

ENCODER = "qwen3-vl-tiny"
BUDGET = 128
_LARGE = (32, 32, 32, 32)
_SMALL = (75,)
"""Tokens of the items: one small item ends past where the second large one ended."""


class RowState(IntEnum):
    """What a row holds, compared with the small batch in fresh buffers."""

    PADDING = 0
    """Padding, as it should be."""
    RIGHT = 1
    """A live row with its right value."""
    STALE = 2
    """Padding that holds something else."""
    PADDING_NAN = 3
    WRONG = 4
    """A live row with a wrong value."""
    WRONG_NAN = 5
    """A live row that holds NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Safeguards:
    """What keeps a replay's leftovers from the next; all on is how the library runs."""

    zeroing: bool = True
    """Padding pixels are zeroed before the first block."""
    offsets: bool = True
    """Unused segment offsets repeat the last real one."""
    clearing: bool = True
    """The slab of the attention output is zeroed before each replay; off: NaN is left in it."""
    cloning: bool = True
    """Outputs are copied out; off: the caller of the large batch keeps a view of the slab."""
    poison: bool = False
    """Padding pixels hold NaN instead of what the large batch left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Rows by layers after the small replay."""

    layers: tuple[str, ...]
    states: tuple[tuple[RowState, ...], ...]
    """One row a token, one column a layer."""
    live: int
    """Tokens of the small batch: rows before it are live."""
    held: tuple[RowState, ...]
    """Rows that the caller of the large batch still holds, as they are now."""

    def count(self, *states: RowState) -> int:
        """Rows that are in one of these states after the last layer."""
        return sum(row[-1] in states for row in self.states)

    def first_wrong(self) -> str | None:
        """The first layer in which a live row is wrong, or None."""
        for column, name in enumerate(self.layers):
            if any(row[column] >= RowState.WRONG for row in self.states):
                return name
        return None


class Careless(QwenVL):
    """A tower with some safeguards taken away."""

    safeguards = Safeguards()

    @torch.no_grad()
    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Write inputs; leave stale offsets where their safeguard is off."""
        before_S1 = buffers["offsets"].clone()
        super().fill(buffers, inputs)
        if not self.safeguards.offsets:
            used = sum(value.grid.t for value in inputs) + 1
            buffers["offsets"][used:] = before_S1[used:]

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode the buffers; zero padding pixels only where that safeguard is on."""
        self._fill = "prefix" if self.safeguards.zeroing else "zero_and_copy"
        try:
            return super().forward(buffers, capacity)
        finally:
            self._fill = "prefix"

    def _cleared(self, attention_PH: Tensor) -> Tensor:
        if self.safeguards.clearing:
            return super()._cleared(attention_PH)
        return attention_PH.fill_(torch.nan)


class Microscope:
    """A tiny tower and two batches, ready to be looked at again and again."""

    def __init__(
        self, *, seed: int = 0, large: Sequence[int] = _LARGE, small: Sequence[int] = _SMALL
    ) -> None:
        """Build the tower and the batches.

        Raises:
            ValueError: If a batch does not fit the budget, or the small one is not smaller.
        """
        require(
            0 < sum(small) < sum(large) <= BUDGET,
            f"batches must be smaller and larger within {BUDGET} tokens, got {small!r}, {large!r}",
        )
        size = sizes.named(ENCODER)
        made = registry.named(ENCODER, device="cpu", dtype=torch.float32, seed=seed)
        self.tower = Careless(made.module, size, metadata="host", attention="sdpa")
        items = max(len(large), len(small))
        graph = sizes.capacity(BUDGET, size.rule, items=items)
        self.plan = Plan(graphs=(graph,), encoder=size.name, dtype="float32")
        self.large = inputs.synthetic(_items(large), size=size, seed=seed)
        self.small = inputs.synthetic(_items(small), size=size, seed=seed + 1)
        self._clean: list[Tensor] = []

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of what is looked at, first to last."""
        return ("pixels", *(f"block {n + 1}" for n in range(len(self._blocks))), "output")

    @property
    def _blocks(self) -> torch.nn.ModuleList:
        blocks: torch.nn.ModuleList = self.tower._faces.now().captured.blocks
        return blocks

    def look(self, safeguards: Safeguards | None = None) -> Look:
        """Replay the large batch, then the small one, and compare every row of every layer.

        Args:
            safeguards: Which are on; all by default.
        """
        chosen = safeguards or Safeguards()
        live = sum(value.item.tokens for value in self.small)
        with _one_thread():
            if not self._clean:
                self._clean, _ = self._replayed(Safeguards(), before=())
            seen, (kept, owned) = self._replayed(chosen, before=self.large)
            columns = [_states(a, b, live) for a, b in zip(seen, self._clean, strict=True)]
        return Look(
            layers=self.layers,
            states=tuple(zip(*columns, strict=True)),
            live=live,
            held=tuple(_states(kept, owned, len(owned))),
        )

    def _replayed(
        self, safeguards: Safeguards, before: Sequence[Input]
    ) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
        """States of the small replay, and what the large one's caller holds beside what it was."""
        self.tower.safeguards = safeguards
        seen: list[Tensor] = []
        capacity = self.plan.graphs[0]

        def look(block: object, given: object, state: Tensor) -> None:
            seen.append(state.clone())

        with ExitStack() as stack:
            for block in self._blocks:
                hook = block.register_forward_hook(watch.LooksOn(look))
                stack.callback(hook.remove)
            made = stack.enter_context(graphs.capture(self.tower, self.plan, backend="reference"))
            view = made.replay(capacity, before) if before else made.graphs[0].output[:0]
            owned = view.clone()
            kept = owned.clone() if safeguards.cloning else view
            buffers = made.graphs[0].buffers
            if safeguards.poison:
                buffers["pixels"].fill_(torch.nan)
            seen.clear()
            made.replay(capacity, self.small)
            states = [self._pixels(buffers), *seen, made.graphs[0].output.clone()]
            return states, (kept.clone(), owned)

    def _pixels(self, buffers: Buffers) -> Tensor:
        """Pixels as the first block sees them."""
        pixels_PK = buffers["pixels"]
        if not self.tower.safeguards.zeroing:
            return pixels_PK.clone()
        rows_P = torch.arange(len(pixels_PK), device=pixels_PK.device)
        return torch.where((rows_P < buffers["offsets"][-1])[:, None], pixels_PK, 0.0)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run tiny tensors on one thread: to wait for others takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _items(tokens: Sequence[int]) -> list[Item]:
    return [Item(tokens=n, patches=4 * n) for n in tokens]


def _states(rows: Tensor, clean: Tensor, live: int) -> list[RowState]:
    """State of each token's row; a token of several patches is as bad as its worst."""
    tokens = max(live, BUDGET if len(rows) > live else live)
    flat, right = (x.reshape(tokens, -1) for x in (rows, clean))
    broken = ~torch.isfinite(flat).all(1)
    differs = broken | ~torch.isclose(flat, right, rtol=1e-4, atol=1e-5).all(1)
    found = []
    for row, (is_nan, is_other) in enumerate(zip(broken.tolist(), differs.tolist(), strict=True)):
        is_live = row < live
        if is_nan:
            found.append(RowState.WRONG_NAN if is_live else RowState.PADDING_NAN)
        elif is_other:
            found.append(RowState.WRONG if is_live else RowState.STALE)
        else:
            found.append(RowState.RIGHT if is_live else RowState.PADDING)
    return found
