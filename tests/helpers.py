"""What several tests share: a tiny encoder, inputs, plans, and the backends to run on."""

import pytest
import torch

from encgraph import costs, sizes
from encgraph.encoders import inputs, registry
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.records import Plan
from encgraph.sizes import Grid
from encgraph.systems import Setting

TINY = sizes.named("qwen3-vl-tiny")
RULE = TINY.rule
BACKENDS = [
    "reference",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.cuda,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
        ],
    ),
]


def device_of(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "cuda" else "cpu")


def dtype_of(backend: str) -> torch.dtype:
    return torch.bfloat16 if backend == "cuda" else torch.float32


def tiny(backend: str = "reference", **options: object) -> QwenVL:
    return registry.named(
        "qwen3-vl-tiny", device=device_of(backend), dtype=dtype_of(backend), **options
    )


def batch(grids: list[tuple[int, ...]], encoder: QwenVL, seed: int = 0) -> list[Input]:
    """Inputs of (h, w) or (t, h, w) grids in patches."""
    full = [Grid(*((1, *grid) if len(grid) == 2 else grid)) for grid in grids]
    spec = encoder.spec
    return inputs.synthetic(full, size=TINY, device=spec.device, dtype=spec.dtype, seed=seed)


def plan(*budgets: int, items: int = 4, frames: int = 8) -> Plan:
    capacities = [sizes.capacity(b, RULE, items=items, frames=frames) for b in budgets]
    return Plan(graphs=tuple(capacities), encoder="qwen3-vl-tiny")


def compilations() -> int:
    """Graphs compiled in this process so far."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def close(mine: EncoderOutput, eager: EncoderOutput, encoder: QwenVL) -> bool:
    """Within the derived tolerance: exact dtype to 1e-5, others to twice their own rounding."""
    bound = 1e-5 if encoder.spec.dtype == torch.float32 else 3e-2
    pairs = zip(mine.tensors, eager.tensors, strict=True)
    return all(
        float(torch.linalg.vector_norm((a - b).double()) / torch.linalg.vector_norm(b.double()))
        <= bound
        for a, b in pairs
    )


def reference(**fields):
    """What compared systems share on the reference backend; fields overrule."""
    given = {
        "size": TINY,
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "backend": "reference",
        "costs": costs.modelled(sizes.named("qwen3-vl-8b")),
        "fit_on": (),
        "largest": 512,
    }
    return Setting(**given | fields)


class Breaks:
    """An adapter whose forward does something else for some budgets: it is given buffers to fail on."""

    def __init__(self, encoder, budgets, fail):
        self.encoder, self.budgets, self.fail = encoder, budgets, fail

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def forward(self, buffers, capacity):
        if capacity.tokens in self.budgets:
            self.fail(buffers)
        return self.encoder.forward(buffers, capacity)
