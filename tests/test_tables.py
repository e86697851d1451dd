import re

import pytest

from encgraph.sources import tables


def read(tmp_path, text, encoding="utf-8", *, prefer="sides"):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    return tables.read(path, prefer=prefer)


def rows_of(tmp_path, text, encoding="utf-8"):
    return read(tmp_path, text, encoding).rows


def test_every_column_is_read_and_others_are_named(tmp_path):
    table = read(tmp_path, "Height, width,request,frames,arrival_s,note\n480,640.0,r7,8,0.5,\n")
    expected = tables.TableRow(line=2, request="r7", width=640, height=480, frames=8, arrival_s=0.5)
    assert table.rows == (expected,)
    assert table.notes == ("columns not read: note",)


@pytest.mark.parametrize(
    ("header", "prefer", "said"),
    [
        ("request_id,width,height", "sides", "request_id (did you mean 'request'?)"),
        ("arrival,width,height", "sides", "arrival (did you mean 'arrival_s'?)"),
        ("width,height,num_frames", "sides", "num_frames (did you mean 'frames'?)"),
        (
            "image_width,image_height,tokens",
            "sides",
            "image_width (did you mean 'width'?), image_height (did you mean 'height'?)",
        ),
        ("image_width,token,tokens", "tokens", "image_width, token"),
        ("request,request_id,tokens", "sides", "request_id"),
        ("a,b,c,d,e,f,g,h,i,j,tokens", "sides", "a, b, c, d, e, f, g, h and 2 more"),
    ],
)
def test_a_column_that_is_not_read_is_named_with_what_it_may_have_been_meant_for(
    tmp_path, header, prefer, said
):
    cells = ",".join("1" for _ in header.split(","))
    table = read(tmp_path, f"{header}\n{cells}\n", prefer=prefer)
    assert table.notes == (f"columns not read: {said}",)


def test_a_column_without_a_name_is_not_named(tmp_path):
    """As pandas writes an index."""
    assert read(tmp_path, ",tokens\n0,64\n").notes == ()


def test_a_column_that_would_make_a_row_several_items_is_named_with_its_first_line(tmp_path):
    table = read(tmp_path, "images,width,height\n1,6,4\n2,6,4\n3,6,4\n")
    assert len(table.rows) == 3
    assert table.notes == (
        "columns not read: images",
        "each row counts as one item, whatever images says ('2' in line 3): write a row an item, "
        "those of a request with one name in a column request",
    )


def test_a_column_of_ones_makes_no_row_several_items(tmp_path):
    table = read(tmp_path, "count,tokens\n1,64\n1.0,64\n,64\n")
    assert table.notes == ("columns not read: count",)


def test_without_a_request_column_each_row_is_a_request_and_blank_lines_are_passed_over(tmp_path):
    rows = rows_of(tmp_path, "tokens\n300\n\n64\n", "utf-8-sig")
    assert [(row.line, row.request, row.tokens) for row in rows] == [(2, "2", 300), (4, "4", 64)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("width,height\n", "there is a header width,height but no rows"),
        ("width;height\n6;4\n", "must be separated by commas, got 'width;height'; save it with"),
        ("width\theight\n6\t4\n", "with commas in place of '\\t'"),
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
