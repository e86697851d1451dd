"""A fixed adapter slot: captured once, filled in place, its switch watched.

A graph reads low-rank weights by address, like any other. So one adapter of the model is the slot:
active in every layer while graphs are captured and ever after; another adapter is used by copying its
weights into the slot, and none by clearing it. Activating another adapter would change what eager runs
but not what a replay does, and is refused by name.

Layers are those of peft (`LoraLayer`), injected by `model.add_adapter` or `peft.inject_adapter_in_model`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from encgraph.errors import require

DUMMY = 1e-3
"""What the slot holds during capture: no zero, so that no kernel may skip it."""


class AdapterSlot:
    """One adapter of a model, used as the slot that graphs read."""

    def __init__(self, model: nn.Module, name: str) -> None:
        """Find the layers that have the adapter.

        Raises:
            ValueError: If no layer has it, or one has it merged or in a form that cannot be copied.
        """
        found = {n: m for n, m in model.named_modules() if _is_adapted(m)}
        self.name, self._model, self._is_fixed = name, model, False
        self.layers: dict[str, Any] = {n: m for n, m in found.items() if name in m.lora_A}
        known = sorted({key for layer in found.values() for key in layer.lora_A})
        require(
            bool(self.layers),
            f"slot must be an adapter of the model, got {name!r}; the model has {known}",
        )
        self._refuse_what_is_no_copy(name)

    @contextmanager
    def dummy(self) -> Iterator[None]:
        """Activate the slot for good and fill it with dummy weights for the block.

        What is captured inside holds the adapter's kernels, whatever the slot holds later.
        """
        for layer in self.layers.values():
            layer.enable_adapters(True)
            layer.set_adapter([self.name])
        self._is_fixed = True
        held = [(weight, weight.detach().clone()) for weight in self._weights()]
        with torch.no_grad():
            for weight, _ in held:
                weight.fill_(DUMMY)
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, content in held:
                    weight.copy_(content)

    @torch.no_grad()
    def load(self, source: str | None) -> None:
        """Copy another adapter into the slot, in place; None clears it, which is no adapter at all.

        A smaller rank is padded with zeros; a layer the source lacks is cleared. What is refused leaves
        the slot as it was.

        Args:
            source: Name of an adapter that the model holds besides.

        Raises:
            ValueError: If no layer has it, or one that has it is not of the slot, is merged, has a rank
                above the slot's, or more than the two low-rank weights; names the layer.
        """
        holders = {n: layer for n, layer in self.layers.items() if source in layer.lora_A}
        if source is not None:
            self._refuse_what_is_no_copy(source)
            require(
                bool(holders) and source != self.name,
                f"source must be an adapter the model has besides the slot, got {source!r}",
            )
        for name, layer in holders.items():
            wanted, most = (len(layer.lora_A[each].weight) for each in (source, self.name))
            require(
                wanted <= most,
                f"adapter {source!r} has rank {wanted} in {name!r}, the slot {most}; "
                "add a slot of a larger rank before capture",
            )
        for weight in self._weights():
            weight.zero_()
        for layer in holders.values():
            down, up = layer.lora_A[source].weight, layer.lora_B[source].weight
            factor = layer.scaling[source] / layer.scaling[self.name]
            layer.lora_A[self.name].weight[: len(down)].copy_(down)
            layer.lora_B[self.name].weight[:, : len(down)].copy_(up * factor)

    def changed(self) -> str | None:
        """One clause that names the first layer switched since `dummy` to other than the slot, or None."""
        if not self._is_fixed:
            return None
        for name, layer in self.layers.items():
            active = list(layer.active_adapters)
            if active != [self.name]:
                return (
                    f"layer {name!r} was switched to adapters {active} after capture; switch back to "
                    f"slot {self.name!r} and load() the adapter into it"
                )
            if layer.disable_adapters or layer.merged:
                return (
                    f"layer {name!r} has its adapters disabled or merged since capture; enable them, "
                    "and load(None) to clear the slot"
                )
        return None

    def _refuse_what_is_no_copy(self, adapter: str) -> None:
        """Refuse an adapter that is more than low-rank weights in layers of the slot, none merged."""
        for name, module in self._model.named_modules():
            if hasattr(module, "active_adapters"):
                for part in _holding(module, adapter):
                    require(
                        part in ("lora_A", "lora_B"),
                        f"layer {name!r} has {part!r} of adapter {adapter!r}, which cannot be copied; "
                        "a slot takes plain low-rank weights",
                    )
                    require(
                        name in self.layers,
                        f"layer {name!r} has adapter {adapter!r} but not slot {self.name!r}; "
                        "add the slot there too before capture",
                    )
        for name, layer in self.layers.items():
            require(
                not layer.merged,
                f"layer {name!r} has adapters {layer.merged_adapters} merged; unmerge() it first",
            )

    def _weights(self) -> Iterator[Tensor]:
        for layer in self.layers.values():
            yield layer.lora_A[self.name].weight
            yield layer.lora_B[self.name].weight


def _holding(module: Any, adapter: str) -> Iterator[str]:
    """Names of the parts in which a module of peft holds an adapter, without what eval mode skips."""
    for part, child in module.named_children():
        is_kept = isinstance(child, nn.ModuleDict | nn.ParameterDict) and adapter in child
        if is_kept and part != "lora_dropout":
            yield part
    if _is_adapted(module) and adapter in module.lora_A:
        if adapter in module.lora_variant:
            yield "lora_variant"
        if module.lora_B[adapter].bias is not None:
            yield "lora_bias"


def _is_adapted(module: nn.Module) -> bool:
    """Whether a module is a low-rank layer as peft makes them."""
    return all(hasattr(module, name) for name in ("lora_A", "lora_B", "active_adapters"))
