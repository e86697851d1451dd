"""What DESIGN says of the targets is what the records say."""

import re
from functools import cache
from pathlib import Path

import pytest

from encgraph import readings, store

DESIGN = (Path(__file__).parents[1] / "DESIGN.md").read_text(encoding="utf-8")
EAGER = ("eager", "eager_varlen", "eager_compiled", "eager_fused")
OURS = ("encgraph", "ladder_compile", "encgraph_plain")


def row(begins):
    """The last cell of a target's row."""
    [found] = re.findall(rf"^\| {re.escape(begins)}[^|]*\|[^|]*\|[^|]*\| (.*) \|$", DESIGN, re.M)
    return found


@cache
def lines():
    return store.load("h200", "bench-servegen")


@cache
def whole():
    return readings.summaries(lines())


def mean(name):
    return whole()[name].latency.mean_ms


def p99(name):
    return whole()[name].latency.p99_ms


def numbers(name):
    return whole()[name].numbers


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


def test_small_requests():
    small = {r.strategy: r.latency.mean_ms for r in readings.regimes(lines()) if not r.over_tokens}
    best = min(EAGER, key=small.__getitem__)
    assert row("requests up to 512") == ", ".join(
        f"{small[name] / small['encgraph']:.2f} over `{name}`" for name in (best, "eager_varlen")
    )


def test_the_worst_request():
    requests = readings.requests(lines())
    over = sorted(
        (mine.latency.p50_ms / min(rival.latency.p50_ms for rival in rivals), mine.load)
        for mine, *rivals in zip(*(requests[name] for name in ("encgraph", *EAGER)), strict=True)
    )
    (worst, load), missed = over[-1], [ratio for ratio, _ in over[:-1] if ratio > 1.02]
    said = row("worst request")
    assert said.startswith(f"{worst:.2f} over the best of four eager systems: missed")
    assert f"of {len(over)} ({load.items} items, {load.tokens:,} tokens;" in said
    assert f"{len(missed)} more lie between 1.02 and {max(missed):.2f}," in said


def test_exact_graphs_of_the_same_kernels():
    for name in OURS:
        over = numbers(name)["exact_sample_ms"] / numbers(name)["exact_floor_ms"]
        assert row("mean over the exact").startswith(f"{over:.2f} each for ")


def test_bytes_and_what_was_predicted_of_them():
    taken = {name: whole()[name].memory.total_bytes for name in ("vllm", *OURS)}
    assert row("bytes the graphs cost") == f"{taken['encgraph'] / taken['vllm']:.2f}"
    said = row("predicted bytes")
    ours, theirs, plain = (
        off(name, "predicted_bytes", taken[name]) for name in ("encgraph", "vllm", "encgraph_plain")
    )
    assert said.startswith(f"{ours} below for `encgraph`, {theirs} for `vllm`; {plain} for")


def test_predicted_means():
    said = row("predicted mean")
    for text, names in (
        ("within {} for `encgraph` and", ("encgraph", "encgraph_plain")),
        ("{} for `ladder_compile`,", ("ladder_compile",)),
        ("{} for `vllm` and", ("vllm", "vllm_tuned")),
    ):
        assert text.format(furthest("mean", names)) in said, names
    for name in EAGER[1:]:
        over = numbers(name)["predicted_mean_ms"] / mean(name) - 1
        assert f"{over:.0%} `{name}`".replace("%", " %") in said
    assert said.endswith(f"within {furthest('p99', EAGER[1:])}")


def furthest(quantile, names):
    measured = {"mean": mean, "p99": p99}[quantile]
    found = [(off(n, f"predicted_{quantile}_ms", measured(n))) for n in names]
    return max(found, key=lambda text: float(text.split()[0]))


@pytest.mark.parametrize("name", OURS)
def test_host_time_meets_its_target(name):
    assert numbers(name)["before_launch_us"] < 200


def test_host_time_and_capture_are_those_on_record():
    assert row("host time") == f"{numbers('encgraph')['before_launch_us']:.0f} us"
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


def test_device_memory_beside_the_manager_of_vllm():
    ours, theirs = (numbers(name)["device_bytes"] for name in ("vllm", "vllm_manager"))
    said = f"{ours / 2**20:,.0f} and {theirs / 2**20:,.0f} MiB, {100 * (1 - ours / theirs):.1f} % apart (must 5"
    assert said in DESIGN
