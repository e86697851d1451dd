"""Compare the `vllm` strategy with vLLM's own manager: same requests, kernels, weights and card.

    python benchmarks/vllm_agreement.py FOLDER TRAFFIC --strategies eager,vllm --out DIR

FOLDER holds the two files named in `vllm_manager`. TRAFFIC is any source of `encgraph traffic`; budgets
are fitted on draws of --fit-on. Writes `bench-<traffic>.jsonl` with one more system, "vllm_manager".
"""

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path

import torch
import vllm_manager
from torch import Tensor

from encgraph import (
    bench,
    graphs,
    memory,
    readings,
    rows,
    sizes,
    store,
    strategies,
    systems,
    traffic,
)
from encgraph.bars import until
from encgraph.bench import System
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.systems import Setting

MANAGER = "vllm_manager"
"""Its name among strategies."""


class Manager:
    """vLLM's manager as one more system; its batches are joined outside the timed call."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        encoder = systems.encoder(strategies.VLLM, setting)
        self.attention, self.widths = encoder.spec.attention, encoder.spec.widths
        # The same budgets once by ourselves: that loads what loads on first use, and an attention that
        # goes by measurement is settled for these launch shapes, so that both run the same kernels.
        graphs.capture(encoder, systems.plan(strategies.VLLM, setting), slabs="private").clear()
        before = memory.used_bytes(setting.device)
        self.manager = vllm_manager.build(folder, encoder, largest=setting.largest)
        self.device_bytes = memory.used_bytes(setting.device) - before
        self._joined: dict[int, tuple[Sequence[Input], dict[str, object]]] = {}

    def __call__(self, batch: Sequence[Input]) -> list[Tensor]:
        """Run one batch; joins its pixels at the first (warm-up) call only."""
        if id(batch) not in self._joined:
            self._joined = {id(batch): (batch, vllm_manager.keywords(batch))}
        return self.manager.execute(self._joined[id(batch)][1])

    def read(self, made: Sequence[Tensor]) -> list[EncoderOutput]:
        """Outputs of an item's tensor, which has them side by side."""
        return outputs(made, self.widths)


def outputs(made: Sequence[Tensor], widths: Sequence[int]) -> list[EncoderOutput]:
    """Take apart the outputs that vLLM's manager returns side by side, a tensor an item."""
    return [rows.split(one, [len(one)], widths)[0] for one in made]


def _manager(folder: Path, setting: Setting) -> System:
    manager = Manager(folder, setting)
    return System(
        name=MANAGER,
        execute=manager,
        attention=manager.attention,
        compiled=False,
        device_bytes=manager.device_bytes,
        read=manager.read,
    )


def main() -> None:
    """Run the comparison from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("traffic")
    parser.add_argument("--encoder", default="qwen3-vl-8b")
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--strategies", default="eager,eager_varlen,vllm,vllm_tuned,encgraph_plain")
    parser.add_argument("--fit-on", default="builtin:servegen")
    parser.add_argument("--largest", type=int, default=8192)
    parser.add_argument("--count", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=inf, help="begin no request after")
    parser.add_argument("--no-manager", action="store_true")
    parser.add_argument(
        "--calibrate", action="store_true", help="pack by costs measured at capture"
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    progress = until(given.seconds)
    size, device = sizes.named(given.encoder), torch.device("cuda")
    priced = systems.prices(size, on="h200", attention=given.attention)
    measured = traffic.read(given.traffic, size, count=given.count)
    setting = Setting(
        size=size,
        device=device,
        dtype=torch.bfloat16,
        backend="cuda",
        costs=priced(strategies.ENCGRAPH_PLAIN),
        priced=priced,
        fit_on=traffic.read(given.fit_on, size, count=4000, seed=1).requests,
        largest=given.largest,
        attention=given.attention,
        calibrate=given.calibrate,
    )
    others = () if given.no_manager else (_manager(given.folder, setting),)
    lines = bench.run(
        measured,
        [strategies.named(name) for name in given.strategies.split(",")],
        setting,
        repeats=given.repeats,
        others=others,
        progress=progress,
    )
    store.write(given.out / f"{lines[0].experiment}.jsonl", lines)
    for name, line in readings.summaries(lines).items():
        print(name, line.latency, line.memory, dict(line.numbers))


if __name__ == "__main__":
    main()
