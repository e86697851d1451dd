"""What nbval does not notice by itself: a stripped notebook passes it cell for cell, compared with nothing."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from encgraph import evidence, readings, store

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WALK = [path for path in NOTEBOOKS if path.name[0].isdigit()]
MOST_BYTES = 1_000_000
MOST_LINES = 10
PLACES = re.compile(r"/home/|/Users/|/root/|/tmp/|\.venv|site-packages")
DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While)
TORCH = {"4_capture_and_replay.ipynb", "5_fallback.ipynb", "9_model_runner.ipynb", "explorer.ipynb"}

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
walked = pytest.mark.parametrize("path", WALK, ids=lambda path: path.name)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def run(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in code(path) if "nbval-skip" not in cell.metadata.get("tags", [])]


def parsed(path: Path) -> list[ast.AST]:
    sources = [re.sub(r"(?m)^%.*$", "", cell.source) for cell in code(path)]
    return [node for source in sources for node in ast.walk(ast.parse(source))]


def test_the_walk_is_numbered_without_a_gap() -> None:
    numbers = sorted(int(path.name.split("_")[0]) for path in WALK)
    assert numbers[:8] == list(range(8))
    assert numbers == list(range(len(numbers)))


@each
def test_a_notebook_is_valid_and_its_metadata_names_only_the_kernel(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)


@each
def test_every_cell_was_run_in_order_and_some_output_is_kept(path: Path) -> None:
    counts = [cell.execution_count for cell in run(path)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`"
    assert sum(bool(cell.outputs) for cell in run(path)) >= len(counts) / 3


@each
def test_outputs_are_small_and_name_no_place_of_one_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert "widget-view+json" not in text
    without_pictures = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not PLACES.search(without_pictures), PLACES.search(without_pictures)


@each
def test_no_error_is_kept_but_those_meant(path: Path) -> None:
    for cell in code(path):
        if "raises-exception" not in cell.metadata.get("tags", []):
            kinds = [output.output_type for output in cell.outputs]
            assert "error" not in kinds, cell.source
            streams = [o.name for o in cell.outputs if o.output_type == "stream"]
            assert "stderr" not in streams, cell.source


@each
def test_a_cell_is_short_and_defines_nothing(path: Path) -> None:
    for cell in code(path):
        assert len(cell.source.splitlines()) <= MOST_LINES, cell.source
    defined = [type(node).__name__ for node in parsed(path) if isinstance(node, DEFINES)]
    assert not defined, defined


@each
def test_figures_are_the_librarys(path: Path) -> None:
    imported = {
        name.split(".")[0]
        for node in parsed(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(a.name for a in node.names)]
    }
    assert not imported & {"plotly", "matplotlib", "pandas"}
    assert ("torch" not in imported) or path.name in TORCH


@walked
def test_the_walk_asks_first_and_answers_last(path: Path) -> None:
    cells = read(path).cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert re.search(r"\*\*[^*]+\?\*\*", prose[0]), "opens with one question in bold"
    assert prose[-1].startswith("**The answer**")
    assert cells[-1].cell_type == "code"
    assert cells[-1].outputs


@walked
def test_the_switch_stands_in_the_first_cell_and_is_off(path: Path) -> None:
    assert re.search(r"(?m)^REMEASURE = False\b", code(path)[0].source)


def test_measuring_again_does_without_the_manager_that_is_no_part_of_encgraph() -> None:
    cells = [code(FOLDER / name) for name in ("6_memory_cost.ipynb", "7_latency.ipynb")]
    [taken], [ratio] = ([c for c in some if '"vllm_manager"' in c.source] for some in cells)
    lines = store.load("h200", "bench-servegen")
    without = tuple(m for m in lines if m.strategy != "vllm_manager")
    for cell, measured, about in (
        (ratio, lines, r"\d\.\d{3}"),
        (ratio, without, "vllm_manager is not among .*"),
        (taken, lines, r"{'vllm': '[\d,]+ MiB', 'vllm_manager': '.*'}"),
        (taken, without, r"{'vllm': '[\d,]+ MiB'}"),
    ):
        *statements, said = ast.parse(cell.source).body
        assert isinstance(said, ast.Expr)
        names = {"lines": measured, "readings": readings, "evidence": evidence}
        names |= {"found": readings.summaries(measured), "REMEASURE": False}
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        shown = eval(compile(ast.Expression(said.value), "cell", "eval"), names)
        assert re.fullmatch(about, str(shown))


@walked
def test_claims_are_asserted(path: Path) -> None:
    assert any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr == "claims")
        for node in parsed(path)
    )


@each
def test_every_figure_says_where_its_numbers_come_from(path: Path) -> None:
    for cell in code(path):
        for output in cell.outputs:
            drawn = output.get("data", {}).get("application/vnd.plotly.v1+json")
            if drawn is not None:
                assert drawn["layout"].get("title", {}).get("text"), cell.source
