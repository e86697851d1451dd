"""Prove that what the runner returns is what the encoder computes.

Parity compares every item with the untouched eager forward. In float32 both must agree to 1e-5
relative. In bfloat16 or float16 neither is exact: the runner may be farther from a float32 eager
oracle by at most 1.25 times what same-dtype eager is, item by item, since a fixed tolerance either
hides a wrong row or fails an honest rounding.

Distance is ||out - oracle|| / ||oracle|| over an item's rows, the worst of its outputs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import ParityError

FLOAT32_TOLERANCE = 1e-5
EAGER_MULTIPLE = 1.25
"""How much farther from the oracle than same-dtype eager an item may be."""
Execute = Callable[[Sequence[Input]], list[EncoderOutput]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemParity:
    """One item against the oracle."""

    item: int
    error_ratio: float
    """Distance of the runner's output from the oracle."""
    eager_error_ratio: float
    """Distance of same-dtype eager from the oracle; 0 where eager is the oracle."""

    @property
    def tolerance_ratio(self) -> float:
        """What this item may differ by."""
        return max(FLOAT32_TOLERANCE, EAGER_MULTIPLE * self.eager_error_ratio)

    @property
    def holds(self) -> bool:
        """Whether it is close enough; NaN never is."""
        return self.error_ratio <= self.tolerance_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """All items of one or more batches against the oracle."""

    items: tuple[ItemParity, ...]
    oracle: str

    @property
    def worst(self) -> ItemParity | None:
        """The item nearest to, or farthest beyond, its tolerance; None without items."""
        return max(self.items, key=_closeness, default=None)

    @property
    def holds(self) -> bool:
        """Whether every item is close enough."""
        return all(item.holds for item in self.items)


def _closeness(item: ItemParity) -> float:
    share = item.error_ratio / item.tolerance_ratio
    return math.inf if math.isnan(share) else share


def distance(output: EncoderOutput, oracle: EncoderOutput) -> float:
    """Relative distance of an item's outputs, the worst of main and extras.

    NaN if any value is NaN, or if number or shapes of the outputs differ.
    """
    worst = 0.0
    if [t.shape for t in output.tensors] != [t.shape for t in oracle.tensors]:
        return math.nan
    for mine, true in zip(output.tensors, oracle.tensors, strict=True):
        exact = true.double()
        gap = torch.linalg.vector_norm(mine.double() - exact)
        ratio = float(gap / torch.linalg.vector_norm(exact).clamp_min(1e-30))
        worst = ratio if math.isnan(ratio) else max(worst, ratio)
        if math.isnan(worst):
            break
    return worst


def compare(
    execute: Execute,
    batches: Sequence[Sequence[Input]],
    *,
    eager: Execute,
    oracle: Execute | None = None,
    oracle_name: str = "eager, float32",
) -> Parity:
    """Compare every item of every batch with eager, and both with an oracle.

    Args:
        execute: What is under test, such as `runner.execute`.
        batches: Inputs, batch by batch.
        eager: The untouched forward in the same dtype.
        oracle: The untouched forward in float32; None when `eager` is itself the oracle.
        oracle_name: For people.

    Returns:
        One entry an item, numbered through all batches.
    """
    found: list[ItemParity] = []
    for batch in batches:
        mine, same_dtype = execute(batch), eager(batch)
        exact = oracle(batch) if oracle else same_dtype
        for output, plain, true in zip(mine, same_dtype, exact, strict=True):
            found.append(
                ItemParity(
                    item=len(found),
                    error_ratio=distance(output, true),
                    eager_error_ratio=distance(plain, true) if oracle else 0.0,
                )
            )
    return Parity(items=tuple(found), oracle=oracle_name)


def demand(parity: Parity) -> None:
    """Fail loudly on the first item that differs.

    Raises:
        ParityError: Naming the item, its distance and its tolerance.
    """
    for item in parity.items:
        if not item.holds:
            raise ParityError(
                f"item {item.item} differs from {parity.oracle}: relative error "
                f"{item.error_ratio:.3g}, allowed {item.tolerance_ratio:.3g}; "
                "do not use these outputs; run `encgraph check` on the encoder"
            )
