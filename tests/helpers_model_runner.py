"""What the tests of the model runner share: a tiny model, prompts, a runner, and what is right."""

from collections.abc import Sequence
from typing import Any

import torch
from helpers import RULE, TINY, device_of, dtype_of, plan

from encgraph import sizes
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Input
from encgraph.model_runner import models, prompts
from encgraph.model_runner.facts import Options
from encgraph.model_runner.gates import Gates
from encgraph.model_runner.prompts import Clip, Prompt
from encgraph.model_runner.runner import ModelRunner
from encgraph.records import Modality
from encgraph.sizes import Grid

LENGTH = 64
GATES = Gates(timing=True)


def tiny_model(backend: str = "reference", seed: int = 0) -> Any:
    device, dtype = device_of(backend), dtype_of(backend)
    return models.named("qwen3-vl-tiny", device=device, dtype=dtype, seed=seed)


def images(*sides: tuple[int, int], seed: int = 0) -> list[Input]:
    """Images of (height, width) in patches, pixels on the host."""
    return inputs.synthetic([Grid(1, *side) for side in sides], size=TINY, seed=seed)


def clip(*grid: int, seed: int = 0) -> Clip:
    """A clip of (steps, height, width) in patches, its timestamps two tokens each."""
    made = inputs.synthetic(
        [sizes.item(Grid(*grid), RULE, modality=Modality.VIDEO)], size=TINY, seed=seed
    )
    return Clip(value=made[0], stamps=tuple((20 + step, 40) for step in range(grid[0])))


def batch_of_three(model: Any, seed: int = 0) -> list[Prompt]:
    """Two images, none, and one; lengths differ."""
    a, b, c = images((4, 6), (8, 4), (6, 6), seed=seed)
    parts = ([1, 2, a, 3, b, 4, 5], [7, 8, 9], [c, 10])
    return [prompts.compose(part, model.config) for part in parts]


def runner(
    model: Any,
    gates: Gates = GATES,
    *,
    backend: str = "reference",
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> ModelRunner:
    """A runner of budgets 8 and 32 and batch sizes 1, 2, 4 unless told otherwise."""
    chosen = {"backend": backend, "batch_sizes": (1, 2, 4), "length": LENGTH, **(options or {})}
    fields = {"plan": plan(8, 32), **fields}
    return ModelRunner(model=model, size=TINY, gates=gates, options=Options(**chosen), **fields)


def generated(model: Any, prompt: Prompt, new_tokens: int) -> tuple[int, ...]:
    """What transformers' own greedy generation answers, one prompt alone."""
    device = model.lm_head.weight.device
    ids = torch.tensor([prompt.token_ids], device=device)
    types = (ids == model.config.image_token_id) + 2 * (ids == model.config.video_token_id)
    given: dict[str, Any] = {"mm_token_type_ids": types.int()}
    for modality, pixels, grids in (
        (Modality.IMAGE, "pixel_values", "image_grid_thw"),
        (Modality.VIDEO, "pixel_values_videos", "video_grid_thw"),
    ):
        found = [value for value in prompt.items if value.item.modality == modality]
        if found:
            given[pixels] = torch.cat([value.pixels for value in found]).to(device)
            given[grids] = torch.tensor([tuple(value.grid) for value in found], device=device)
    made = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=new_tokens,
        **given,
    )
    return tuple(made[0, ids.shape[1] :].tolist())


def answers(model_runner: ModelRunner, batch: Sequence[Prompt], new_tokens: int = 3) -> list[Any]:
    return [one.token_ids for one in model_runner.generate(batch, new_tokens=new_tokens)]
