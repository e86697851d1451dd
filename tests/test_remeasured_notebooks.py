"""The script that runs notebooks with their switch on: what passes, what fails and where, what takes too long."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="needs Jupyter's kernels")
import nbformat

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import remeasured_notebooks  # noqa: E402

SWITCH = "REMEASURE = False  # True measures again"
NOTEBOOKS = {
    "0_passing": [
        f"%load_ext encgraph\n{SWITCH}",
        "from beside import there\nassert REMEASURE and there",
        "raise ValueError('meant')",
        "skipped at all",
    ],
    "1_failing": [SWITCH, "first = 1\nassert not REMEASURE, 'two\\nlines'\nlast = 3"],
    "2_dying": [SWITCH, "import os\nos._exit(REMEASURE)"],
    "3_reads_no_switch": [SWITCH, "raise ValueError('never run')"],
    "4_has_none": ["REMEASURED = 1"],
}
TAGS = {"raise ValueError('meant')": "raises-exception", "skipped at all": "nbval-skip"}


def write(folder: Path, name: str, sources: list[str]) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for cell in cells:
        cell.metadata["tags"] = [TAGS[cell.source]] if cell.source in TAGS else []
    prose = nbformat.v4.new_markdown_cell(SWITCH)
    nbformat.write(nbformat.v4.new_notebook(cells=[prose, *cells]), folder / f"{name}.ipynb")


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run the script on notebooks; gives its exit status, the rows by name, and what it wrote."""

    def run(notebooks, *options):
        folder, out = tmp_path / "notebooks", tmp_path / "out"
        folder.mkdir()
        (folder / "beside.py").write_text("there = True")
        for name, sources in notebooks.items():
            write(folder, name, sources)
        before = {path: path.read_bytes() for path in folder.iterdir()}
        words = ["remeasured_notebooks.py", "--folder", str(folder), "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            remeasured_notebooks.main()
        assert {path: path.read_bytes() for path in before} == before
        if not out.exists():
            return ended.value.code, {}, out
        lines = (out / "notebooks.txt").read_text().splitlines()
        assert capsys.readouterr().out.splitlines()[:-1] == lines
        return ended.value.code, {line.split()[0]: line for line in lines}, out

    return run


def test_each_notebook_with_a_switch_is_run_with_it_on_and_says_where_it_failed(run):
    status, rows, out = run(NOTEBOOKS, "--workers", "2", "--seconds", "200")
    assert status == 1
    assert rows.keys() == {"0_passing", "1_failing", "2_dying"}
    assert re.fullmatch(r"0_passing +\d+ s  passed", rows["0_passing"])
    said = r" s  assert not REMEASURE, 'two\nlines'  <- AssertionError: two"
    assert rows["1_failing"].endswith(said)
    assert "import os  <- DeadKernelError" in rows["2_dying"]
    told = (out / "tracebacks.txt").read_text()
    assert "1_failing" in told and "0_passing" not in told and "\x1b" not in told


def test_those_asked_for_are_run_alone_and_the_status_is_zero_if_all_pass(run):
    status, rows, out = run(NOTEBOOKS, "--only", "0,3", "--seconds", "200")
    assert (status, list(rows)) == (0, ["0_passing"])
    assert not (out / "tracebacks.txt").exists()


def test_a_notebook_that_is_not_done_in_time_has_failed_and_so_has_one_not_begun(run):
    hanging = [f"{SWITCH}\nimport time", "time.sleep(600 * REMEASURE)"]
    notebooks = {"0_hanging": hanging, "1_waiting": hanging}
    status, rows, _ = run(notebooks, "--workers", "1", "--seconds", "8")
    assert status == 1
    assert rows["0_hanging"].endswith("  <- out of time")
    assert rows["1_waiting"].endswith("  0 s  before its first cell  <- out of time")


def test_a_folder_without_a_switch_is_refused(run, capsys):
    status, _, out = run({"4_has_none": NOTEBOOKS["4_has_none"]})
    assert status == 2 and not out.exists()
    assert "has a switch" in capsys.readouterr().err


def test_the_projects_own_notebooks_that_depend_on_the_switch_are_found():
    chosen = remeasured_notebooks.found(ROOT / "notebooks", [])
    names = {path.stem for path in chosen}
    assert {"0_tour", "4_capture_and_replay", "9_model_runner"} <= names
    assert not names & {"1_traffic", "3_packing", "explorer", "paper_figures"}
    for notebook in chosen.values():
        assert "REMEASURE = True" in remeasured_notebooks.code(notebook)[0].source
