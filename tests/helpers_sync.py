"""Catch what would make the host wait for the device, on a machine without one.

Two modes together: a function mode sees Tensor.tolist, .item, bool() and factories without a device,
which never reach the dispatcher on CPU; a dispatch mode sees operators whose output shape depends on
contents. What is caught is kept with the line that did it.
"""

import traceback
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

METHODS = {
    getattr(torch.Tensor, name)
    for name in (
        "item",
        "tolist",
        "numpy",
        "cpu",
        "nonzero",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__contains__",
    )
} | {torch.nonzero, torch.unique, torch.unique_consecutive, torch.masked_select}
OPERATORS = (
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::unique_dim",
    "aten::repeat_interleave",
    "aten::equal",
    "aten::is_nonzero",
)


def _caller() -> str:
    frames = [f for f in traceback.extract_stack() if "helpers_sync" not in f.filename]
    own = [f for f in frames if "/torch/" not in f.filename] or frames
    return f"{own[-1].filename}:{own[-1].lineno}: {own[-1].line}"


class _Functions(TorchFunctionMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in METHODS:
            self.found.append(f"{func.__name__} at {_caller()}")
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name
        by_mask = name.startswith("aten::index") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8)
            for index in (args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ())
        )
        if name in OPERATORS or by_mask:
            self.found.append(f"{name} at {_caller()}")
        result = func(*args, **(kwargs or {}))
        return (
            tuple(result) if isinstance(result, list) and len(func._schema.returns) > 1 else result
        )


class SyncAuditor:
    """Context manager; `found` lists each synchronizing call inside it and its line."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._modes = (_Functions(self.found), _Operators(self.found))

    def __enter__(self) -> "SyncAuditor":
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)
