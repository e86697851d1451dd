"""Build transformers modules: empty on a device, then with seeded random weights.

Weights are made on the meta device and given memory afterwards, which skips an initialisation that
would be overwritten.
"""

import copy
import math
from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

BIAS_STD = 0.02
_DRAWS = ("uniform_", "normal_", "kaiming_uniform_")
"""What initialisations draw weights by, of tensors and of `torch.nn.init`; a CPU draws on one core."""


class Undrawn(TorchFunctionMode):
    """Inside, weights are zeros instead of drawn: seconds less where nobody reads them."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Write zeros for a draw and run everything else."""
        given = kwargs or {}
        if getattr(func, "__name__", "") in _DRAWS:
            # Some draw again until all is within bounds, where zero is.
            with torch.no_grad():
                return (args[0] if args else given["tensor"]).zero_()
        return func(*args, **given)


def empty(
    module_type: Any,
    config: Any,
    *,
    device: torch.device,
    dtype: torch.dtype,
    short: Mapping[str, Any],
) -> Any:
    """Build a module on a device with weights not yet written and computed buffers in place.

    Buffers that no file holds (rotary frequencies, float32 whatever the dtype) come from a small
    twin built for real, but for the weights, which nobody reads.

    Args:
        module_type: Class of transformers, built from a config alone.
        config: Its config; copied.
        device: Where it lives.
        dtype: Of its weights.
        short: Config values of the twin, such as a depth of 1; must leave buffers as they are. A
            name with dots is of a config within.
    """
    config = copy.deepcopy(config)
    config._attn_implementation = config._attn_implementation or "sdpa"
    with torch.device("meta"):
        module = module_type(config).to(dtype)
    module = module.to_empty(device=device).eval().requires_grad_(False)
    smaller = copy.deepcopy(config)
    for name, value in short.items():
        *path, leaf = name.split(".")
        setattr(reduce(getattr, path, smaller), leaf, value)
    with torch.device("cpu"), Undrawn():
        twin = module_type(smaller)
    for name, buffer in twin.named_buffers():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, buffer.to(device))
    return module


@torch.no_grad()
def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Write weights that keep activations near 1: a normal of 1 / sqrt(fan in), norms at identity.

    Vectors that are no bias (norm weights of any class, layer scales) become 1; embeddings get a
    standard deviation of one half.
    """
    for owner in module.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if name.endswith("bias"):
                parameter.normal_(0, BIAS_STD, generator=generator)
            elif parameter.dim() == 1:
                parameter.fill_(1)
            elif isinstance(owner, nn.Embedding):
                parameter.normal_(0, 0.5, generator=generator)
            else:
                std = 1 / math.sqrt(parameter[0].numel())
                parameter.normal_(0, std, generator=generator)
