"""Compile the block that a tower repeats, once for all of its layers and all token counts.

The layers differ in weights alone, which compiled code takes as inputs, so one compilation serves
them all; the token dimension and the longest segment are symbols in it, so it serves every budget.
Compilation happens in a warm-up, never in a capture.

Source:
    "Regional compilation", PyTorch documentation of torch.compile.
"""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from itertools import pairwise
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from encgraph.encoders import fusing
from encgraph.encoders.protocol import Switches
from encgraph.errors import require

COMPILED_FAMILIES = (*fusing.FUSED_FAMILIES, "pixtral")
"""Families whose blocks are compiled: towers over packed patches."""
BACKEND = "inductor"
"""Of torch.compile; the tests, which have no card, compile without generating code."""


def refuse(switches: Switches) -> None:
    """Refuse a compiled or fused body for a family that has none.

    Raises:
        ValueError: If one is asked for.
    """
    fused, compiled = switches.get("fused"), switches.get("compiled")
    for name, asked, families in (
        ("fused", fused, fusing.FUSED_FAMILIES),
        ("compiled", compiled, COMPILED_FAMILIES),
    ):
        require(
            not asked,
            f"{name} must be left out for this encoder; {', '.join(families)} have such a body",
        )


def compile_blocks(blocks: Iterable[Any], *, fused: bool = False) -> None:
    """Give every block a forward that is compiled once for all.

    Args:
        blocks: Modules of one class whose first argument is the hidden states; shallow copies that
            nobody else runs.
        fused: Whether the block's passes are joined by hand first; see `fusing`.

    Raises:
        ValueError: If they cannot be fused; says why.
    """
    blocks = list(blocks)
    if fused:
        reason = fusing.unfit(blocks)
        require(reason is None, f"these blocks cannot be fused: {reason}")
        _compile_fused(blocks)
        return
    body: Callable[..., Tensor] = type(blocks[0]).forward
    compiled = torch.compile(body, dynamic=True, fullgraph=True, backend=BACKEND)

    def forward(block: Any, hidden_states: Tensor, *given: Any, **named: Any) -> Tensor:
        # Detached, since compiled code tells a view from a tensor, and only the first block gets one.
        return compiled(block, hidden_states.detach(), *given, **named)

    for block in blocks:
        block.forward = MethodType(forward, block)


def _compile_fused(blocks: Sequence[Any]) -> None:
    """Compile the fused body: each block ends with the norm of the one that follows it."""
    compiled = torch.compile(fusing.body, dynamic=True, fullgraph=True, backend=BACKEND)
    attend = fusing.attention_of(blocks[0])
    # A norm goes with the rows it is of: a forward that fails leaves nothing of a graph's pool behind.
    norms: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()
    # The last block has none that follows; one more norm costs less than one more compilation.
    following = {id(block): after.norm1 for block, after in pairwise([*blocks, blocks[-1]])}
    last = blocks[-1]

    def forward(block: Any, hidden_states: Tensor, **named: Any) -> Tensor:
        normed = norms.pop(hidden_states, None)
        if normed is None:
            normed = block.norm1(hidden_states)
        hidden: Tensor
        hidden, carried = compiled(
            block, following[id(block)], hidden_states.detach(), normed, attend=attend, **named
        )
        if block is not last:
            norms[hidden] = carried
        return hidden

    for block in blocks:
        block.forward = MethodType(forward, block)
