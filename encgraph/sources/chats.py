"""Read JSON lines of chat requests in the OpenAI content-part form; only what they point to is kept."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encgraph.errors import require

IMAGE_PART = "image_url"
READ_PARTS = frozenset({"text", "refusal", IMAGE_PART})
IMAGE_PARTS = frozenset({"image", "input_image"})
"""Images in forms that are not read."""
SEEN_PARTS = frozenset({"image", "input_image", "video", "video_url", "input_video"})
"""Parts that are not read and that a vision encoder would see: a request is incomplete without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """The images of one chat request."""

    line: int
    """Line in the file, from 1."""
    urls: tuple[str, ...]
    """Image URLs in order of appearance: data URIs, paths or others."""
    unread: tuple[str, ...] = ()
    """Types of content parts that are not read, such as `video_url`."""


def read(path: Path) -> Iterator[ChatRequest]:
    """Read requests, one a line: `{"messages": [...]}` or the batch form `{"body": {...}}`.

    Raises:
        ValueError: If a line is not such a request; says which line and what came.
    """
    with path.open("rb") as file:
        for line, text in enumerate(file, 1):
            if text.strip():
                try:
                    yield _request(text, line)
                except ValueError as error:
                    raise ValueError(f"{path.name}: line {line}: {_short(error)}") from error


def _short(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"must be one JSON object a line: {error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"must be UTF-8 text: {error.reason}"
    return str(error)


def _request(text: bytes, line: int) -> ChatRequest:
    values: Any = json.loads(text.decode("utf-8-sig"))
    _want(values, Mapping, "a request", "an object")
    body = values.get("body", values)
    _want(body, Mapping, "'body'", "an object")
    require("messages" in body, f"'messages' is missing, got keys {sorted(body)!r}")
    _want(body["messages"], list, "'messages'", "a list")
    parts = [part for message in body["messages"] for part in _parts(message)]
    kinds = [str(part.get("type")) for part in parts]
    urls = [_url(part) for part, kind in zip(parts, kinds, strict=True) if kind == IMAGE_PART]
    unread = tuple(kind for kind in kinds if kind not in READ_PARTS)
    return ChatRequest(line=line, urls=tuple(urls), unread=unread)


def _parts(message: Any) -> Sequence[Mapping[str, Any]]:
    _want(message, Mapping, "a message", "an object")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return ()
    _want(content, list, "'content'", "text or a list of parts")
    for part in content:
        _want(part, Mapping, "a content part", "an object")
    return tuple(content)


def _url(part: Mapping[str, Any]) -> str:
    """Plain text in place of `{"url": ...}` is what some clients send."""
    value = part.get(IMAGE_PART)
    url = value.get("url") if isinstance(value, Mapping) else value
    _want(url, str, "'image_url'", "{'url': text}")
    return str(url)


def _want(value: object, kind: type, name: str, wanted: str) -> None:
    require(isinstance(value, kind), f"{name} must be {wanted}, got {str(value)[:60]!r}")
