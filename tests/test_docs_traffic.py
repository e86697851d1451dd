"""The forms of sources that the page shows are read as it says."""

import re
from pathlib import Path

import pytest
from PIL import Image

from encgraph import sizes, traffic

PAGE = (Path(__file__).parents[1] / "docs" / "traffic.md").read_text(encoding="utf-8")
SIZE = sizes.named("qwen3-vl-8b")
SUFFIX = {"A CSV": ".csv", "Chat requests": ".jsonl", "A list of patch grids": ".json"}
READ = {
    "A CSV": [[(640, 480, 1), (1024, 768, 1)], [(320, 320, 4)]],
    "Chat requests": [[(640, 480, 1)]],
    "A list of patch grids": [[(640, 480, 1)], [(256, 256, 1), (384, 416, 1)]],
}
"""Width, height and temporal steps of each item."""


def example(heading: str) -> str:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    [text] = re.findall(r"(?s)```\w+\n(.*?)```", section)
    return str(text)


@pytest.mark.parametrize("heading", SUFFIX)
def test_each_example_of_the_page_is_read(heading: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (640, 480)).save(tmp_path / "photos" / "a.png")
    file = tmp_path / f"source{SUFFIX[heading]}"
    file.write_text(example(heading), encoding="utf-8")
    found = traffic.read(file, SIZE)
    assert [[(i.width, i.height, i.frames) for i in r] for r in found.requests] == READ[heading]
    assert found.skipped == ()
    assert not any("not read" in note for note in found.notes)


def test_the_limit_on_the_page_is_that_of_pillow() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert f"over {2 * Image.MAX_IMAGE_PIXELS:,} pixels" in PAGE
