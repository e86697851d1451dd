"""Time what each joined pass of a block gains in a replay, and list the kernels before and after.

    python benchmarks/inside_the_tower.py --encoder qwen3-vl-8b --out data/measurements/h200

One body a row, each with one idea more than the row above; every body is captured anew in the same
process and replayed at the same loads. Writes `inside-<encoder>.jsonl`: a line a body and load with the
device's median, and for the loads of `--kernels` the milliseconds and the number of kernels by kind.
"""

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torch.nn.functional import gelu, linear

from encgraph import graphs, kernels, meters, profilers, sizes, store
from encgraph.encoders import fusing, registry
from encgraph.graphs import GraphSet
from encgraph.points import Recording
from encgraph.records import Plan
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize

KINDS = (
    ("attention", r"flash|fmha|attention|prepare_varlen|softmax"),
    ("products", r"^(?!triton).*(gemm|nvjet|cutlass|cublas|splitk|mm)"),
    ("rotary", r"rotate|_cat_|chunk"),
    ("norms", r"layer_?norm|rms"),
    ("gelu", r"gelu|tanh"),
    ("copies", r"^(?!triton).*(memcpy|memset|copy|fill|cat)"),
)
"""What a kernel is, by the first pattern that its name has; the rest is "other". A compiler's kernels
carry the names of all that went into them, a product's bias and a cast among others, and those of
operators next to them: a norm after a GELU in a product has both in its name."""


def _two_operations(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return gelu(linear(rows, weight, bias), approximate="tanh")


def _apart(stack: ExitStack) -> None:
    """Leave the GELU to the compiler."""
    stack.enter_context(mock.patch.object(fusing, "linear_gelu", _two_operations))


def _tuned(stack: ExitStack) -> None:
    stack.enter_context(torch._inductor.config.patch(coordinate_descent_tuning=True))


Setup = Callable[[ExitStack], object]
BODIES: dict[str, tuple[bool, bool, Setup]] = {
    "plain": (False, False, lambda stack: None),
    "compiled": (True, False, lambda stack: None),
    "norms_joined": (True, True, _apart),
    "gelu_in_product": (True, True, lambda stack: None),
    "tuned": (True, True, _tuned),
}
"""Compiled, fused, and what else to set up, a body a row; the compiled front comes with the first
that is fused, since it belongs to the tower and not to a block."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all bodies share."""

    size: EncoderSize
    device: torch.device
    dtype: torch.dtype
    tokens: tuple[int, ...]
    kernels: tuple[int, ...]
    samples: int

    @property
    def backend(self) -> str:
        return "cuda" if self.device.type == "cuda" else "reference"


def _body(bench: Bench, name: str) -> Iterator[Measurement]:
    compiled, fused, setup = BODIES[name]
    torch._dynamo.reset()
    with ExitStack() as stack:
        setup(stack)
        encoder = registry.named(
            bench.size.name,
            device=bench.device,
            dtype=bench.dtype,
            compiled=compiled,
            fused=fused,
        )
        capacities = [sizes.capacity(t, bench.size.rule, items=8) for t in bench.tokens]
        plan = Plan(graphs=tuple(capacities), encoder=bench.size.name)
        made = stack.enter_context(graphs.capture(encoder, plan, backend=bench.backend))
        failed = [g.failure for g in made.graphs if g.failure]
        if failed:
            raise RuntimeError(f"body {name!r} was not captured: {failed[0]}")
        recording = Recording(
            encoder=encoder,
            size=bench.size,
            environment=meters.environment(bench.dtype, bench.device),
            samples=bench.samples,
        )
        for capacity in capacities:
            for parts in (1, 4):
                if capacity.tokens // parts < bench.size.rule.min_tokens:
                    continue
                batch = recording.inputs(capacity.tokens // parts, parts)
                profiled = parts == 1 and capacity.tokens in bench.kernels
                run = partial(made.replay, capacity, batch)
                yield replace(
                    recording.replay(made, capacity, batch),
                    experiment=f"inside-{bench.size.name}",
                    strategy=name,
                    numbers=_kinds(made, run) if profiled else {},
                )


def kind_of(name: str) -> str:
    """What a kernel is, by its name."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.I)), "other")


def _kinds(made: GraphSet, run: Callable[[], object]) -> dict[str, float]:
    """Milliseconds and number of kernels by kind, of one replay."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profilers.torch_profile(path):
            run()
            if made.encoder.spec.device.type == "cuda":
                torch.cuda.synchronize()
        found = kernels.from_trace(path)
    ms, count = Counter[str](), Counter[str]()
    for kernel in found:
        kind = kind_of(kernel.name)
        ms[kind] += kernel.ms
        count[kind] += 1
    for kernel in sorted(found, key=lambda k: -k.ms)[:12]:
        print(f"    {kernel.ms * 1e3:9.1f} us  {kernel.name[:150]}")
    return {f"{k}_ms": v for k, v in ms.items()} | {
        f"{k}_count": float(n) for k, n in count.items()
    }


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="qwen3-vl-8b")
    parser.add_argument("--bodies", default=",".join(BODIES))
    parser.add_argument("--tokens", default="64,256,1024,2048")
    parser.add_argument("--kernels", default="64,1024", help="tokens whose kernels are listed")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--cpu", action="store_true", help="try it out, on the reference backend")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    bench = Bench(
        size=sizes.named(given.encoder),
        device=torch.device("cpu" if given.cpu else "cuda"),
        dtype=torch.float32 if given.cpu else torch.bfloat16,
        tokens=tuple(int(t) for t in given.tokens.split(",")),
        kernels=tuple(int(t) for t in given.kernels.split(",")),
        samples=given.samples,
    )
    lines: list[Measurement] = []
    for name in given.bodies.split(","):
        print(name, flush=True)
        for line in _body(bench, name):
            lines.append(line)
            assert line.latency and line.capacity and line.load
            print(
                f"  {line.capacity.tokens:5} tokens, {line.load.items} items: "
                f"{line.latency.p50_ms:8.3f} ms ({line.latency.p10_ms:.3f} to "
                f"{line.latency.p90_ms:.3f}) {dict(line.numbers) or ''}",
                flush=True,
            )
        store.write(given.out / f"inside-{bench.size.name}.jsonl", lines)


if __name__ == "__main__":
    main()
