"""Encoders by name, with seeded random weights at published sizes, or from saved weights.

To add a family:

1. its sizes: a file `encgraph/published/<group>.py` with a tuple `SIZES` of `rules.EncoderSize` (no
   torch there), joined in `sizes.SIZES`; `EncoderSize.family` is the key below;
2. its adapter: a file `encgraph/encoders/<family>.py` with a class that keeps `protocol.Encoder` and
   two functions,

       build(size, *, device, dtype, seed, **switches) -> Encoder     random weights
       load(files, *, device, dtype, **switches) -> Encoder           those of a `saved.Files`

   `building.empty`, `building.randomise` and `saved.load` do the common work; for towers over packed
   patches `packed_tower.PackedTower` has both as class methods. A switch that an adapter does not
   have must be refused by name, unless it is set to what the adapter does anyway;
3. one line in `FAMILIES`: `"<family>": Family(build=<file>.build, load=<file>.load,
   model_types=(...))`, where the model types are those of the encoder's own config in a saved model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Unpack

import torch

from encgraph import sizes
from encgraph.encoders import (
    clip,
    dino,
    gemma3,
    idefics3,
    internvl,
    saved,
    siglip,
    siglip2_naflex,
    text_families,
    whisper,
)
from encgraph.encoders.glm4v import Glm4v
from encgraph.encoders.pixtral import Pixtral
from encgraph.encoders.protocol import Encoder, Switches
from encgraph.encoders.qwen2_5_vl import Qwen25VL
from encgraph.encoders.qwen2_vl import Qwen2VL
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.errors import require
from encgraph.sizes import EncoderSize


class Build(Protocol):
    """Builds an encoder of a size with random weights, made on the device from a seed."""

    def __call__(
        self,
        size: EncoderSize,
        *,
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
        **switches: Unpack[Switches],
    ) -> Encoder:
        """Build it."""
        ...


class LoadWeights(Protocol):
    """Loads an encoder, and only its weights, from the files of a saved model."""

    def __call__(
        self,
        files: saved.Files,
        *,
        device: torch.device,
        dtype: torch.dtype,
        **switches: Unpack[Switches],
    ) -> Encoder:
        """Load it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """How the encoders of one family come to be."""

    build: Build
    load: LoadWeights
    model_types: tuple[str, ...]
    """`model_type` values of the encoder's own config, as saved models state them; of the whole
    model's where the encoder needs more of it than its own part."""


FAMILIES: Mapping[str, Family] = {
    "qwen3-vl": Family(
        build=QwenVL.build,
        load=QwenVL.load,
        model_types=("qwen3_vl", "qwen3_vl_vision", "qwen3_vl_moe", "qwen3_vl_moe_vision"),
    ),
    "qwen2.5-vl": Family(
        build=Qwen25VL.build,
        load=Qwen25VL.load,
        model_types=("qwen2_5_vl", "qwen2_5_vl_vision"),
    ),
    "qwen2-vl": Family(
        build=Qwen2VL.build,
        load=Qwen2VL.load,
        model_types=("qwen2_vl", "qwen2_vl_vision"),
    ),
    "glm4v": Family(build=Glm4v.build, load=Glm4v.load, model_types=("glm4v", "glm4v_vision")),
    "pixtral": Family(build=Pixtral.build, load=Pixtral.load, model_types=("pixtral",)),
    "siglip": Family(
        build=siglip.FAMILY.build,
        load=siglip.FAMILY.load,
        model_types=("siglip", "siglip_vision_model"),
    ),
    "siglip2-naflex": Family(
        build=siglip2_naflex.build,
        load=siglip2_naflex.load,
        model_types=("siglip2", "siglip2_vision_model"),
    ),
    "clip": Family(
        build=clip.FAMILY.build,
        load=clip.FAMILY.load,
        model_types=("clip", "clip_vision_model"),
    ),
    "dinov2": Family(build=dino.DINOV2.build, load=dino.DINOV2.load, model_types=("dinov2",)),
    "dinov2-registers": Family(
        build=dino.DINOV2_REGISTERS.build,
        load=dino.DINOV2_REGISTERS.load,
        model_types=("dinov2_with_registers",),
    ),
    "dinov3": Family(build=dino.DINOV3.build, load=dino.DINOV3.load, model_types=("dinov3_vit",)),
    "internvl": Family(
        build=internvl.FAMILY.build, load=internvl.FAMILY.load, model_types=("internvl",)
    ),
    "idefics3": Family(
        build=idefics3.IDEFICS3.build, load=idefics3.IDEFICS3.load, model_types=("idefics3",)
    ),
    "smolvlm": Family(
        build=idefics3.SMOLVLM.build, load=idefics3.SMOLVLM.load, model_types=("smolvlm",)
    ),
    "gemma3": Family(build=gemma3.FAMILY.build, load=gemma3.FAMILY.load, model_types=("gemma3",)),
    "whisper": Family(
        build=whisper.FAMILY.build, load=whisper.FAMILY.load, model_types=("whisper",)
    ),
    "bert": Family(
        build=text_families.BERT.build, load=text_families.BERT.load, model_types=("bert",)
    ),
    "xlm-roberta": Family(
        build=text_families.XLM_ROBERTA.build,
        load=text_families.XLM_ROBERTA.load,
        model_types=("xlm-roberta",),
    ),
    "modernbert": Family(
        build=text_families.MODERNBERT.build,
        load=text_families.MODERNBERT.load,
        model_types=("modernbert",),
    ),
}
"""Every family by the name that sizes give."""


def named(
    name: str,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    seed: int = 0,
    **switches: Unpack[Switches],
) -> Encoder:
    """Build an encoder of a published size with random weights, made on the device.

    Args:
        name: A name of `sizes.SIZES`.
        device: Where it lives.
        dtype: Of its weights.
        seed: The same seed on the same device gives the same weights.
        switches: Those of the family's adapter.

    Raises:
        TypeError: If the dtype is none.
        ValueError: If there is no such size or device, or the attention asked for cannot run here.
    """
    size = sizes.named(name)
    _check_dtype(dtype)
    build = FAMILIES[size.family].build
    return build(size, device=_there(device), dtype=dtype, seed=seed, **switches)


def _check_dtype(dtype: object) -> None:
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"dtype must be a torch.dtype, got {dtype!r:.60}; write torch.bfloat16 or torch.float32"
        )
    require(
        dtype.is_floating_point,
        f"dtype must be of floating point, got {dtype}; take torch.bfloat16 or torch.float32",
    )


def _there(device: torch.device | str) -> torch.device:
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be one that torch knows, such as 'cuda' or 'cpu', got {device!r:.60}"
        ) from error
    cards = torch.cuda.device_count() if found.type == "cuda" else 0
    require(
        found.type != "cuda" or (found.index or 0) < cards,
        f"device {str(device)!r} needs an NVIDIA GPU, torch sees {cards or 'no card'}; "
        "use device='cpu'",
    )
    return found


def from_pretrained(
    path: str | Path,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    **switches: Unpack[Switches],
) -> Encoder:
    """Load the encoder's weights, and only those, of a saved model of any known family.

    Args:
        path: A local directory, or a name on the hub (only the files with the encoder's weights are
            fetched).
        device: Where they go.
        dtype: What they become.
        switches: Those of the family's adapter.

    Raises:
        TypeError: If the dtype is none.
        ValueError: If it is a model of no known family, weights are missing, the hub cannot be
            reached, or there is no such device; says which.
    """
    there = _there(device)
    _check_dtype(dtype)
    files = saved.Files(str(path))
    own, whole = files.config(), json.loads(files.path("config.json").read_text())
    known = {m: family for family in FAMILIES.values() for m in family.model_types}
    # A whole model's type goes first: Gemma 3 keeps a SigLIP tower, but is more than that.
    kinds = [str(config.get("model_type", "")) for config in (whole, own)]
    kind = next((kind for kind in kinds if kind in known), kinds[-1])
    require(
        kind in known,
        f"{str(path)!r} must be a model of {sorted(FAMILIES)}, got encoder model type {kind!r}",
    )
    return known[kind].load(files, device=there, dtype=dtype, **switches)
