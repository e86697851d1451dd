"""Measure what no strategy can beat: an exact-shape graph of the same kernels, and arithmetic.

The exact graph computes not one row too many, so a strategy's distance from it is what its padding,
splitting and host work cost. The arithmetic floor is taken at the rate the card reaches on one large
matrix product, and says how far the kernels themselves are from what could be. An exact graph that could
not be captured, or whose answer is wrong, is no floor: it is left out, with its reason.
"""

import statistics
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from encgraph import exact, graphs, meters
from encgraph.curves import Kernels
from encgraph.encoders.protocol import Encoder, Execute, Input
from encgraph.errors import CaptureError, ParityError
from encgraph.exact import ExactSet
from encgraph.layouts import Keep, layout_of
from encgraph.proving import Untouched
from encgraph.records import Plan, Route, Step
from encgraph.runner import EncoderRunner

SAMPLE = 40
"""Requests for which exact graphs are made, each captured once."""
SIDE = 8192
"""Rows and columns of the matrix product; smaller ones do not fill a large card."""


def sampled(count: int, most: int = SAMPLE) -> list[int]:
    """Evenly spaced indices of so many requests.

    >>> sampled(10, 4)
    [0, 3, 6, 9]
    """
    return list(range(0, count, -(-count // most))) if count else []


def exact_runner(encoder: Encoder, backend: str, stack: ExitStack) -> EncoderRunner:
    """A runner that makes an exact graph of whatever it is given; closed with the stack."""
    keep = Keep(min_hits=1, max_graphs=2, pools="one")
    runner = EncoderRunner(
        encoder=encoder,
        plan=Plan(graphs=(), encoder=encoder.spec.name),
        backend=backend,
        layouts=partial(exact.open_set, keep=keep, backend=backend),
    )
    stack.enter_context(runner)
    runner.capture()
    return runner


@dataclass(slots=True, kw_only=True, eq=False)
class Exacts:
    """The exact graphs of a comparison."""

    runners: Mapping[Kernels, EncoderRunner]
    """One that makes exact graphs for each set of kernels."""
    untouched: Untouched
    """What proves them."""
    left_out: dict[Kernels, dict[int, str]] = field(default_factory=dict)
    """Why a request has no floor, by its index."""

    def proven(self, index: int, batch: Sequence[Input]) -> dict[Kernels, Execute]:
        """Capture the exact graphs of a request, and give those whose answer is right.

        The others are left out; a warning says why.
        """
        if not self.runners:
            return {}
        ready: dict[Kernels, Execute] = {}
        right = self.untouched.right(batch)
        for kernels, runner in self.runners.items():
            try:
                execute = prepared(runner, batch)
                right.demand("its answer", execute)
            except (CaptureError, ParityError) as error:
                self.left_out.setdefault(kernels, {})[index] = str(error)
                warnings.warn(
                    f"exact graph of {kernels.about}, request {index}, is left out: {error}",
                    stacklevel=2,
                )
            else:
                ready[kernels] = execute
        return ready


def prepared(runner: EncoderRunner, batch: Sequence[Input]) -> Execute:
    """Capture the exact graphs of a batch.

    Raises:
        CaptureError: If not all of it is replayed; says why.
    """
    made = runner.graphs
    assert isinstance(made, ExactSet)
    steps: list[Step] = []

    def seen(step: Step) -> Any:
        steps.append(step)
        return graphs.unobserved(step)

    runner.observe = seen
    runner.execute(batch)
    runner.observe = graphs.unobserved
    reasons = [step.reason for step in steps if step.route is not Route.REPLAY]
    if reasons:
        layout = layout_of(runner.encoder.item_spec(value) for value in batch)
        raise CaptureError(made.failures.get(layout) or str(reasons[0]))
    return runner.execute


def matmul_tflops(
    device: torch.device, dtype: torch.dtype, *, side: int = SIDE, samples: int = 20
) -> float:
    """Rate of one large matrix product of random numbers, median of samples, in TFLOP/s.

    Random, since zeros draw less power and run faster than any real data does.
    """
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    multiply = partial(torch.mm, a, b, out=out)
    times = [meters.wall_ms(multiply, device) for _ in range(samples + 3)][3:]
    return 2 * side**3 / statistics.median(times) * 1e-9
