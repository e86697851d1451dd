"""Record which operators a forward runs, to compare two runs of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Recorded(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def operators(run: Callable[[], object]) -> list[str]:
    """Names of the operators a run dispatches, in order."""
    with torch.no_grad(), _Recorded() as recorded:
        run()
    return recorded.names
