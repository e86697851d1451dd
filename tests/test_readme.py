"""What README says was measured is what the records say, and what it names exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from encgraph import bench, store
from encgraph.cli.app import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ROWS = re.findall(
    r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|.*\| (.+) \|$", README, re.M
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_of_the_table_is_its_record(row):
    name, mean, p50, p99, worst, memory = row
    line = bench.summaries(store.load("h200", "bench-servegen"))[name]
    said = (line.latency.mean_ms, line.latency.p50_ms, line.latency.p99_ms)
    assert tuple(f"{ms:.1f}" for ms in said) == (mean, p50, p99)
    assert f"{line.latency.worst_ms:.0f}" == worst
    mebibytes = f"{line.memory.total_bytes / 2**20:,.0f} MiB" if line.memory else "none"
    assert mebibytes == memory


def test_the_table_has_every_strategy_on_record():
    assert {row[0] for row in ROWS} == set(bench.summaries(store.load("h200", "bench-servegen")))


def test_the_ratios_said_are_those_of_the_table():
    lines = bench.summaries(store.load("h200", "bench-servegen"))
    mean = {name: line.latency.mean_ms for name, line in lines.items()}
    assert f"{mean['vllm'] / mean['encgraph_plain']:.2f} times as fast as" in README.replace(
        "\n", " "
    )
    assert f"{mean['vllm_tuned'] / mean['encgraph_plain']:.2f} times as fast as" in README
    share = lines["encgraph_plain"].memory.total_bytes / lines["vllm"].memory.total_bytes
    assert f"in {share:.2f} of the defaults' memory" in README


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
