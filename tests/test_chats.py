import json
import re

import pytest

from encgraph.sources import chats


def part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def chat(*parts):
    return {
        "messages": [{"role": "system", "content": "hi"}, {"role": "user", "content": [*parts]}]
    }


def requests_of(tmp_path, *lines):
    path = tmp_path / "c.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return list(chats.read(path))


def test_images_are_read_in_order_from_plain_and_batch_lines(tmp_path):
    plain = chat({"type": "text", "text": "see"}, part("a.png"), part("b.png"))
    first, second = requests_of(
        tmp_path, plain, "", {"custom_id": "1", "body": chat(part("c.png"))}
    )
    assert (first.line, first.urls) == (1, ("a.png", "b.png"))
    assert (second.line, second.urls) == (3, ("c.png",))


def test_a_plain_text_url_and_a_text_only_request_are_read(tmp_path):
    first, second = requests_of(tmp_path, chat({"type": "image_url", "image_url": "a.png"}), chat())
    assert first.urls == ("a.png",)
    assert second.urls == ()


def test_parts_that_are_not_read_are_named(tmp_path):
    (request,) = requests_of(tmp_path, chat({"type": "video_url", "video_url": {"url": "a.mp4"}}))
    assert request.unread == ("video_url",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be one JSON object a line"),
        ("[1]", "a request must be an object, got '[1]'"),
        ({"prompt": "x"}, "'messages' is missing, got keys ['prompt']"),
        ({"body": 3}, "'body' must be an object, got '3'"),
        ({"messages": "x"}, "'messages' must be a list, got 'x'"),
        ({"messages": ["x"]}, "a message must be an object, got 'x'"),
        ({"messages": [{"content": 3}]}, "'content' must be text or a list of parts, got '3'"),
        ({"messages": [{"content": ["x"]}]}, "a content part must be an object, got 'x'"),
        (chat({"type": "image_url"}), "'image_url' must be {'url': text}, got 'None'"),
    ],
)
def test_malformed_lines_say_where_and_what(tmp_path, line, message):
    with pytest.raises(ValueError, match=re.escape(f"c.jsonl: line 2: {message}")):
        requests_of(tmp_path, chat(), line)
