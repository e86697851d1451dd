"""Time what it takes until a plan's graphs are ready: with an empty compile cache, then with a warm one.

    python benchmarks/capture_time.py builtin:servegen --encoder qwen3-vl-8b --out data/measurements/h200

Each strategy is made ready in two fresh processes that share one cache folder of their own. Seconds
count from the encoder's weights being on the device to the last graph; imports and weights do not
count. Writes `capture-<encoder>.jsonl`, anew after each process; a strategy that fails stops no other.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from encgraph import codec, meters, sizes, store, strategies, systems, traffic
from encgraph.records import Route
from encgraph.results import Measurement
from encgraph.systems import Setting

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
"""What torch, Triton and the driver keep of what they compiled."""


def ready(given: argparse.Namespace) -> Measurement:
    """Make one strategy ready in this process."""
    size, device = sizes.named(given.encoder), torch.device("cpu" if given.cpu else "cuda")
    dtype = torch.float32 if given.cpu else torch.bfloat16
    priced = systems.prices(sizes.named(given.priced_as or given.encoder), on="h200")
    strategy = strategies.named(given.child)
    setting = Setting(
        size=size,
        device=device,
        dtype=dtype,
        backend="reference" if given.cpu else "cuda",
        costs=priced(strategies.ENCGRAPH_PLAIN),
        priced=priced,
        fit_on=traffic.read(given.traffic, size, count=given.count, seed=1).requests,
        largest=given.largest,
        max_graphs=given.graphs,
    )
    plan = systems.plan(strategy, setting)
    with ExitStack() as stack:
        start = time.perf_counter()
        runner = stack.enter_context(systems.runner(strategy, setting, planned=plan))
        built = time.perf_counter()
        systems.ready(runner, setting)
        done = time.perf_counter()
        spec = runner.encoder.spec
        return Measurement(
            experiment=f"capture-{size.name}",
            encoder=size.name,
            environment=meters.environment(dtype, setting.device),
            strategy=strategy.name,
            attention=spec.attention,
            compiled=spec.compiled,
            fused=spec.fused,
            route=Route.CAPTURE,
            memory=runner.memory,
            numbers={
                "build_s": built - start,
                "capture_s": done - built,
                "graphs_count": float(len(plan.graphs)),
                "warm_cache_count": float(given.warm),
            },
        )


def measured(name: str, given: argparse.Namespace, lines: list[Measurement]) -> bool:
    """Make a strategy ready twice, keep the lines, and say whether it went well."""
    # Compilers that outlive a process may still write there when it is cleared away.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, **{kept: str(Path(folder, kept)) for kept in CACHES}}
        for warm in (0, 1):
            command = [sys.executable, *sys.argv, "--child", name, "--warm", str(warm)]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                return False
            line = codec.loads(Measurement, done.stdout.splitlines()[-1])
            print(name, "warm" if warm else "cold", json.dumps(dict(line.numbers)), flush=True)
            lines.append(line)
            if given.out:
                store.write(given.out / f"{line.experiment}.jsonl", lines)
    return True


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traffic")
    parser.add_argument("--encoder", default="qwen3-vl-8b")
    parser.add_argument("--strategies", default="encgraph_plain,encgraph")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--graphs", type=int, default=16)
    parser.add_argument("--largest", type=int, default=8192)
    parser.add_argument("--priced-as", help="another encoder whose costs the plan goes by")
    parser.add_argument("--cpu", action="store_true", help="try it out, on the reference backend")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--warm", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(codec.dumps(ready(given)))
        return
    lines: list[Measurement] = []
    failed = [name for name in given.strategies.split(",") if not measured(name, given, lines)]
    if failed:
        sys.exit(f"not made ready: {', '.join(failed)}; what stopped them is above")


if __name__ == "__main__":
    main()
