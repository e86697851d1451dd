"""8-bit pixels, scaled and normalised on the device as a family's processor would on the host.

An item may bring `uint8` pixels, 0 to 255, in the shape that its float pixels would have. `fill` copies
them as they are, a quarter of the bytes of float32, and one kernel writes them normalised into the
static buffer: computed in float32, rounded once to the buffer's dtype. The buffer keeps the encoder's
dtype, so no graph knows of it, and float and 8-bit items share a replay. (A buffer of 8-bit pixels,
normalised inside the graph, would save that kernel and turn every float item away.)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.image_utils import (
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    IMAGENET_STANDARD_MEAN,
    IMAGENET_STANDARD_STD,
    OPENAI_CLIP_MEAN,
    OPENAI_CLIP_STD,
)

from encgraph.encoders.metadata import to_device

LEVELS = 255
"""Largest 8-bit value; processors rescale by its inverse."""


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What a processor subtracts from, and divides by, each channel of pixels in 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def affine(self, shape: tuple[int, ...], device: torch.device) -> "Affine":
        """Factors of one item's row or slot of this shape, channels outermost, on a device."""
        factors = [
            (1 / (LEVELS * std), -mean / std) for mean, std in zip(self.mean, self.std, strict=True)
        ]
        scale, shift = torch.tensor(factors, dtype=torch.float32, device="cpu").unbind(1)
        if len(shape) == 1:
            each = shape[0] // len(self.mean)
            scale, shift = scale.repeat_interleave(each), shift.repeat_interleave(each)
        else:
            scale, shift = (t.view(-1, *[1] * (len(shape) - 1)) for t in (scale, shift))
        return Affine(scale=to_device(scale, device), shift=to_device(shift, device))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Affine:
    """float32 factors that broadcast to pixels."""

    scale: Tensor
    shift: Tensor

    def write(self, rows: Tensor, raw: Tensor) -> None:
        """Write raw pixels, on the device of the rows, normalised into them; one kernel."""
        torch.addcmul(self.shift, raw, self.scale, out=rows)


class Affines:
    """Keep one encoder's factors for as long as they are asked for alike.

    Of one encoder each, since another's replays may be on another stream, which does not wait for the
    copy to the device.
    """

    def __init__(self) -> None:
        self._made: tuple[object, Affine] | None = None

    def of(
        self, known: Normalisation | None, shape: tuple[int, ...], device: torch.device
    ) -> Affine | None:
        """Factors of a normalisation, of one item's shape, on a device; None without one."""
        if known is None:
            return None
        asked = known, shape, device
        if self._made is None or self._made[0] != asked:
            self._made = asked, known.affine(shape, device)
        return self._made[1]


_HALF = Normalisation(tuple(IMAGENET_STANDARD_MEAN), tuple(IMAGENET_STANDARD_STD))
_CLIP = Normalisation(tuple(OPENAI_CLIP_MEAN), tuple(OPENAI_CLIP_STD))
_IMAGENET = Normalisation(tuple(IMAGENET_DEFAULT_MEAN), tuple(IMAGENET_DEFAULT_STD))
NORMALISATIONS: Mapping[str, Normalisation] = {
    "qwen3-vl": _HALF,
    "qwen2.5-vl": _CLIP,
    "qwen2-vl": _CLIP,
    "glm4v": _CLIP,
    "pixtral": _CLIP,
    "siglip": _HALF,
    "clip": _CLIP,
    "dinov2": _IMAGENET,
    "dinov2-registers": _IMAGENET,
    "dinov3": _IMAGENET,
    "internvl": _IMAGENET,
    "idefics3": _HALF,
    "smolvlm": _HALF,
    "gemma3": _HALF,
}
"""Of the published processors, by family; one that is not here takes float pixels alone."""


def of_processor(
    processor: Mapping[str, Any], published: Normalisation | None
) -> Normalisation | None:
    """Normalisation that a saved processor's file states, else the published one.

    None, and with it float pixels alone, where the file says it rescales or normalises otherwise.
    """
    factor = processor.get("rescale_factor", 1 / LEVELS)
    plain = processor.get("do_rescale", True) and processor.get("do_normalize", True)
    if published is None or not plain or abs(factor * LEVELS - 1) > 1e-6:
        return None
    mean, std = processor.get("image_mean"), processor.get("image_std")
    return Normalisation(tuple(mean), tuple(std)) if mean and std else published
