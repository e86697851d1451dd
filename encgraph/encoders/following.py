"""Follow a module's input through a run: what reads its values, writes to it, or is kept of it.

What an operator makes of the input is told by its storage, not by its values: a branch that every
example takes, or a product with zeros, is found all the same. Two modes together, since on a CPU
`.tolist()` never reaches the dispatcher, and what torch runs in C++ shows its operators there alone.
"""

import contextlib
import inspect
import itertools
import os
import traceback
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from encgraph import structure

READS = frozenset(
    {Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}
    | {Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__complex__, Tensor.__index__}
    | {Tensor.__contains__, Tensor.__repr__, Tensor.__format__}
    | {torch.equal, Tensor.equal, torch.allclose, Tensor.allclose, torch.is_nonzero}
)
"""What makes a Python value of a tensor's contents."""
SHAPED_BY_VALUES = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",
        "_unique2",
        "bincount",
        "equal",
        "is_nonzero",
        "masked_select",
        "nonzero",
        "repeat_interleave",
        "unique_consecutive",
        "unique_dim",
    )
)
"""Operators whose result is a Python value, or has a shape, that depends on contents."""
OF_SHAPE_ALONE = frozenset(
    f"aten::{name}"
    for name in (
        *("empty_like", "full_like", "ones_like", "rand_like", "randn_like", "zeros_like"),
        *("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"),
    )
)
"""Operators that are given a tensor for its shape, dtype and device."""
DEEPEST = 4
"""How deep containers and objects on a module are looked into."""
_NO_HOLDERS = (ModuleType, FunctionType, type, str, bytes)
_HERE, _TORCH = (str(Path(each).parent) + os.sep for each in (__file__, torch.__file__))
_LAYERS = str(Path(nn.modules.__file__).parent)


class Followed:
    """The storages that hold what was made of an input, and the first fault with its line."""

    def __init__(self, given: Tensor) -> None:
        self._given = list(_storages(given))
        self._made = set(self._given)
        self.fault = ""
        self.muted = False

    def holds(self, value: Any) -> bool:
        """Whether a tensor in a value was made of the input."""
        return any(storage in self._made for storage in _storages(value))

    def add(self, value: Any) -> None:
        """Note that a value was made of the input."""
        self._made.update(_storages(value))

    def refuse_read(self) -> None:
        """Refuse the line that runs, which reads what was made of the input.

        Raises:
            ValueError: Unless muted.
        """
        if not self.muted:
            self._refuse(
                "the module must not read values that depend on its input (`.item()`, a branch on a "
                f"tensor, a shape that contents decide), but does at {_place()}: a graph replays what "
                "those of another batch led to; choose by tensors, such as torch.where"
            )

    def require_unwritten(self, value: Any) -> None:
        """Refuse the line that runs if it writes to the input itself.

        Raises:
            ValueError: If it does.
        """
        if any(storage in self._given for storage in _storages(value)):
            self._refuse(
                "the module must leave its input as it is, but changes it in place at "
                f"{_place()}; let it copy"
            )

    def kept(self, module: nn.Module) -> str:
        """The name of an attribute, of a module or its class, that holds such a tensor, or nothing."""
        for name, each in module.named_modules():
            held = {k: v for k, v in vars(each).items() if k not in structure.TORCHS_OWN}
            classes = [vars(c) for c in type(each).__mro__ if c not in nn.Module.__mro__]
            for place in (held, each._parameters, each._buffers, *classes):
                for attribute, value in list(place.items()):
                    if any(map(self.holds, tensors_within(value, seen=set()))):
                        return f"{name}.{attribute}".lstrip(".")
        return ""

    def _refuse(self, fault: str) -> None:
        self.fault = self.fault or fault  # the module may catch what is raised here
        raise ValueError(fault)


@contextlib.contextmanager
def followed(given: Tensor) -> Iterator[Followed]:
    """Follow a tensor through what runs inside, where nothing compiled runs as such."""
    seen = Followed(given)
    with torch.compiler.set_stance("force_eager"), _Reads(seen), _Operators(seen):
        yield seen


def reads_on_cpu_alone(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call reads contents on a CPU alone: `one_hot` that is given the number of classes.

    >>> one_hot, labels = nn.functional.one_hot, torch.zeros(2, dtype=torch.int64)
    >>> [reads_on_cpu_alone(one_hot, (labels, *classes), {}) for classes in ((), (-1,), (3,))]
    [False, False, True]
    """
    counts = (*args[1:2], kwargs.get("num_classes", -1))
    return func is nn.functional.one_hot and counts[0] != -1


def tensors_within(value: Any, *, seen: set[int], depth: int = DEEPEST) -> Iterator[Tensor]:
    """Tensors in a value, in containers and plain objects too.

    Args:
        value: Of any kind, held by others too, since it is told by its address.
        seen: Addresses of what was looked into; added to.
        depth: How deep to look.
    """
    if isinstance(value, Tensor):
        yield value
        return
    if not depth or isinstance(value, _NO_HOLDERS) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inside: Collection[Any] = _entries(value)
    elif isinstance(value, list | tuple | set | frozenset | deque):
        inside = list(value)
    else:
        inside = attributes_of(value)
    for one in inside:
        yield from tensors_within(one, seen=seen, depth=depth - 1)


def _entries(mapping: Mapping[Any, Any]) -> Collection[Any]:
    """Keys and values; of one whose values fail to be made, its attributes."""
    try:
        return [*mapping.keys(), *mapping.values()]
    except Exception:  # of any kind: the mapping is somebody's own
        return attributes_of(mapping)


def attributes_of(value: Any) -> Collection[Any]:
    """Values of an object's own attributes."""
    held = inspect.getattr_static(value, "__dict__", None)
    return list(vars(value).values()) if held is not None else []


class _Reads(TorchFunctionMode):
    """Refuses calls that read what was made of the input."""

    def __init__(self, seen: Followed) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in READS and self.seen.holds((args, kwargs)):
            self.seen.refuse_read()
        self.seen.muted = reads_on_cpu_alone(func, args, kwargs)
        try:
            return func(*args, **kwargs)
        finally:
            self.seen.muted = False


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what operators make of the input; refuses those that read or overwrite it."""

    supports_higher_order_operators = True

    def __init__(self, seen: Followed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, schema = kwargs or {}, getattr(func, "_schema", None)
        if torch.is_inference_mode_enabled() and isinstance(func, torch._ops.OpOverload):
            with self:  # there operators of several others arrive whole
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        written = [] if schema is None else _written(schema, args, kwargs)
        self.seen.require_unwritten(written)
        depends = self.seen.holds((args, kwargs))
        name = "" if schema is None else schema.name
        if depends and self._reads(name, args, kwargs):
            self.seen.refuse_read()
        made = func(*args, **kwargs)
        if depends and name not in OF_SHAPE_ALONE:
            self.seen.add((made, written))
        return handed_back(made, results=1 if schema is None else len(schema.returns))

    def _reads(self, name: str, args: Any, kwargs: Any) -> bool:
        if name in SHAPED_BY_VALUES:
            return kwargs.get("output_size") is None
        if not name.startswith("aten::index") or len(args) < 2:
            return False
        value = args[2] if name.startswith("aten::index_put") else None
        if isinstance(value, Tensor) and value.numel() == 1:  # filled in where the mask says
            return False
        masks = [i for i in _tensors_of(args[1]) if i.dtype in (torch.bool, torch.uint8)]
        return self.seen.holds(masks)


def _written(schema: Any, args: Any, kwargs: Any) -> list[Any]:
    """Arguments that an operator writes to."""
    given = {**{a.name: v for a, v in zip(schema.arguments, args, strict=False)}, **kwargs}
    writes = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    return [value for name, value in given.items() if name in writes]


def handed_back(result: Any, *, results: int) -> Any:
    """What an operator returned, in a form that the dispatcher takes back.

    Libraries built against the stable ABI return a list where the schema has several results, and
    undefined tensors in a list, which come to Python as None and do not go back.

    Args:
        result: As Python got it.
        results: How many the schema has.
    """
    if not isinstance(result, list):
        return result
    made = next((one for one in result if isinstance(one, Tensor)), None)
    if made is not None:
        result = [made.new_empty(0) if one is None else one for one in result]
    return tuple(result) if results > 1 else result


def _tensors_of(value: Any) -> Iterator[Tensor]:
    """Tensors among arguments, in lists and dicts of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors_of(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors_of(one)


def _storages(value: Any) -> Iterator[Any]:
    """What tells tensors' memory from others', also once it is freed."""
    for tensor in _tensors_of(value):
        if tensor.layout is torch.strided:
            yield StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def _place() -> str:
    """The line that runs, as `file.py:3`: outside of torch, where the module has code of its own."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith((__file__, "<"))]
    inside = list(itertools.takewhile(lambda f: not f.filename.startswith(_HERE), frames[::-1]))
    own = [f for f in inside if not f.filename.startswith(_TORCH)]
    layers = [f for f in inside if f.filename.startswith(_LAYERS)]
    running = (own or layers or inside or frames)[0]
    return f"{Path(running.filename).name}:{running.lineno}"
