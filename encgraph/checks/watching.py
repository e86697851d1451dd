"""Watch every operator a forward runs: what it is given, where it was called, what it makes wait.

Two modes together. A function mode sees `.tolist()`, `.item()`, `bool()` and factories, which on a
CPU never reach the dispatcher. A dispatch mode sees operators whose output shape depends on contents,
and copies between devices.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from encgraph.checks import keeping, places
from encgraph.encoders import following

WAITS = "makes the host wait for the device"
COPIES = "copies from the host"
KEPT_TENSOR = (
    "uses a tensor kept from an earlier call; make it in forward, or register it in module"
)
HELD_TENSOR = "uses a tensor that module does not hold, which must lie on the encoder's device"

METHODS = {
    Tensor.item: WAITS,
    Tensor.tolist: WAITS,
    Tensor.numpy: WAITS,
    Tensor.cpu: WAITS,
    Tensor.__bool__: WAITS,
    Tensor.__int__: WAITS,
    Tensor.__float__: WAITS,
    Tensor.__index__: WAITS,
    Tensor.__contains__: WAITS,
    Tensor.__array__: WAITS,
    Tensor.pin_memory: "pins memory, which a capture forbids",
    Tensor.new_tensor: COPIES,
    torch.tensor: COPIES,
    torch.as_tensor: COPIES,
    torch.asarray: COPIES,
}
UNSEEN = ("from_numpy", "frombuffer", "from_dlpack")
"""Functions of torch that copy from the host and that no mode sees."""
FACTORIES = {
    torch.arange,
    torch.empty,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.rand,
    torch.randn,
    torch.scalar_tensor,
    torch.zeros,
}
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, type(None))


@dataclass(frozen=True, slots=True)
class Call:
    """One operator: name, sizes and values it was given, and where."""

    name: str
    given: str
    place: places.Place


@dataclass(frozen=True, slots=True)
class Offence:
    """One call that a captured region may not make."""

    call: str
    why: str
    place: places.Place

    def __str__(self) -> str:
        return f"{self.place}: {self.call} {self.why}"


class Watching:
    """What was seen: every operator, and those that a captured region may not run."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.offences: list[Offence] = []
        self.remarks: list[Offence] = []
        """Of what may be right: where tensors are used that module does not hold."""
        self.muted = False

    def offend(self, call: str, why: str) -> None:
        """Note an offence at the line that is running, once a line."""
        offence, noted = (
            Offence(call, why, places.running()),
            self.remarks if why == HELD_TENSOR else self.offences,
        )
        known = {(o.place, o.why) for o in noted}
        if not self.muted and (offence.place, offence.why) not in known:
            noted.append(offence)


@contextlib.contextmanager
def watched(outside: Mapping[int, str] | None = None) -> Iterator[Watching]:
    """Watch what runs inside.

    Args:
        outside: What to say of operators that use tensors of these storages.
    """
    seen = Watching()
    with _Functions(seen), _Operators(seen, outside or {}), _telling(seen):
        yield seen


@contextlib.contextmanager
def _telling(seen: Watching) -> Iterator[None]:
    """Put functions of torch that no mode sees behind ones that note their call."""
    untold = {name: vars(torch)[name] for name in UNSEEN}

    def told_of(name: str, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def noting(*args: Any, **kwargs: Any) -> Tensor:
            seen.offend(f"{name}()", COPIES)
            return call(*args, **kwargs)

        return noting

    vars(torch).update({name: told_of(name, call) for name, call in untold.items()})
    try:
        yield
    finally:
        vars(torch).update(untold)


class _Functions(TorchFunctionMode):
    def __init__(self, seen: Watching) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        wraps = func in (torch.as_tensor, torch.asarray) and isinstance(args[0], Tensor)
        if func in METHODS and not wraps:
            self.seen.offend(f"{name}()", METHODS[func])
        elif func in FACTORIES:
            self._factory(name, kwargs)
        if following.reads_on_cpu_alone(func, args, kwargs):
            self.seen.muted = True
            try:
                return func(*args, **kwargs)
            finally:
                self.seen.muted = False
        return func(*args, **kwargs)

    def _factory(self, name: str, kwargs: Any) -> None:
        if kwargs.get("device") is None:
            self.seen.offend(f"{name}()", "has no device=, so it is made on the host and copied")
        if kwargs.get("pin_memory"):
            self.seen.offend(f"{name}()", METHODS[Tensor.pin_memory])


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, seen: Watching, outside: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen, self.outside = seen, outside

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name in following.SHAPED_BY_VALUES and kwargs.get("output_size") is None:
            self.seen.offend(name, f"{WAITS}: its result depends on contents")
        if name.startswith("aten::index") and _by_mask(args):
            self.seen.offend("indexing by a mask", f"{WAITS}: its result depends on contents")
        for storage in _storages((*args, *kwargs.values())) if self.outside else ():
            if storage in self.outside:
                self.seen.offend(name, self.outside[storage])
        self.seen.calls.append(Call(str(func), repr(_shown((args, kwargs))), places.running()))
        result = func(*args, **kwargs)
        if name in ("aten::_to_copy", "aten::copy_") and _crosses(args, result):
            self.seen.offend(name, "copies between devices")
        return following.handed_back(result, results=len(func._schema.returns))


def _storages(values: Sequence[Any]) -> Iterator[int]:
    """Of tensors among an operator's arguments and in lists of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield keeping.storage_of(value)
        elif isinstance(value, list | tuple):
            yield from _storages(value)


def _by_mask(args: Sequence[Any]) -> bool:
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _crosses(args: Sequence[Any], result: Tensor) -> bool:
    return any(isinstance(a, Tensor) and a.device.type != result.device.type for a in args)


def _shown(value: Any) -> Any:
    """A value with tensors reduced to dtype and shape, and objects to their types."""
    if isinstance(value, Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return value if isinstance(value, _PLAIN) else type(value).__name__
