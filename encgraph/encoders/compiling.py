"""Compile the block that a tower repeats, once for all of its layers and all token counts.

The layers differ in weights alone, which compiled code takes as inputs, so one compilation serves
them all; the token dimension and the longest segment are symbols in it, so it serves every budget.
Compilation happens in a warm-up, never in a capture.

Source:
    "Regional compilation", PyTorch documentation of torch.compile.
"""

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

import torch
from torch import Tensor

BACKEND = "inductor"
"""Of torch.compile; the tests, which have no card, compile without generating code."""


def compile_blocks(blocks: Iterable[Any]) -> None:
    """Give every block a forward that is compiled once for all.

    Args:
        blocks: Modules of one class whose first argument is the hidden states; shallow copies that
            nobody else runs.
    """
    blocks = list(blocks)
    body: Callable[..., Tensor] = type(blocks[0]).forward
    compiled = torch.compile(body, dynamic=True, fullgraph=True, backend=BACKEND)

    def forward(block: Any, hidden_states: Tensor, *given: Any, **named: Any) -> Tensor:
        # Detached, since compiled code tells a view from a tensor, and only the first block gets one.
        return compiled(block, hidden_states.detach(), *given, **named)

    for block in blocks:
        block.forward = MethodType(forward, block)


def compilations() -> int:
    """Graphs compiled in this process so far."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
