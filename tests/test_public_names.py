"""The public names as a list in a file, so that a rename is a diff, and what a plain import costs.

`python tests/test_public_names.py` rewrites `public_names.txt` from the tree.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("public_names.txt")

NEEDS_TORCH = {
    "ambient", "attention", "bench", "benched", "borrowed", "broken", "calibrating", "capturing",
    "checks", "cli", "encoders", "exact", "first_token", "floors", "graphs", "incoming", "loads",
    "measure", "memory", "meters", "microscope", "mixed", "model_runner", "parallel", "peers", "points",
    "profilers", "proving", "recording", "rows", "runner", "sidelines", "static", "streams",
    "structure", "study", "systems", "watch", "ways",
}  # fmt: skip
"""All else must plan and draw where torch is not even installed."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "encgraph").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(p for p in parts if p != "__init__")
        if not any(p.startswith("_") for p in parts[1:] if p != "__init__"):
            found[name] = path
    return found


def defined(path: Path) -> Iterator[str]:
    """Names that a module's own top level defines; imports are somebody else's."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def listed() -> str:
    lines = []
    for name, path in modules().items():
        names = sorted({n for n in defined(path) if not n.startswith("_")})
        if names:
            lines.append(f"{name}: {' '.join(names)}\n")
    return "".join(sorted(lines))


def test_public_names_are_those_listed() -> None:
    assert listed().splitlines() == LIST.read_text(encoding="utf-8").splitlines()


def planning() -> list[str]:
    return [name for name in modules() if not {*name.split(".")[1:2]} <= NEEDS_TORCH]


def test_planning_and_drawing_import_neither_torch_nor_transformers() -> None:
    pytest.importorskip("ipywidgets", reason="explorers are among them")
    code = (
        f"import importlib, sys; [importlib.import_module(m) for m in {planning()!r}]; "
        "print(*sorted({'torch', 'transformers', 'pandas'} & set(sys.modules)), end='')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)


@pytest.mark.parametrize("name", ["errors", "records", "sizes", "costs", "store", "export"])
def test_a_planning_module_counts_as_one(name: str) -> None:
    assert f"encgraph.{name}" in planning()


if __name__ == "__main__":
    LIST.write_text(listed(), encoding="utf-8")
