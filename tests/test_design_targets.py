"""What DESIGN says of the targets is what the records say."""

import re
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from encgraph import readings, store

DESIGN = (Path(__file__).parents[1] / "DESIGN.md").read_text(encoding="utf-8")
EAGER = ("eager", "eager_varlen", "eager_compiled", "eager_fused")
OURS = ("encgraph", "ladder_compile", "encgraph_plain")
FIRST, SECOND, RUNGS = "bench-servegen", "bench-servegen-slow-host", "bench-ladder-servegen"


def row(begins):
    """The last cell of a target's row."""
    [found] = re.findall(rf"^\| {re.escape(begins)}[^|]*\|[^|]*\|[^|]*\| (.*) \|$", DESIGN, re.M)
    return found


@cache
def lines(of=FIRST):
    return store.load("h200", of)


@cache
def whole(of=FIRST):
    return readings.summaries(lines(of))


def mean(name, of=FIRST):
    return whole(of)[name].latency.mean_ms


def p99(name, of=FIRST):
    return whole(of)[name].latency.p99_ms


def numbers(name, of=FIRST):
    return whole(of)[name].numbers


def off(name, predicted, measured, of=FIRST):
    """Per cent by which a prediction is off."""
    return f"{100 * abs(numbers(name, of)[predicted] / measured - 1):.1f} %"


def bytes_off(name, of=FIRST):
    return off(name, "predicted_bytes", whole(of)[name].memory.total_bytes, of)


def said_of(begins, say):
    """A cell says of the first run, and after it of the slow host's, what `say` makes of them."""
    first, second = say(FIRST), say(SECOND)
    assert row(begins) == f"{first}; slow host {second}"


def test_means_over_means():
    same, slow = (mean("vllm_tuned", of) / mean("encgraph_plain", of) for of in (FIRST, SECOND))
    assert same < 1.1
    tuned, plain = numbers("vllm_tuned"), numbers("encgraph_plain")
    assert tuned["exact_sample_count"] == plain["exact_sample_count"]
    given, most = (
        tuned["exact_sample_ms"] / plain[ms] for ms in ("exact_sample_ms", "exact_floor_ms")
    )
    assert most < 1.25
    assert row("same kernels") == (
        f"{same:.4f}: missed by a hair; slow host {slow:.4f}. Of {plain['exact_sample_count']:.0f} "
        f"requests an exact graph each was timed too: `encgraph_plain` gives {given:.2f}, and graphs "
        f"without any padding would give {most:.2f}, so the goal lies beyond these kernels"
    )
    said_of("full: mean", lambda of: f"{mean('vllm', of) / mean('encgraph', of):.2f}")
    said_of(
        "mean over the arithmetic",
        lambda of: f"{mean('encgraph', of) / numbers('encgraph', of)['arithmetic_floor_ms']:.2f}",
    )


def test_p99_over_each_eager():
    varlen, compiled, fused = (
        [f"{p99(name, of) / p99('encgraph', of):.2f}" for of in (FIRST, SECOND)]
        for name in ("eager_varlen", "eager_compiled", "eager_fused")
    )
    said = row("full: p99")
    assert said.startswith(
        f"{varlen[0]} over `eager_varlen`; {compiled[0]} over `eager_compiled`, "
        f"{fused[0]} over `eager_fused`: missed."
    )
    assert said.endswith(f"; slow host {varlen[1]}, {compiled[1]}, {fused[1]}")


def small_requests(of):
    """How often faster the best eager and `eager_varlen` are, and the best one's name."""
    small = {
        r.strategy: r.latency.mean_ms for r in readings.regimes(lines(of)) if not r.over_tokens
    }
    best = min(EAGER, key=small.__getitem__)
    return best, [f"{small[name] / small['encgraph']:.2f}" for name in (best, "eager_varlen")]


def test_small_requests():
    (best, first), (same, second) = small_requests(FIRST), small_requests(SECOND)
    assert same == best
    assert row("requests up to 512") == (
        f"{first[0]} over `{best}`, {first[1]} over `eager_varlen`; slow host {second[0]}, {second[1]}"
    )


def over_best_eager(of):
    """Each request's time over its best eager run, and how it ran."""
    requests = readings.requests(lines(of))
    return [
        (mine.latency.p50_ms / min(rival.latency.p50_ms for rival in rivals), mine)
        for mine, *rivals in zip(*(requests[name] for name in ("encgraph", *EAGER)), strict=True)
    ]


def test_the_worst_request():
    first, second = over_best_eager(FIRST), over_best_eager(SECOND)
    ratio, worst = max(first, key=lambda one: one[0])
    slow = max(other for other, _ in second)
    assert max(ratio, slow) <= 1.02
    assert row("worst request") == (
        f"{ratio:.2f} over the best of four eager systems, request by request ({worst.load.items} "
        f"items, {worst.load.tokens:,} tokens, in {worst.numbers['replays_count']:.0f} replays); "
        f"slow host {slow:.2f}"
    )


def test_exact_graphs_of_the_same_kernels():
    over = [
        [
            f"{numbers(name, of)['exact_sample_ms'] / numbers(name, of)['exact_floor_ms']:.2f}"
            for name in OURS
        ]
        for of in (FIRST, SECOND)
    ]
    [first] = set(over[0])
    names = ", ".join(f"`{name}`" for name in OURS)
    assert row("mean over the exact") == f"{first} each for {names}; slow host {', '.join(over[1])}"


def test_bytes_and_what_was_predicted_of_them():
    taken = {name: whole()[name].memory.total_bytes for name in ("vllm", *OURS)}
    assert row("bytes the graphs cost") == f"{taken['encgraph'] / taken['vllm']:.2f}"
    names = ("encgraph", "ladder_compile", "vllm", "vllm_tuned", "encgraph_plain")
    below = ", ".join(f"{bytes_off(name)} for `{name}`" for name in names)
    said = row("predicted bytes")
    assert said.startswith(f"below by {below}; slow host the same. Missed by two rungs")
    assert [bytes_off(name, SECOND) for name in names] == [bytes_off(name) for name in names]
    missed = [bytes_off(f"ladder_{rung}", RUNGS) for rung in ("slabs", "caps")]
    assert said.endswith(f": {missed[0].removesuffix(' %')} and {missed[1]}")
    rungs = [bytes_off(name, RUNGS) for name in whole(RUNGS)]
    assert {text for text in rungs if percent(text) > 15} == set(missed)


def percent(text):
    return float(text.split()[0])


def test_predicted_means():
    said = row("predicted mean")
    groups = (("encgraph", "encgraph_plain"), ("ladder_compile",), ("vllm", "vllm_tuned"))
    first, second = ([furthest("mean", names, of) for names in groups] for of in (FIRST, SECOND))
    assert said.startswith(
        f"within {first[0]} for `encgraph` and `encgraph_plain`, {first[1]} for `ladder_compile`, "
        f"{first[2]} for `vllm` and `vllm_tuned`; slow host {percent(second[0])}, {percent(second[1])} "
        f"and {second[2]}, where the last two took "
    )
    [took] = {f"{numbers(name, SECOND)['before_launch_us'] / 1e3:.1f}" for name in groups[2]}
    assert f"the last two took {took} ms on the host before a launch" in said
    for name in EAGER[1:]:
        over = numbers(name)["predicted_mean_ms"] / mean(name) - 1
        assert f"{over:.0%} `{name}`".replace("%", " %") in said
    assert said.endswith(f"within {furthest('p99', EAGER[1:])}")


def furthest(quantile, names, of=FIRST):
    measured = {"mean": mean, "p99": p99}[quantile]
    found = [(off(n, f"predicted_{quantile}_ms", measured(n, of), of)) for n in names]
    return max(found, key=percent)


@pytest.mark.parametrize("name", OURS)
def test_host_time_meets_its_target(name):
    assert numbers(name)["before_launch_us"] < 200


VLLM = (("vllm", FIRST), ("vllm", SECOND), ("ladder_vllm", RUNGS))


def test_host_time_and_capture_are_those_on_record():
    first, second = (numbers("encgraph", of)["before_launch_us"] for of in (FIRST, SECOND))
    ours = [f"ladder_{rung}" for rung in ("slabs", "caps", "attention", "compile", "kernels")]
    rungs = [numbers(name, RUNGS)["before_launch_us"] for name in ours]
    theirs = [numbers(*of)["before_launch_us"] for of in VLLM]
    assert row("host time") == (
        f"{first:.0f} us; slow host {second:.0f}, missed. The host decides: in the ladder's run five rungs "
        f"that do the same there took {min(rungs):.0f} to {max(rungs):.0f} us, and `vllm` took "
        f"{theirs[0]:,.0f} us in the first run, {theirs[1]:,.0f} in the others"
    )
    assert f"{theirs[1]:.0f}" == f"{theirs[2]:.0f}"
    plain, fused = (numbers(name)["capture_s"] for name in ("encgraph_plain", "encgraph"))
    taken = {
        (m.strategy, m.numbers["warm_cache_count"] > 0): m.numbers
        for m in store.load("h200", "capture-qwen3-vl-8b")
    }
    (cold_plain, warm_plain), (cold, warm) = (
        [taken[name, is_warm]["capture_s"] for is_warm in (False, True)]
        for name in ("encgraph_plain", "encgraph")
    )
    graphs = [taken[name, True]["graphs_count"] for name in ("encgraph_plain", "encgraph")]
    said = row("capture")
    assert said.startswith(
        f"in a new process, {graphs[0]:.0f} plain and {graphs[1]:.0f} fused graphs: "
        f"{cold_plain:.1f} and {cold:.1f} s with empty compile caches, "
        f"{warm_plain:.1f} and {warm:.1f} s with warm ones"
    )
    assert f"; {plain:.1f} and {fused:.1f} s where" in said
    assert cold_plain < 6
    assert cold < 40


def test_mixed_requests_and_what_was_predicted_for_them():
    mixed = readings.summaries(store.load("h200", "bench-mix"))
    [said] = re.findall(r"^Mixed requests .*?\n\n", DESIGN, re.M | re.S)
    said = said.replace("\n", " ")
    assert f"the first {mixed['encgraph'].latency.samples} requests" in said
    for name, line in mixed.items():
        called = "vLLM's own manager" if name == "vllm_manager" else f"`{name}`"
        assert f"{called} {line.latency.mean_ms:.1f}" in said
    graphed = [line for line in mixed.values() if line.memory]
    assert len(graphed) == 3
    assert all(line.latency.tail_ms is None for line in graphed)
    for text, measured, predicted in (
        ("the mean within", lambda m: m.latency.mean_ms, "predicted_mean_ms"),
        ("the slowest within", lambda m: m.latency.worst_ms, "predicted_p99_ms"),
        ("bytes within", lambda m: m.memory.total_bytes, "predicted_bytes"),
    ):
        worst = max(abs(m.numbers[predicted] / measured(m) - 1) for m in graphed)
        assert f"{text} {100 * worst:.1f} %" in said


def large(name, of=FIRST):
    return [m for m in readings.requests(lines(of))[name] if m.load.tokens > 2048]


def test_large_requests_ran_as_said():
    slow = large("encgraph_plain", SECOND)
    assert not any(m.numbers["eager_runs_count"] for m in slow)
    found = {
        r.strategy: r.latency.mean_ms
        for r in readings.regimes(lines(SECOND))
        if r.over_tokens == 2048
    }
    lost = found["encgraph_plain"] / found["eager_varlen"] - 1
    said = DESIGN.replace("\n", " ")
    assert f"`encgraph_plain` lost {100 * lost:.0f} % to `eager_varlen` over 2,048 tokens" in said
    assert f"it replayed all {len(slow)} requests" in said
    mine, eager = large("encgraph_plain"), large("eager_varlen")
    assert not any(m.numbers["replays_count"] for m in mine)
    took = [fmean(m.latency.p50_ms for m in which) for which in (mine, eager)]
    assert (
        f"`encgraph_plain` runs all {len(mine)} eager, and takes {took[0]:.1f} ms in their mean, "
        f"`eager_varlen` {took[1]:.1f}"
    ) in said


def test_device_memory_beside_the_manager_of_vllm():
    ours, theirs = (numbers(name)["device_bytes"] for name in ("vllm", "vllm_manager"))
    said = f"{ours / 2**20:,.0f} and {theirs / 2**20:,.0f} MiB, {100 * (1 - ours / theirs):.1f} % apart (must 5"
    assert said in DESIGN


def test_device_memory_taken_apart():
    ours, theirs = (m.numbers for m in lines("vllm-memory"))
    assert ours["pool_bytes"] == theirs["pool_bytes"]
    tensors, idle = ((theirs[n] - ours[n]) / 2**20 for n in ("tensors_bytes", "idle_bytes"))
    held = [one["device_bytes"] - one["idle_bytes"] for one in (ours, theirs)]
    said = DESIGN.replace("\n", " ")
    assert f"{tensors:.0f} MiB more of tensors, and {idle:.0f} MiB more of blocks" in said
    assert (
        f"Without the idle blocks of both the two are {100 * (1 - held[0] / held[1]):.1f} % apart"
        in said
    )
