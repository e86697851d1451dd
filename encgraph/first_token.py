"""Measure the time to first token of a whole model: nothing graphed, the encoder, all, and the cache warm.

One model with random weights. The ways of running it (see `ways`) are compared batch by batch, in turn; a batch
is as many requests of the traffic as the concurrency says, answered together. Besides, the first tokens
of a prompt that replays and of one over every budget, each alone and in turn: the jitter. What the
encoder gives is proven in every way before it is timed; see `proving`.

Pixels are there before the clock starts, on a card in pinned memory: reading and resizing images is
not timed, the way to the device is, with the encoder.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from encgraph import loads, measure, meters, proving, systems
from encgraph.encoders import inputs
from encgraph.loads import Workload
from encgraph.model_runner import models
from encgraph.model_runner.facts import CaptureReport, StageTimes
from encgraph.model_runner.prompts import Prompt
from encgraph.model_runner.runner import ModelRunner
from encgraph.results import Interrupted, Latency, Measurement
from encgraph.systems import Progress, Setting
from encgraph.traffic import Traffic
from encgraph.ways import WARM, Comparison, Graphed

JITTER = "jitter"
STAGES = ("preprocessing_ms", "encode_ms", "scatter_ms", "prefill_ms")


def run(
    traffic: Traffic,
    setting: Setting,
    *,
    graphed: Graphed,
    load: Workload,
    progress: Progress = systems.silent,
    keep: Callable[[list[Measurement]], object] = list,
) -> list[Measurement]:
    """Measure the first tokens of a model on a traffic.

    Args:
        traffic: The requests; those longer than the load allows are left out.
        setting: Size, device, dtype, backend, seed.
        graphed: The encoder's graphs.
        load: What a request is besides its items.
        progress: Wraps the batches; where it ends early, those timed until then are reported.
        keep: Given all lines there are after each batch; a run that is ended leaves those.

    Returns:
        A line a captured part (`<way>/encoder`, `<way>/decoder`), one of what was proven of each way
        (`<way>/proven`), for each way and concurrency one line a batch and one with the latency over
        all, and one of the jitter where a prompt can hold an image over every budget.

    Raises:
        ValueError: If no model of that name can be built, or too few requests fit.
        ParityError: If the encoder is wrong in one of the ways; names it and the item.
        Interrupted: On Ctrl-C once a batch was timed; carries the lines made until then.
    """
    comparison = Comparison(
        model=models.named(
            setting.size.name, device=setting.device, dtype=setting.dtype, seed=setting.seed
        ),
        traffic=loads.fitting(traffic, load),
        setting=setting,
        graphed=graphed,
        load=load,
        environment=meters.environment(setting.dtype, setting.device),
    )
    lines: list[Measurement] = []
    with ExitStack() as stack:
        runners = {way: stack.enter_context(comparison.runner(way)) for way in comparison.ways}
        try:
            for made in _lines(comparison, runners, progress):
                lines += made  # part by part, so that an interrupt leaves those before it
                keep(_summed_up(lines))
        except KeyboardInterrupt as stopped:
            if summaries(found := _summed_up(lines)):
                raise Interrupted(found) from stopped
            raise
    return _summed_up(lines)


def _lines(
    comparison: Comparison, runners: Mapping[str, ModelRunner], progress: Progress
) -> Iterator[list[Measurement]]:
    """Captures, proofs, batch after batch, the jitter."""
    for name, runner in runners.items():
        if not runner.gates.eager_only:
            yield _captured(comparison, name, runner)
    yield _proven(comparison, runners)
    yield from _timed(comparison, {**runners, WARM: runners["all_graphs"]}, progress)
    yield list(_jitter(comparison, runners["all_graphs"]))


def summaries(lines: Sequence[Measurement]) -> list[Measurement]:
    """The line of each strategy and concurrency that speaks of all batches."""
    return [m for m in lines if m.request is None and m.latency is not None]


def _captured(comparison: Comparison, name: str, runner: ModelRunner) -> list[Measurement]:
    """Seconds, graphs and bytes of a capture, encoder and decoder apart."""
    report: CaptureReport = runner.capture()
    parts = {"encoder": report.encoder, "decoder": report.decoder}
    return [
        comparison.line(
            f"{name}/{part}",
            runner,
            memory=made.memory,
            numbers={
                "capture_s": made.seconds,
                "graphs_count": made.graphs,
                "key_value_bytes": report.key_value_bytes if part == "decoder" else 0,
            },
        )
        for part, made in parts.items()
    ]


def _proven(comparison: Comparison, runners: Mapping[str, ModelRunner]) -> list[Measurement]:
    """What the encoder gives in every way, proven on the few requests that tell most; a line a way."""
    asked = comparison.traffic.requests
    telling = proving.telling(asked)
    few = comparison.traffic.only(telling)
    batches = dict(zip(telling, systems.batches(few, comparison.setting), strict=True))
    some = next(runner.encoders for runner in runners.values() if runner.encoders)
    found = proving.systems(
        {name: runner.encode for name, runner in runners.items()},
        batches,
        proving.Untouched.of(some.encoder),
    )
    return [
        comparison.line(f"{name}/proven", runners[name], numbers=proven.numbers)
        for name, proven in found.items()
    ]


def _timed(
    comparison: Comparison, runners: Mapping[str, ModelRunner], progress: Progress
) -> Iterator[list[Measurement]]:
    """Every batch by every runner in an order that turns: a line each."""
    host = replace(comparison.setting, device=torch.device("cpu"))
    source = enumerate(systems.batches(comparison.traffic, host))
    prompts: dict[int, Prompt] = {}
    order = loads.order(len(comparison.traffic.requests), comparison.load.concurrency)
    for concurrency, index in progress(order, "batches"):
        wanted = range(index * concurrency, (index + 1) * concurrency)
        prompts = {at: made for at, made in prompts.items() if at >= wanted.start}
        while wanted[-1] not in prompts:
            at, values = next(source)
            prompts[at] = comparison.prompt(values, seed=at)
        batch = [prompts[at] for at in wanted]
        samples = _in_turn(runners, batch, load=comparison.load, first=index)
        yield [
            comparison.line(name, runners[name], request=index, numbers=_medians(times, batch))
            for name, times in samples.items()
        ]


def _summed_up(lines: Sequence[Measurement]) -> list[Measurement]:
    """Those lines, and for each concurrency and strategy one over its batches."""
    batches: dict[tuple[float, str], list[Measurement]] = {}
    for line in lines:
        if line.request is not None:
            about = line.numbers["concurrency_count"], line.strategy
            batches.setdefault(about, []).append(line)
    made = [
        replace(found[0], request=None, **_summary([m.numbers for m in found]))
        for (_, name), found in sorted(batches.items(), key=lambda pair: pair[0][0])
    ]
    return [*lines, *made]


def _in_turn(
    runners: Mapping[str, ModelRunner], batch: Sequence[Prompt], *, load: Workload, first: int
) -> dict[str, list[StageTimes]]:
    """One batch by every runner, repeat by repeat; the first is a warm-up, of the first token alone."""
    samples: dict[str, list[StageTimes]] = {name: [] for name in runners}
    for name, counts in measure.turns(runners, index=first, repeats=load.repeats):
        new = load.new_tokens if counts else 1
        took = _times(runners[name], batch, new=new, is_warm=name == WARM)
        if counts:
            samples[name].append(took)
    return samples


def _times(runner: ModelRunner, batch: Sequence[Prompt], *, new: int, is_warm: bool) -> StageTimes:
    """One batch, its items known beforehand or not at all."""
    assert runner.cache is not None
    if is_warm:
        items = [value for prompt in batch for value in prompt.items]
        runner.encode(items, [key for prompt in batch for key in prompt.keys])
    else:
        runner.cache.clear()
    times = runner.generate(batch, new_tokens=new)[0].times
    assert times is not None
    return times


def _medians(samples: Sequence[StageTimes], batch: Sequence[Prompt]) -> dict[str, float]:
    """Median of each stage, and of the encoder's share of the time to first token."""
    names = (*STAGES, "first_token_ms", "encode_share_ratio")
    found = {name: statistics.median(getattr(s, name) for s in samples) for name in names}
    found["concurrency_count"] = len(batch)
    steps = [ms for s in samples for ms in s.decode_ms]
    if steps:
        found["decode_step_ms"] = statistics.median(steps)
        found["decode_ms"] = statistics.median(sum(s.decode_ms) for s in samples)
    return found


def _summary(batches: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Latency of the first token over batches, and the mean of everything else."""
    first = [numbers["first_token_ms"] for numbers in batches]
    return {
        "latency": Latency.of(first, clock="wall", warmups=1),
        "numbers": {name: statistics.fmean(one[name] for one in batches) for name in batches[0]},
    }


def _jitter(comparison: Comparison, runner: ModelRunner) -> Iterator[Measurement]:
    """First tokens of a prompt that replays and of one over every budget, alone and in turn."""
    if not comparison.extremes or runner.cache is None:
        return
    dtype = comparison.setting.dtype
    small, huge = (
        [comparison.prompt([value], seed=at)]
        for at, value in enumerate(
            inputs.synthetic(comparison.extremes, size=comparison.setting.size, dtype=dtype)
        )
    )
    kept = runner.cache

    def first_token(batch: Sequence[Prompt]) -> object:
        kept.clear()
        return runner.generate(batch, new_tokens=1)

    found = measure.jitter(
        first_token, small, huge, device=comparison.setting.device, samples=comparison.load.samples
    )
    numbers: dict[str, float] = {}
    for name in ("replay_alone", "replay_alternating", "fallback_alone", "fallback_alternating"):
        latency = Latency.of(getattr(found, f"{name}_ms"), clock="wall")
        numbers |= {f"{name}_p50_ms": latency.p50_ms, f"{name}_p99_ms": latency.p99_ms}
    yield comparison.line(JITTER, runner, numbers=numbers)
