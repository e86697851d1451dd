import base64
import io
import json

from PIL import Image

from encgraph import sizes
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


def test_a_clip_with_refused_sides_is_skipped_and_its_arrival_with_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("width,height,frames,arrival_s\n32,9000,4,1\n64,64,4,2\n")
    found = reading.from_table(path, SIZE, same)
    assert found.arrivals_s == (2.0,)
    assert found.skipped[0].path.endswith("t.csv:2")
