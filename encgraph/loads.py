"""Turn a traffic's requests into prompts: items, timestamps and text, within the tokens there is room for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from encgraph import sizes
from encgraph.encoders.protocol import Input
from encgraph.errors import require
from encgraph.model_runner import cache, prompts
from encgraph.model_runner.prompts import Clip, Prompt
from encgraph.records import Item, Modality, Plan
from encgraph.sizes import EncoderSize, Grid
from encgraph.traffic import Traffic

MARKS = 2
"""Tokens around each run of placeholders."""
STAMP = 7
"""Tokens of a clip's timestamp, such as "<12.3 seconds>"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a request is besides its items, and how often each is run."""

    concurrency: tuple[int, ...] = (1, 4, 16)
    """Requests of one static batch."""
    text_tokens: int = 128
    new_tokens: int = 16
    max_tokens: int = 8192
    """Prompt and answer; longer requests are left out."""
    repeats: int = 5
    samples: int = 50
    """Of the jitter."""
    is_hashed: bool = False
    """Whether content hashing is timed, as preprocessing; engines hash in their front end."""
    cache_bytes: int = 4 << 30

    @property
    def room(self) -> int:
        """Tokens left for a request's items."""
        return self.max_tokens - self.text_tokens - self.new_tokens

    def __post_init__(self) -> None:
        known = self.concurrency and min(self.concurrency) >= 1
        require(bool(known), f"concurrency must be 1 or more requests, got {self.concurrency!r}")


def tokens(request: Sequence[Item]) -> int:
    """Tokens of a request's items in a prompt, marks and timestamps with them."""
    return sum(
        item.tokens + (item.frames * (MARKS + STAMP) if item.modality == Modality.VIDEO else MARKS)
        for item in request
    )


def fitting(traffic: Traffic, load: Workload) -> Traffic:
    """The requests that the load has room for, with a note of how many those are.

    Raises:
        ValueError: If they are fewer than the largest concurrency.
    """
    kept = [i for i, request in enumerate(traffic.requests) if tokens(request) <= load.room]
    said = f"{len(kept):,} of {len(traffic.requests):,} requests fit {load.max_tokens:,} tokens"
    require(bool(kept), f"no request can be answered: {said}; give shorter ones")
    most = max(load.concurrency)
    require(
        len(kept) >= most,
        f"concurrency must be at most {len(kept)}, got {most}: {said}; give more requests or lower it",
    )
    notes = (*traffic.notes, f"{said} with their text and answer")
    return replace(traffic.only(kept), notes=notes)


def order(requests: int, concurrency: Sequence[int]) -> list[tuple[int, int]]:
    """Batches in the order to run them: requests of each, and its number among those of its size.

    By their first request, so that a run that is cut short has batches of every size, and of much the
    same requests.

    >>> order(4, (1, 2))
    [(1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (1, 3)]
    """
    batches = [(count, n) for count in concurrency for n in range(requests // count)]
    return sorted(batches, key=lambda batch: (batch[0] * batch[1], batch[0]))


def extremes(plan: Plan, size: EncoderSize, load: Workload) -> tuple[Grid, ...]:
    """Grids of an image that replays and of one just over every budget.

    Returns:
        The two, or none where the plan is empty or no prompt can hold the second.
    """
    if not plan.graphs:
        return ()
    largest = plan.largest().tokens
    if largest >= size.rule.max_tokens:
        return ()
    over = sizes.near_square_grid(largest + 1, size.rule)
    if tokens([sizes.item(over, size.rule)]) > load.room:
        return ()
    return sizes.near_square_grid(max(1, largest // 4), size.rule), over


def prompt(values: Sequence[Input], config: Any, load: Workload, *, seed: int) -> Prompt:
    """A prompt of a request's items and then text, tokens drawn at random.

    Args:
        values: Of the request.
        config: The model's, which names its special tokens.
        load: Says how much text, and whether content keys are made beforehand.
        seed: Of the tokens.
    """
    generator = torch.Generator().manual_seed(seed)

    def text(count: int) -> tuple[int, ...]:
        most = config.vision_start_token_id
        drawn = torch.randint(most, (count,), generator=generator, device="cpu")
        return tuple(drawn.tolist())

    parts: list[int | Input | Clip] = [
        Clip(value=value, stamps=tuple(text(STAMP) for _ in range(value.grid.t)))
        if value.item.modality == Modality.VIDEO
        else value
        for value in values
    ]
    made = prompts.compose([*parts, *text(load.text_tokens)], config)
    if load.is_hashed:
        return made
    return replace(made, keys=tuple(cache.content_key(value) for value in made.items))
