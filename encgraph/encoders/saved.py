"""Read saved models: the configuration, and the weights of the encoder alone, tensor by tensor."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from encgraph.errors import require

OWN_FILE = {
    "image_processor": "preprocessor_config.json",
    "video_processor": "video_preprocessor_config.json",
}
"""Where a part of a processor is saved alone."""


class Files:
    """Files of a saved model: a local directory, or the hub's, fetched one by one."""

    def __init__(self, name: str) -> None:
        """Open a model.

        Args:
            name: A local directory, or a name on the hub.

        Raises:
            ValueError: If it can be neither.
        """
        self.name = name
        self.base = Path(name).name
        self.local = Path(name) if Path(name).is_dir() else None
        self.is_out_of_reach = False
        """Whether the hub was asked for a file and could not be reached."""

    def find(self, file: str) -> Path | None:
        """Path of a file, or None where the model has none of that name, as far as can be seen.

        Raises:
            ValueError: If the hub has no such model, or the name cannot be one.
        """
        if self.local is not None:
            found = self.local / file
            return found if found.is_file() else None
        from huggingface_hub import errors, hf_hub_download

        try:
            return Path(hf_hub_download(self.name, file))
        except errors.LocalEntryNotFoundError:
            self.is_out_of_reach = True
            return None
        except errors.EntryNotFoundError:
            return None
        except errors.HFValidationError as error:
            raise ValueError(f"no such directory, and no name of a model: {self.name!r}") from error
        except errors.RepositoryNotFoundError as error:
            raise ValueError(
                f"the hub gives no model {self.name!r}: there is none of that name, or it wants a "
                "login; a local directory works as well"
            ) from error

    def path(self, file: str) -> Path:
        """Path of a file that must be there.

        Raises:
            ValueError: If it is not.
        """
        found = self.find(file)
        require(
            found is not None or not self.is_out_of_reach,
            f"the hub could not be reached for {file!r} of {self.name!r}, and it was not fetched "
            "before; give a local directory, or try again with a connection",
        )
        require(found is not None, f"{self.name!r} must hold {file!r}; it is no saved model")
        assert found is not None
        return found

    def config(self) -> dict[str, Any]:
        """The encoder's own part of config.json: of a whole model its vision or audio part."""
        whole: dict[str, Any] = json.loads(self.path("config.json").read_text())
        parts = (whole.get(part) for part in ("vision_config", "audio_config"))
        return next((part for part in parts if isinstance(part, dict)), whole)

    def processor(self, part: str = "image_processor") -> dict[str, Any]:
        """What is saved of a processor, empty where nothing is.

        Args:
            part: "image_processor" or "video_processor". Newer releases of transformers keep both in
                one file, which goes before a file of the part's own. Clips without either are
                processed by what the images' file says, as transformers does.
        """
        whole: dict[str, Any] = self._read("processor_config.json").get(part) or {}
        return whole or self._read(OWN_FILE[part]) or self._read(OWN_FILE["image_processor"])

    def _read(self, file: str) -> dict[str, Any]:
        found = self.find(file)
        made: dict[str, Any] = json.loads(found.read_text()) if found else {}
        return made


def load(module: nn.Module, files: Files, prefixes: Sequence[str]) -> None:
    """Copy every parameter from the files, one tensor at a time.

    Args:
        module: Whose parameters are written.
        files: Of the saved model; files without the encoder's weights are not opened.
        prefixes: Where a whole model's file may keep the encoder; tried in order.

    Raises:
        ValueError: If weights are missing; names one.
    """
    wanted = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in _tensors(files, prefixes):
            if name in wanted:
                wanted.pop(name).copy_(tensor)
    require(
        not wanted,
        f"{files.name!r} must hold all encoder weights, {len(wanted)} are missing, "
        f"such as {next(iter(wanted), '')!r}",
    )


def inside(key: str, prefixes: Sequence[str]) -> str | None:
    """Name of a tensor within the encoder, or None for the rest of the model."""
    prefix = next((p for p in prefixes if key.startswith(p)), None)
    return None if prefix is None else key.removeprefix(prefix)


def _weight_files(files: Files, prefixes: Sequence[str]) -> list[Path]:
    """Safetensors files that hold the encoder's weights."""
    index = files.find("model.safetensors.index.json")
    if index is None:
        return [files.path("model.safetensors")]
    where = json.loads(index.read_text())["weight_map"]
    kept = {shard for key, shard in where.items() if inside(key, prefixes) is not None}
    return [files.path(shard) for shard in sorted(kept or set(where.values()))]


def _tensors(files: Files, prefixes: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    with ExitStack() as stack:
        for file in _weight_files(files, prefixes):
            opened = stack.enter_context(safe_open(file, framework="pt"))
            keys = list(opened.keys())
            whole = any(inside(key, prefixes) is not None for key in keys)
            for key in keys:
                name = inside(key, prefixes) if whole else key
                if name is not None:
                    yield name, opened.get_tensor(key)
