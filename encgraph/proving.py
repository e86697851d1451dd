"""Prove that what is timed is right, before its time counts.

A wrong answer can be the fastest one: an exact graph in which a compiler's fault made attention read
nothing took 40 % less time than the right one. So a comparison proves every system that it times, and
every exact graph.

* What is right is what the untouched tower computes, in the dtype of the comparison and in float32; in
  float32 the two are one. How near an answer must come is the rule of `checks.parity`.
* All systems of a comparison have weights from one seed, hence equal ones. So one untouched tower
  serves all, and runs once a request whatever the number of systems. One whose weights were others
  would not pass.
* Systems are proven before anything is timed, on the few requests that tell most: the one with fewest
  tokens, the middle one, the one with most items and the one with most tokens. A system that
  is wrong ends the comparison there, by name.
* Exact graphs are made request by request, and each is proven where it is made. One that is wrong is
  left out, with its reason: it is a floor, and the systems stand without it.
* Of each system the comparison keeps how many items were proven, and how near the worst of them came
  to what is allowed: 1 is the limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch

from encgraph.checks import parity
from encgraph.checks.parity import Parity
from encgraph.encoders.protocol import Encoder, EncoderOutput, Execute, Input
from encgraph.errors import ParityError
from encgraph.records import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What was proven of one system."""

    items: int
    error_over_allowed_ratio: float
    """Error of the worst item, or of a request's items together, over what it may be; at most 1."""

    @classmethod
    def of(cls, found: Sequence[Parity]) -> Self:
        """Sum up the requests of a system."""
        each = [one for request in found for one in (*request.items, request.together)]
        return cls(
            items=sum(len(request.items) for request in found),
            error_over_allowed_ratio=max(
                (one.error_ratio / one.tolerance_ratio for one in each), default=0.0
            ),
        )

    @property
    def numbers(self) -> dict[str, float]:
        """For a measurement."""
        return {
            "proven_items_count": float(self.items),
            "error_over_allowed_ratio": self.error_over_allowed_ratio,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Right:
    """What is right for one request."""

    batch: Sequence[Input]
    eager: list[EncoderOutput]
    oracle: list[EncoderOutput] | None
    """None where eager is itself the oracle."""

    def demand(self, name: str, execute: Execute) -> Parity:
        """Run the request and fail loudly unless every item is right.

        Args:
            name: What is under test, for the message.
            execute: Runs the request; its outputs are read before anything else runs.

        Raises:
            ParityError: If it is wrong; says what is, and which item.
        """
        made = execute(self.batch)
        if len(made) != len(self.batch) or not all(isinstance(o, EncoderOutput) for o in made):
            kinds = sorted({type(one).__name__ for one in made})
            raise ParityError(
                f"{name}: {len(self.batch)} items must give as many of EncoderOutput, "
                f"got {len(made)} of {kinds!r}"
            )
        oracle = self.oracle
        found = parity.compare(
            lambda batch: made,
            [self.batch],
            eager=lambda batch: self.eager,
            oracle=None if oracle is None else lambda batch: oracle,
        )
        try:
            parity.demand(found)
        except ParityError as error:
            raise ParityError(f"{name}: {error}") from error
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Untouched:
    """The untouched tower of a comparison, by which all of it is judged."""

    eager: Execute
    oracle: Execute | None
    """Its float32 copy; None where the comparison itself is in float32."""

    @classmethod
    def of(cls, encoder: Encoder) -> Self:
        """The tower of an encoder; copies its weights unless they are float32 already."""
        exact = encoder.spec.dtype == torch.float32
        return cls(eager=encoder.stock().eager, oracle=None if exact else encoder.oracle().eager)

    def right(self, batch: Sequence[Input]) -> Right:
        """What is right for a request; one run of each tower."""
        oracle = self.oracle(batch) if self.oracle else None
        return Right(batch=batch, eager=self.eager(batch), oracle=oracle)


def telling(requests: Sequence[Sequence[Item]]) -> list[int]:
    """Indices of the few requests that tell most of a system, each once, lightest first.

    >>> telling([[Item(tokens=n, patches=4 * n)] * k for n, k in ((9, 1), (64, 1), (4, 3), (99, 1))])
    [0, 2, 1, 3]
    """
    tokens = [sum(item.tokens for item in request) for request in requests]
    order = sorted(range(len(tokens)), key=tokens.__getitem__)
    if not order:
        return []
    most_items = max(order, key=lambda index: len(requests[index]))
    chosen = {order[0], order[len(order) // 2], most_items, order[-1]}
    return [index for index in order if index in chosen]


def systems(
    executes: Mapping[str, Execute], batches: Mapping[int, Sequence[Input]], untouched: Untouched
) -> dict[str, Proven]:
    """Prove systems on some requests of a traffic, given by index.

    Raises:
        ParityError: On the first wrong answer; names the system, the request and the item.
    """
    found: dict[str, list[Parity]] = {name: [] for name in executes}
    for index, batch in batches.items():
        right = untouched.right(batch)
        for name, execute in executes.items():
            found[name].append(right.demand(f"strategy {name!r}, request {index}", execute))
    return {name: Proven.of(requests) for name, requests in found.items()}
