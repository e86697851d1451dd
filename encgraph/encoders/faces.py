"""Copies of a module tree that share every parameter, so that a few children can differ.

The module stays untouched and serves as the stock oracle; what graphs capture is a face of it. Since
parameters are shared, a weight edited in place is seen through both.
"""

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn


def itself(module: Any) -> Any:
    """Return the module: for towers that a graph can hold as they are."""
    return module


def with_children(module: Any, changed: Mapping[str, nn.Module]) -> Any:
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
    """
    return _copied(module, attention, {})


def _copied(module: Any, attention: str, configs: dict[int, Any]) -> Any:
    """Copy a module and its children; modules that shared a config share its copy."""
    children = {
        name: None if child is None else _copied(child, attention, configs)
        for name, child in module._modules.items()
    }
    copied = copy.copy(module)
    copied._modules = children
    config = module.__dict__.get("config")
    if config is not None:
        if id(config) not in configs:
            configs[id(config)] = copy.copy(config)
            configs[id(config)]._attn_implementation = attention
        copied.config = configs[id(config)]
    return copied
