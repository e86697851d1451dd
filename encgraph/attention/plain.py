"""Packed attentions that are one kernel each: their functions, and what they lack on a device."""

from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from encgraph.attention import cudnn, fa3, flash, loop, sdpa

KERNEL_NAMES = ("fa3", "flash", "cudnn", "loop", "sdpa")
ORDER = ("fa3", "flash", "loop", "sdpa")
"""Taken in this order where nothing was measured."""
PARTICULAR: dict[str, ModuleType] = {"fa3": fa3, "flash": flash, "cudnn": cudnn, "loop": loop}


class Attend(Protocol):
    """Packed attention; see `sdpa.attend`."""

    def __call__(  # noqa: PLR0913 - the one signature of packed attention
        self,
        q_PHD: Tensor,
        k_PHD: Tensor,
        v_PHD: Tensor,
        offsets_S1: Tensor,
        longest: int,
        *,
        scale: float,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attend within segments."""
        ...


FUNCTIONS: dict[str, Attend] = {
    "fa3": fa3.attend,
    "flash": flash.attend,
    "cudnn": cudnn.attend,
    "loop": loop.attend,
    "sdpa": sdpa.attend,
}


def missing(name: str, *, device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops one of `KERNEL_NAMES` on a device with a dtype, or None."""
    if name == "sdpa":
        return None
    reason: str | None = PARTICULAR[name].missing(device, dtype)
    return reason


def first(device: torch.device, dtype: torch.dtype) -> str:
    """The first of `ORDER` that runs here; sdpa always does."""
    return next(n for n in ORDER if missing(n, device=device, dtype=dtype) is None)
