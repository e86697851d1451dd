"""What the pages and notebooks point at exists: relative links, their anchors, and paths in backticks."""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "data", "docs", "encgraph", "notebooks", "tests", ".ci")
"""Where a path named in backticks may start."""
ELSEWHERE = {"data/multimodal/mm-image"}
"""Paths in other repositories."""
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"(?ms)^```.*?^```\s*$")
HEADING = re.compile(r"(?m)^#{1,6}\s+(.+?)\s*#*\s*$")
NAMED = re.compile(rf"(?:{'|'.join(re.escape(name) for name in FOLDERS)})/[\w./-]+")
MODULE = re.compile(r"encgraph\.(\w+)[\w.]*(?:\(.*\))?")
SUFFIXED = re.compile(r"[A-Z][\w-]*\.(?:md|toml|txt)|Makefile")


def pages() -> list[Path]:
    """Every page of the repository, hidden folders and what runs wrote left out."""
    found = [p for kind in ("md", "ipynb") for p in ROOT.rglob(f"*.{kind}")]
    kept = [p for p in found if not any(_is_made(part) for part in p.relative_to(ROOT).parts)]
    return sorted(kept)


def _is_made(part: str) -> bool:
    return part.startswith(".") or part in ("out", "build", "dist", "shared")


def prose(page: Path) -> str:
    """A page's text without fenced code; of a notebook, its prose cells."""
    if page.suffix == ".md":
        return FENCED.sub("", page.read_text(encoding="utf-8"))
    cells = nbformat.read(page, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def links(text: str) -> Iterator[str]:
    """Targets inside the repository; a link in backticks is an example."""
    for target in LINK.findall(CODE.sub("", text)):
        if not re.match(r"[a-z][a-z+.-]*:", target):
            yield target


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    made = set()
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(name, 0)
        found[name] = count + 1
        made.add(f"{name}-{count}" if count else name)
    return made


def broken(page: Path, text: str) -> list[str]:
    """What a page points at and is not there, a sentence each."""
    wrong = []
    for target in links(text):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            wrong.append(f"link {target}: there is no {name}")
        elif not file.is_relative_to(ROOT):
            wrong.append(f"link {target} leaves the repository")
        elif anchor and anchor not in anchors(prose(file)):
            wrong.append(f"link {target}: no heading has anchor #{anchor}")
    return wrong + [
        f"`{name}` does not exist" for name in named(text) if not (ROOT / name).exists()
    ]


def named(text: str) -> Iterator[str]:
    """Paths and modules in backticks, alone or as a word of a command; patterns are left out."""
    for code in CODE.findall(text):
        for word in code.split():
            module = MODULE.fullmatch(word)
            if module:
                folder = f"encgraph/{module[1]}"
                yield folder if (ROOT / folder).is_dir() else f"{folder}.py"
            elif (NAMED.fullmatch(word) or SUFFIXED.fullmatch(word)) and word not in ELSEWHERE:
                yield word.rstrip(".")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_points_at_exists(page: Path) -> None:
    assert broken(page, prose(page)) == []


def test_pages_point_at_something_so_that_the_test_above_can_fail() -> None:
    texts = [prose(page) for page in pages()]
    assert sum(len(list(links(text))) for text in texts) >= 3
    assert sum(len(list(named(text))) for text in texts) > 10


def test_a_broken_link_anchor_and_path_are_told() -> None:
    page = ROOT / "README.md"
    text = "# A `b`: c\n[x](no.md) [y](#gone) [z](#a-b-c) [w](https://x.org) `docs/no.md` `docs/<x>.md` `encgraph.no.x`"
    assert broken(page, text) == [
        "link no.md: there is no no.md",
        "link #gone: no heading has anchor #gone",
        "link #a-b-c: no heading has anchor #a-b-c",
        "`docs/no.md` does not exist",
        "`encgraph/no.py` does not exist",
    ]


def test_anchors_are_those_that_github_makes() -> None:
    text = "# The `run` command: 5 % of it\n## Twice\n## Twice\n### [A link](x.md) in it ##\n"
    assert anchors(text) == {"the-run-command-5--of-it", "twice", "twice-1", "a-link-in-it"}
