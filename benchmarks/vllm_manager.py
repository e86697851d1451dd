"""Drive vLLM's own encoder graph manager, unmodified, over our tower: what `vllm` must agree with.

Nothing of vLLM is kept in this project. Give `build` a folder that holds `encoder_cudagraph.py` and
`encoder_cudagraph_defs.py` as they lie in the vllm wheel under `vllm/v1/worker/`; the few names those
files import from vLLM are stood in for here, since one card without an engine needs none of them.

    manager = build(folder, encoder, largest=8192)                 # vLLM's defaults
    outputs = manager.execute(keywords(batch))
"""

import importlib.util
import logging
import sys
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor

from encgraph import sizes
from encgraph.encoders.protocol import Input
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.records import Capacity
from encgraph.sizes import Grid

BUFFERS = ("pixels", "positions", "cos", "sin", "offsets")


class Protocol:
    """vLLM's SupportsEncoderCudaGraph over an encoder with host metadata."""

    def __init__(self, encoder: QwenVL, definitions: ModuleType, largest: int) -> None:
        self.encoder, self.definitions, self.largest = encoder, definitions, largest
        self.rule = encoder.size.rule

    def get_encoder_cudagraph_config(self):
        return self.definitions.EncoderCudaGraphConfig(
            modalities=["image"],
            buffer_keys=list(BUFFERS),
            out_hidden_size=sum(self.encoder.spec.widths),
            # offsets must not fall back to zero past the last segment
            padding_logics={"offsets": lambda buffer, source: buffer.copy_(source)},
        )

    def get_encoder_cudagraph_budget_range(self, config):
        return 64, self.largest

    def get_encoder_cudagraph_item_specs(self, keywords):
        return [
            self.definitions.EncoderItemSpec(
                input_size=t * h * w, output_tokens=t * h * w // self.rule.merge_area
            )
            for t, h, w in keywords["grids"]
        ]

    def select_encoder_cudagraph_items(self, keywords, indices):
        patches = [t * h * w for t, h, w in keywords["grids"]]
        starts = [sum(patches[:i]) for i in range(len(patches))]
        rows = [keywords["pixels"][starts[i] : starts[i] + patches[i]] for i in indices]
        return {"pixels": torch.cat(rows), "grids": [keywords["grids"][i] for i in indices]}

    def capacity(self, budget: int, items: int) -> Capacity:
        return sizes.capacity(budget, self.rule, items=items)

    def prepare_encoder_cudagraph_capture_inputs(  # noqa: PLR0913 - vLLM's signature
        self, token_budget, max_batch_size, max_frames, device, dtype, path, axis_keys
    ):
        self.items = max_batch_size
        made = self.encoder.buffers(self.capacity(token_budget, max_batch_size), device, dtype)
        return self.definitions.EncoderCudaGraphCaptureInputs(values=dict(made))

    def prepare_encoder_cudagraph_replay_buffers(self, keywords, max_batch_size, frames, path):
        grids = [Grid(*grid) for grid in keywords["grids"]]
        made = self.encoder.host_metadata(grids, segments=max_batch_size)
        return self.definitions.EncoderCudaGraphReplayBuffers(
            values={"pixels": keywords["pixels"], **made}
        )

    def encoder_cudagraph_forward(self, values, path):
        budget = values["pixels"].shape[0] // self.rule.merge_area
        output = self.encoder.forward(values, self.capacity(budget, self.items))
        return torch.cat(output.tensors, dim=1)

    def encoder_eager_forward(self, keywords, path):
        value = _inputs(keywords, self.encoder)
        return torch.cat([torch.cat(o.tensors, dim=1) for o in self.encoder.eager(value)])

    def postprocess_encoder_output(
        self, outputs, indices, tokens, destination, clone, batch_mm_kwargs
    ):
        _scatter(outputs["default"], indices, tokens, destination, clone)


def _inputs(keywords, encoder: QwenVL) -> list[Input]:
    start, made = 0, []
    for t, h, w in keywords["grids"]:
        grid = Grid(t, h, w)
        rows = keywords["pixels"][start : start + t * h * w]
        made.append(Input(item=sizes.item(grid, encoder.size.rule), pixels=rows, grid=grid))
        start += t * h * w
    return made


def keywords(batch: Sequence[Input]) -> dict[str, object]:
    """A batch as vLLM's manager takes it: pixels end to end, grids as tuples."""
    pixels: Tensor = torch.cat([value.pixels for value in batch])
    return {"pixels": pixels, "grids": [tuple(value.grid) for value in batch]}


def _scatter(output, indices, tokens, destination, clone=False):
    start = 0
    for index in indices:
        rows = output[start : start + tokens[index]]
        destination[index] = rows.clone() if clone else rows
        start += tokens[index]


def _round_up(values, n):
    at = bisect_left(values, n)
    return values[at] if at < len(values) else None


def _stand_in(name: str, **names: object) -> None:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


def _stand_ins() -> None:
    packages = ("", ".model_executor", ".model_executor.models", ".utils", ".v1", ".v1.worker")
    # What looks for vLLM, as FlashAttention-3 does for its library, must go on finding what is there.
    found = importlib.util.find_spec("vllm") or ModuleSpec("vllm", None, is_package=True)
    for package in packages:
        _stand_in(f"vllm{package}", __path__=[])
    sys.modules["vllm"].__spec__ = found
    _stand_in("vllm.config", VllmConfig=object)
    _stand_in(
        "vllm.distributed",
        get_tensor_model_parallel_rank=lambda: 0,
        get_tensor_model_parallel_world_size=lambda: 1,
        tensor_model_parallel_all_gather=None,
    )
    _stand_in("vllm.logger", init_logger=logging.getLogger)
    _stand_in("vllm.model_executor.models.interfaces", SupportsEncoderCudaGraph=object)
    _stand_in("vllm.model_executor.models.utils", scatter_output_slices=_scatter)
    _stand_in("vllm.model_executor.models.vision", get_load_balance_assignment=None)
    _stand_in("vllm.utils.gpu_sync_debug", gpu_sync_allowed=nullcontext)
    _stand_in("vllm.utils.math_utils", round_up_to=_round_up)
    _stand_in("vllm.utils.torch_utils", current_stream=torch.cuda.current_stream)


def _load(folder: Path) -> tuple[ModuleType, ModuleType]:
    _stand_ins()
    loaded = []
    for name in ("encoder_cudagraph_defs", "encoder_cudagraph"):
        spec = importlib.util.spec_from_file_location(
            f"vllm.v1.worker.{name}", folder / f"{name}.py"
        )
        assert spec is not None, folder
        assert spec.loader is not None, folder
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        loaded.append(module)
    return loaded[0], loaded[1]


def build(
    folder: Path, encoder: QwenVL, *, largest: int, budgets: Sequence[int] = (), items: int = 0
):
    """Construct and capture vLLM's manager; no budgets and 0 items mean its defaults."""
    definitions, manager_module = _load(folder)
    space = SimpleNamespace
    config = space(
        compilation_config=space(
            encoder_cudagraph_token_budgets=list(budgets),
            encoder_cudagraph_max_vision_items_per_batch=items,
            encoder_cudagraph_max_frames_per_batch=None,
        ),
        model_config=space(
            multimodal_config=space(
                get_limit_per_prompt=lambda modality: 0 if modality == "video" else 64,
                mm_encoder_tp_mode="weights",
            ),
            max_model_len=largest,
        ),
        scheduler_config=space(max_num_batched_tokens=largest),
        parallel_config=space(tensor_parallel_size=1),
    )
    protocol = Protocol(encoder, definitions, largest)
    device, dtype = encoder.spec.device, encoder.spec.dtype
    manager = manager_module.EncoderCudaGraphManager(config, device, dtype, protocol)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # it captures on the current stream, not the default one
        manager.capture(torch.cuda.graph_pool_handle())
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    return manager
