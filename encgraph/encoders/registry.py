"""Build encoders by name, with seeded random weights at published sizes, or from saved weights."""

import copy
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import Qwen3VLVisionModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig

from encgraph import sizes
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.errors import require
from encgraph.sizes import QWEN3_VL_RULE, EncoderSize, TokenRule

PREFIXES = ("model.visual.", "visual.")
"""Where a whole model's file keeps the vision tower."""
BIAS_STD = 0.02


class Switches(TypedDict, total=False):
    """Keyword arguments of `QwenVL`."""

    attention: str
    metadata: Literal["graph", "host"]
    eager_forward: Literal["varlen", "stock"]
    fill_rule: Literal["prefix", "zero_and_copy"]
    attention_slab: bool


def named(
    name: str,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    seed: int = 0,
    **switches: Unpack[Switches],
) -> QwenVL:
    """Build an encoder of a published size with random weights, made on the device.

    Args:
        name: A name of `sizes.SIZES`.
        device: Where it lives.
        dtype: Of its weights.
        seed: The same seed on the same device gives the same weights.
        switches: Those of `QwenVL`.

    Raises:
        ValueError: If there is no such size, or the attention asked for cannot run here.
    """
    size = sizes.named(name)
    tower = _empty(_config(size), torch.device(device), dtype)
    _randomise(tower, torch.Generator(device=device).manual_seed(seed))
    return QwenVL(tower, size, **switches)


def from_pretrained(
    path: str | Path,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    **switches: Unpack[Switches],
) -> QwenVL:
    """Load the vision weights, and only those, of a saved Qwen3-VL model.

    Args:
        path: A local directory, or a name on the hub (only the files with vision weights are
            fetched).
        device: Where they go.
        dtype: What they become.
        switches: Those of `QwenVL`.

    Raises:
        ValueError: If it is another kind of model, or weights are missing; says which.
    """
    files = _Files(str(path))
    config = json.loads(files.path("config.json").read_text())
    vision = config.get("vision_config", config)
    kind = str(vision.get("model_type", ""))
    require(
        kind.startswith("qwen3_vl"),
        f"{str(path)!r} must be a Qwen3-VL model, got vision model type {kind!r}",
    )
    tower_config = Qwen3VLVisionConfig.from_dict(vision)
    tower = _empty(tower_config, torch.device(device), dtype)
    _load(tower, files)
    rule = _rule(files, tower_config)
    return QwenVL(tower, _size(Path(path).name, tower, rule), **switches)


def _config(size: EncoderSize) -> Qwen3VLVisionConfig:
    return Qwen3VLVisionConfig(
        depth=size.depth,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_heads=size.heads,
        out_hidden_size=size.out,
        patch_size=size.rule.patch,
        temporal_patch_size=size.rule.temporal_patch,
        spatial_merge_size=size.rule.merge,
        num_position_embeddings=size.position_side**2,
        deepstack_visual_indexes=list(size.deepstack),
        attn_implementation="sdpa",
    )


def _empty(config: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Build a tower on a device with weights not yet written and computed buffers in place.

    Weights are made on the meta device and given memory afterwards, which skips an initialisation
    that would be overwritten. Buffers that no file holds (rotary frequencies, float32 whatever the
    dtype) come from a twin of one block.
    """
    config = copy.deepcopy(config)
    config._attn_implementation = config._attn_implementation or "sdpa"
    with torch.device("meta"):
        tower = Qwen3VLVisionModel(config).to(dtype)
    tower = tower.to_empty(device=device).eval().requires_grad_(False)
    short = copy.deepcopy(config)
    short.depth, short.deepstack_visual_indexes = 1, []
    short.num_position_embeddings = 1
    twin = Qwen3VLVisionModel(short)
    for name, buffer in twin.named_buffers():
        owner, _, leaf = name.rpartition(".")
        setattr(tower.get_submodule(owner), leaf, buffer.to(device))
    return tower


@torch.no_grad()
def _randomise(tower: nn.Module, generator: torch.Generator) -> None:
    """Write weights that keep activations near 1: a normal of 1 / sqrt(fan in), norms at identity."""
    for module in tower.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                parameter.normal_(0, BIAS_STD, generator=generator)
            elif isinstance(module, nn.LayerNorm):
                parameter.fill_(1)
            elif isinstance(module, nn.Embedding):
                parameter.normal_(0, 0.5, generator=generator)
            else:
                std = 1 / math.sqrt(parameter[0].numel())
                parameter.normal_(0, std, generator=generator)


class _Files:
    """Files of a saved model: a local directory, or the hub's, fetched one by one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.local = Path(name) if Path(name).is_dir() else None

    def find(self, file: str) -> Path | None:
        """Path of a file, or None where the model has none of that name."""
        if self.local is not None:
            found = self.local / file
            return found if found.is_file() else None
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError

        try:
            return Path(hf_hub_download(self.name, file))
        except EntryNotFoundError:
            return None

    def path(self, file: str) -> Path:
        """Path of a file that must be there."""
        found = self.find(file)
        require(found is not None, f"{self.name!r} must hold {file!r}; it is no saved model")
        assert found is not None
        return found

    def vision_files(self) -> list[Path]:
        """Safetensors files that hold vision weights."""
        index = self.find("model.safetensors.index.json")
        if index is None:
            return [self.path("model.safetensors")]
        where = json.loads(index.read_text())["weight_map"]
        shards = {shard for key, shard in where.items() if _inside(key) is not None}
        return [self.path(shard) for shard in sorted(shards)]


def _inside(key: str) -> str | None:
    """Name of a tensor within the vision tower, or None for the rest of the model."""
    prefix = next((p for p in PREFIXES if key.startswith(p)), None)
    return None if prefix is None else key.removeprefix(prefix)


def _vision_tensors(files: list[Path]) -> Iterator[tuple[str, Tensor]]:
    with ExitStack() as stack:
        for file in files:
            opened = stack.enter_context(safe_open(file, framework="pt"))
            keys = list(opened.keys())
            whole = any(_inside(key) is not None for key in keys)
            for key in keys:
                name = _inside(key) if whole else key
                if name is not None:
                    yield name, opened.get_tensor(key)


@torch.no_grad()
def _load(tower: nn.Module, files: _Files) -> None:
    """Copy every parameter from the files, one tensor at a time."""
    wanted = dict(tower.named_parameters())
    for name, tensor in _vision_tensors(files.vision_files()):
        if name in wanted:
            wanted.pop(name).copy_(tensor)
    require(
        not wanted,
        f"{files.name!r} must hold all vision weights, {len(wanted)} are missing, "
        f"such as {next(iter(wanted), '')!r}",
    )


def _rule(files: _Files, config: Any) -> TokenRule:
    """The published rule, with patch and merge of the config and the processor's pixel limits."""
    rule = replace(
        QWEN3_VL_RULE,
        patch=config.patch_size,
        merge=config.spatial_merge_size,
        temporal_patch=config.temporal_patch_size,
    )
    found = files.find("preprocessor_config.json")
    limits = json.loads(found.read_text()).get("size", {}) if found else {}
    return replace(
        rule,
        min_pixels=limits.get("shortest_edge", rule.min_pixels),
        max_pixels=limits.get("longest_edge", rule.max_pixels),
    )


def _size(name: str, tower: Any, rule: TokenRule) -> EncoderSize:
    config = tower.config
    return EncoderSize(
        name=name,
        family="qwen3-vl",
        layout="packed",
        depth=config.depth,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_heads,
        out=config.out_hidden_size,
        deepstack=tuple(config.deepstack_visual_indexes),
        position_side=math.isqrt(config.num_position_embeddings),
        parameters=sum(parameter.numel() for parameter in tower.parameters()),
        rule=rule,
        source=f"saved model {name!r}",
    )
