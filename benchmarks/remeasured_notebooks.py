"""Run the notebooks with `REMEASURE = True` on this machine's card, several at once, and say which passed.

    python benchmarks/remeasured_notebooks.py --only 4,9 --seconds 500 --workers 6 --out OUT

A copy of each notebook in which something depends on the switch runs in a kernel of its own, its asserts
included; the notebooks themselves stay as they are. OUT/notebooks.txt gets a line a notebook as it ends,
OUT/tracebacks.txt what went wrong in full. The exit status is 1 if any failed. A notebook that is not
done when the time is over has failed; the others are reported all the same.

This checks that the switch works. Several notebooks share one card, so no time seen here is a
measurement, and an assert about times may fail for that alone: run such a notebook by itself to know.
No kernel needs to be registered with Jupyter, nor a browser be there.
"""

import argparse
import ast
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[1]
SWITCH = re.compile(r"(?m)^REMEASURE = False\b")
MAGIC = re.compile(r"(?m)^\s*[%!].*$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WHERE = re.compile(r"Cell In\s?\[\d+\], line (\d+)")
MOST_CHARS = 160
"""Of an error in the table."""


class Kernel(AsyncKernelManager):
    """A kernel of the Python that runs this script, whatever kernels Jupyter knows."""

    kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        language="python",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one notebook ended."""

    name: str
    seconds: float
    failure: str = ""
    """The source line and its error; empty if it passed."""
    traceback: str = ""

    @property
    def line(self) -> str:
        """A row of the table."""
        return f"{self.name:24} {self.seconds:4.0f} s  {self.failure or 'passed'}"


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Its cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_switched(notebook: nbformat.NotebookNode) -> bool:
    """Whether the first cell has the switch, turned off, and some cell reads it."""
    cells = code(notebook)
    sources = [MAGIC.sub("", cell.source) for cell in cells]
    return bool(cells and SWITCH.search(cells[0].source)) and any(
        isinstance(node, ast.Name) and node.id == "REMEASURE" and isinstance(node.ctx, ast.Load)
        for source in sources
        for node in ast.walk(ast.parse(source))
    )


def found(folder: Path, only: Sequence[str]) -> dict[Path, nbformat.NotebookNode]:
    """Notebooks that depend on the switch, turned on; of the numbers or names asked for, if any."""
    read = {path: nbformat.read(path, as_version=4) for path in sorted(folder.glob("*.ipynb"))}
    chosen = {
        path: notebook
        for path, notebook in read.items()
        if is_switched(notebook) and (not only or {path.stem, path.stem.split("_")[0]} & {*only})
    }
    for notebook in chosen.values():
        first = code(notebook)[0]
        first.source = SWITCH.sub("REMEASURE = True", first.source)
    return chosen


def run(path: Path, notebook: nbformat.NotebookNode, *, ends_s: float, threads: int) -> Outcome:
    """Run one notebook until it ends, fails, or the time is over."""
    began_s = time.monotonic()
    running: list[nbformat.NotebookNode] = []

    def left_s(cell: object = None) -> float:
        return max(0.1, ends_s - time.monotonic())

    def noted(cell: nbformat.NotebookNode, **_: object) -> None:
        running[:] = [cell]

    client = NotebookClient(
        notebook,
        kernel_manager_class=Kernel,
        timeout_func=left_s,
        startup_timeout=1 + int(left_s()),
        shutdown_kernel="immediate",
        on_cell_execute=noted,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
        skip_cells_with_tag="nbval-skip",
    )
    failure = traceback = ""
    try:
        if ends_s <= began_s:
            raise TimeoutError("not begun")
        client.execute(env=environment(threads))
    except Exception as error:
        traceback = COLOUR.sub("", str(getattr(error, "traceback", error)))
        is_over = not isinstance(error, CellExecutionError) and time.monotonic() >= ends_s
        said = "out of time" if is_over else _said(error)
        failure = f"{_line(running, traceback)}  <- {said}"
    took_s = time.monotonic() - began_s
    return Outcome(name=path.stem, seconds=took_s, failure=failure, traceback=traceback)


def _said(error: Exception) -> str:
    """What kind of error it was, and its first line."""
    name, value = type(error).__name__, str(error)
    if isinstance(error, CellExecutionError):
        name, value = error.ename, error.evalue
    first = next(iter(COLOUR.sub("", value).splitlines()), "")
    return f"{name}: {first}"[:MOST_CHARS]


def _line(running: Sequence[nbformat.NotebookNode], traceback: str) -> str:
    """The line of the cell that failed; the cell's first where the traceback does not say."""
    if not running:
        return "before its first cell"
    lines = running[0].source.splitlines()
    where = WHERE.search(traceback)
    number = int(where[1]) if where else 1
    return lines[number - 1].strip()


def environment(threads: int) -> Mapping[str, str]:
    """Of a kernel: this checkout, no network, its share of the processors."""
    before = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *([before] if before else [])]),
        "PLOTLY_RENDERER": "plotly_mimetype",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
    }


def outcomes(
    notebooks: Mapping[Path, nbformat.NotebookNode], *, seconds: float, workers: int
) -> Iterator[Outcome]:
    """Run notebooks, so many at once, and give how each ended, as it ends.

    Args:
        notebooks: By the path of the file, in whose folder it runs.
        seconds: For all of them together; what still runs then is ended.
        workers: Kernels at once.
    """
    at_once = max(1, min(workers, len(notebooks)))
    options: dict[str, Any] = {
        "ends_s": time.monotonic() + seconds,
        "threads": max(1, (os.cpu_count() or 1) // at_once),
    }
    with ThreadPoolExecutor(at_once) as pool:
        started = [pool.submit(run, path, one, **options) for path, one in notebooks.items()]
        for ended in as_completed(started):
            yield ended.result()


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "notebooks")
    parser.add_argument("--only", default="", help="numbers or names, comma between them")
    parser.add_argument("--seconds", type=float, default=500, help="for all of them together")
    parser.add_argument("--workers", type=int, default=6, help="notebooks at once")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    notebooks = found(given.folder, [name for name in given.only.split(",") if name])
    if not notebooks:
        parser.error(f"no notebook of {given.folder} with --only {given.only!r} has a switch")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "tracebacks.txt").unlink(missing_ok=True)
    failed = 0
    with (given.out / "notebooks.txt").open("w") as table:
        for one in outcomes(notebooks, seconds=given.seconds, workers=given.workers):
            print(one.line, flush=True)
            print(one.line, file=table, flush=True)
            if one.failure:
                failed += 1
                with (given.out / "tracebacks.txt").open("a") as told:
                    told.write(f"{one.name}\n{one.traceback}\n\n")
    print(f"{len(notebooks) - failed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
