"""Notice that a module or a buffer is no longer what a graph recorded.

A graph reads storage by address. A parameter edited in place is read anew by the next replay; one
that was rebound, moved, or that lives in a swapped submodule is not, and would silently give answers
of the old weights. The watch keeps every tensor the graphs may read alive and compares identity and
address: about 0.1 us a tensor, done while the card works.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A tensor of a module, where it is bound, and where it was at capture."""

    owner: Mapping[str, Tensor | None]
    key: str
    tensor: Tensor
    address: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """What was there at capture; `changed` names the first thing that is not any more."""

    held: tuple[_Held, ...]
    children: tuple[tuple[dict[str, torch.nn.Module | None], str, torch.nn.Module, str], ...]
    modules: tuple[tuple[str, torch.nn.Module, bool, int], ...]
    static: tuple[tuple[str, Tensor, int], ...]

    @classmethod
    def of(cls, module: torch.nn.Module, static: Mapping[str, Tensor]) -> Self:
        """Remember a module's parameters, buffers, structure and hooks, and static tensors."""
        named = list(module.named_modules())
        return cls(
            held=tuple(_tensors(named)),
            children=tuple(
                (owner._modules, key, child, f"{prefix}.{key}".lstrip("."))
                for prefix, owner in named
                for key, child in owner._modules.items()
                if child is not None
            ),
            modules=tuple((name, m, m.training, hooks(m)) for name, m in named),
            static=tuple((name, t, t.data_ptr()) for name, t in static.items()),
        )

    def changed(self) -> str | None:
        """One clause that names the first change, or None."""
        return self._rebound() or self._restructured() or self._moved()

    def _rebound(self) -> str | None:
        for held in self.held:
            bound = held.owner.get(held.key)
            if bound is not held.tensor or held.tensor.data_ptr() != held.address:
                return f"weight {held.name!r} was rebound (it is not the tensor that was captured)"
        return None

    def _restructured(self) -> str | None:
        for owner, key, child, name in self.children:
            if owner.get(key) is not child:
                return f"submodule {name!r} was swapped"
        for name, module, training, count in self.modules:
            if module.training != training:
                return f"module {name or 'encoder'!r} changed its training mode"
            if hooks(module) != count:
                return f"module {name or 'encoder'!r} changed its forward hooks"
        return None

    def _moved(self) -> str | None:
        for name, tensor, address in self.static:
            if tensor.data_ptr() != address:
                return f"buffer {name!r} moved ({address:#x} -> {tensor.data_ptr():#x})"
        return None


def hooks(module: torch.nn.Module) -> int:
    """Number of forward hooks and pre-hooks on one module."""
    return len(module._forward_hooks) + len(module._forward_pre_hooks)


def hooked(module: torch.nn.Module) -> str | None:
    """Name of the first submodule with a forward hook, or None."""
    return next((name or "encoder" for name, m in module.named_modules() if hooks(m)), None)


def _tensors(named: list[tuple[str, torch.nn.Module]]) -> Iterator[_Held]:
    for prefix, module in named:
        for owner in (module._parameters, module._buffers):
            for key, tensor in owner.items():
                if tensor is not None:
                    name = f"{prefix}.{key}".lstrip(".")
                    yield _Held(owner, key, tensor, tensor.data_ptr(), name)
