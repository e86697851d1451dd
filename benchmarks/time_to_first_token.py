"""Measure what encoder graphs and a warm encoder cache change in the time to first token.

    python benchmarks/time_to_first_token.py --model qwen3-vl-2b --out data

One model with random weights; four runners of it, compared batch by batch in turn: nothing graphed, the
encoder graphed, encoder and decoder graphed, and the same with every image in the cache. A batch is as
many requests of the traffic as the concurrency says, answered together. Also measures the jitter of
replays that alternate with fallbacks. Writes one file under OUT/measurements/<card>/.

On a machine without a card: --device cpu --model qwen3-vl-tiny --backend reference --requests 4.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tqdm import tqdm

from encgraph import budgets, measure, meters, sizes, store, traffic
from encgraph.budgets import Target
from encgraph.encoders import inputs
from encgraph.model_runner import cache, models, prompts
from encgraph.model_runner.facts import CaptureReport, Options, StageTimes
from encgraph.model_runner.gates import Gates
from encgraph.model_runner.prompts import Prompt
from encgraph.model_runner.runner import ModelRunner
from encgraph.records import Item, Plan
from encgraph.results import Environment, Latency, Measurement

GATES = {
    "eager": Gates(eager_only=True, timing=True),
    "encoder_graphs": Gates(decoder_graphs=False, timing=True),
    "all_graphs": Gates(timing=True),
    "cache_warm": Gates(timing=True),
}
STAGES = ("preprocessing_ms", "encode_ms", "scatter_ms", "prefill_ms")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all measurements of one run share."""

    model: object
    size: sizes.EncoderSize
    plan: Plan
    given: argparse.Namespace
    environment: Environment

    def runner(self, gates: Gates) -> ModelRunner:
        options = Options(
            backend=self.given.backend,
            batch_sizes=tuple(sorted(set(self.given.concurrency))),
            length=self.given.length,
            cache_bytes=self.given.cache_bytes,
        )
        return ModelRunner(
            model=self.model, size=self.size, plan=self.plan, gates=gates, options=options
        )

    def prompt(self, request: Sequence[Item], seed: int) -> Prompt:
        """Text tokens drawn at random around a request's images, whose pixels are random too."""
        generator = torch.Generator().manual_seed(seed)
        vocabulary = self.model.config.vision_start_token_id
        text = torch.randint(vocabulary, (self.given.text,), generator=generator).tolist()
        made = inputs.synthetic(
            request, size=self.size, device="cpu", dtype=self.model.lm_head.weight.dtype, seed=seed
        )
        composed = prompts.compose([*made, *text], self.model.config)
        # Serving engines hash in their front end; with --hash it is timed as preprocessing.
        keys = () if self.given.hash else tuple(cache.content_key(image) for image in made)
        return replace(composed, keys=keys)

    def line(self, strategy: str, **fields: object) -> Measurement:
        return Measurement(
            experiment=f"time_to_first_token-{self.size.name}",
            encoder=self.size.name,
            environment=self.environment,
            strategy=strategy,
            traffic=self.given.traffic,
            **fields,
        )


def fitting(bench: Bench) -> list[Sequence[Item]]:
    """Requests of images alone that the length holds with text and answer; says how many do not."""
    given = bench.given
    room = given.length - given.text - given.new_tokens
    drawn = traffic.read(given.traffic, bench.size, count=given.requests).requests
    kept = [
        request
        for request in drawn
        if all(item.frames == 1 for item in request)
        and sum(item.tokens + 2 for item in request) <= room
    ]
    print(f"{len(kept)} of {len(drawn)} requests are images that fit {given.length} tokens")
    return kept


def times(runner: ModelRunner, batch: Sequence[Prompt], *, new: int, warm: bool) -> StageTimes:
    """One batch, its images known beforehand or not at all."""
    if warm:
        runner.encode([image for prompt in batch for image in prompt.images])
    else:
        runner.cache.clear()
    return runner.generate(batch, new_tokens=new)[0].times


def medians(samples: Sequence[StageTimes]) -> dict[str, float]:
    """Median of each stage, and of the encoder's share of the time to first token."""
    found = {stage: statistics.median(getattr(s, stage) for s in samples) for stage in STAGES}
    found["first_token_ms"] = statistics.median(s.first_token_ms for s in samples)
    found["encode_share_ratio"] = statistics.median(s.encode_share_ratio for s in samples)
    steps = [ms for s in samples for ms in s.decode_ms]
    if steps:
        found["decode_step_ms"] = statistics.median(steps)
        found["decode_ms"] = statistics.median(sum(s.decode_ms) for s in samples)
    return found


def compared(
    bench: Bench, runners: dict[str, ModelRunner], concurrency: int
) -> Iterator[Measurement]:
    """Every batch by every runner in an order that turns; a line a batch, and one for all."""
    requests = fitting(bench)
    starts = range(0, len(requests) - concurrency + 1, concurrency)
    lines: dict[str, list[dict[str, float]]] = {name: [] for name in runners}
    for index in tqdm(starts, desc=f"concurrency {concurrency}"):
        members = requests[index : index + concurrency]
        batch = [bench.prompt(r, seed=index + i) for i, r in enumerate(members)]
        for name, samples in in_turn(runners, batch, given=bench.given, first=index).items():
            lines[name].append(medians(samples) | {"concurrency_count": concurrency})
    for name, batches in lines.items():
        for index, numbers in enumerate(batches):
            yield bench.line(name, request=index, numbers=numbers)
        if batches:
            yield bench.line(name, **_summary(batches, concurrency))


def in_turn(
    runners: dict[str, ModelRunner],
    batch: Sequence[Prompt],
    *,
    given: argparse.Namespace,
    first: int,
) -> dict[str, list[StageTimes]]:
    """One batch by every runner, repeat by repeat; the first is a warm-up."""
    samples: dict[str, list[StageTimes]] = {name: [] for name in runners}
    names = list(runners)
    for repeat in range(-1, given.repeats):
        turn = (first + repeat) % len(names)
        for name in names[turn:] + names[:turn]:
            warm = name == "cache_warm"
            took = times(runners[name], batch, new=given.new_tokens, warm=warm)
            if repeat >= 0:
                samples[name].append(took)
    return samples


def _summary(batches: Sequence[dict[str, float]], concurrency: int) -> dict[str, object]:
    """Latency of the first token over batches, and the mean of everything else."""
    first = [numbers["first_token_ms"] for numbers in batches]
    means = {name: statistics.fmean(one[name] for one in batches) for name in batches[0]}
    return {
        "latency": Latency.of(first, clock="wall", warmups=1),
        "numbers": means | {"concurrency_count": concurrency},
    }


def captured(bench: Bench, name: str, report: CaptureReport) -> list[Measurement]:
    """Seconds, graphs and bytes of a capture, encoder and decoder apart."""
    parts = {"encoder": report.encoder, "decoder": report.decoder}
    return [
        bench.line(
            f"{name}/{part}",
            memory=made.memory,
            numbers={
                "capture_s": made.seconds,
                "graphs_count": made.graphs,
                "key_value_bytes": report.key_value_bytes if part == "decoder" else 0,
            },
        )
        for part, made in parts.items()
    ]


def jitter(bench: Bench, runner: ModelRunner) -> Measurement:
    """First tokens of a prompt that replays and of one over every budget, alone and in turn."""
    largest, rule = bench.plan.largest().tokens, bench.size.rule
    tokens = min(2 * largest, bench.given.length - bench.given.text - 66)
    grids = [sizes.near_square_grid(n, rule) for n in (largest // 4, tokens)]
    small, huge = ([bench.prompt([sizes.item(grid, rule)], seed=i)] for i, grid in enumerate(grids))

    def first_token(batch: Sequence[Prompt]) -> list[object]:
        runner.cache.clear()
        return runner.generate(batch, new_tokens=1)

    found = measure.jitter(
        first_token, small, huge, device=runner.decoder.device, samples=bench.given.samples
    )
    series = {
        "replay_alone": found.replay_alone_ms,
        "replay_alternating": found.replay_alternating_ms,
        "fallback_alone": found.fallback_alone_ms,
        "fallback_alternating": found.fallback_alternating_ms,
    }
    numbers = {}
    for name, values in series.items():
        latency = Latency.of(values, clock="wall")
        numbers |= {f"{name}_p50_ms": latency.p50_ms, f"{name}_p99_ms": latency.p99_ms}
    return bench.line("jitter", numbers=numbers)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="qwen3-vl-2b", choices=sorted(models.TEXT_SIZES))
    parser.add_argument("--traffic", default="builtin:servegen")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=50, help="of the jitter")
    parser.add_argument("--text", type=int, default=128, help="text tokens a prompt")
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192, help="tokens a request")
    parser.add_argument("--largest", type=int, default=4096, help="tokens of the largest budget")
    parser.add_argument("--cache-bytes", type=int, default=4 << 30)
    parser.add_argument("--hash", action="store_true", help="time content hashing as well")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "reference"))
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    """Run the comparison from the command line."""
    given = arguments()
    dtype = torch.float32 if given.device == "cpu" else torch.bfloat16
    size = sizes.named(given.model)
    bench = Bench(
        model=models.named(given.model, device=given.device, dtype=dtype),
        size=size,
        plan=budgets.doubling(
            size.rule.min_pixels // size.rule.factor**2,
            given.largest,
            target=Target(size=size, dtype=str(dtype).removeprefix("torch.")),
            items=16,
        ),
        given=given,
        environment=meters.environment(dtype),
    )
    runners = {name: bench.runner(gates) for name, gates in GATES.items()}
    lines: list[Measurement] = []
    for name, runner in runners.items():
        if not runner.gates.eager_only:
            lines += captured(bench, name, runner.capture())
    for concurrency in given.concurrency:
        lines += compared(bench, runners, concurrency)
    lines.append(jitter(bench, runners["all_graphs"]))
    gpu = bench.environment.gpu
    file = store.path(gpu, f"time_to_first_token-{size.name}", root=given.out)
    store.write(file, lines)
    for line in lines:
        if line.latency is not None:
            print(line.strategy, line.numbers["concurrency_count"], line.latency)
    print(file)
    for runner in runners.values():
        runner.shutdown()


if __name__ == "__main__":
    main()
