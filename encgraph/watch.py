"""Notice that a module or a buffer is no longer what a graph recorded.

A graph reads storage by address, in the layout that it recorded. A parameter edited in place is read
anew by the next replay; one that was rebound, added, moved or laid out otherwise (another shape, other
strides, another dtype over the same bytes) is not, nor is a module that is made of something else since
(see `structure`), and replays would silently give answers of the old one. The watch keeps every tensor
the graphs may read alive and compares identity, address and layout while the card works. A hook on all
modules at once counts as a change of each, unless it only looks on (`LooksOn`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules

from encgraph.errors import CaptureError
from encgraph.structure import Structure

try:
    from torch._C._dynamo import guards as compiled
except ImportError:  # private to torch
    compiled = None  # type: ignore[assignment]

_Slots = Mapping[str, Tensor | None]
"""The parameters, or the buffers, of one module."""


class _Held(NamedTuple):
    """A tensor of a module and where it is bound."""

    owner: _Slots
    key: str
    tensor: Tensor
    name: str


class _Layouts(NamedTuple):
    """How tensors lie: lists with an entry each."""

    dtypes: list[torch.dtype]
    strides: list[tuple[int, ...]]
    shapes: list[torch.Size]

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Self:
        """Read them; host only."""
        return cls(
            [t.dtype for t in tensors],
            [t.stride() for t in tensors],
            [t.shape for t in tensors],
        )

    def said(self, at: int) -> str:
        """How one lies, for people."""
        return f"{self.dtypes[at]} {tuple(self.shapes[at])!r} by strides {self.strides[at]!r}"


@dataclass(frozen=True, slots=True, eq=False)
class LooksOn:
    """A hook that changes nothing, so that a replay may go without it."""

    hook: Callable[..., None]

    def __call__(self, *given: Any) -> None:
        """Run it."""
        self.hook(*given)


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """What was there at capture; `changed` names the first thing that is not any more."""

    held: tuple[_Held, ...]
    bound: tuple[Tensor | None, ...]
    """What the names of `slots` stood for, in order."""
    tensors: tuple[Tensor, ...]
    """Those that are held."""
    addresses: list[int]
    layouts: _Layouts
    guards: Any
    """What finds them laid out as they were many times quicker; where it does not, they are compared."""
    vacant: tuple[tuple[_Slots, str, str], ...]
    """Names under which no tensor was bound: the dict, the key, the name for people."""
    slots: tuple[_Slots, ...]
    """Every dict of parameters or buffers that had names in it."""
    views: tuple[Collection[Tensor | None], ...]
    """Of what is in those, as it is now."""
    names: int
    """How many names were in them."""
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
        held = tuple(
            _Held(owner, key, tensor, name)
            for owner, key, tensor, name in bound
            if tensor is not None
        )
        tensors = tuple(each.tensor for each in held)
        return cls(
            held=held,
            bound=tuple(chain.from_iterable(each.values() for each in slots)),
            tensors=tensors,
            addresses=[t.data_ptr() for t in tensors],
            layouts=_Layouts.of(tensors),
            guards=_guards(tensors),
            vacant=tuple((owner, key, name) for owner, key, held, name in bound if held is None),
            slots=tuple(filter(None, slots)),
            views=tuple(each.values() for each in slots if each),
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
        if self._binds_the_same() and self._lie_the_same():
            return None
        for owner, key, tensor, name in self.held:
            if owner.get(key) is not tensor:
                return f"weight {name!r} was rebound (it is not the tensor that was captured)"
        for owner, key, name in self.vacant:
            if owner.get(key) is not None:
                return f"weight {name!r} was added (there was none at capture)"
        return self._laid_out() or self._added()

    def _binds_the_same(self) -> bool:
        return (
            not any(self.empty)
            and sum(map(len, self.slots)) == self.names
            and all(map(is_, chain.from_iterable(self.views), self.bound))
        )

    def _lie_the_same(self) -> bool:
        if [t.data_ptr() for t in self.tensors] != self.addresses:
            return False
        with torch.no_grad():  # as the guards were made
            if self.guards is not None and self.guards.check(*self.tensors):
                return True
        return _Layouts.of(self.tensors) == self.layouts

    def _laid_out(self) -> str | None:
        now = _Layouts.of(self.tensors)
        for at, (*_, tensor, name) in enumerate(self.held):
            if tensor.data_ptr() != self.addresses[at]:
                return f"weight {name!r} was rebound (it is not the tensor that was captured)"
            then, said = self.layouts.said(at), now.said(at)
            if then != said:
                return f"weight {name!r} was laid out otherwise ({then} -> {said})"
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
    """Name of the first submodule with a forward hook that does more than look on, or None.

    A hook on all modules at once is found at the module itself.
    """
    if hooks_on_all():
        return "encoder"
    found = (
        name
        for name, m in module.named_modules()
        for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())
        if not isinstance(hook, LooksOn)
    )
    return next((name or "encoder" for name in found), None)


def refuse_hooks(module: nn.Module) -> None:
    """Refuse a module with forward hooks, before anything of it is captured.

    Raises:
        CaptureError: If it has one; names the first submodule that does.
    """
    found = hooked(module)
    if found:
        raise CaptureError(
            f"module {found!r} has forward hooks, which a replay would not run; "
            "remove them or run eager"
        )


def _guards(tensors: Sequence[Tensor]) -> Any:
    """The guards by which torch.compile compares dtypes, shapes and strides, if torch has them so."""
    sizes: Any = [list(t.shape) for t in tensors]
    strides: Any = [list(t.stride()) for t in tensors]
    try:
        with torch.no_grad():
            return compiled.TensorGuards(
                *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
            )
    except (AttributeError, TypeError):
        return None


def _bound(module: nn.Module) -> Iterator[tuple[_Slots, str, Tensor | None, str]]:
    for prefix, each in module.named_modules():
        for owner in (each._parameters, each._buffers):
            for key, tensor in owner.items():
                yield owner, key, tensor, f"{prefix}.{key}".lstrip(".")
