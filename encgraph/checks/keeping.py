"""Find tensors that calls have left behind: on attributes, in containers of classes and modules, in caches.

Looked at are an encoder's attributes, those of its modules, of their classes and of the Python modules
these come from, with what lies in dicts, lists and plain objects there. What a closure holds is not seen.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders import following
from encgraph.encoders.protocol import Encoder

Cached = Any
"""What `functools.lru_cache` makes."""


def outside(encoder: Encoder) -> dict[int, Tensor]:
    """Tensors found that are neither parameters nor buffers of its module, by storage."""
    module = encoder.module
    own = {storage_of(tensor) for tensor in (*module.parameters(), *module.buffers())}
    owners = _owners(encoder)
    seen: set[int] = set()
    places = [encoder, *module.modules(), *owners, *_modules({o.__module__ for o in owners})]
    values = [value for place in places for value in following.attributes_of(place)]
    found = [t for value in values for t in following.tensors_within(value, seen=seen)]
    return {storage_of(t): t for t in found if storage_of(t) not in own | {0}}


def storage_of(tensor: Tensor) -> int:
    """What tells a tensor's memory from others'; 0 where it has none of its own."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


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
    return [tensor for value in held for tensor in following.tensors_within(value, seen=seen)]


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
