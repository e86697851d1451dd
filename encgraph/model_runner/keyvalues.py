"""Keys and values of all layers in slabs, one row a request, each row with a length of its own.

transformers' static cache has one length for the whole batch, so prompts of different lengths must be
padded on the left, and every step attends over that padding. Here a row is written at its own position:
prompts are padded on the right, where nothing looks, and any mix of lengths shares one graph.

A masked position weighs 0, but 0 x NaN is NaN: what a request leaves behind must be finite, whatever its
pixels were. So rows are zeroed before their next prompt, in place, since graphs hold the addresses.

Batch sizes see the slabs through prefix views, so n graphs cost one slab.

Shape legend: N layers, K the pair of keys and values, M max batch, b batch, H key-value heads, C cache length, L prompt length, D head width.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, StaticLayer
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel


class _PrefillLayer(DynamicLayer):  # type: ignore[misc]
    """Writes whole prompts from the start; attention sees the prompts alone, as in an empty cache."""

    def __init__(self, keys_MHCD: Tensor, values_MHCD: Tensor, row_b: Tensor) -> None:
        super().__init__()
        self.slabs, self.row_b = (keys_MHCD, values_MHCD), row_b

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        for slab_MHCD, states_bHLD in zip(self.slabs, (key_states, value_states), strict=True):
            slab_MHCD[:, :, : states_bHLD.shape[2]].index_copy_(0, self.row_b, states_bHLD)
        return key_states, value_states


class _DecodeLayer(StaticLayer):  # type: ignore[misc]
    """Writes one token a row at that row's position; attention sees the whole slab under a mask."""

    def __init__(self, keys_bHCD: Tensor, values_bHCD: Tensor, position_b: Tensor) -> None:
        super().__init__(max_cache_len=keys_bHCD.shape[2])
        self.keys, self.values, self.position_b = keys_bHCD, values_bHCD, position_b

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        index_bH1D = self.position_b[:, None, None, None].expand_as(key_states)
        self.keys.scatter_(2, index_bH1D, key_states)
        self.values.scatter_(2, index_bH1D, value_states)
        return self.keys, self.values


def argument(cache: Cache) -> Mapping[str, Cache]:
    """A cache under the name by which this transformers' text model takes it."""
    known = inspect.signature(Qwen3VLTextModel.forward).parameters
    return {"cache" if "cache" in known else "past_key_values": cache}


class KeyValueSlabs:
    """The static key and value tensors of a text model; owns them."""

    def __init__(
        self, config: Any, *, rows: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Allocate zeros.

        Args:
            config: Of the text model.
            rows: Requests at most.
            length: Tokens a request at most, prompt and answer together.
            device: Where they live.
            dtype: Of the text model.
        """
        shape = (rows, config.num_key_value_heads, length, config.head_dim)
        self.length = length
        # One tensor, so that rows are zeroed in one launch.
        whole_NKMHCD = torch.zeros(
            (config.num_hidden_layers, 2, *shape), device=device, dtype=dtype
        )
        self._whole: tuple[Tensor, ...] = (whole_NKMHCD,)
        self.layers: list[tuple[Tensor, Tensor]] = [(pair[0], pair[1]) for pair in whole_NKMHCD]

    @property
    def num_bytes(self) -> int:
        """Bytes held."""
        return sum(whole.untyped_storage().nbytes() for whole in self._whole)

    @torch.no_grad()
    def forget(self, rows: int) -> None:
        """Zero the first rows, so that nothing of an earlier request is left; never waits for the device."""
        for whole_NKMHCD in self._whole:
            whole_NKMHCD[:, :, :rows].zero_()

    def prefill(self, row_b: Tensor) -> Cache:
        """A cache that writes prompts into rows, given as int64."""
        return Cache(layers=[_PrefillLayer(k, v, row_b) for k, v in self.layers])

    def decode(self, position_b: Tensor) -> Cache:
        """A cache that writes one token into each of the first rows, at that row's position.

        Args:
            position_b: int64 index of the token, one a row; read when it runs, so a graph may hold it.
        """
        rows = len(position_b)
        return Cache(layers=[_DecodeLayer(k[:rows], v[:rows], position_b) for k, v in self.layers])

    def clear(self) -> int:
        """Drop the slabs; idempotent. Returns the bytes given back."""
        freed = self.num_bytes
        self.layers.clear()
        self._whole = ()
        return freed
