"""Turn a plan into another engine's flags, refusing what that engine cannot express."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from encgraph import sizes
from encgraph.errors import require
from encgraph.records import Plan

FIRST_VLLM = (0, 19)
"""First release with encoder graphs."""
RENAMED_VLLM = (0, 20)
"""First release with clips in graphs, which renamed the item cap and added the frames key."""

LATEST_VLLM = (0, 33)
"""Newest release whose sources were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmFlags:
    """Flags that make a vLLM release capture a plan's graphs."""

    engine_version: str
    config: Mapping[str, bool | int | list[int]]
    """Value of `--compilation-config`, by key."""

    @property
    def arguments(self) -> tuple[str, str]:
        """Flag and value as `vllm serve` takes them, unquoted."""
        return ("--compilation-config", json.dumps(dict(self.config)))

    @property
    def assumed(self) -> str:
        """What is taken on trust: nothing, or the names of flags for a release newer than known."""
        if _release(self.engine_version) <= LATEST_VLLM:
            return ""
        latest = ".".join(map(str, LATEST_VLLM))
        return (
            f"vLLM {self.engine_version} is newer than {latest}, the newest release known here: the "
            f"flags {', '.join(self.config)} are named as in {latest}; check `vllm serve --help`"
        )

    @property
    def command_line(self) -> str:
        """The same, quoted for a shell."""
        return shlex.join(self.arguments)


VLLM_LARGEST = 8192
"""Largest budget that vLLM infers under its default limit on batched tokens."""
VLLM_FAMILIES = frozenset(
    {"qwen3-vl", "qwen2.5-vl", "qwen2-vl", "glm4v", "internvl", "idefics3", "smolvlm", "gemma3"}
)
"""Families here whose models have encoder graphs in vLLM 0.33, by its own sources."""


def vllm(plan: Plan, *, engine_version: str = "0.33", frames: int | None = None) -> VllmFlags:
    """Express a plan as flags of vLLM.

    vLLM packs by tokens and items alone: clips with more frames than it captured crash it. So the
    frames key is the worst case of a full batch, or is left out and vLLM infers it.

    Args:
        plan: At most one graph a token budget, all with one item cap or of slots of one size; no
            graphs turns graphs off.
        engine_version: Release the flags are for, such as "0.33" or "0.19.1".
        frames: Most temporal steps that one clip can have under the engine's own limits; None if
            not known.

    Raises:
        ValueError: If the release has no encoder graphs, or cannot express the plan.

    >>> vllm(Plan(graphs=(), encoder="qwen3-vl-2b")).command_line
    '--compilation-config \\'{"cudagraph_mm_encoder": false}\\''
    """
    release = _release(engine_version)
    require(frames is None or frames >= 1, f"frames must be at least 1 a clip, got {frames!r}")
    if not plan.graphs:
        return VllmFlags(engine_version=engine_version, config={"cudagraph_mm_encoder": False})
    known = sizes.SIZES.get(plan.encoder)
    require(
        known is None or known.family in VLLM_FAMILIES,
        f"vLLM has no encoder graphs for {plan.encoder!r}, only for encoders of the families "
        f"{', '.join(sorted(VLLM_FAMILIES))}; plan it for encgraph",
    )
    items = _one_item_cap(plan)
    renamed = release >= RENAMED_VLLM
    config: dict[str, bool | int | list[int]] = {
        "cudagraph_mm_encoder": True,
        "encoder_cudagraph_token_budgets": list(plan.token_budgets),
        _ITEM_KEY[renamed]: items,
    }
    if frames is not None and renamed:
        config["encoder_cudagraph_max_frames_per_batch"] = frames * items
    return VllmFlags(engine_version=engine_version, config=config)


def vllm_defaults(*, engine_version: str = "0.33") -> VllmFlags:
    """Flags that turn encoder graphs on with the budgets that vLLM infers.

    Raises:
        ValueError: If the release has no encoder graphs.

    >>> vllm_defaults().command_line
    '--compilation-config \\'{"cudagraph_mm_encoder": true}\\''
    """
    _release(engine_version)
    return VllmFlags(engine_version=engine_version, config={"cudagraph_mm_encoder": True})


_ITEM_KEY = {
    True: "encoder_cudagraph_max_vision_items_per_batch",
    False: "encoder_cudagraph_max_images_per_batch",
}


_VERSION = r"v?(\d+)\.(\d+)(?:\.\d+)?(?:\.?(?:rc|post|dev)\d+)*(?:\+[\w.]+)?"


def _release(text: str) -> tuple[int, int]:
    found = re.fullmatch(_VERSION, text.strip())
    if found is None:
        raise ValueError(
            f"engine_version must look like '0.33' or '0.33.1', got {text!r}; "
            "`vllm --version` prints it"
        )
    release = int(found[1]), int(found[2])
    require(
        release >= FIRST_VLLM,
        f"vLLM {text} has no encoder graphs; they came with {FIRST_VLLM[0]}.{FIRST_VLLM[1]}, upgrade",
    )
    return release


def _one_item_cap(plan: Plan) -> int:
    """The item cap all graphs share; a `Capacity` has no more items than tokens, as vLLM demands.

    Where each item fills a slot of one size, the tokens of a budget cap its items already.
    """
    caps = sorted({c.items for c in plan.graphs})
    slotted = all(c.patches == c.items * c.longest_segment for c in plan.graphs)
    one_slot = slotted and len({c.longest_segment for c in plan.graphs}) == 1
    require(
        len(caps) == 1 or one_slot,
        f"vLLM has one item cap for all budgets, the plan has {caps!r}; plan with `--for vllm`",
    )
    budgets = [c.tokens for c in plan.graphs]
    require(
        len(set(budgets)) == len(budgets),
        f"vLLM captures one graph a budget, the plan has {budgets!r}; plan with `--for vllm`",
    )
    return caps[-1]
