"""How the towers of a packed family come to be: of a size with random weights, or of a saved model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, Unpack

import torch

from encgraph.encoders import building, saved
from encgraph.encoders.protocol import Switches
from encgraph.sizes import EncoderSize


class PackedFamily(ABC):
    """What a family states about its module, and the two ways to make one."""

    module_type: ClassVar[Any]
    """The class of transformers."""
    prefixes: ClassVar[tuple[str, ...]] = ("model.visual.", "visual.")
    """Where a whole model's file keeps the tower."""
    short: ClassVar[Mapping[str, Any]] = {"depth": 1}
    """Config values of a small twin that has the same computed buffers."""

    @abstractmethod
    def __init__(self, module: Any, size: EncoderSize, **switches: Unpack[Switches]) -> None:
        """Wrap a module of this family."""

    @classmethod
    @abstractmethod
    def config(cls, size: EncoderSize) -> Any:
        """Config of transformers for a size."""

    @classmethod
    @abstractmethod
    def size_of(cls, name: str, module: Any, files: saved.Files) -> EncoderSize:
        """Size of a saved tower, from its config and its processor's file."""

    @classmethod
    def build(
        cls,
        size: EncoderSize,
        *,
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
        **switches: Unpack[Switches],
    ) -> Self:
        """Build a tower of a size with random weights, made on the device from a seed."""
        config = cls.config(size)
        tower = building.empty(cls.module_type, config, device=device, dtype=dtype, short=cls.short)
        building.randomise(tower, torch.Generator(device=device).manual_seed(seed))
        return cls(tower, size, **switches)

    @classmethod
    def load(
        cls,
        files: saved.Files,
        *,
        device: torch.device,
        dtype: torch.dtype,
        **switches: Unpack[Switches],
    ) -> Self:
        """Load the tower's weights, and only those, of a saved model.

        Raises:
            ValueError: If weights are missing; names one.
        """
        config = cls.module_type.config_class.from_dict(files.config())
        tower = building.empty(cls.module_type, config, device=device, dtype=dtype, short=cls.short)
        saved.load(tower, files, cls.prefixes)
        return cls(tower, cls.size_of(files.base, tower, files), **switches)
