import re

import pytest

from encgraph.sources import tables


def rows_of(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    return tables.read(path).rows


def test_every_column_is_read_and_others_are_ignored(tmp_path):
    (row,) = rows_of(tmp_path, "Height, width,request,frames,arrival_s,note\n480,640.0,r7,8,0.5,\n")
    expected = tables.TableRow(line=2, request="r7", width=640, height=480, frames=8, arrival_s=0.5)
    assert row == expected


def test_without_a_request_column_each_row_is_a_request_and_blank_lines_are_passed_over(tmp_path):
    rows = rows_of(tmp_path, "tokens\n300\n\n64\n", "utf-8-sig")
    assert [(row.line, row.request, row.tokens) for row in rows] == [(2, "2", 300), (4, "4", 64)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("width,height\n", "there is a header width,height but no rows"),
        ("a,b\n1,2\n", "columns must be width,height or tokens, got 'a,b'"),
        ("width,b\n1,2\n", "column 'height' is missing, got 'width,b'"),
        ("width,height,width\n1,2,3\n", "columns must be unique, got ['width']"),
        ("tokens,frames\n1,2\n", "column 'frames' needs 'width' and 'height'"),
        (
            "width,height\n1,2\n3,-4\n",
            "line 3: height must be a whole number of at least 1, got '-4'",
        ),
        ("width,height\nnan,2\n", "line 2: width must be a whole number of at least 1, got 'nan'"),
        (
            "width,height\n1,2\n\n1.5,2\n",
            "line 4: width must be a whole number of at least 1, got '1.5'",
        ),
        ("width,height\n0,2\n", "line 2: width must be a whole number of at least 1, got '0'"),
        ("width,height\n1_0,2\n", "got '1_0'"),
        ("width,height\n" + "9" * 5000 + ",2\n", "line 2: width must be at most 999,999,999, got"),
        ("tokens\n99999999999\n", "line 2: tokens must be at most 999,999,999, got '99999999999'"),
        ("width,height\n640\n", "line 2: height is missing"),
        ("width,height,request\n6,4, \n", "line 2: request is missing"),
        (
            "width,height,frames\n6,4,0\n",
            "line 2: frames must be a whole number of at least 1, got '0'",
        ),
        (
            "width,height,arrival_s\n6,4,nan\n",
            "line 2: arrival_s must be seconds of at least 0, got 'nan'",
        ),
        (
            "width,height,arrival_s\n6,4,-1\n",
            "line 2: arrival_s must be seconds of at least 0, got '-1'",
        ),
        ("tokens\nmany\n", "line 2: tokens must be a whole number of at least 1, got 'many'"),
    ],
)
def test_malformed_tables_say_where_and_what(tmp_path, text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        rows_of(tmp_path, text)
    assert str(caught.value).startswith("t.csv: ")


@pytest.mark.parametrize(
    ("prefer", "unread", "sizes"),
    [("sides", ("tokens",), (6, 4, 0)), ("tokens", ("width", "height", "frames"), (0, 0, 9))],
)
def test_of_sides_and_tokens_the_preferred_are_read_and_the_others_named(
    tmp_path, prefer, unread, sizes
):
    path = tmp_path / "t.csv"
    path.write_text("width,height,frames,tokens\n6,4,1,9\n")
    table = tables.read(path, prefer=prefer)
    assert (table.form, table.unread) == (prefer, unread)
    assert [(row.width, row.height, row.tokens) for row in table.rows] == [sizes]


def test_zeros_before_a_number_do_not_make_it_too_large(tmp_path):
    assert [row.tokens for row in rows_of(tmp_path, "tokens\n0000000000064\n")] == [64]


def test_other_encodings_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="must be UTF-8"):
        rows_of(tmp_path, "width,height\n1,2\n", "utf-16")


@pytest.mark.parametrize("row", ["2,048,1536", "640,480,5"])
def test_a_row_of_more_fields_than_the_header_is_no_small_image(tmp_path, row):
    path = tmp_path / "sides.csv"
    path.write_text(f"width,height\n320,320,\n{row}\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=f"line 3: must have 2 fields.*{row}.*thousands separators"
    ):
        tables.read(path)
