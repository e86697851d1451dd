"""The outcome of one check: a record of one line for people, its details, and its figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from encgraph.results import UNITS

MOST_DETAILS = 12
"""Lines kept of a check that found many problems."""
UNJUDGED = "not judged: "
"""What begins the reason of a check that could not judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One check of one encoder."""

    name: str
    passed: bool | None
    """None where it could not be run; the detail says why."""
    detail: tuple[str, ...]
    """Problems, a line each; what was found in order where there are none."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Finite numbers; each name ends in its unit."""

    def __post_init__(self) -> None:
        for name, value in self.figures.items():
            if not name.endswith(UNITS) or not math.isfinite(value):
                raise ValueError(f"figure {name!r} must be finite and end in a unit, got {value!r}")

    @property
    def outcome(self) -> str:
        """One word or two for people."""
        return {True: "passed", False: "FAILED", None: "not run"}[self.passed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged(Checked):
    """One that was not run since answers are wrong, or differ, with nothing changed."""


def of(
    name: str,
    problems: Sequence[str],
    *,
    said: str,
    figures: Mapping[str, float] | None = None,
) -> Checked:
    """Passed if there are no problems.

    Args:
        name: Of the check.
        problems: One line each.
        said: What was found in order, for when nothing was wrong.
        figures: Numbers; those that are not finite are left out.
    """
    kept = tuple(problems[:MOST_DETAILS])
    if len(problems) > MOST_DETAILS:
        kept += (f"and {len(problems) - MOST_DETAILS} more",)
    finite = {k: v for k, v in (figures or {}).items() if math.isfinite(v)}
    return Checked(name=name, passed=not problems, detail=kept or (said,), figures=finite)


def not_run(name: str, why: str) -> Checked:
    """A check that could not be run."""
    return Checked(name=name, passed=None, detail=(why,))


def unjudged(name: str, why: str) -> Unjudged:
    """A check that found answers wrong, or different from one another, with nothing changed.

    `suite` fails it where no check before it has failed, so that a wrong answer never passes.
    """
    return Unjudged(name=name, passed=None, detail=(f"{UNJUDGED}{why}",))


def same(mine: Tensor, other: Tensor) -> bool:
    """Whether every value is the same; NaN is the same as NaN, so that nothing else is blamed for it."""
    return mine.shape == other.shape and torch.allclose(
        mine, other, rtol=0.0, atol=0.0, equal_nan=True
    )


def lines(one: Checked, *, width: int) -> list[str]:
    """One line for people; further problems beneath, without the name.

    >>> lines(not_run("clips", "images alone"), width=8)
    ['clips     not run  images alone']
    """
    first, *further = one.detail
    head = f"{one.name:<{width}}  {one.outcome:<7}  {first}"
    return [head, *(f"{'':<{width}}  {'':<7}  {said}" for said in further)]
