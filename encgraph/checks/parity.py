"""Prove that what the runner returns is what the encoder computes.

Parity compares every item with the untouched eager forward. In float32 both must agree to 1e-5
relative. In bfloat16 or float16 neither is exact: the runner may be farther from a float32 eager
oracle by at most 1.25 times what same-dtype eager is, since a fixed tolerance either hides a wrong row
or fails an honest rounding. Distance is ||out - oracle|| / ||oracle|| over an item's rows, the worst of
its outputs.

The ratio of two distances over n values is itself left to chance. The logarithm of the norm of n normal
roundings has variance 1 / 2n, so that of the ratio of two right answers, whose roundings have
correlation r, has mean 0 and standard deviation

    sqrt((1 - r^2) / n), at most 1 / sqrt(n).

bert-tiny in bfloat16, graphs' forward against eager, 240 pooled rows a width: 0.115 at n = 32 and 0.054
at 256, where the measured r of 0.78 and 0.75 give 0.111 and 0.041. One row of 32 in 30 exceeds 1.25 so,
one of 128 none. Therefore an item of n values may exceed 1.25 by three such deviations, exp(3 / sqrt(n)):
2.12 times eager's distance for 32 values, 1.39 for 768, 1.26 for 256 rows of 1,152. What that lets pass
in short rows is caught by the same rule for the items together, root mean square, n all their values.

One wrong row of thousands is lost in such a distance, so rows are looked at too. A row's distance is
||row - oracle's|| over the oracle's norm of that row or, for a row smaller than most, of the mean row. Rows
of another item or place are off by sqrt(2) times that, zeros by 1. A row has to be off both by `ROW_TOLERANCE`
and by `ROW_MULTIPLE` times eager's worst to be called wrong: `tests/test_parity_bounds.py` holds that every tiny
tower in bfloat16 stays under a fifth of the first and a half of the second. What is a little off in many rows is
for the rules above.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from encgraph.encoders.protocol import EncoderOutput, Execute, Input
from encgraph.errors import ParityError

FLOAT32_TOLERANCE = 1e-5
EAGER_MULTIPLE = 1.25
"""How much farther from the oracle than same-dtype eager the runner may be, chance apart."""
EAGER_MOST = 0.5
"""Where eager is farther than this from its float32 self, nothing can be judged by it.

Half of what an output of zeros is off by. Idefics3 and SmolVLM of transformers 5.17, which round positions
away in bfloat16, are 0.3 off at their real sizes, and more at tiny ones.
"""
ALONE_TOLERANCE = 0.05
"""What the runner may be off from float32 by, where eager cannot tell: an output so near is right all the same.

No tower of the registry rounds more away in bfloat16 (`tests/test_parity_bounds.py`).
"""
TOLERANCE_MOST = EAGER_MULTIPLE * EAGER_MOST
"""Never more is allowed, by chance or not: an output of zeros is off by 1."""
ROW_TOLERANCE = 0.25
"""A row that is off by less is rounded; some row of a deep tower may be far worse off than most."""
ROW_MULTIPLE = 4.0
"""How many times as far off as eager's worst row a rounded row may be.

Where eager's rows are up to 5 times as far off as all together, a row of zeros is found up to a mean distance
of 0.05, another item's up to 0.07.
"""
CHANCE_DEVIATIONS = 3.0
"""Standard deviations by which chance may raise that, were both roundings independent."""
_LEAST_NORM = 1e-30
"""What an output of zeros is divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far from the oracle the runner is, and how far eager."""

    error_ratio: float
    """Distance of the runner's output from the oracle."""
    eager_error_ratio: float
    """Distance of same-dtype eager from the oracle; 0 where eager is the oracle."""
    values: int
    """Values compared, of the smallest output."""

    @property
    def tolerance_ratio(self) -> float:
        """What the runner may differ by."""
        if not self.is_judged:
            return ALONE_TOLERANCE
        allowed = max(FLOAT32_TOLERANCE, multiple(self.values) * self.eager_error_ratio)
        return min(TOLERANCE_MOST, allowed)

    @property
    def is_judged(self) -> bool:
        """Whether eager is near enough to its float32 self to judge by; NaN never is."""
        return self.eager_error_ratio <= EAGER_MOST

    @property
    def holds(self) -> bool:
        """Whether it is close enough; NaN never is."""
        return self.error_ratio <= self.tolerance_ratio

    @property
    def said(self) -> str:
        """The distance and what is allowed; why that does not follow eager, where it cannot."""
        said = f"relative error {self.error_ratio:.3g}, allowed {self.tolerance_ratio:.3g}"
        if self.is_judged:
            return said
        return (
            f"{said}, with nothing to judge by: eager's own in this dtype is "
            f"{self.eager_error_ratio:.3g}, more than {EAGER_MOST:.3g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemParity(Distances):
    """One item against the oracle."""

    item: int
    misfit: str | None = None
    """How number or shapes of the outputs differ from the oracle's; None where they are the same."""
    row_error_ratio: float = 0.0
    """Distance of the runner's worst row from the oracle's."""
    eager_row_error_ratio: float = 0.0
    """The same of eager's worst row."""

    @property
    def row_tolerance_ratio(self) -> float:
        """What a row may differ by."""
        if not self.is_judged:
            return ROW_TOLERANCE
        return max(ROW_TOLERANCE, ROW_MULTIPLE * self.eager_row_error_ratio)

    @property
    def holds(self) -> bool:
        """Whether it is close enough, and each row of it; NaN never is."""
        return super(ItemParity, self).holds and self.row_error_ratio <= self.row_tolerance_ratio

    @property
    def said(self) -> str:
        """Distance and what is allowed, of a row where only that is wrong; shapes, where those differ."""
        said = super(ItemParity, self).said
        if self.misfit or self.holds or not super(ItemParity, self).holds:
            return self.misfit or said
        row = f"{self.row_error_ratio:.3g}, allowed {self.row_tolerance_ratio:.3g}"
        return f"relative error of one row {row}; {said} over all its rows"


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
    def together(self) -> Distances:
        """All items as one: root mean square of their distances, by their values.

        Where few items make most of the error, as few values count: n is sum^2 / sum of squares of
        the errors' shares, as for any weighted mean; an item that eager cannot judge has none.
        """
        judged = [item for item in self.items if item.is_judged]
        weights = [item.values * item.eager_error_ratio**2 for item in judged]
        spread = math.fsum(w * w / i.values for w, i in zip(weights, judged, strict=True))
        total = sum(item.values for item in self.items)
        return Distances(
            error_ratio=_root_mean_square((i.error_ratio, i.values) for i in self.items),
            eager_error_ratio=_root_mean_square(
                (i.eager_error_ratio, i.values) for i in self.items
            ),
            values=max(1, round(math.fsum(weights) ** 2 / spread)) if spread else max(1, total),
        )

    @property
    def holds(self) -> bool:
        """Whether every item is close enough, and all together."""
        return all(item.holds for item in self.items) and self.together.holds


def multiple(values: int) -> float:
    """How many times eager's distance is allowed over so many values.

    >>> [round(multiple(n), 2) for n in (32, 768, 256 * 1152)]
    [2.12, 1.39, 1.26]
    """
    return EAGER_MULTIPLE * math.exp(CHANCE_DEVIATIONS / math.sqrt(values))


def _root_mean_square(ratios: Iterable[tuple[float, int]]) -> float:
    """Of distances, each with the number of its values; 0 without any."""
    each = list(ratios)
    total = math.fsum(ratio**2 * values for ratio, values in each)
    return math.sqrt(total / max(1, sum(values for _, values in each)))


def _closeness(item: ItemParity) -> float:
    share = item.error_ratio / item.tolerance_ratio
    return math.inf if math.isnan(share) or (share <= 1 and not item.holds) else share


def distance(output: EncoderOutput, oracle: EncoderOutput) -> float:
    """Relative distance of an item's outputs, the worst of main and extras.

    NaN if any value is NaN, or if number or shapes of the outputs differ.
    """
    return _distances(output, oracle)[0]


@torch.no_grad()
def _distances(output: EncoderOutput, oracle: EncoderOutput) -> tuple[float, float]:
    """Relative distances: of the worst output as a whole, and of the worst row of any."""
    if [t.shape for t in output.tensors] != [t.shape for t in oracle.tensors]:
        return math.nan, math.nan
    wholes, rows = [0.0], [0.0]
    for mine, true in zip(output.tensors, oracle.tensors, strict=True):
        if not true.numel():
            continue
        exact = true.double()
        gap_R = torch.linalg.vector_norm(mine.double() - exact, dim=-1)
        size_R = torch.linalg.vector_norm(exact, dim=-1)
        norm = torch.linalg.vector_norm(size_R).clamp_min(_LEAST_NORM)
        norm_R = size_R.clamp_min(size_R.mean()).clamp_min(_LEAST_NORM)
        wholes.append(float(torch.linalg.vector_norm(gap_R) / norm))
        rows.append(float((gap_R / norm_R).max()))
    return _worst(wholes), _worst(rows)


def _worst(ratios: Sequence[float]) -> float:
    """The largest, or NaN if one is."""
    return math.nan if any(map(math.isnan, ratios)) else max(ratios)


def misfit(output: EncoderOutput, oracle: EncoderOutput) -> str | None:
    """How number or shapes of an item's outputs differ from the oracle's, as one clause, or None.

    >>> misfit(EncoderOutput(main=torch.zeros(3, 8)), EncoderOutput(main=torch.zeros(4, 8)))
    '3 rows where there must be 4'
    """
    mine, true = ([tuple(t.shape) for t in each.tensors] for each in (output, oracle))
    if mine == true:
        return None
    if len(mine[0]) == len(true[0]) == 2 and mine[0][0] != true[0][0]:
        return f"{mine[0][0]} rows where there must be {true[0][0]}"
    return f"outputs of shapes {mine} where there must be {true}"


def compare(
    execute: Execute,
    batches: Sequence[Sequence[Input]],
    *,
    eager: Execute,
    oracle: Execute | None = None,
) -> Parity:
    """Compare every item of every batch with eager, and both with an oracle.

    Args:
        execute: What is under test, such as `runner.execute`.
        batches: Inputs, batch by batch.
        eager: The untouched forward in the same dtype.
        oracle: The untouched forward in float32; None when `eager` is itself the oracle.

    Returns:
        One entry an item, numbered through all batches.
    """
    found: list[ItemParity] = []
    for batch in batches:
        mine, same_dtype = execute(batch), eager(batch)
        exact = oracle(batch) if oracle else same_dtype
        for output, plain, true in zip(mine, same_dtype, exact, strict=True):
            error, row_error = _distances(output, true)
            eager_error, eager_row = _distances(plain, true) if oracle else (0.0, 0.0)
            found.append(
                ItemParity(
                    item=len(found),
                    misfit=misfit(output, true),
                    error_ratio=error,
                    eager_error_ratio=eager_error,
                    row_error_ratio=row_error,
                    eager_row_error_ratio=eager_row,
                    values=max(1, min(tensor.numel() for tensor in true.tensors)),
                )
            )
    return Parity(items=tuple(found), oracle="eager, float32")


def demand(parity: Parity) -> None:
    """Fail loudly on the first item that differs, or if all together do.

    Raises:
        ParityError: Naming the item, its distance and its tolerance.
    """
    who = [(f"item {item.item} differs", item) for item in parity.items]
    for what, found in (*who, ("all items together differ", parity.together)):
        if not found.holds:
            raise ParityError(
                f"{what} from {parity.oracle}: {found.said}; do not use these outputs; "
                "run `encgraph check` on the encoder"
            )
