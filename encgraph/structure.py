"""What a module is made of besides its tensors: children, hooks, forwards, plain attributes.

A graph keeps to what it recorded, and a copy that shares a module's parameters to what it copied. Both
ask here whether the module is still so made. Remembered of each module: its class, its children, its
forward hooks, its training mode, a `forward` of its own, and by value every attribute that is a bool,
a number, a string, a dtype, None, a function, or a tuple, list or dict of those; and of each class its
forward.

Not remembered: attributes that are added later; other objects (configs, tensors that are neither
parameter nor buffer, in which forwards keep what they made last), so that an edit inside a config is
not noticed; and what a forward reads outside its module. A forward that counts in an attribute is one
that no graph follows.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType
from typing import Any, Self

import torch
from torch import nn

from encgraph.errors import require

_PLAIN = (
    *(bool, int, float, complex, str, torch.dtype, type(None)),
    *(FunctionType, BuiltinFunctionType),
)
"""Types of attributes that are remembered."""
TORCHS_OWN = frozenset(vars(nn.Module()))
"""Attributes that torch gives every module."""
"""Attributes that torch keeps of every module."""
_DICTS = ("_modules", "_forward_pre_hooks", "_forward_hooks")
"""Where torch keeps children and hooks."""
Attributes = Mapping[str, Any]
_Reader = tuple[Callable[[Attributes], Any], Attributes]
_ABSENT = object()


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """What a module and all below it were made of.

    Lists have an entry a module and are compared whole; what differs is looked for afterwards.
    """

    names: list[str]
    modules: list[nn.Module]
    classes: list[type[nn.Module]]
    kinds: dict[type[nn.Module], Any]
    """The forward of each class."""
    states: list[Attributes]
    """The modules' own dicts of attributes."""
    contents: list[tuple[Attributes, ...]]
    """What was in the dicts in which torch keeps children and hooks."""
    filled: list[Attributes]
    """Those of them that had something in them."""
    filled_with: list[Attributes]
    """What."""
    empty: list[Attributes]
    """Those that had nothing."""
    forwards: list[Any]
    """Each module's own, or None."""
    keys: list[tuple[str, ...]]
    """Names of the attributes that are remembered; the mode first."""
    readers: list[_Reader]
    """What reads those, and of what."""
    values: list[Any]
    """What they read, copied."""

    @classmethod
    def of(cls, module: nn.Module) -> Self:
        """Remember a module and all below it.

        Raises:
            ValueError: If one is of torch.jit, whose parts nobody can watch; names it.
        """
        named = dict(module.named_modules())
        require_python(named)
        modules = list(named.values())
        classes = [type(each) for each in modules]
        states: list[Attributes] = [vars(each) for each in modules]
        dicts = [state[key] for state in states for key in _DICTS]
        # A compiled module keeps no mode of its own, but that of the module inside it.
        modes = [("training",) if "training" in state else () for state in states]
        keys = [(*mode, *_plain(state)) for mode, state in zip(modes, states, strict=True)]
        readers: list[_Reader] = [
            (itemgetter(*each) if each else len, state if each else {})
            for each, state in zip(keys, states, strict=True)
        ]
        return cls(
            names=list(named),
            modules=modules,
            classes=classes,
            kinds={kind: kind.forward for kind in classes},
            states=states,
            contents=[tuple(dict(state[key]) for key in _DICTS) for state in states],
            filled=[each for each in dicts if each],
            filled_with=[dict(each) for each in dicts if each],
            empty=[each for each in dicts if not each],
            forwards=[state.get("forward") for state in states],
            keys=keys,
            readers=readers,
            values=[copy.deepcopy(read(state)) for read, state in readers],
        )

    def changed(self) -> str | None:
        """One clause that names the first difference, or None."""
        if (
            not any(self.empty)
            and self.filled == self.filled_with
            and list(map(type, self.modules)) == self.classes
            and all(kind.forward == forward for kind, forward in self.kinds.items())
            and [state.get("forward") for state in self.states] == self.forwards
            and self._reads_the_same()
        ):
            return None
        clauses = (clause for at in range(len(self.names)) for clause in self._differences(at))
        return next(clauses, None)

    def _reads_the_same(self) -> bool:
        try:
            return [read(state) for read, state in self.readers] == self.values
        except (KeyError, RuntimeError, ValueError):  # one is gone, or now a tensor or an array
            return False

    def _differences(self, at: int) -> Iterator[str]:
        prefix, state = self.names[at], self.states[at]
        name = prefix or "encoder"
        yield from self._reclassed(at, name)
        children, *hooks = self.contents[at]
        for key, done in _exchanged(children, state["_modules"]):
            yield f"submodule {f'{prefix}.{key}'.lstrip('.')!r} was {done}"
        keys, values = self.keys[at], self.values[at]
        now = [state.get(key, _ABSENT) for key in keys]
        then = list(values) if len(keys) > 1 else [values]
        if "training" in keys and now[0] != then[0]:
            yield f"module {name!r} changed its training mode"
        if [state[key] for key in _DICTS[1:]] != hooks:
            yield f"module {name!r} changed its forward hooks"
        if state.get("forward") != self.forwards[at]:
            yield f"module {name!r} changed a forward of its own"
        for key, before, after in zip(keys, then, now, strict=True):
            if not _is_plain(after) or before != after:
                said = f"{_said(before)} -> {_said(after)}"
                yield f"attribute {key!r} of module {name!r} changed ({said})"

    def _reclassed(self, at: int, name: str) -> Iterator[str]:
        kind = self.classes[at]
        if type(self.modules[at]) is not kind:
            yield f"module {name!r} changed its class"
        if kind.forward != self.kinds[kind]:
            yield f"class {kind.__name__!r} of module {name!r} changed its forward"


def require_eval(module: nn.Module) -> None:
    """Refuse a module of which anything is in training mode, where dropout would change answers.

    Raises:
        ValueError: If so; names the first submodule, which may be one that came after `.eval()`.
    """
    found = next((name or "encoder" for name, m in module.named_modules() if m.training), None)
    require(
        found is None, f"module {found!r} must be in eval mode; call .eval() on the whole model"
    )


def require_python(named: Mapping[str, nn.Module]) -> None:
    """Refuse modules of torch.jit, which run another program than their Python parts.

    Raises:
        ValueError: If there is one; names it.
    """
    for name, each in named.items():
        require(
            not isinstance(each, torch.jit.ScriptModule),
            f"module {name or 'encoder'!r} must be a module of Python, got a {type(each).__name__} of "
            "torch.jit; give the module that it was made from",
        )


def _plain(state: Attributes) -> list[str]:
    return [key for key, value in state.items() if key not in TORCHS_OWN and _is_plain(value)]


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    return isinstance(value, _PLAIN)


def _exchanged(then: Attributes, now: Attributes) -> Iterator[tuple[str, str]]:
    """Names of children that are others, and what was done to each."""
    for key in {**then, **now}:
        before, after = then.get(key), now.get(key)
        if before is not after:
            yield key, "added" if before is None else "removed" if after is None else "swapped"


def _said(value: object) -> str:
    if value is _ABSENT:
        return "gone"
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return value.__qualname__
    return repr(value) if _is_plain(value) else type(value).__name__
