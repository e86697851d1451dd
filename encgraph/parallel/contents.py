"""Tell batches of the same sizes apart by a few values of each item, where the host can read them for free.

Ranks may have read one image with other versions of a decoder, so values need only be near.
"""

import json
import math
from collections.abc import Sequence

import torch

from encgraph.encoders.protocol import Input
from encgraph.parallel.notices import RankError

SAMPLES = 8
"""Values read of each item; a difference between them goes unseen."""
NEAR = 0.1
"""Difference, absolute or relative, up to which two values may be of one image."""

_Values = list[float] | None


def sampled(batch: Sequence[object]) -> str:
    """A few values of each item in a line; nothing of what is on a card, not contiguous, or not loaded."""
    return json.dumps([_values(each) for each in batch])


def check_alike(said: Sequence[str]) -> None:
    """Refuse batches of which an item differs, as far as two ranks could read it.

    Args:
        said: What `sampled` gave on each rank, of as many items each.

    Raises:
        RankError: If they differ; names the first item and the two ranks.
    """
    if len(set(said)) == 1:
        return
    ranks: list[list[_Values]] = [json.loads(text) for text in said]
    for index, each in enumerate(zip(*ranks, strict=True)):
        known = [(rank, values) for rank, values in enumerate(each) if values is not None]
        for rank, values in known[1:]:
            first, expected = known[0]
            if not _is_near(expected, values):
                raise RankError(
                    f"this batch must be the same on every rank; item {index} has other pixels on "
                    f"rank {rank} than on rank {first}; make the same calls on every rank"
                )


def _values(value: object) -> _Values:
    if not isinstance(value, Input):
        return None
    pixels = value.pixels.detach()
    if pixels.device.type != "cpu" or not pixels.is_contiguous() or not pixels.numel():
        return None
    step = max(1, pixels.numel() // SAMPLES)
    scale = 255 if pixels.dtype == torch.uint8 else 1
    return [float(each) / scale for each in pixels.view(-1)[step // 2 :: step][:SAMPLES].tolist()]


def _is_near(expected: Sequence[float], values: Sequence[float]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR) or (math.isnan(a) and math.isnan(b))
        for a, b in zip(expected, values, strict=True)
    )
