"""The kept manifest is that of the measurements: data and figures everywhere, files where the tools are its own."""

import json
from pathlib import Path

import pytest

from encgraph import datadir, exporting, papers

MANIFEST = datadir.root() / exporting.KEPT
PAPERS = papers.catalogue("h200")
SAID = f"measurements or figures changed; if that was meant, run: {exporting.REFRESH}"


def kinds() -> list[papers.Paper]:
    """The first figure of each kind: a bench, a curve, a map with a colour bar, plans."""
    first: dict[str, papers.Paper] = {}
    for paper in PAPERS:
        is_map = paper.name.endswith(".break-even")
        kind = "map" if is_map else paper.name.split("-")[0].split(".")[0]
        first.setdefault(kind, paper)
    return list(first.values())


def test_data_and_figures_are_those_of_the_manifest() -> None:
    assert MANIFEST.is_file(), SAID
    changed = exporting.differences(MANIFEST, PAPERS)
    assert changed == [], SAID


def test_captions_are_those_of_the_manifest() -> None:
    known = json.loads(MANIFEST.read_text())["figures"]
    assert {p.name: p.caption for p in PAPERS} == {n: one["caption"] for n, one in known.items()}, (
        SAID
    )


def test_the_manifest_has_every_format_in_both_widths() -> None:
    known = json.loads(MANIFEST.read_text())["figures"]
    for name, one in known.items():
        pictures = {
            f"{name}.{column}.{kind}" for column in exporting.WIDTHS for kind in exporting.PICTURES
        }
        assert set(one["files"]) == {f"{name}.html", *pictures}, SAID


def test_files_are_those_of_the_manifest_where_the_tools_are(tmp_path: Path) -> None:
    known = json.loads(MANIFEST.read_text())
    if (lacking := exporting.missing()) is not None:
        pytest.skip(f"files are the manifest's where its tools are: {lacking}")
    if (tools := exporting.tools(with_pictures=True)) != known["tools"]:
        pytest.skip(f"files are the manifest's where its tools are: {tools}")
    made = json.loads(exporting.write(kinds(), tmp_path).manifest.read_text())["figures"]
    for name, one in made.items():
        assert one["files"] == known["figures"][name]["files"], SAID
