"""Take apart what vLLM's default graphs hold on a card: by the `vllm` strategy, and by vLLM's own manager.

    python benchmarks/vllm_memory.py FOLDER --attention fa3 --out data/measurements/h200

FOLDER holds the two files named in `vllm_manager`. Each is captured twice, and only the second counts: the
first loads what loads on first use, for both. Bytes are differences before and after, caches emptied:
`tensors` of the general pool, `idle` what its segments hold beside them, `pool` what private pools reserve,
`driver` what is outside the allocator; together they are what the device lost. Writes `vllm-memory.jsonl`.
"""

import argparse
import gc
from collections.abc import Callable
from pathlib import Path

import torch
import vllm_manager
from vllm_agreement import MANAGER

from encgraph import cards, graphs, memory, meters, sizes, store, strategies, systems
from encgraph.results import Measurement
from encgraph.systems import Setting

GENERAL = (0, 0)
"""Id of the pool that is nobody's own."""


def parts(device: torch.device) -> dict[str, int]:
    """Bytes that the device holds now, by who holds them."""
    outside = memory.outside_allocator(device)
    segments = torch.cuda.memory_snapshot()
    general = [s for s in segments if tuple(s["segment_pool_id"]) == GENERAL]
    reserved = sum(s["total_size"] for s in general)
    tensors = sum(s["allocated_size"] for s in general)
    pool = sum(s["total_size"] for s in segments) - reserved
    return {
        "tensors_bytes": tensors,
        "idle_bytes": reserved - tensors,
        "pool_bytes": pool,
        "driver_bytes": outside,
    }


def held(capture: Callable[[], object], device: torch.device) -> dict[str, float]:
    """What the second capture adds while its result lives."""
    capture()
    gc.collect()
    before = parts(device)
    kept = capture()
    after = parts(device)
    del kept
    gc.collect()
    found = {name: float(after[name] - before[name]) for name in after}
    return {**found, "device_bytes": sum(found.values())}


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="qwen3-vl-8b")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--largest", type=int, default=8192)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    size, device = sizes.named(given.encoder), torch.device("cuda")
    setting = Setting(
        size=size,
        device=device,
        dtype=torch.bfloat16,
        backend="cuda",
        costs=cards.price(size),
        fit_on=(),
        largest=given.largest,
        attention=given.attention,
    )
    encoder, plan = (
        systems.encoder(strategies.VLLM, setting),
        systems.plan(strategies.VLLM, setting),
    )
    captures: dict[str, Callable[[], object]] = {
        strategies.VLLM.name: lambda: graphs.capture(encoder, plan, slabs="private"),
        MANAGER: lambda: vllm_manager.build(given.folder, encoder, largest=given.largest),
    }
    lines = [
        Measurement(
            experiment="vllm-memory",
            encoder=size.name,
            environment=meters.environment(setting.dtype, device),
            strategy=name,
            attention=encoder.spec.attention,
            compiled=False,
            numbers={**held(capture, device), "graphs_count": float(len(plan.graphs))},
        )
        for name, capture in captures.items()
    ]
    store.write(given.out / "vllm-memory.jsonl", lines)
    for line in lines:
        print(line.strategy, {name: f"{n:,.0f}" for name, n in line.numbers.items()})


if __name__ == "__main__":
    main()
