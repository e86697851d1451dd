"""Reports written by hand: a card, a CPU, a partial one, one without graphs, one all eager."""

import random
from bisect import bisect_left
from dataclasses import replace

from encgraph.facts import (
    CardPrediction,
    EncoderFacts,
    FallbackFacts,
    GraphState,
    Jitter,
    Latencies,
    PackingFacts,
    ParityFacts,
    Report,
    SkippedFile,
    TimedStep,
    TrafficFacts,
)
from encgraph.records import Capacity, FallbackReason, Modality, Plan, Route, Step
from encgraph.regimes import RequestTimes
from encgraph.results import Environment, Latency, Memory

BUDGETS = (64, 208, 380, 576, 784, 961, 1152, 1440, 1800, 2304, 3136, 4096)
HOSTILE = '<script>alert("x")</script>'


def environment(gpu: str | None = "NVIDIA H200") -> Environment:
    return Environment(
        gpu=gpu,
        driver="580.159" if gpu else None,
        cuda="13.0" if gpu else None,
        cpu="AMD EPYC 9575F, 16 cores",
        python="3.11.7",
        torch="2.13.0",
        transformers="5.24.0",
        encgraph="0.1.0",
        commit="3f2c1ab",
        dtype="bfloat16" if gpu else "float32",
        utc="2026-11-29T14:03:12Z",
    )


def capacity(tokens: int, items: int = 8) -> Capacity:
    return Capacity(
        tokens=tokens,
        patches=tokens * 4,
        items=items,
        segments=items,
        longest_segment=tokens * 4,
        frames=items,
    )


def plan(budgets: tuple[int, ...] = BUDGETS) -> Plan:
    reasons = tuple(
        f"holds requests up to {b:,} tokens; without it they would pad to the next budget and "
        f"cost {1 + 9 / b**0.5:.2f} ms more"
        for b in budgets
    )
    return Plan(
        graphs=tuple(capacity(b) for b in budgets),
        encoder="qwen3-vl-8b",
        attention="fa3",
        compiled=True,
        reasons=reasons or ("eager is faster for every request of this traffic",),
    )


def request_tokens(count: int = 200, seed: int = 3) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(max(64, min(8236, round(draw.lognormvariate(6.3, 0.9)))) for _ in range(count))


def step(tokens: int, budgets: tuple[int, ...] = BUDGETS) -> Step:
    at = bisect_left(budgets, tokens)
    held = at < len(budgets)
    over = FallbackReason.OVER_TOKENS if budgets else FallbackReason.NO_GRAPHS
    return Step(
        route=Route.REPLAY if held else Route.FALLBACK,
        modality=Modality.IMAGE,
        items=1,
        real_tokens=tokens,
        token_budget=budgets[at] if held else None,
        reason=None if held else over,
    )


def ours_ms(tokens: int, budgets: tuple[int, ...] = BUDGETS) -> float:
    at = bisect_left(budgets, tokens)
    if at == len(budgets):
        return eager_ms(tokens) + 0.3
    rows = budgets[at]
    return 1.6 + 0.0068 * rows + 4e-7 * rows * tokens


def eager_ms(tokens: int) -> float:
    return max(15.4 + 0.0004 * tokens, 2 + 0.0086 * tokens + 4e-7 * tokens**2)


def card_report(budgets: tuple[int, ...] = BUDGETS, count: int = 200) -> Report:
    tokens = request_tokens(count)
    steps = tuple(
        TimedStep(step=step(t, budgets), ms=ours_ms(t, budgets), request=i)
        for i, t in enumerate(tokens)
    )
    times = tuple(
        RequestTimes(request=i, tokens=t, items=1, ours_ms=s.ms, eager_ms=eager_ms(t))
        for i, (t, s) in enumerate(zip(tokens, steps, strict=True))
    )
    plain = [s.step for s in steps]
    return Report(
        encgraph="0.1.0",
        command="encgraph run builtin:servegen --encoder qwen3-vl-8b --backend cuda "
        "--strategy encgraph --out out/servegen",
        environment=environment(),
        traffic=TrafficFacts(
            name="servegen",
            source="builtin:servegen, 200 requests, seed 0",
            request_tokens=tokens,
            item_tokens=tokens,
            notes=("Grids are taken as near square: the source gives tokens only.",),
        ),
        encoder=encoder(),
        plan=plan(budgets),
        graphs=tuple(
            GraphState(graph=i, captured=True, seconds=0.9 + b / 4000, num_bytes=b * 2**15)
            for i, b in enumerate(budgets)
        ),
        steps=steps,
        packing=PackingFacts.of(plain),
        fallbacks=FallbackFacts.by_reason(plain),
        parity=parity(),
        latencies=latencies(times),
        times=times,
        jitter=jitter() if budgets else None,
        memory=memory() if budgets else Memory(slabs_bytes=0, pool_bytes=0, driver_bytes=0),
    )


def encoder() -> EncoderFacts:
    return EncoderFacts(
        name="qwen3-vl-8b",
        parameters=576_400_000,
        dtype="bfloat16",
        attention="fa3",
        backend="cuda",
        strategy="encgraph",
    )


def parity(worst: float = 1.04) -> ParityFacts:
    return ParityFacts(
        items=200,
        worst_error_ratio=worst,
        worst_item="request 117, item 0",
        tolerance_ratio=1.25,
        tolerance_source="a replay may err against fp32 by 1.25 times what eager errs in its dtype",
        oracle_dtype="float32",
        poison_passed=True,
    )


def latencies(times: tuple[RequestTimes, ...], *, device: bool = True) -> Latencies:
    ours, eager = [t.ours_ms for t in times], [t.eager_ms for t in times]
    return Latencies(
        ours_wall=Latency.of(ours, clock="wall", warmups=20),
        eager_wall=Latency.of(eager, clock="wall", warmups=20),
        ours_device=Latency.of([v - 0.2 for v in ours], clock="device") if device else None,
        eager_device=Latency.of([v - 0.3 for v in eager], clock="device") if device else None,
    )


def jitter() -> Jitter:
    draw = random.Random(5)
    return Jitter(
        replay_alone_ms=tuple(7.0 + draw.random() * 0.1 for _ in range(30)),
        replay_alternating_ms=tuple(7.4 + draw.random() * 0.3 for _ in range(30)),
        fallback_alone_ms=tuple(16.0 + draw.random() * 0.4 for _ in range(30)),
        fallback_alternating_ms=tuple(16.3 + draw.random() * 0.9 for _ in range(30)),
    )


def memory() -> Memory:
    mib = 2**20
    return Memory(
        slabs_bytes=402 * mib, pool_bytes=1203 * mib, driver_bytes=169 * mib, peak_bytes=2210 * mib
    )


def prediction(times: tuple[RequestTimes, ...]) -> CardPrediction:
    return CardPrediction(
        card="H200",
        encoder="qwen3-vl-8b",
        source="recorded on one NVIDIA H200, torch 2.13.0, fa3, compiled block, 2026-11-29",
        recorded=True,
        ours=Latency.of([t.ours_ms for t in times], clock="predicted"),
        doubling=Latency.of([t.ours_ms * 1.6 for t in times], clock="predicted"),
        eager=Latency.of([t.eager_ms for t in times], clock="predicted"),
        memory=replace(memory(), peak_bytes=None),
        times=times,
    )


def cpu_report() -> Report:
    base = card_report(count=48)
    times = tuple(
        replace(t, ours_ms=t.ours_ms * 0.9, eager_ms=t.ours_ms * (0.7 + 0.01 * (t.request % 9)))
        for t in base.times
    )
    return replace(
        base,
        command="encgraph run photos/ --encoder qwen3-vl-tiny --out out/demo",
        environment=environment(gpu=None),
        traffic=replace(
            base.traffic,
            name="photos",
            source="photos/, 48 images",
            notes=(),
            skipped=(SkippedFile(path="photos/broken.jpg", reason="zero bytes"),),
        ),
        encoder=replace(
            encoder(),
            name="qwen3-vl-tiny",
            parameters=412_000,
            dtype="float32",
            attention="sdpa",
            backend="reference",
        ),
        graphs=tuple(replace(g, num_bytes=None, seconds=0.004) for g in base.graphs),
        parity=replace(parity(), items=48, worst_item="photos/img_0031.jpg"),
        latencies=latencies(times, device=False),
        times=times,
        memory=None,
        prediction=prediction(base.times),
    )


def partial_report() -> Report:
    base = card_report(count=40)
    return replace(
        base,
        complete=False,
        interrupted="Ctrl-C after 12 of 40 requests",
        steps=base.steps[:12],
        packing=PackingFacts.of(s.step for s in base.steps[:12]),
        fallbacks=FallbackFacts.by_reason(s.step for s in base.steps[:12]),
        parity=None,
        latencies=None,
        times=(),
        jitter=None,
        memory=None,
    )


def empty_report() -> Report:
    """Stopped before anything ran: a plan, no traffic figures, nothing else."""
    base = card_report(count=1)
    return Report(
        encgraph="0.1.0",
        command=base.command,
        environment=base.environment,
        traffic=replace(base.traffic, request_tokens=(), item_tokens=()),
        encoder=base.encoder,
        plan=base.plan,
        complete=False,
        interrupted="Ctrl-C while reading the source",
    )


def hostile_report() -> Report:
    base = cpu_report()
    return replace(
        base,
        command=f"encgraph run {HOSTILE}",
        environment=replace(base.environment, cpu=HOSTILE),
        traffic=replace(
            base.traffic,
            name=HOSTILE,
            source=HOSTILE,
            notes=(HOSTILE,),
            skipped=(SkippedFile(path=HOSTILE, reason=HOSTILE),),
        ),
        encoder=replace(base.encoder, name=HOSTILE, attention=HOSTILE, strategy=HOSTILE),
        plan=replace(base.plan, reasons=(HOSTILE,) * len(BUDGETS)),
        parity=replace(parity(), worst_item=HOSTILE, tolerance_source=HOSTILE),
        prediction=replace(prediction(base.times), card=HOSTILE, encoder=HOSTILE, source=HOSTILE),
        complete=False,
        interrupted=HOSTILE,
    )
