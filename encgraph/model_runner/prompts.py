"""Prompts: token ids in which each image stands as one run of placeholders.

Shape legend: L tokens of one prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.records import Modality


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """What one request sends to the model."""

    token_ids: tuple[int, ...]
    """Each image is a run of placeholders, one a token, apart from the next by at least one token."""
    images: tuple[Input, ...] = ()
    """In the order of their runs."""
    keys: tuple[str, ...] = ()
    """Content keys of the images where known beforehand; empty: hashed when needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where one image stands in a prompt."""

    start: int
    length: int


def compose(parts: Sequence[int | Input], config: Any) -> Prompt:
    """Make a prompt of text tokens and images, each between the model's vision marks.

    Args:
        parts: Token ids and images, in order.
        config: The model's, which names its special tokens.
    """
    ids: list[int] = []
    for part in parts:
        if isinstance(part, Input):
            ids.append(config.vision_start_token_id)
            ids.extend([config.image_token_id] * part.item.tokens)
            ids.append(config.vision_end_token_id)
        else:
            ids.append(part)
    images = tuple(part for part in parts if isinstance(part, Input))
    return Prompt(token_ids=tuple(ids), images=images)


def runs(prompt: Prompt, placeholder: int, *, index: int = 0) -> tuple[Run, ...]:
    """Find the run of placeholders of each image, and check that they fit.

    Args:
        prompt: At least one token.
        placeholder: Token id that stands for one token of an image.
        index: Of the prompt in its batch, for the message.

    Raises:
        ValueError: If runs and images differ in number, or a run and its image in length, or an item
            is a clip.
    """
    require(bool(prompt.token_ids), f"prompt {index} must have at least one token, got none")
    found, at = [], 0
    for is_image, members in groupby(prompt.token_ids, lambda token: token == placeholder):
        length = len(list(members))
        if is_image:
            found.append(Run(start=at, length=length))
        at += length
    require(
        len(found) == len(prompt.images),
        f"prompt {index} must have one run of placeholder {placeholder} an image, got "
        f"{len(found)} runs for {len(prompt.images)} images; compose() lays them out",
    )
    for number, (run, image) in enumerate(zip(found, prompt.images, strict=True)):
        _check(run, image, f"image {number} of prompt {index}")
    keyed = len(prompt.keys) in (0, len(found))
    require(keyed, f"prompt {index} has {len(prompt.keys)} keys for {len(found)} images")
    return tuple(found)


def _check(run: Run, image: Input, name: str) -> None:
    require(
        image.item.modality == Modality.IMAGE,
        f"{name} must be an image, got a {image.item.modality}; send its frames as images",
    )
    require(
        run.length == image.item.tokens,
        f"{name} has {image.item.tokens} tokens, but its run holds {run.length} placeholders",
    )


def position_ids(prompt: Prompt, model: Any) -> tuple[Tensor, int]:
    """Rotary positions by the model's own rule, on the host.

    Returns:
        (3, L) int64 positions in time, height and width, and what to add to a later token's index.
    """
    ids_1L = torch.tensor([prompt.token_ids])
    grids = torch.tensor([tuple(image.grid) for image in prompt.images]) if prompt.images else None
    types_1L = (ids_1L == model.config.image_token_id).int()
    found_31L, delta_11 = model.model.get_rope_index(
        ids_1L, mm_token_type_ids=types_1L, image_grid_thw=grids
    )
    return found_31L[:, 0], int(delta_11)
