"""Copies of a module tree that share every parameter, so that a few children can differ.

The module stays untouched and serves as the stock oracle; what graphs capture is a face of it. Since
parameters are shared, a weight edited in place is seen through both.

What a copy has of its own, children and plain attributes, stays as it was when the module is changed:
by an exchanged child, an adapter put in, a tool that quantises. `Face` notices and copies again.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from encgraph.structure import Structure

Made = TypeVar("Made")


class Face(Generic[Made]):
    """What is made of a module to be run in its place, made again once the module is another."""

    def __init__(self, module: Any, make: Callable[[Any], Made]) -> None:
        """Make it.

        Args:
            module: Whose parameters it shares.
            make: Makes it, or refuses with a ValueError.
        """
        self._module, self._make = module, make
        self._structure = Structure.of(module)
        self._made = make(module)

    def now(self) -> Made:
        """What was made of the module as it is now; host only.

        Inside torch.compile and torch.export, which would record the question, the last one: encoders
        ask in `buffers` too, with which every capture begins.

        Raises:
            ValueError: If nothing can be made of what the module has become; says why.
        """
        if self._made is self._module or torch.compiler.is_compiling():
            return self._made
        if self._structure.changed():
            # The structure last: where nothing can be made, the next call says so again.
            structure, self._made = Structure.of(self._module), self._make(self._module)
            self._structure = structure
        return self._made


def unaltered(face: Any, module: Any) -> Any:
    """Return a face, unless a module it copied has a forward of its own, which runs the original.

    Modules that the face shares run theirs as ever.

    Raises:
        ValueError: If there is one; names it.
    """
    shared = set(map(id, module.modules()))
    for name, each in face.named_modules():
        if "forward" in vars(each) and id(each) not in shared:
            raise ValueError(
                f"module {name or 'encoder'!r} must run the forward of its class, since graphs hold a "
                "copy of it, got one of its own; delete that, or give the module another class"
            )
    return face


def replaced(module: Any, name: str) -> Any:
    """Return a module for which another stands in that reads its weights, if nothing is lost by that.

    Args:
        module: Whose forward does not run then.
        name: Where it is, for the refusal.

    Raises:
        ValueError: If its forward does more than its class in torch or transformers says: an adapter, a
            quantised product, a hook.
    """
    kind = type(module)
    found = (
        f"hooks on {kind.__name__}"
        if module._forward_hooks or module._forward_pre_hooks
        else f"a {kind.__name__} with a forward of its own"
        if "forward" in vars(module)
        else f"{kind.__module__}.{kind.__name__}"
    )
    if found.partition(".")[0] not in ("torch", "transformers"):
        raise ValueError(
            f"module {name!r} must be one of torch or transformers and run as it is, since graphs and "
            f"eager runs read its weights in another way, got {found}; take that off, or merge it"
        )
    return module


def itself(module: Any) -> Any:
    """Return the module: for towers that a graph can hold as they are."""
    return module


def with_children(module: Any, changed: Mapping[str, nn.Module | None]) -> Any:
    """Shallow copy of a module with some of its children exchanged."""
    copied = copy.copy(module)
    copied._modules = {**module._modules, **changed}
    return copied


def with_attention(module: Any, attention: str) -> Any:
    """Copy a whole tree, parameters shared, under configs that name another attention.

    Args:
        module: A transformers module; left as it is.
        attention: A name registered with transformers. It is set after construction, because
            constructing with it makes transformers look for a kernel of that name.

    Raises:
        ValueError: As for `unaltered`.
    """
    return unaltered(_copied(module, attention, {}), module)


def _copied(module: Any, attention: str, configs: dict[int, Any]) -> Any:
    """Copy a module and its children; modules that shared a config share its copy.

    One without a config, whose children are not copied either, is the module itself.
    """
    children = {
        name: None if child is None else _copied(child, attention, configs)
        for name, child in module._modules.items()
    }
    config = module.__dict__.get("config")
    if config is None and children == module._modules:
        return module
    copied = with_children(module, children)
    if config is not None:
        if id(config) not in configs:
            configs[id(config)] = copy.copy(config)
            configs[id(config)]._attn_implementation = attention
        copied.config = configs[id(config)]
    return copied
