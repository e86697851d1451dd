"""Packed attention as operators that torch.compile takes as they are.

A compiled block may not look into a kernel's launch; each attention is therefore also an operator of
its own, `encgraph::packed_<name>`, that writes its output into a tensor it is given. Outside compiled
code the function is called directly: an operator costs the host about 20 us a call.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Operator = Callable[..., None]


def define(name: str, attend: Callable[..., Tensor]) -> Operator:
    """Define the operator of an attention; once a process and name.

    Args:
        name: The attention's name.
        attend: Its function, with the one signature of packed attention.
    """

    def packed(  # noqa: PLR0913 - the one signature of packed attention
        q_PHD: Tensor,
        k_PHD: Tensor,
        v_PHD: Tensor,
        offsets_S1: Tensor,
        longest: int,
        scale: float,
        out: Tensor,
    ) -> None:
        attend(q_PHD, k_PHD, v_PHD, offsets_S1, longest, scale=scale, out=out)

    made: Any = torch.library.custom_op(f"encgraph::packed_{name}", packed, mutates_args=("out",))
    made.register_fake(lambda *given: None)
    operator: Operator = made
    return operator
