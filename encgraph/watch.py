"""Notice that a module or a buffer is no longer what a graph recorded.

A graph reads storage by address. A parameter edited in place is read anew by the next replay; one
that was rebound, added or moved is not, nor is a module that is made of something else since (see
`structure`), and replays would silently give answers of the old one. The watch keeps every tensor the
graphs may read alive and compares identity and address while the card works. A hook on all modules at
once counts as a change of each, unless it only looks on (`LooksOn`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from torch import Tensor, nn
from torch.nn.modules import module as all_modules

from encgraph.structure import Structure

_Slots = Mapping[str, Tensor | None]
"""The parameters, or the buffers, of one module."""


class _Held(NamedTuple):
    """A tensor of a module, where it is bound, and where it was at capture."""

    owner: _Slots
    key: str
    tensor: Tensor
    address: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class LooksOn:
    """A hook on all modules that changes nothing, so that a replay may go without it."""

    hook: Callable[..., None]

    def __call__(self, *given: Any) -> None:
        """Run it."""
        self.hook(*given)


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """What was there at capture; `changed` names the first thing that is not any more."""

    held: tuple[_Held, ...]
    vacant: tuple[tuple[_Slots, str, str], ...]
    """Names under which no tensor was bound: the dict, the key, the name for people."""
    slots: tuple[_Slots, ...]
    """Every dict of parameters or buffers that had names in it."""
    names: int
    """How many."""
    empty: tuple[_Slots, ...]
    """Those that had none."""
    structure: Structure
    hooks: int
    """On all modules at once."""
    static: tuple[tuple[str, Tensor, int], ...]

    @classmethod
    def of(cls, module: nn.Module, static: Mapping[str, Tensor]) -> Self:
        """Remember a module's parameters, buffers, structure and hooks, and static tensors."""
        bound = list(_bound(module))
        slots = tuple(each for m in module.modules() for each in (m._parameters, m._buffers))
        return cls(
            held=tuple(
                _Held(owner, key, tensor, tensor.data_ptr(), name)
                for owner, key, tensor, name in bound
                if tensor is not None
            ),
            vacant=tuple((owner, key, name) for owner, key, held, name in bound if held is None),
            slots=tuple(filter(None, slots)),
            names=sum(map(len, slots)),
            empty=tuple(each for each in slots if not each),
            structure=Structure.of(module),
            hooks=hooks_on_all(),
            static=tuple((name, t, t.data_ptr()) for name, t in static.items()),
        )

    def changed(self) -> str | None:
        """One clause that names the first change, or None."""
        return self._rebound() or self._restructured() or self._moved()

    def _rebound(self) -> str | None:
        for owner, key, tensor, address, name in self.held:
            if owner.get(key) is not tensor or tensor.data_ptr() != address:
                return f"weight {name!r} was rebound (it is not the tensor that was captured)"
        for owner, key, name in self.vacant:
            if owner.get(key) is not None:
                return f"weight {name!r} was added (there was none at capture)"
        if any(self.empty) or sum(map(len, self.slots)) != self.names:
            return self._added()
        return None

    def _added(self) -> str | None:
        known = {(id(owner), key) for owner, key, *_ in (*self.held, *self.vacant)}
        for owner in (*self.slots, *self.empty):
            for key, tensor in owner.items():
                if tensor is not None and (id(owner), key) not in known:
                    return f"weight {key!r} was added (there was none at capture)"
        return None

    def _restructured(self) -> str | None:
        if hooks_on_all() != self.hooks:
            return "hooks on the forward of all modules were added or removed"
        return self.structure.changed()

    def _moved(self) -> str | None:
        for name, tensor, address in self.static:
            if tensor.data_ptr() != address:
                return f"buffer {name!r} moved ({address:#x} -> {tensor.data_ptr():#x})"
        return None


def hooks_on_all() -> int:
    """Number of forward hooks on all modules at once, those that only look on left out."""
    before, after = all_modules._global_forward_pre_hooks, all_modules._global_forward_hooks
    if not before and not after:
        return 0
    return sum(not isinstance(hook, LooksOn) for hook in (*before.values(), *after.values()))


def hooked(module: nn.Module) -> str | None:
    """Name of the first submodule with a forward hook, or None.

    A hook on all modules at once is found at the module itself.
    """
    if hooks_on_all():
        return "encoder"
    found = (name for name, m in module.named_modules() if m._forward_hooks or m._forward_pre_hooks)
    return next((name or "encoder" for name in found), None)


def _bound(module: nn.Module) -> Iterator[tuple[_Slots, str, Tensor | None, str]]:
    for prefix, each in module.named_modules():
        for owner in (each._parameters, each._buffers):
            for key, tensor in owner.items():
                yield owner, key, tensor, f"{prefix}.{key}".lstrip(".")
