"""What is checked: an encoder, how to make inputs for it, and batches and budgets sized for it.

Checks know an encoder through `encoders.protocol` alone. Inputs come from a function that is asked for
items of so many tokens; where the encoder has no such item it gives the nearest, and every check goes
by the sizes of what came back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from encgraph import packing, sizes
from encgraph.checks import checked, keeping, parity, reaching
from encgraph.checks.checked import Checked
from encgraph.checks.parity import ItemParity
from encgraph.checks.reaching import Reach
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Encoder, EncoderSpec, Execute, Input
from encgraph.records import DIMENSIONS, Bin, Capacity, Item, Load, Modality, Packing, Plan
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize

MakeInputs = Callable[[Sequence[Item], int], list[Input]]
"""(items wanted, seed) -> one input each, of those sizes or the nearest the encoder has."""
TILE = 128
"""Rows of an attention tile; the last live row is checked around it."""


def synthetic(spec: EncoderSpec) -> MakeInputs:
    """Random pixels for an encoder of a published size; what is wanted becomes a legal item first.

    Raises:
        ValueError: If its name is no published size; pass a function that makes inputs.
    """
    size = sizes.named(spec.name)

    def make(wanted: Sequence[Item], seed: int) -> list[Input]:
        legal = [_legal(item, size) for item in wanted]
        return inputs.synthetic(legal, size=size, device=spec.device, dtype=spec.dtype, seed=seed)

    return make


def _legal(item: Item, size: EncoderSize) -> Item:
    """The item itself where any grid is legal; else the nearest there is."""
    if size.layout == "packed" and size.rule.resize != "longest_edge":
        return item
    grid = sizes.near_square_grid(min(item.tokens, size.rule.max_tokens), size.rule)
    return sizes.item(grid, size.rule, modality=item.modality)


def together(plan: Plan) -> packing.Packer:
    """Pack a whole batch, in its order, into the smallest graph that holds it; else as `ascending`.

    The default packer defers: with a budget of one item in the plan it splits a batch of small items
    into replays of one each, and no item ever stands in another's company.
    """

    def pack(items: Sequence[Item]) -> Packing:
        load = Load.of(items)
        graph = packing.smallest(plan, load) if items else None
        if graph is None:
            return packing.ascending(items, plan)
        whole = tuple(range(len(items)))
        return Packing(
            bins=(Bin(items=whole, graph=graph, capacity=plan.graphs[graph], load=load),)
        )

    return pack


def _alone(execute: Execute) -> Execute:
    """Run a batch item by item."""
    return lambda batch: [output for value in batch for output in execute([value])]


def _outside(encoder: Encoder) -> dict[int, Tensor]:
    """What `keeping` finds; nothing where the encoder is not whole yet, which the checks then say."""
    try:
        return keeping.outside(encoder)
    except AttributeError:
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """An encoder under check."""

    encoder: Encoder
    make_inputs: MakeInputs
    backend: str = "reference"
    layout: str = "packed"
    """"packed" (no padding row reaches a live one) or "masked" (padding is multiplied by zero)."""
    seed: int = 0
    given: Plan | None = None
    """A plan whose budgets are filled as well as those that the checks make; None for these alone."""
    held: Mapping[int, Tensor] = field(init=False)
    """What lay outside the module before any check ran (see `keeping`), by storage, and stays alive."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "held", _outside(self.encoder))
        if self.layout not in ("packed", "masked"):
            raise ValueError(f"layout must be 'packed' or 'masked', got {self.layout!r}")

    @property
    def low(self) -> int:
        """Tokens of the smallest legal item."""
        return self.encoder.spec.min_tokens

    @property
    def several(self) -> tuple[int, ...]:
        """Tokens of items that share a replay."""
        return (self.low, 2 * self.low, self.low)

    @cached_property
    def reach(self) -> Reach:
        """Sizes of the single items that checks try: up to the largest legal one, if there is time."""
        low, most = self.low, self.encoder.spec.max_tokens
        asked = reaching.reach(low, most, free=max(8 * low, TILE + 1), seconds=self._seconds)
        made = {self.load(self.batch(tokens)).tokens for tokens in asked.tokens}
        return replace(asked, tokens=tuple(sorted(made)))

    def _seconds(self, tokens: int) -> float:
        """How long one item takes in the forward that is captured and in the untouched one."""
        batch = self.batch(tokens)
        return reaching.forward_s(self.encoder, self.capacity(batch), batch)

    @property
    def around_a_tile(self) -> tuple[tuple[int, ...], ...]:
        """Batches whose last live row lies at, just before and just after a tile's border."""
        near = [TILE - 1, TILE, TILE + 1]
        areas = [n // self.encoder.spec.rule.merge_area for n in (TILE - 4, TILE, TILE + 4)]
        return tuple((n,) for n in (*areas, *near) if n >= self.low)

    def batch(self, *tokens: int, frames: int = 1, seed: int = 0) -> list[Input]:
        """Inputs of about so many tokens each, with the sizes the encoder itself reads off them."""
        wanted = [self._item(count, frames) for count in tokens]
        made = self.make_inputs(wanted, self.seed + seed)
        if len(made) != len(wanted) or not all(isinstance(value, Input) for value in made):
            kinds = [type(value).__name__ for value in made]
            raise ValueError(f"make_inputs must return an Input for each item wanted, got {kinds}")
        return made

    def _item(self, tokens: int, frames: int) -> Item:
        spec = self.encoder.spec
        image = Modality.VIDEO if frames > 1 else Modality.IMAGE
        if frames == 1:  # max_tokens is said of one image; clips may be larger
            tokens = min(tokens, spec.max_tokens)
        return Item(
            modality=image if image in spec.modalities else min(spec.modalities),
            tokens=tokens,
            patches=tokens * spec.rule.merge_area,
            frames=frames,
            segments=frames,
        )

    def unreplayed(self, runner: EncoderRunner, batch: Sequence[Input]) -> str | None:
        """Why a batch says nothing of graphs: none that was captured holds it; else None."""
        load = self.load(batch)
        captured = runner.graphs.captured_plan.graphs if runner.graphs else ()
        if any(capacity.holds(load) for capacity in captured):
            return None
        return f"no graph that holds {load.tokens} tokens was captured"

    def unrepeated(
        self, name: str, runner: EncoderRunner, batch: Sequence[Input], *, within: float = 0.0
    ) -> Checked | None:
        """A check that was not run, where a replay after a change says nothing of that change.

        Args:
            name: Of the check.
            runner: Captured.
            batch: Replayed twice, with nothing changed in between.
            within: Relative distance that counts as the same answer.
        """
        unreplayed = self.unreplayed(runner, batch)
        if unreplayed:
            return checked.not_run(name, f"{checked.UNJUDGED}{unreplayed}")
        first, again = (runner.execute(batch) for _ in range(2))
        if not all(bool(torch.isfinite(t).all()) for output in first for t in output.tensors):
            return checked.unjudged(name, "rows are not finite with nothing changed")
        pairs = zip(first, again, strict=True)
        if not all(parity.distance(mine, other) <= within for mine, other in pairs):
            return checked.unjudged(name, "the same batch twice gives two answers")
        return None

    def load(self, batch: Sequence[Input]) -> Load:
        """What a batch asks of one replay."""
        return Load.of(self.encoder.item_spec(value) for value in batch)

    def capacity(self, *batches: Sequence[Input]) -> Capacity:
        """The smallest that holds any one of these batches, or one item as large as the largest."""
        most = max(self.load(batch).tokens for batch in batches)
        one = self.batch(min(most, self.encoder.spec.max_tokens))
        loads = [self.load(batch) for batch in (*batches, one)]
        return Capacity(**{name: max(getattr(one, name) for one in loads) for name in DIMENSIONS})

    def capacities(self) -> tuple[Capacity, ...]:
        """Three budgets: one smallest item; several, or a tile's border; one much larger.

        Of two that come out with the same tokens, the one that holds more.
        """
        low = self.low
        middle = [self.batch(*[low] * 4), self.batch(*self.several)]
        middle += [self.batch(*tokens, low) for tokens in self.around_a_tile]
        large = [self.batch(*[low] * 8), self.batch(8 * low), *middle]
        if Modality.VIDEO in self.encoder.spec.modalities:
            large.append(self.batch(8 * low, frames=4))
        made = [self.capacity(*batches) for batches in ([self.batch(low)], middle, large)]
        return tuple({capacity.tokens: capacity for capacity in sorted(made)}.values())

    def plan(self) -> Plan:
        """The plan that checks capture."""
        spec = self.encoder.spec
        return Plan(
            graphs=self.capacities(),
            encoder=spec.name,
            dtype=str(spec.dtype).removeprefix("torch."),
        )

    def further(self) -> tuple[Capacity, ...]:
        """Budgets beyond `capacities`: one for the largest item tried, and those of the plan given."""
        low, largest = self.low, self.reach.largest
        several = max(low, (largest + low) // 8)
        batches = [self.batch(largest, low), self.batch(*[low] * 8), self.batch(*[several] * 8)]
        return (self.capacity(*batches), *(self.given.graphs if self.given else ()))

    @contextmanager
    def runner(self, *capacities: Capacity) -> Iterator[EncoderRunner]:
        """A captured runner, which puts what one graph holds into one replay.

        Args:
            capacities: What is captured; `capacities()` unless given.

        Raises:
            CaptureError: If nothing could be captured.
        """
        plan = self.plan()
        if capacities:
            by_key = {(c.tokens, c.items, c.longest_segment, c.patches): c for c in capacities}
            plan = replace(plan, graphs=tuple(by_key[key] for key in sorted(by_key)))
        with EncoderRunner(
            encoder=self.encoder, plan=plan, backend=self.backend, packer=together
        ) as made:
            made.capture()
            yield made

    def compared(
        self, execute: Execute, batches: Sequence[Sequence[Input]]
    ) -> tuple[list[str], dict[str, float]]:
        """Compare with the untouched forward of each item alone.

        Alone, because a module may itself answer otherwise for an item in another's company.

        Returns:
            Problems, each naming batch and item, and figures.
        """
        encoder = self.encoder
        exact = encoder.spec.dtype == torch.float32
        oracle = None if exact else _alone(encoder.oracle().eager)
        eager, problems = _alone(encoder.stock().eager), list[str]()
        found: list[ItemParity] = []
        for batch in batches:
            one = parity.compare(execute, [batch], eager=eager, oracle=oracle)
            problems += self._wrong(one, batch)
            found += one.items
        whole = parity.Parity(items=tuple(found), oracle="")
        worst = whole.worst
        if worst is None:
            return problems, {}
        problems = list(dict.fromkeys(problems))
        if not problems and not whole.together.holds:
            problems.append(f"all items together differ from stock().eager: {whole.together.said}")
        return problems, {
            "worst_error_ratio": worst.error_ratio,
            "tolerance_ratio": worst.tolerance_ratio,
            "items_count": float(len(found)),
        }

    def _wrong(self, found: parity.Parity, batch: Sequence[Input]) -> Iterator[str]:
        """One line a batch: the first item that differs by how much, further ones by number."""
        wrong = [item for item in found.items if not item.holds]
        if not wrong:
            return
        tokens = [self.encoder.item_spec(value).tokens for value in batch]
        others = ", ".join(str(item.item) for item in wrong[1:])
        yield (
            f"item {wrong[0].item} of a batch of {tokens} tokens differs from stock().eager: "
            f"{wrong[0].said}" + (f"; further items that differ: {others}" if others else "")
        )
