"""What README says was measured is what the records say, and what it names exists."""

import hashlib
import re
from math import ceil
from pathlib import Path
from statistics import fmean

import pytest
from PIL import Image
from typer.main import get_command

from encgraph import cards, costs, readings, sizes, store
from encgraph.cli.app import app
from encgraph.records import Item, Load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ROWS = re.findall(
    r"^\| `(\w+)`"
    + r" \| ([\d.]+)" * 3
    + r" \| (\d+)"
    + r" \| ([\d.]+)" * 3
    + r" \| (.+) \| (.+) \|$",
    README,
    re.M,
)


RUNGS = ("vllm", "plan", "slabs", "caps", "attention", "compile", "kernels")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_of_the_table_is_its_record(row):
    name, mean, p50, p99, worst, small, middle, large, taken, memory = row
    lines = store.load("h200", "bench-servegen")
    line = readings.summaries(lines)[name]
    said = (line.latency.mean_ms, line.latency.p50_ms, line.latency.p99_ms)
    assert tuple(f"{ms:.1f}" for ms in said) == (mean, p50, p99)
    assert f"{line.latency.worst_ms:.0f}" == worst
    regimes = {
        m.numbers["max_tokens"]: f"{m.latency.mean_ms:.1f}"
        for m in lines
        if m.strategy == name and "max_tokens" in m.numbers
    }
    assert regimes == {512: small, 2048: middle, 0: large}
    assert mebibytes(line.numbers["device_bytes"]) == taken
    held = line.memory.total_bytes if line.memory else 0
    assert memory == ("not read" if taken != "none" and not held else mebibytes(held))


def mebibytes(count):
    return f"{count / 2**20:,.0f} MiB" if count else "none"


def test_the_table_has_every_strategy_on_record():
    assert {row[0] for row in ROWS} == set(readings.summaries(store.load("h200", "bench-servegen")))


def test_the_ratios_said_are_those_of_the_table():
    lines = readings.summaries(store.load("h200", "bench-servegen"))
    text = README.replace("\n", " ")
    mean = {name: line.latency.mean_ms for name, line in lines.items()}
    for slow, fast, after in (
        ("vllm", "encgraph", "as fast as vLLM's defaults, in"),
        ("vllm", "encgraph_plain", "as fast as vLLM's defaults and"),
        ("vllm_tuned", "encgraph_plain", "as fast as vLLM with fitted"),
    ):
        assert f"{mean[slow] / mean[fast]:.2f} times {after}" in text
    assert f"gives another {mean['encgraph_plain'] / mean['ladder_compile']:.2f} times" in text
    assert f"(`encgraph`) {mean['ladder_compile'] / mean['encgraph']:.2f} times" in text
    p99 = {name: line.latency.p99_ms for name, line in lines.items()}
    assert f"and {p99['eager_varlen'] / p99['encgraph']:.2f} times as fast as eager" in text
    fused = p99["eager_fused"]
    within = ceil(100 * abs(p99["encgraph"] / fused - 1))
    assert (
        f"p99 is within {within} % of that of eager with the same fused block ({fused:.1f}" in text
    )
    for name, said in (
        ("encgraph", "in {} of their"),
        ("encgraph_plain", "in {} of the defaults'"),
    ):
        share = lines[name].memory.total_bytes / lines["vllm"].memory.total_bytes
        assert said.format(f"{share:.2f}") in text
    for name in ("encgraph", "encgraph_plain", "vllm"):
        predicted = lines[name].numbers["predicted_mean_ms"]
        assert (
            f"{predicted:.1f} for `{name}` (" in text
            or f"{predicted:.1f} ms for `{name}` (" in text
        )


def test_what_is_said_of_eager_is_predicted_and_measured_so():
    text = README.replace("\n", " ")
    lines = readings.summaries(store.load("h200", "bench-servegen"))
    for name in ("eager_fused", "eager_compiled", "eager_varlen"):
        predicted, measured = lines[name].numbers["predicted_mean_ms"], lines[name].latency.mean_ms
        assert f"{predicted:.1f} for `{name}` ({measured:.1f})" in text
    fused = cards.price(sizes.named("qwen3-vl-8b"), compiled=True, fused=True)
    runs = sorted(fused.eager_floor_ms + off for off in fused.eager_spread_ms)
    tenth = len(runs) // 10
    scatter = f"{runs[tenth]:.0f} to {runs[-1 - tenth]:.0f} ms"
    assert f"which took {scatter} (a tenth less, a tenth more)" in text
    design = (ROOT / "DESIGN.md").read_text().replace("\n", " ")
    assert f"({scatter} for the same launches in one recording" in design
    quick, single = fused.on_quick_host(), readings.requests(recorded())["eager_fused"]
    mean = fmean(quick.request_ms + quick.eager_ms(line.load) for line in single)
    assert f"of those runs {mean:.1f} for `eager_fused`" in text


def test_the_numbers_of_requests_by_size_are_those_on_record():
    tokens = [line.load.tokens for line in readings.requests(recorded())["encgraph"]]
    small, large = sum(n <= 512 for n in tokens), sum(n > 2048 for n in tokens)
    said = f"512 tokens are {small} requests, up to 2,048 {len(tokens) - small - large} more, over that {large}."
    assert said in README.replace("\n", " ")
    assert f"{len(tokens)} requests of production traffic (ServeGen)" in README


def recorded():
    return store.load("h200", "bench-servegen")


def test_the_reference_system_agrees_with_its_manager_as_far_as_said():
    lines = readings.summaries(store.load("h200", "bench-servegen"))
    ours, theirs = lines["vllm"], lines["vllm_manager"]
    time, memory = (
        abs(one / other - 1)
        for one, other in (
            (ours.latency.mean_ms, theirs.latency.mean_ms),
            (ours.numbers["device_bytes"], theirs.numbers["device_bytes"]),
        )
    )
    said = f"within {ceil(100 * time)} % in time and {ceil(100 * memory)} % in device memory"
    assert said in README.replace("\n", " ")


def test_the_memory_between_the_two_is_taken_apart_as_said():
    ours, theirs = (m.numbers for m in store.load("h200", "vllm-memory"))
    between, idle = ((theirs[name] - ours[name]) / 2**20 for name in ("device_bytes", "idle_bytes"))
    assert f"are {between:.0f} MiB apart; {idle:.0f} of these are idle blocks" in README


def test_the_ladder_is_that_on_record():
    lines = readings.summaries(store.load("h200", "bench-ladder-servegen"))
    [said] = re.findall(r"Rung by rung in a run of its own.*?: (.*?)\.\n", README, re.S)
    rungs = [f"{lines[f'ladder_{name}'].latency.mean_ms:.1f}" for name in RUNGS]
    assert re.findall(r"\d+\.\d", said) == rungs


def test_the_two_runs_took_of_the_same_requests_what_is_said():
    runs = [
        readings.requests(store.load("h200", f"bench-servegen{which}"))
        for which in ("", "-slow-host")
    ]
    wanted = {line.request for line in runs[1]["encgraph"]}
    eager, ours = (
        [
            f"{fmean(line.latency.p50_ms for line in run[name] if line.request in wanted):.1f}"
            for run in runs
        ]
        for name in ("eager_varlen", "encgraph")
    )
    text = README.replace("\n", " ")
    assert f"over {len(wanted)} of these requests `eager_varlen` took {eager[0]} ms in this" in text
    assert f"and {eager[1]} on a slower host" in text
    assert f"`encgraph` {ours[0]} and {ours[1]}." in text


def test_the_picture_is_of_the_record_that_it_names():
    record = re.search(r"the record is\n`(data/measurements/[\w./-]+)`", README)
    picture = re.search(r"!\[[^]]*\]\((docs/[\w.]+\.png)\)", README)
    text = Image.open(ROOT / picture[1]).text
    assert text["record-sha256"] == hashlib.sha256((ROOT / record[1]).read_bytes()).hexdigest()


BODIES = re.findall(
    r"^\| `(\w+)`.*?((?: \| \d+\.\d\d){5}) \|$", (ROOT / "DESIGN.md").read_text(), re.M
)


@pytest.mark.parametrize("row", BODIES, ids=lambda row: row[0])
def test_a_body_in_the_design_took_what_its_record_says(row):
    name, said = row
    taken = {
        (m.load.tokens, m.load.items): m.latency.p50_ms
        for m in store.load("h200", "inside-qwen3-vl-8b")
        if m.strategy == name
    }
    loads = [(64, 1), (256, 1), (1024, 1), (1024, 4), (2024, 4)]
    for load, ms in zip(loads, said.strip(" |").split(" | "), strict=True):
        assert abs(float(ms) - taken[load]) <= 0.006, load


def test_products_reach_the_share_of_the_rate_that_the_design_says():
    size, patches = sizes.named("qwen3-vl-8b"), 4096
    whole = costs.flops(size, Load.of([Item(tokens=1024, patches=patches)]))
    products = whole - 4 * patches**2 * size.hidden * size.depth
    [body] = [
        m
        for m in store.load("h200", "inside-qwen3-vl-8b")
        if m.strategy == "gelu_in_product" and m.numbers and m.capacity.tokens == 1024
    ]
    rate = readings.summaries(recorded())["encgraph"].numbers["matmul_tflops"]
    share = products / body.numbers["products_ms"] / rate / 1e9
    text = (ROOT / "DESIGN.md").read_text()
    assert f"at {100 * share:.0f} % of `matmul_tflops` of `bench-servegen`" in text


def test_every_body_on_record_is_in_the_design():
    on_record = {m.strategy for m in store.load("h200", "inside-qwen3-vl-8b")}
    assert {name for name, _ in BODIES} == on_record


def test_every_command_named_exists():
    named = set(re.findall(r"^\| `encgraph (\w+)", README, re.M))
    assert named <= set(get_command(app).commands)
    assert len(named) >= 8


def test_every_file_named_exists():
    for name in re.findall(r"`((?:data|docs|benchmarks)/[\w./-]+)`|\]\((docs/[\w./-]+)\)", README):
        path = next(part for part in name if part)
        assert (ROOT / path).exists(), path


def test_the_snippets_run_as_they_stand():
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, re.S))
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["outputs"]
