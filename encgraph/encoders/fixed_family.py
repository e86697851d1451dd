"""What the families of the fixed layout share: a module at a size, random weights, an encoder."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Unpack

import torch

from encgraph.encoders import building, compiling, faces, fixed, pixels, saved
from encgraph.encoders.fixed import Fixed, RunSlots, Slot
from encgraph.encoders.protocol import Switches
from encgraph.errors import require
from encgraph.published.images import square as square_rule
from encgraph.sizes import EncoderSize

_ATTENTIONS = ("auto", "sdpa")
"""What may be asked for: these modules attend by torch's scaled dot product, without offsets."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedFamily:
    """How the encoders of one family of the fixed layout come to be."""

    module_type: Callable[[Any], Any]
    """Makes the module from a config."""
    config_of: Callable[[EncoderSize], Any]
    """Makes the config of a size."""
    short: Mapping[str, Any]
    """Config values of a twin that has the same buffers; see `building.empty`."""
    patches: RunSlots = fixed.patches_of
    """Runs the module for its rows."""
    pooled: RunSlots = fixed.pooled_of
    """Runs it under a pooled rule."""
    face: Callable[[Any], Any] = faces.itself
    """Makes what graphs capture of the module."""
    slot_of: Callable[[EncoderSize], Slot] = field(default=fixed.image_slot)
    size_of: Callable[[Any, saved.Files], EncoderSize]
    """Reads the size from a saved model's config; parameters are counted afterwards."""
    config_type: Any
    """Class of that config."""
    prefixes: tuple[str, ...] = ()
    """Where a whole model's file keeps the weights."""
    is_renamed: bool = False
    """Whether files keep the weights under other names, which transformers maps while it loads."""
    is_whole: bool = False
    """Whether the config is a whole model's, of which only the encoder is built."""

    def encoder(
        self,
        module: Any,
        size: EncoderSize,
        *,
        name: str = "",
        eager_forward: Literal["face", "stock"] = "face",
    ) -> Fixed:
        """Make an encoder of a module of this family.

        Args:
            module: In eval mode; held, not changed.
            size: Its size; the rule gives the resolution and says whether outputs are pooled.
            name: Name in records; empty means the size's.
            eager_forward: See `Fixed`.
        """
        return Fixed(
            module,
            self.slot_of(size),
            name=name or size.name,
            run=self.pooled if size.rule.pooled else self.patches,
            face=self.face,
            eager_forward=eager_forward,
        )

    def build(
        self,
        size: EncoderSize,
        *,
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
        **switches: Unpack[Switches],
    ) -> Fixed:
        """Build one with random weights from a seed; see `registry`.

        Raises:
            ValueError: If an attention is asked for that these modules do not have.
        """
        eager = eager_of(switches)
        module = building.empty(
            self.module_type, self.config_of(size), device=device, dtype=dtype, short=self.short
        )
        building.randomise(module, torch.Generator(device=device).manual_seed(seed))
        return self.encoder(module, size, eager_forward=eager)

    def load(
        self,
        files: saved.Files,
        *,
        device: torch.device,
        dtype: torch.dtype,
        **switches: Unpack[Switches],
    ) -> Fixed:
        """Load one from a saved model; see `registry`.

        Raises:
            ValueError: If weights are missing, or an attention is asked for that is not there.
        """
        eager = eager_of(switches)
        config = self.config_type.from_dict(
            whole_config(files) if self.is_whole else files.config()
        )
        if self.is_renamed:
            module = mapped(self.module_type, files, dtype=dtype).to(device)
        else:
            module = building.empty(
                self.module_type, config, device=device, dtype=dtype, short=self.short
            )
            saved.load(module, files, self.prefixes)
        size = counted(self.size_of(config, files), module)
        made = self.encoder(module, size, eager_forward=eager)
        stated = pixels.of_processor(files.processor(), made.slot.normalisation)
        made.slot = replace(made.slot, normalisation=stated)
        return made


def mapped(module_type: Any, files: saved.Files, *, dtype: torch.dtype) -> Any:
    """Load a module by transformers itself, which maps names; refuse what it would make up.

    Raises:
        ValueError: If weights are missing; names one.
    """
    module, found = module_type.from_pretrained(
        files.name, dtype=dtype, attn_implementation="sdpa", output_loading_info=True
    )
    absent = sorted(found["missing_keys"])
    require(
        not absent,
        f"{files.name!r} must hold all encoder weights, {len(absent)} are missing, such as "
        f"{next(iter(absent), '')!r}",
    )
    return module.eval().requires_grad_(False)


def whole_config(files: saved.Files) -> dict[str, Any]:
    """config.json as it is, the text model's part included."""
    read: dict[str, Any] = json.loads(files.path("config.json").read_text())
    return read


def counted(size: EncoderSize, module: Any) -> EncoderSize:
    """The size with the parameters of a module."""
    return replace(size, parameters=sum(p.numel() for p in module.parameters()))


def saved_size(  # noqa: PLR0913 - what a saved config says, field by field
    vision: Any,
    files: saved.Files,
    *,
    family: str,
    resolution: int,
    out: int = 0,
    merge: int = 1,
    prefix: int = 0,
    intermediate: int = 0,
) -> EncoderSize:
    """Size of a saved image tower, its patches square and its table as its config's image."""
    patch = _side(vision.patch_size)
    return EncoderSize(
        name=saved_name(files),
        family=family,
        layout="fixed",
        depth=vision.num_hidden_layers,
        hidden=vision.hidden_size,
        intermediate=intermediate or vision.intermediate_size,
        heads=vision.num_attention_heads,
        out=out or vision.hidden_size,
        position_side=_side(vision.image_size) // patch,
        parameters=0,
        rule=square_rule(resolution, patch, merge=merge, prefix=prefix),
        source=f"saved model {files.name!r}",
    )


def saved_name(files: saved.Files) -> str:
    """Name of a saved model: the last part of its path."""
    return files.name.rstrip("/").rsplit("/", 1)[-1]


def _side(value: Any) -> int:
    """One side of what configs give as a number or as a pair."""
    return int(value) if isinstance(value, int | float) else int(value[0])


def eager_of(switches: Switches) -> Literal["face", "stock"]:
    """Read the switches that mean something here: there is no metadata, and padding never counts.

    Raises:
        ValueError: If it has no such attention or body.
    """
    compiling.refuse(switches)
    attention = switches.get("attention", "auto")
    require(
        attention in _ATTENTIONS,
        f"an encoder of fixed slots attends by one of {_ATTENTIONS}, got {attention!r}",
    )
    return "stock" if switches.get("eager_forward") == "stock" else "face"
