import base64
import io
import json

import pytest
from PIL import Image

from encgraph import sizes, traffic
from encgraph.sources import reading

SIZE = sizes.named("qwen3-vl-tiny")


def same(values):
    return values


def chat_lines(path, *requests):
    lines = [
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": u}} for u in urls]}]}
        for urls in requests
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_data_uris_leave_the_paths_out_and_say_so(tmp_path):
    held = io.BytesIO()
    Image.new("RGB", (640, 480)).save(held, "PNG")
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    uri = "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()
    found = reading.from_chats(chat_lines(tmp_path / "c.jsonl", [uri, "a.png"]), SIZE, same)
    assert [i.tokens for i in found.requests[0]] == [300, 300]
    assert found.paths == ()
    assert found.notes == ("images in data URIs, for which no paths are kept: 1",)


def test_a_request_with_every_image_skipped_takes_no_index(tmp_path):
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    lines = chat_lines(tmp_path / "c.jsonl", ["none.png"], ["a.png"])
    found = reading.from_chats(lines, SIZE, same)
    assert [[i.request for i in request] for request in found.requests] == [[0]]
    assert found.skipped[0].path.endswith("c.jsonl:1")


def test_a_request_that_lacks_an_image_is_left_out_whole_and_counted(tmp_path):
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    urls = (["a.png", "none.png", "a.png"], ["a.png"], ["none.png", "a.png"])
    found = reading.from_chats(chat_lines(tmp_path / "c.jsonl", *urls), SIZE, same)
    assert [[i.request for i in request] for request in found.requests] == [[0]]
    assert [s.path.rsplit(":", 1)[1] for s in found.skipped] == ["1", "3"]
    assert found.skipped[0].reason.startswith("image 'none.png': cannot be read")
    said = "incomplete requests, left out: 2 (with 3 items that could be read)"
    assert found.notes == (said,)


@pytest.mark.parametrize(("kind", "kept"), [("video_url", 0), ("image", 0), ("input_audio", 1)])
def test_a_request_lacks_what_a_vision_encoder_would_see_and_nothing_else(tmp_path, kind, kept):
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    parts = [{"type": "image_url", "image_url": {"url": "a.png"}}, {"type": kind}]
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"messages": [{"content": parts}]}), encoding="utf-8")
    found = reading.from_chats(path, SIZE, same)
    assert len(found.requests) == kept
    assert found.skipped[0].reason.startswith(f"content parts of type {kind!r} are not read (1)")
    assert ("'image_url'" in found.skipped[0].reason) == (kind == "image")


def test_a_request_of_a_table_that_lacks_a_row_is_left_out_with_its_arrival(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "request,width,height,arrival_s\na,64,64,1\na,32,9000,1\nb,64,64,2\nb,64,96,2\n"
    )
    found = reading.from_table(path, SIZE, same)
    assert [[i.request for i in request] for request in found.requests] == [[0, 0]]
    assert found.arrivals_s == (2.0,)


def test_a_clip_with_refused_sides_is_skipped_and_its_arrival_with_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("width,height,frames,arrival_s\n32,9000,4,1\n64,64,4,2\n")
    found = reading.from_table(path, SIZE, same)
    assert found.arrivals_s == (2.0,)
    assert found.skipped[0].path.endswith("t.csv:2")


@pytest.mark.parametrize("source", [None, 3, b"photos"])
def test_what_is_no_source_is_refused_with_what_would_be(source):
    with pytest.raises(TypeError, match=r"source must be a folder of images, .* got "):
        traffic.read(source, SIZE)


def test_columns_that_are_not_read_are_among_the_notes_of_a_traffic(tmp_path):
    file = tmp_path / "sizes.csv"
    file.write_text("request_id,width,height\na,640,480\n", encoding="utf-8")
    said = "columns not read: request_id (did you mean 'request'?)"
    assert traffic.read(file, SIZE).notes == (said,)


def test_data_uris_that_cannot_be_read_or_whose_request_is_left_out_are_not_counted(tmp_path):
    held = io.BytesIO()
    Image.new("RGB", (640, 480)).save(held, "PNG")
    Image.new("RGB", (640, 480)).save(tmp_path / "a.png")
    uri = "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()
    lines = chat_lines(
        tmp_path / "c.jsonl", ["data:image/png;base64,AAAA"], [uri, "no.png"], ["a.png"]
    )
    found = reading.from_chats(lines, SIZE, same)
    assert len(found.requests) == len(found.paths) == 1
    assert not any("data URIs" in note for note in found.notes)
