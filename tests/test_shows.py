import io
import logging
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
import report_examples as examples
from rich.console import Console

import encgraph
from encgraph import budgets, costs, packing, shows, sizes, store, tabular, tradeoffs, traffic
from encgraph.magic import CellProfile
from encgraph.records import Item, Plan
from encgraph.results import Latency, Measurement, Memory

InteractiveShell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
TARGET = budgets.Target(size=sizes.named("qwen3-vl-8b"))
PLAN = budgets.doubling(64, 128, target=TARGET)
HOSTILE = "<script>alert(1)</script>"


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def records() -> list[object]:
    batch = [Item(tokens=n, patches=4 * n) for n in (60, 70, 500)]
    read = traffic.read("builtin:coco", TARGET.size, count=20)
    return [
        PLAN,
        Plan(graphs=(), encoder="qwen3-vl-8b", reasons=("eager is faster",)),
        packing.ascending(batch, PLAN),
        Latency.of([1.0, 250.0], clock="wall"),
        Memory(slabs_bytes=2**20, pool_bytes=2**21, driver_bytes=0, peak_bytes=2**22),
        examples.environment(),
        examples.card_report(),
        read,
        read.about(),
    ]


def test_every_record_shows_as_text_and_as_html_without_ids_or_scripts() -> None:
    for record in records():
        text, html = shows.text(record), shows.html(record)
        assert text.splitlines()[0] == shows.card(record).title
        seen = Seen()
        seen.feed(html)
        assert set(seen.tags) <= {"div", "b", "table", "tr", "th", "td"}
        assert "id=" not in html
        assert "0x" not in text


def test_a_plan_shows_a_row_a_graph_with_its_reason() -> None:
    lines = shows.text(PLAN).splitlines()
    assert lines[0] == "Plan of 2 graphs for qwen3-vl-8b (bfloat16)"
    assert lines[1].split() == ["budget", "items", "longest", "segment", "why"]
    assert lines[3].endswith(PLAN.reasons[1])


def test_hostile_text_is_escaped() -> None:
    hostile = Plan(graphs=(), encoder=HOSTILE, reasons=(HOSTILE,))
    assert "<script" not in shows.html(hostile)
    assert HOSTILE in shows.text(hostile)


def test_a_long_record_is_cut_and_says_so() -> None:
    shown = tabular.Shown(title="long", rows=tuple((str(n), "x") for n in range(100)))
    lines = tabular.lines(shown).splitlines()
    assert len(lines) == 25
    assert lines[-1].strip() == "and 77 more"


def test_a_record_of_no_known_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"record must be one of \[.*'Plan'.*\], got int"):
        shows.card(3)


@pytest.fixture
def shell() -> InteractiveShell:
    made = InteractiveShell()
    encgraph.load_ipython_extension(made)
    return made


def test_an_extension_shows_a_plan_as_the_last_line_of_a_cell(shell: InteractiveShell) -> None:
    data, _ = shell.display_formatter.format(PLAN)
    assert data["text/plain"] == shows.text(PLAN)
    assert data["text/html"] == shows.html(PLAN)
    encgraph.load_ipython_extension(shell)
    again, _ = shell.display_formatter.format(PLAN)
    assert again == data


def test_a_cell_is_profiled_by_route_and_observers_are_put_back(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from encgraph.encoders import inputs, registry
    from encgraph.runner import EncoderRunner

    size = sizes.named("qwen3-vl-tiny")
    built = registry.named(size.name, device="cpu", dtype=torch.float32)
    plan = budgets.doubling(64, 128, target=budgets.Target(size=size))
    runner = EncoderRunner(encoder=built, plan=plan, backend="reference")
    runner.capture()
    before = runner.observe
    grids = [sizes.image_grid(256, 256, size.rule), sizes.image_grid(640, 640, size.rule)]
    shell.user_ns |= {"ours": runner, "batch": inputs.synthetic(grids, size=size)}
    shell.run_cell_magic("encgraph", "ours", "done = ours.execute(batch)")
    profile = shell.user_ns["_profile"]
    assert isinstance(profile, CellProfile)
    assert [row[:4] for row in profile.table().rows] == [
        ("fallback", "", "1", "1"),
        ("replay", "64", "1", "1"),
    ]
    assert profile.table().title == "2 steps"
    assert CellProfile(steps=profile.steps[:1]).table().title == "1 step"
    assert len(shell.user_ns["done"]) == 2
    assert runner.observe is before
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("encgraph", "", "1 / 0")
    assert runner.observe is before
    with pytest.raises(ValueError, match=r"runner must be one of \['ours'\], got 'other'"):
        shell.run_cell_magic("encgraph", "other", "pass")


def test_importing_shows_needs_no_torch() -> None:
    import subprocess

    code = "import sys, encgraph.shows, encgraph.magic, encgraph.evidence; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def tiny_runner() -> Any:
    import torch

    from encgraph.encoders import registry
    from encgraph.runner import EncoderRunner

    size = sizes.named("qwen3-vl-tiny")
    built = registry.named(size.name, device="cpu", dtype=torch.float32)
    plan = budgets.doubling(64, 128, target=budgets.Target(size=size))
    return EncoderRunner(encoder=built, plan=plan, backend="reference")


def test_a_runner_and_its_graph_set_show_a_row_a_graph() -> None:
    runner = tiny_runner()
    assert "2 planned; call capture()" in str(runner)
    with runner:
        runner.capture()
        lines = str(runner).splitlines()
        assert lines[0].endswith("backend reference: captured, 2 of 2 graphs usable")
        assert [line.split()[0] for line in lines[2:4]] == ["64", "128"]
        graphs = runner.graphs
        assert shows.card(graphs).rows == shows.card(runner).rows
        graphs.graphs[0].failure = HOSTILE
        assert "<script" not in shows.html(graphs)
        assert HOSTILE in str(graphs)
    assert "0 of 2 graphs usable" in str(graphs)


def test_records_show_themselves_without_the_extension() -> None:
    batch = [Item(tokens=n, patches=4 * n) for n in (60, 500)]
    packed = packing.ascending(batch, PLAN)
    found = store.load("h200", "bench-servegen")[0]
    fit = budgets.fitted([batch], target=TARGET, costs=costs.modelled(TARGET.size))
    known = (PLAN, packed, found, fit, fit.best.prediction, examples.card_report(), tiny_runner())
    for record in known:
        assert record._repr_html_() == shows.html(record)
        assert str(record) == shows.text(record)
    assert repr(PLAN).startswith("Plan(graphs=(Capacity(")


def test_a_rich_table_has_every_cell_and_takes_brackets_as_they_are() -> None:
    console = Console(width=200, file=io.StringIO())
    hostile = Plan(graphs=(), encoder="[red]x[/red]", reasons=("[bold]",))
    console.print(PLAN, hostile)
    written = console.file.getvalue()
    assert "Plan of 0 graphs for [red]x[/red]" in written
    assert "([bold])" in written
    for cells in shows.card(PLAN).rows:
        assert all(cell in written for cell in cells)


def test_a_narrow_terminal_loses_no_column() -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(shows.strategies(store.load("h200", "bench-servegen")))
    assert "fa3" in console.file.getvalue()


def test_a_log_gets_plain_text(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("encgraph.tests").warning("%s", PLAN)
    assert caplog.messages == [shows.text(PLAN)]


def test_a_terminal_shell_gets_the_rich_table(shell: InteractiveShell) -> None:
    class TerminalShell(InteractiveShell):
        pass

    terminal = TerminalShell()
    encgraph.load_ipython_extension(terminal)
    runner = tiny_runner()
    for record in (PLAN, runner):
        data, _ = terminal.display_formatter.format(record)
        console = Console(file=io.StringIO())
        console.print(record)
        assert data["text/plain"] == console.file.getvalue().rstrip("\n")
    plain, _ = shell.display_formatter.format(runner)
    assert plain["text/plain"] == shows.text(runner)


def test_small_memory_is_not_rounded_to_nothing() -> None:
    assert [tabular.mib(n) for n in (0, 2048, 2**20, 3 * 2**30)] == [
        "0 MiB",
        "2 KiB",
        "1 MiB",
        "3,072 MiB",
    ]


def bench(count: int) -> Measurement:
    """The summary of a strategy over requests of 1 to so many ms."""
    return Measurement(
        experiment="bench-photos",
        encoder="qwen3-vl-8b",
        environment=examples.environment(),
        strategy="encgraph",
        latency=Latency.of(range(1, count + 1), clock="wall"),
        numbers={"repeats_count": 5},
    )


def test_no_table_calls_the_slowest_of_few_p99() -> None:
    few, many = (shows.strategies([bench(count)]) for count in (99, 100))
    assert (few.rows[0][4:6], many.rows[0][4:6]) == (("-", "99.0 ms"), ("99.0 ms", "100 ms"))
    assert few.note.endswith("; no p99: of fewer than 100 it is the slowest")
    assert many.note.startswith("qwen3-vl-8b on NVIDIA H200") and "p99" not in many.note
    assert "; 100 requests" in many.note
    for count, told in ((99, "-"), (100, "99.0 ms")):
        latency = Latency.of(range(1, count + 1), clock="wall")
        assert dict(shows.card(latency).rows)["p99"] == told


def test_plans_judged_on_few_requests_name_the_slowest() -> None:
    drawn = traffic.read("builtin:coco", TARGET.size, count=120).requests
    priced = costs.modelled(TARGET.size)
    for requests, name in ((drawn[:50], "slowest"), (drawn, "p99")):
        judged = tradeoffs.rules(drawn, requests, target=TARGET, costs=priced, max_graphs=2)
        shown = shows.plans(judged)
        assert shown.columns[5] == name
        found = judged[0].prediction.latency
        assert shown.rows[0][5] == tabular.ms(found.worst_ms if name == "slowest" else found.p99_ms)
        assert ("no p99" in shows.text(judged[0].prediction)) == (name == "slowest")
