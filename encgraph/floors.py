"""Measure what no strategy can beat: an exact-shape graph of the same kernels, and arithmetic.

The exact graph computes not one row too many, so a strategy's distance from it is what its padding,
splitting and host work cost. The arithmetic floor is taken at the rate the card reaches on one large
matrix product, and says how far the kernels themselves are from what could be.
"""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import torch

from encgraph import exact, measure
from encgraph.encoders.protocol import Encoder, Input
from encgraph.exact import ExactSet
from encgraph.layouts import Keep
from encgraph.measure import Execute
from encgraph.records import Plan
from encgraph.runner import EncoderRunner

SAMPLE = 40
"""Requests for which exact graphs are made, each captured once."""
SIDE = 8192
"""Rows and columns of the matrix product; smaller ones do not fill a large card."""
Kernels = tuple[str, bool, bool]
"""Attention, whether the body is compiled, and whether fused: what two systems must share to be compared."""


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


def prepared(runner: EncoderRunner, batch: Sequence[Input]) -> Execute | None:
    """Capture the exact graphs of a batch; None where one could not be made."""
    made = runner.graphs
    assert isinstance(made, ExactSet)
    failed = len(made.failures)
    runner.execute(batch)
    return runner.execute if len(made.failures) == failed else None


def matmul_tflops(
    device: torch.device, dtype: torch.dtype, *, side: int = SIDE, samples: int = 20
) -> float:
    """Rate of one large matrix product of random numbers, median of samples, in TFLOP/s.

    Random, since zeros draw less power and run faster than any real data does.
    """
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    multiply = partial(torch.mm, a, b, out=out)
    times = [measure.wall_ms(multiply, device) for _ in range(samples + 3)][3:]
    return 2 * side**3 / statistics.median(times) * 1e-9
