"""Lay prompts out as one static batch: checks, content keys, positions, and the way to the device.

Shape legend: b prompts, L longest prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.metadata import to_device
from encgraph.encoders.protocol import Input
from encgraph.errors import require, whole
from encgraph.model_runner import cache, prompts
from encgraph.model_runner.decoding import Decoder
from encgraph.model_runner.prompts import Prompt, Run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """Prompts padded on the right, on the device, with all the host knows about them."""

    ids_bL: Tensor
    positions_3bL: Tensor
    lengths: tuple[int, ...]
    """Tokens of each prompt, on the host; `lengths_b` on the device."""
    lengths_b: Tensor
    offsets_b: Tensor
    """What to add to a later token's index for its rotary position."""
    runs: tuple[tuple[Run, ...], ...]
    items: tuple[Input, ...]
    """Images and clips of all prompts, in order."""
    keys: tuple[str, ...]
    """Content keys of the items; empty without a cache."""


def check_room(batch: Sequence[Prompt], *, new_tokens: int, decoder: Decoder) -> None:
    """Refuse a batch whose token ids there are not, or that the static keys and values cannot hold.

    Raises:
        ValueError: If it has no prompt or too many, or one is wrong or too long; names it.
    """
    listed = isinstance(batch, Sequence) and not isinstance(batch, str)
    require(listed, f"a batch must be a list of prompts, got {type(batch).__name__}; put it in one")
    rows, length = decoder.rows, decoder.length
    require(1 <= len(batch) <= rows, f"a batch must have 1 to {rows} prompts, got {len(batch)}")
    whole("new_tokens", new_tokens)
    for index, prompt in enumerate(batch):
        made = isinstance(prompt, Prompt)
        kind = type(prompt).__name__
        require(made, f"prompt {index} must be a Prompt, got {kind}; compose() makes one")
        prompts.check_ids(prompt, decoder.vocabulary, index=index)
        # The last token is given out and never attended to.
        needed = len(prompt.token_ids) + new_tokens - 1
        require(
            needed <= length,
            f"prompt {index} needs {needed} tokens of cache ({len(prompt.token_ids)} and "
            f"{new_tokens} new), the runner has {length}; raise Options.length or shorten it",
        )


def lay(batch: Sequence[Prompt], model: Any, *, device: torch.device, keyed: bool) -> Laid:
    """Lay out a batch of prompts that there is room for.

    Args:
        batch: b prompts.
        model: Gives special tokens and the rule of rotary positions.
        device: Where the tensors go.
        keyed: Whether to make the content keys that prompts do not bring.

    Raises:
        ValueError: If items and placeholders do not match; names the prompt.
    """
    runs = tuple(prompts.runs(prompt, model.config, index=i) for i, prompt in enumerate(batch))
    lengths = [len(prompt.token_ids) for prompt in batch]
    ids_bL = torch.zeros(len(batch), max(lengths), dtype=torch.int64, device="cpu")
    positions_3bL = torch.zeros(3, *ids_bL.shape, dtype=torch.int64, device="cpu")
    offsets = []
    for row, prompt in enumerate(batch):
        ids_bL[row, : lengths[row]] = torch.tensor(prompt.token_ids, device="cpu")
        positions_3bL[:, row, : lengths[row]], offset = prompts.position_ids(prompt, model)
        offsets.append(offset)
    return Laid(
        ids_bL=to_device(ids_bL, device),
        positions_3bL=to_device(positions_3bL, device),
        lengths=tuple(lengths),
        lengths_b=to_device(torch.tensor(lengths, device="cpu"), device),
        offsets_b=to_device(torch.tensor(offsets, device="cpu"), device),
        runs=runs,
        items=tuple(value for prompt in batch for value in prompt.items),
        keys=tuple(key for prompt in batch for key in _keys(prompt)) if keyed else (),
    )


def _keys(prompt: Prompt) -> tuple[str, ...]:
    return prompt.keys or tuple(cache.content_key(value) for value in prompt.items)
