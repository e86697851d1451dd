"""Tables at the width of a terminal: whatever it is, no cell is cut, and no number is broken."""

import io
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers_cli import TINY, passes
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from encgraph import shows, store, tabular
from encgraph.cli.app import app
from encgraph.readings import summaries

WIDTHS = (60, 80, 100, 120)
COMMANDS = (
    ("plan", "builtin:coco", "--encoder", "qwen3-vl-8b"),
    ("traffic", "builtin:servegen", "--encoder", "qwen3-vl-8b", "--count", "200"),
    ("doctor",),
    ("encoders",),
)
PREDICTED = (
    ("predicted, ms", "mean", "p50", "p99", "worst", "padding", "replayed", "memory"),
    (
        ("vLLM's defaults", "7.61", "8.20", "8.67", "8.67", "41%", "100%", "2,750 MiB"),
        ("graphs off (eager)", "18.47", "18.47", "18.47", "18.47", "0%", "0%", "0 MiB"),
    ),
)
REASON = "expected to take 37.6% of replays at 99% fill (fitted, tail smoothed)"


def on_terminal(width: int, *arguments: object) -> str:
    """What a command writes on a terminal of a width, without the styles."""
    shell = CliRunner(env={"COLUMNS": str(width), "FORCE_COLOR": "1", "TERM": "xterm"})
    result = shell.invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return Text.from_ansi(result.stdout).plain


def drawn(shown: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def words(text: str) -> Counter[str]:
    """Words of a text, all at one time of day."""
    return Counter(re.sub(r"T\d\d:\d\d:\d\d", "T00:00:00", text).split())


def holds(lines: list[str], cell: str) -> bool:
    """Whether a line has a cell, with nothing before or after it that could belong to it."""
    return any(f" {cell} " in f" {line} " for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_every_word_whatever_the_terminal(
    command: tuple[str, ...], width: int
) -> None:
    said = on_terminal(width, *command)
    assert max(map(len, said.splitlines())) <= width
    assert words(passes(*command)) - words(said) == Counter()


def test_bench_says_every_time_and_all_memory_on_a_narrow_terminal(tmp_path: Path) -> None:
    bench = ("bench", "builtin:coco", "--count", "2", "--backend", "reference", "--out", tmp_path)
    lines = on_terminal(60, *bench, *TINY).splitlines()
    [file] = tmp_path.rglob("bench-*.jsonl")
    found = summaries(store.read(file))
    assert len(found) > 1
    for name, one in found.items():
        assert one.latency is not None
        assert holds(lines, name)
        for ms in (one.latency.mean_ms, one.latency.p50_ms, one.latency.worst_ms):
            assert holds(lines, f"{ms:.2f}")
        if one.memory:
            assert holds(lines, f"{one.memory.total_bytes / 2**20:,.0f} MiB")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_recorded_bench_shows_every_cell(width: int) -> None:
    shown = shows.strategies(store.load("h200", "bench-servegen"))
    lines = drawn(shown, width)
    assert max(map(len, lines)) <= width
    assert [cell for row in shown.rows for cell in row if not holds(lines, cell)] == []


@pytest.mark.parametrize("seed", range(20))
def test_no_number_and_no_name_is_cut_or_broken_at_any_width(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [draw.choice(("number", "text")) for _ in range(draw.randint(1, 9))]
    rows = [
        (
            f"name {'x' * draw.randint(1, 14)}{row}",
            *(
                f"{draw.randint(0, 10**6):,} MiB" if kind == "number" else " ".join(["why"] * 12)
                for kind in kinds
            ),
        )
        for row in range(4)
    ]
    names = ("", *(f"{kind} of a column" for kind in kinds))
    for width in range(30, 140, 7):
        lines = drawn(tabular.table(names, rows), width)
        assert max(map(len, lines)) <= width
        whole = [cell for row in rows for cell in row if not cell.startswith("why")]
        assert [cell for cell in whole if not holds(lines, cell)] == []
        assert words(" ".join(lines))["why"] == 12 * 4 * kinds.count("text")


def test_a_table_with_room_is_one_line_a_row() -> None:
    assert drawn(tabular.table(*PREDICTED), 120) == [
        "predicted, ms        mean    p50    p99  worst  padding  replayed     memory",
        "vLLM's defaults      7.61   8.20   8.67   8.67      41%      100%  2,750 MiB",
        "graphs off (eager)  18.47  18.47  18.47  18.47       0%        0%      0 MiB",
    ]


def test_a_table_without_room_becomes_two_with_the_same_first_column() -> None:
    assert drawn(tabular.table(*PREDICTED), 60) == [
        "predicted, ms        mean    p50    p99  worst",
        "vLLM's defaults      7.61   8.20   8.67   8.67",
        "graphs off (eager)  18.47  18.47  18.47  18.47",
        "",
        "predicted, ms       padding  replayed     memory",
        "vLLM's defaults         41%      100%  2,750 MiB",
        "graphs off (eager)       0%        0%      0 MiB",
    ]


def test_space_between_columns_goes_before_a_column_does() -> None:
    assert drawn(tabular.table(*PREDICTED), 70)[1:] == [
        "vLLM's defaults     7.61  8.20  8.67  8.67     41%     100% 2,750 MiB",
        "graphs off (eager) 18.47 18.47 18.47 18.47      0%       0%     0 MiB",
    ]


def test_headings_break_before_text_and_text_breaks_evenly() -> None:
    columns = ("budget, tokens", "longest segment, patches", "reason")
    table = tabular.table(columns, [("260", "1,040", REASON)])
    assert drawn(table, 91) == [
        "             longest",
        "budget,     segment,",
        " tokens      patches  reason",
        f"    260        1,040  {REASON}",
    ]
    assert drawn(table, 60)[-2:] == [
        "    260           1,040  expected to take 37.6% of replays",
        "                         at 99% fill (fitted, tail smoothed)",
    ]


def test_a_console_too_narrow_for_two_columns_has_a_line_a_cell() -> None:
    rows = [("graphs off (eager)", "2,750 MiB", "41%")]
    assert drawn(tabular.table(("", "memory", ""), rows), 24) == [
        "graphs off (eager)",
        "  memory: 2,750 MiB",
        "  41%",
    ]
    assert drawn(tabular.table(("", "memory", ""), rows), 18) == [
        "graphs off (eager)",
        "  memory:",
        "  2,750 MiB",
        "  41%",
    ]


def test_letters_of_two_cells_count_as_two() -> None:
    table = tabular.table(("", "a", "b"), [("画像" * 5, "1,000", "2,000")])
    assert holds(drawn(table, 30), "1,000 2,000") is False
    assert all(holds(drawn(table, 30), cell) for cell in ("画像" * 5, "1,000", "2,000"))
