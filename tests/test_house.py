"""Numbers and words of the house style that no linter knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "encgraph").rglob("*.py"))
PYTHON = [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]
PROSE = [
    ROOT / n for n in ("README.md", "DESIGN.md", "CHANGELOG.md", "Makefile", "environment.yml")
]
TEXT = [p for p in (*PYTHON, *PROSE) if p.exists()]

WORDS = {
    r"token buckets?": "token budget",
    r"bucket(s|ing)?": "budget",
    r"occupancy": "fill",
    r"dry[- ]runs?": "warm-up",
    r"slow path": "fallback",
    r"sub-?batch(es)?": "bin",
    r"wasted? tokens": "padding tokens",
    r"cache hits?|hit rate": "replay rate",
}
"""Words not said, and what is said instead."""
SAID_ONCE = {("README.md", "hit rate")}
NAMES = re.compile(r"^(get|do|handle|process)_|Manager$|Helper$|Utils?$")
SHARED = {"FAMILY", "FUNCTIONS", "SIZES"}
"""One constant in each of several modules, joined under that name elsewhere."""
MODULE_NAMES = {"utils.py", "common.py", "base.py", "types.py", "helpers.py", "misc.py"}
STRAY_PATH = re.compile(r"""(?<![\w.:/<])/(?:work|tmp|home|root|mnt|Users)/\w""")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Where each function is, its lines without the docstring, and its node."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False) or ""
            lines = (node.end_lineno or 0) - node.lineno + 1 - len(text.splitlines())
            yield f"{name_of(path)}:{node.lineno} {node.name}", lines, node


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_a_file_is_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_function_is_at_most_50_lines(path: Path) -> None:
    assert [(where, lines) for where, lines, _ in functions(path) if lines > 50] == []


def test_half_the_functions_are_at_most_10_lines_and_nine_in_ten_at_most_30() -> None:
    lengths = sorted(lines for path in MODULES for _, lines, _ in functions(path))
    assert lengths[len(lengths) // 2] <= 10
    assert lengths[len(lengths) * 9 // 10] <= 30


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_library_never_prints(path: Path) -> None:
    if path.name in ("cli.py", "__main__.py"):
        pytest.skip("the command line prints")
    calls = [
        n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)
    ]
    assert [n.lineno for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"] == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_name_hides_what_it_does(path: Path) -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = [
        n.name
        for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(n, kinds)
    ]
    assert [name for name in names if NAMES.search(name)] == []
    assert path.name not in MODULE_NAMES


def capitals(path: Path) -> set[str]:
    """Public classes, type aliases and constants that a module's own top level defines."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for target in targets for name in ast.walk(target))
            found |= {n.id for n in names if isinstance(n, ast.Name)}
    return {name for name in found if name[0].isupper()}


def test_a_class_or_constant_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for name in capitals(path):
            homes.setdefault(name, []).append(name_of(path))
    assert homes["Item"] == ["encgraph/records.py"]
    assert {name: at for name, at in homes.items() if len(at) > 1 and name not in SHARED} == {}
    assert {name for name in SHARED if len(homes[name]) == 1} == set()


@pytest.mark.parametrize("path", TEXT, ids=name_of)
def test_one_word_per_idea(path: Path) -> None:
    if path == Path(__file__):
        pytest.skip("holds the list")
    text = path.read_text(encoding="utf-8")
    said = {w: re.findall(rf"(?i)\b(?:{w})\b", text) for w in WORDS}
    allowed = {word for file, word in SAID_ONCE if file == name_of(path)}
    assert {
        w: WORDS[w] for w, found in said.items() if [f for f in found if f not in allowed]
    } == {}


@pytest.mark.parametrize("path", TEXT, ids=name_of)
def test_no_absolute_path_of_one_machine(path: Path) -> None:
    assert STRAY_PATH.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_an_open_end_names_its_issue(path: Path) -> None:
    marks = re.findall(r"(?m)#.*\b(?:TODO|FIXME|XXX)\b.*$", path.read_text(encoding="utf-8"))
    assert [m for m in marks if not re.search(r"#\d+", m)] == []
