"""Prompts: token ids in which an image stands as one run of placeholders, a clip as one a temporal step.

Shape legend: L tokens of one prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.records import Modality

MODALITIES = (Modality.IMAGE, Modality.VIDEO)
"""What a prompt may hold; the model numbers their tokens 1 and 2, text 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clip:
    """A clip as it stands in a prompt: before each temporal step, when it was."""

    value: Input
    stamps: tuple[tuple[int, ...], ...]
    """Token ids of each step's timestamp, in order; see `timestamps`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompt:
    """What one request sends to the model."""

    token_ids: tuple[int, ...]
    """Each image is a run of placeholders, one a token, apart from the next by at least one token;
    each temporal step of a clip likewise, with the model's other placeholder."""
    items: tuple[Input, ...] = ()
    """Images and clips, in the order of their runs."""
    keys: tuple[str, ...] = ()
    """Content keys of the items where known beforehand; empty: hashed when needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where an image or one temporal step of a clip stands in a prompt."""

    start: int
    length: int
    modality: Modality = Modality.IMAGE


def timestamps(frames: Sequence[int], fps: float) -> tuple[str, ...]:
    """What Qwen3-VL's processor writes before each temporal step of a clip, to be tokenized.

    A step is two frames; the last is repeated where they are odd.

    Args:
        frames: Indices of the sampled frames in their video, which has `fps` frames a second.
        fps: Of the video, not of the sample.

    >>> timestamps([0, 12, 24], fps=24)
    ('<0.2 seconds>', '<1.0 seconds>')
    """
    require(bool(frames), "a clip must have at least one frame, got none")
    require(fps > 0, f"fps must be positive, got {fps!r}")
    firsts, lasts = frames[::2], [*frames, frames[-1]][1::2]
    pairs = zip(firsts, lasts, strict=True)
    return tuple(f"<{(first / fps + last / fps) / 2:.1f} seconds>" for first, last in pairs)


def compose(parts: Sequence[int | Input | Clip], config: Any) -> Prompt:
    """Make a prompt of text tokens, images and clips, as the model's processor lays them out.

    An image stands between the model's vision marks; so does each temporal step of a clip, its
    timestamp before the marks.

    Args:
        parts: Token ids, images and clips, in order.
        config: The model's, which names its special tokens.

    Raises:
        ValueError: If a clip comes without a timestamp for each of its steps.
    """
    ids: list[int] = []
    items: list[Input] = []
    for part in parts:
        if not isinstance(part, Clip | Input):
            ids.append(part)
            continue
        value, stamps = (part.value, part.stamps) if isinstance(part, Clip) else (part, ())
        for stamp, length in _written(value, stamps, f"item {len(items)}"):
            placeholder = placeholders(config)[value.item.modality]
            ids.extend((*stamp, config.vision_start_token_id))
            ids.extend([placeholder] * length)
            ids.append(config.vision_end_token_id)
        items.append(value)
    return Prompt(token_ids=tuple(ids), items=tuple(items))


def placeholders(config: Any) -> dict[Modality, int]:
    """The token that stands for one token of an item, by modality."""
    return {Modality.IMAGE: config.image_token_id, Modality.VIDEO: config.video_token_id}


def check_ids(prompt: Prompt, vocabulary: int, *, index: int) -> None:
    """Refuse token ids that the model has no row for, which on a card would end the process.

    Args:
        prompt: Of any length.
        vocabulary: Rows of the model's embedding.
        index: Of the prompt in its batch, for the message.

    Raises:
        ValueError: If one is no whole number or not below `vocabulary`; names it.
    """
    ids = prompt.token_ids
    require(
        isinstance(ids, Sequence) and not isinstance(ids, str | bytes),
        f"token_ids of prompt {index} must be a sequence of whole numbers, got "
        f"{type(ids).__name__}; tokenize texts and call tolist() on tensors",
    )
    # Nearly all are plain integers; the loop names what is not right.
    if ids and set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < vocabulary:
        return
    for at, token in enumerate(ids):
        fits = isinstance(token, Integral) and 0 <= token < vocabulary
        require(
            fits,
            f"token {at} of prompt {index} must be a whole number of 0 to {vocabulary - 1:,}, got "
            f"{token!r:.40}; tokenize with the model's own tokenizer",
        )


def runs(prompt: Prompt, config: Any, *, index: int = 0) -> tuple[Run, ...]:
    """Find the runs of placeholders of a prompt's items, and check that they fit.

    Args:
        prompt: At least one token.
        config: The model's, which names its placeholders.
        index: Of the prompt in its batch, for the message.

    Returns:
        One run an image and one a temporal step of a clip, in order.

    Raises:
        ValueError: If runs and items differ in number, order or length, or an item is neither an
            image nor a clip.
    """
    require(bool(prompt.token_ids), f"prompt {index} must have at least one token, got none")
    found = _found(prompt, config)
    wanted = [
        (f"item {number} of prompt {index}", value, length)
        for number, value in enumerate(prompt.items)
        for length in _lengths(value, f"item {number} of prompt {index}")
    ]
    for modality in MODALITIES:
        _check_count(prompt, found, modality, index)
    for run, (name, value, length) in zip(found, wanted, strict=True):
        require(
            run.modality == value.item.modality,
            f"{name} is of modality {value.item.modality}, but its run at token {run.start} holds "
            f"placeholders of modality {run.modality}; give items in the order of their runs",
        )
        require(
            run.length == length,
            f"{name} has runs of {length} tokens, but the one at token {run.start} holds "
            f"{run.length} placeholders",
        )
    keyed = len(prompt.keys) in (0, len(prompt.items))
    require(keyed, f"prompt {index} has {len(prompt.keys)} keys for {len(prompt.items)} items")
    return found


def position_ids(prompt: Prompt, model: Any) -> tuple[Tensor, int]:
    """Rotary positions by the model's own rule, on the host.

    Returns:
        (3, L) int64 positions in time, height and width, and what to add to a later token's index.
    """
    ids_1L = torch.tensor([prompt.token_ids], device="cpu")
    types_1L = torch.zeros_like(ids_1L, dtype=torch.int32)
    known = placeholders(model.config)
    for number, modality in enumerate(MODALITIES, start=1):
        types_1L[ids_1L == known[modality]] = number
    images, clips = (_grids(prompt, modality) for modality in MODALITIES)
    found_31L, delta_11 = model.model.get_rope_index(
        ids_1L, mm_token_type_ids=types_1L, image_grid_thw=images, video_grid_thw=clips
    )
    return found_31L[:, 0], int(delta_11)


def _grids(prompt: Prompt, modality: Modality) -> Tensor | None:
    grids = [tuple(value.grid) for value in prompt.items if value.item.modality == modality]
    return torch.tensor(grids, device="cpu") if grids else None


def _written(
    value: Input, stamps: Sequence[tuple[int, ...]], name: str
) -> list[tuple[tuple[int, ...], int]]:
    """What stands before the marks of each run of an item, and the run's length."""
    lengths = _lengths(value, name)
    if value.item.modality == Modality.IMAGE:
        require(not stamps, f"{name} is an image, which has no timestamps, got {len(stamps)}")
        return [((), length) for length in lengths]
    require(
        len(stamps) == len(lengths),
        f"{name} is a clip of {len(lengths)} temporal steps and must come as a Clip with a "
        f"timestamp for each, got {len(stamps)}",
    )
    return list(zip(stamps, lengths, strict=True))


def _lengths(value: Input, name: str) -> list[int]:
    """Tokens of each run that an item takes."""
    modality, steps = value.item.modality, value.grid.t
    require(modality in MODALITIES, f"{name} must be an image or a clip, got modality {modality}")
    if modality == Modality.IMAGE:
        return [value.item.tokens]
    require(steps >= 1, f"{name} is a clip and must have at least one temporal step, got {steps}")
    return [value.item.tokens // steps] * steps


def _found(prompt: Prompt, config: Any) -> tuple[Run, ...]:
    kinds = {token: modality for modality, token in placeholders(config).items()}
    found, at = [], 0
    for token, members in groupby(prompt.token_ids):
        length = len(list(members))
        if token in kinds:
            found.append(Run(start=at, length=length, modality=kinds[token]))
        at += length
    return tuple(found)


def _check_count(prompt: Prompt, found: Sequence[Run], modality: Modality, index: int) -> None:
    members = [v for v in prompt.items if v.item.modality == modality]
    there = sum(run.modality == modality for run in found)
    wanted, a_run = len(members), "an image"
    given = f"{wanted} images"
    if modality == Modality.VIDEO:
        wanted, a_run = sum(value.grid.t for value in members), "a temporal step of a clip"
        given = f"{len(members)} clips of {wanted} steps"
    require(
        there == wanted,
        f"prompt {index} must have one run of placeholders {a_run}, got {there} runs for {given}; "
        "compose() lays them out",
    )
