"""What DESIGN says of the targets is what the records say."""

import re
from functools import cache
from pathlib import Path

from encgraph import readings, store

DESIGN = (Path(__file__).parents[1] / "DESIGN.md").read_text(encoding="utf-8")
EAGER = ("eager", "eager_varlen", "eager_compiled", "eager_fused")
OURS = ("encgraph", "ladder_compile", "encgraph_plain")
BEFORE = "bench-servegen-first"


def row(begins):
    """The last cell of a target's row."""
    [found] = re.findall(rf"^\| {re.escape(begins)}[^|]*\|[^|]*\|[^|]*\| (.*) \|$", DESIGN, re.M)
    return found


@cache
def lines(experiment="bench-servegen"):
    return store.load("h200", experiment)


@cache
def whole(experiment="bench-servegen"):
    return readings.summaries(lines(experiment))


def mean(name):
    return whole()[name].latency.mean_ms


def p99(name):
    return whole()[name].latency.p99_ms


def numbers(name, experiment="bench-servegen"):
    return whole(experiment)[name].numbers


def off(name, predicted, measured):
    """Per cent by which a prediction is off."""
    return f"{100 * abs(numbers(name)[predicted] / measured - 1):.1f} %"


def test_means_over_means():
    assert row("same kernels") == f"{mean('vllm_tuned') / mean('encgraph_plain'):.2f}"
    assert row("full: mean") == f"{mean('vllm') / mean('encgraph'):.2f}"
    floor = numbers("encgraph")["arithmetic_floor_ms"]
    assert row("mean over the arithmetic") == f"{mean('encgraph') / floor:.2f}"


def test_p99_over_each_eager():
    assert row("full: p99").startswith(
        f"{p99('eager_varlen') / p99('encgraph'):.2f} over `eager_varlen`; "
        f"{p99('eager_compiled') / p99('encgraph'):.2f} over `eager_compiled`, "
        f"{p99('eager_fused') / p99('encgraph'):.2f} over `eager_fused`: missed."
    )


def small_requests(experiment):
    """How often faster the best eager and `eager_varlen` are; the name of the best."""
    found = readings.regimes(lines(experiment))
    small = {r.strategy: r.latency.mean_ms for r in found if not r.over_tokens}
    best = min(EAGER, key=small.__getitem__)
    return best, *(f"{small[name] / small['encgraph']:.2f}" for name in (best, "eager_varlen"))


def test_small_requests():
    best, over, varlen = small_requests("bench-servegen")
    same, before, varlen_before = small_requests(BEFORE)
    assert same == best
    assert row("requests up to 512") == (
        f"{over} over `{best}`, {varlen} over `eager_varlen`; in the run before, on its quicker host, "
        f"{before} and {varlen_before}"
    )


def over_best_eager(experiment):
    """Each request's time over its best eager run, and how it ran."""
    requests = readings.requests(lines(experiment))
    return [
        (mine.latency.p50_ms / min(rival.latency.p50_ms for rival in rivals), mine)
        for mine, *rivals in zip(*(requests[name] for name in ("encgraph", *EAGER)), strict=True)
    ]


def test_the_worst_request():
    now, before = over_best_eager("bench-servegen"), over_best_eager(BEFORE)
    worst = max(ratio for ratio, _ in now)
    assert worst <= 1.02
    index = max(range(len(before)), key=lambda i: before[i][0])
    (ratio, then), (again, mine) = before[index], now[index]
    assert mine.load == then.load
    assert row("worst request") == (
        f"{worst:.2f} over the best of four eager systems: met by a hair, no request of {len(now)} "
        f"lies above. In the run before one of {len(before)} ({then.load.items} items, "
        f"{then.load.tokens:,} tokens) took {ratio:.2f}; here it takes {again:.2f}, in "
        f"{mine.numbers['replays_count']:.0f} replays"
    )


def test_exact_graphs_of_the_same_kernels():
    over = {n: numbers(n)["exact_sample_ms"] / numbers(n)["exact_floor_ms"] for n in OURS}
    assert row("mean over the exact") == ", ".join(f"{over[n]:.2f} for `{n}`" for n in OURS)
    assert max(over.values()) <= 1.08


def test_bytes_and_what_was_predicted_of_them():
    taken = {name: whole()[name].memory.total_bytes for name in ("vllm", *OURS)}
    assert row("bytes the graphs cost") == f"{taken['encgraph'] / taken['vllm']:.2f}"
    said = row("predicted bytes")
    ours, theirs, plain = (
        off(name, "predicted_bytes", taken[name]) for name in ("encgraph", "vllm", "encgraph_plain")
    )
    assert said == f"{ours} below for `encgraph`, {theirs} for `vllm`; {plain} for `encgraph_plain`"


def test_predicted_means():
    said = row("predicted mean")
    for text, names in (
        ("within {} for `encgraph` and", ("encgraph", "encgraph_plain")),
        ("{} for `ladder_compile`,", ("ladder_compile",)),
        ("{} for `vllm` and", ("vllm", "vllm_tuned")),
    ):
        assert text.format(furthest("mean", names)) in said, names
    hosts = {f"{numbers(n)['before_launch_us'] / 1e3:.1f}" for n in ("vllm", "vllm_tuned")}
    assert [f"host before a launch, {ms} ms here" in said for ms in hosts] == [True]
    for name in EAGER[1:]:
        over = numbers(name)["predicted_mean_ms"] / mean(name) - 1
        assert f"{over:.0%} `{name}`".replace("%", " %") in said
    assert said.endswith(f"within {furthest('p99', EAGER[1:])}")


def furthest(quantile, names):
    measured = {"mean": mean, "p99": p99}[quantile]
    found = [(off(n, f"predicted_{quantile}_ms", measured(n))) for n in names]
    return max(found, key=lambda text: float(text.split()[0]))


def test_host_time_is_that_on_record():
    now, before = (
        {
            n: numbers(n, of)["before_launch_us"]
            for n in ("encgraph", "encgraph_plain", "ladder_compile", "vllm")
        }
        for of in ("bench-servegen", BEFORE)
    )
    ours, plain, compiled, theirs = now.values()
    assert row("host time").startswith(
        f"{ours:.0f} us for `encgraph`, {plain:.0f} for `encgraph_plain`: missed; "
        f"{compiled:.0f} for `ladder_compile`. In the run before {before['encgraph']:.0f}, "
        f"{before['encgraph_plain']:.0f} and {before['ladder_compile']:.0f}. The host took "
        f"{theirs / before['vllm']:.2f} times as long for `vllm` ({theirs:,.0f} and {before['vllm']:.0f} us)"
    )
    assert compiled < 200 < plain < ours
    said = f"{len(over_best_eager(BEFORE))} requests, on a host that took {before['vllm'] / theirs:.2f} times"
    assert said in DESIGN


def test_capture_is_that_on_record():
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


def test_large_requests_were_replayed_as_said():
    large = [m for m in readings.requests(lines())["encgraph_plain"] if m.load.tokens > 2048]
    assert not any(m.numbers["eager_runs_count"] for m in large)
    found = {
        r.strategy: r.latency.mean_ms for r in readings.regimes(lines()) if r.over_tokens == 2048
    }
    lost = found["encgraph_plain"] / found["eager_varlen"] - 1
    said = f"`encgraph_plain` lost {100 * lost:.0f} % to `eager_varlen` over 2,048 tokens: it replayed all {len(large)} requests"
    assert said in DESIGN


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
    assert f"{tensors:.0f} MiB more of tensors, and {idle:.0f} MiB of blocks" in said
    assert (
        f"Without those idle blocks the two are {100 * (1 - held[0] / held[1]):.1f} % apart" in said
    )
