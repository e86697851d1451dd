"""Encode the items of a batch: each content once, from the cache where it is known."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from encgraph.encoders import packed
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.model_runner.cache import EncoderCache

Encode = Callable[[Sequence[Input]], list[EncoderOutput]]


def stock(tower: Any) -> Encode:
    """Encode by a tower's own forward, for one that no encoder of this project wraps."""

    @torch.no_grad()
    def encode(items: Sequence[Input]) -> list[EncoderOutput]:
        if not items:
            return []
        weight = next(tower.parameters())
        pixels = torch.cat([value.pixels.to(weight.device, weight.dtype) for value in items])
        grids = torch.tensor([tuple(value.grid) for value in items], device=weight.device)
        made = tower(pixels, grid_thw=grids)
        joined = EncoderOutput(main=made.pooler_output, extra=tuple(made.deepstack_features))
        return packed.cut(joined, [value.item.tokens for value in items])

    return encode


def through(
    cache: EncoderCache, encode: Encode, items: Sequence[Input], *, keys: Sequence[str]
) -> list[EncoderOutput]:
    """Encode what the cache lacks, one batch, equal contents once; keep it; answer in order."""
    found: dict[str, EncoderOutput] = {}
    missing: dict[str, Input] = {}
    for key, value in zip(keys, items, strict=True):
        if key in missing:
            continue
        output = cache.find(key)
        if output is None:
            missing[key] = value
        else:
            found[key] = output
    if missing:
        for key, output in zip(missing, encode(list(missing.values())), strict=True):
            cache.keep(key, output)
            found[key] = output
    return [found[key] for key in keys]
