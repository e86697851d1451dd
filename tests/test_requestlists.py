import json
import re

import pytest

from encgraph import sizes
from encgraph.sizes import QWEN3_VL_RULE as RULE
from encgraph.sizes import Grid
from encgraph.sources import requestlists


def read(tmp_path, values):
    path = tmp_path / "r.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return requestlists.read(path, RULE)


def test_grids_and_fit_tokens_are_read(tmp_path):
    values = {
        "about": "x",
        "requests": [[[16, 16], [30, 40]], [[26, 24]]],
        "fit_tokens": [64, 12713],
    }
    listed = read(tmp_path, values)
    assert listed.requests == ((Grid(1, 16, 16), Grid(1, 30, 40)), (Grid(1, 26, 24),))
    assert listed.fit_tokens == (64, 12713)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("", "line 1 column 1: must be JSON"),
        ([], "must be an object with 'requests'"),
        (
            [{"width": 640, "height": 480}],
            "sides in pixels go into a CSV with columns width,height",
        ),
        (
            {"requests": [[{"width": 640, "height": 480}]]},
            "requests[0][0] must be [h, w] in patches, got {'width': 640, 'height': 480}",
        ),
        (
            {"requests": [[[480, 640]]]},
            "must have 256 to 65536 patches, got [480, 640] (307200 patches); sides in pixels go into a "
            "CSV with columns width,height",
        ),
        ({"requests": [[[1079, 1919]]]}, "sides in pixels go into a CSV"),
        ({"requests": [[]]}, "requests[0] must be a list of [h, w] in patches, got []"),
        ({"requests": [[[16, 16]], [[16]]]}, "requests[1][0] must be [h, w] in patches, got [16]"),
        ({"requests": [[[16, -16]]]}, "requests[0][0] must be [h, w] in patches, got [16, -16]"),
        ({"requests": [[[16, True]]]}, "requests[0][0] must be [h, w] in patches, got [16, True]"),
        ('{"requests": [[[16, NaN]]]}', "requests[0][0] must be [h, w] in patches, got [16, nan]"),
        ({"requests": [[[17, 16]]]}, "requests[0][0]: sides must be multiples of 2, got [17, 16]"),
        ({"requests": [[[14, 16]]]}, "must have 256 to 65536 patches, got [14, 16] (224 patches)"),
        ({"requests": [[[512, 512]]]}, "must have 256 to 65536 patches"),
        ({"requests": [[[2, 402]]]}, "aspect ratio must be at most 200"),
        ({"requests": [], "fit_tokens": [0]}, "fit_tokens[0] must be a whole number over 0, got 0"),
    ],
)
def test_malformed_lists_say_where_and_what(tmp_path, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path, values)


@pytest.mark.parametrize(
    ("name", "sides", "nearest"),
    [
        ("siglip-base-16-224", [7, 28], [14, 14]),
        ("siglip2-so400m-16-naflex", [10, 10], [16, 16]),
        ("pixtral-12b", [1, 128], [1, 64]),
    ],
)
def test_a_grid_that_no_picture_gives_is_refused_with_the_nearest(tmp_path, name, sides, nearest):
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"requests": [[sides]]}), encoding="utf-8")
    with pytest.raises(
        ValueError, match=re.escape(f"never gives {sides}; the nearest is {nearest}")
    ):
        requestlists.read(path, sizes.named(name).rule)


@pytest.mark.parametrize(
    ("grids", "said"),
    [
        ([[16, 16], [40, 30]], "[40, 30], is an image of 480 x 640 pixels and 300 tokens"),
        ([[224, 224], [256, 192]], "[224, 224], is an image of 3,584 x 3,584 pixels and 12,544"),
    ],
)
def test_a_note_says_what_the_largest_grid_is_in_pixels(tmp_path, grids, said):
    first, *_ = read(tmp_path, {"requests": [grids]}).notes
    assert said in first


@pytest.mark.parametrize(
    ("grids", "is_likely"),
    [
        ([[224, 224], [256, 192]], True),
        ([[224, 224], [256, 190]], False),
        ([[16, 16], [32, 32], [16, 48]], False),
    ],
)
def test_sides_that_are_all_multiples_of_a_patch_are_said_to_look_like_pixels(
    tmp_path, grids, is_likely
):
    notes = read(tmp_path, {"requests": [grids]}).notes
    doubted = [
        note for note in notes if "all sides are multiples of 16, as those in pixels" in note
    ]
    assert len(doubted) == is_likely
