"""Find tensors that calls have left behind: on attributes, in containers of classes and modules, in caches.

Looked at are an encoder's attributes, those of its modules, of their classes and of the Python modules
these come from, with what lies in dicts, lists and plain objects there. What a closure holds is not seen.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.protocol import Encoder

Cached = Any
"""What `functools.lru_cache` makes."""
DEPTH = 4
"""How deep containers and objects are looked into."""
_NO_HOLDERS = (ModuleType, FunctionType, type, str, bytes)


def outside(encoder: Encoder) -> dict[int, Tensor]:
    """Tensors found that are neither parameters nor buffers of its module, by storage."""
    module = encoder.module
    own = {storage_of(tensor) for tensor in (*module.parameters(), *module.buffers())}
    owners = _owners(encoder)
    seen: set[int] = set()
    places = [encoder, *module.modules(), *owners, *_modules({o.__module__ for o in owners})]
    values = [value for place in places for value in _named(place)]
    found = [t for value in values for t in tensors(value, seen=seen)]
    return {storage_of(t): t for t in found if storage_of(t) not in own | {0}}


def storage_of(tensor: Tensor) -> int:
    """What tells a tensor's memory from others'; 0 where it has none of its own."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def tensors(value: Any, *, seen: set[int], depth: int = DEPTH) -> Iterator[Tensor]:
    """Tensors in a value.

    Args:
        value: Of any kind, held by others too, since it is told by its address.
        seen: Objects that were looked into; added to.
        depth: How deep to look.
    """
    if isinstance(value, Tensor):
        yield value
        return
    if not depth or isinstance(value, _NO_HOLDERS) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inside: Collection[Any] = list(value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    else:
        inside = _named(value)
    for one in inside:
        yield from tensors(one, seen=seen, depth=depth - 1)


def _named(value: Any) -> Collection[Any]:
    """Values of an object's own attributes."""
    held = inspect.getattr_static(value, "__dict__", None)
    return list(vars(value).values()) if held is not None else []


def caches(encoder: Encoder) -> Iterator[Cached]:
    """Functions with an lru_cache that the code of an encoder and its modules can reach."""
    owners = _owners(encoder)
    found = {id(c): c for owner in owners for c in _cached(vars(owner))}
    for module in _modules({owner.__module__ for owner in owners}):
        found |= {id(c): c for c in _cached(vars(module))}
    yield from found.values()


def cached(cache: Cached) -> list[Tensor]:
    """Tensors that an lru_cache holds."""
    held, seen = gc.get_referents(cache), set[int]()
    return [tensor for value in held for tensor in tensors(value, seen=seen)]


def _owners(encoder: Encoder) -> set[type]:
    classes = {type(encoder), *(type(m) for m in encoder.module.modules())}
    return {base for each in classes for base in each.__mro__}


def _modules(names: set[str]) -> Iterator[ModuleType]:
    """These modules and those that their functions come from, torch and builtins aside."""
    near = {n for n in names if n in sys.modules}
    for name in list(near):
        values = list(vars(sys.modules[name]).values())
        found = [v.__module__ for v in values if inspect.isfunction(v)]
        near |= {module for module in found if module}  # what torch.compile makes may be of none
    for name in near:
        if name.split(".")[0] not in ("torch", "builtins", "typing") and name in sys.modules:
            yield sys.modules[name]


def _cached(names: Any) -> list[Cached]:
    return [v for v in list(names.values()) if isinstance(v, functools._lru_cache_wrapper)]
