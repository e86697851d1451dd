"""Turn folders, tables, chats and request lists into requests of items.

A request of which something cannot be read is left out whole: run without it, it would be another,
smaller request. Items are numbered by the requests that are left.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from encgraph import sizes
from encgraph.errors import require
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize, Grid
from encgraph.sources import chats, images, requestlists, tables
from encgraph.sources.tables import Table, TableRow

URL_CHARS = 60
"""What is shown of the place of an image; a data URI may have millions of characters."""
ProgressBar = Callable[[Iterable[Any]], Iterable[Any]]
"""Wraps what is read one by one, as `tqdm` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Something that could not become an item, and why."""

    path: str
    """A file, or a file and a line of it as `file:line`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a source holds; the fields are those of `Traffic`."""

    requests: tuple[tuple[Item, ...], ...]
    paths: tuple[tuple[str, ...], ...] = ()
    arrivals_s: tuple[float, ...] = ()
    fit_tokens: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Request:
    items: list[Item] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Gathered:
    """Requests by key in order of their first item, and what was skipped."""

    requests: dict[str, _Request] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)
    """Keys of requests that lack something."""
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, key: str, place: str, make: Callable[[], tuple[Item, str]]) -> None:
        """Add an item to a request, or the reason why `make` refuses to give one."""
        try:
            item, path = make()
        except ValueError as error:
            self.lack(key, place, str(error))
            return
        request = self.requests.setdefault(key, _Request())
        request.items.append(item)
        request.paths.append(path)

    def lack(self, key: str, place: str, reason: str) -> None:
        """Leave a request out for want of something."""
        self.incomplete.add(key)
        self.skipped.append(Skipped(path=place, reason=reason))

    def found(self, notes: Iterable[str] = ()) -> Found:
        """Freeze the complete requests; paths are kept only if every item has one."""
        lost = [
            len(self.requests[key].items) if key in self.requests else 0 for key in self.incomplete
        ]
        requests = [r for key, r in self.requests.items() if key not in self.incomplete]
        paths = tuple(tuple(request.paths) for request in requests)
        whole = all(path for request in paths for path in request)
        return Found(
            requests=tuple(
                tuple(replace(item, request=index) for item in request.items)
                for index, request in enumerate(requests)
            ),
            paths=paths if whole else (),
            arrivals_s=tuple(min(r.arrivals_s) for r in requests if r.arrivals_s),
            skipped=tuple(self.skipped),
            notes=(*notes, *left_out(lost)),
        )


def left_out(lost: Sequence[int]) -> tuple[str, ...]:
    """Say how many requests were left out, as notes.

    Args:
        lost: Readable items of each request that lacked others, 0 where none could be read.
    """
    some = [count for count in lost if count]
    said = {
        f"incomplete requests, left out: {len(some):,} (with {sum(some):,} items that could be "
        "read)": len(some),
        f"requests of which no item could be read, left out: {len(lost) - len(some):,}": len(lost)
        - len(some),
    }
    return tuple(note for note, count in said.items() if count)


def no_images(source: str, size: EncoderSize) -> str:
    """Say that a source of images is none for an encoder of texts or audio."""
    what = size.rule.modality
    return (
        f"{size.name} takes {what}, and {source!r} holds images; give a CSV whose column tokens "
        f"has the {what} tokens of each item"
    )


def from_folder(folder: Path, size: EncoderSize, progress: ProgressBar) -> Found:
    """Read image headers below a folder, one request an image; hidden files are left out."""
    gathered = _Gathered()
    hidden: list[Path] = []

    def refused(error: OSError) -> None:
        reason = f"cannot be listed: {error.strerror}"
        gathered.skipped.append(Skipped(path=str(error.filename), reason=reason))

    def linked(path: Path) -> None:
        reason = "a link to a folder, which is not followed; give the folder itself"
        gathered.skipped.append(Skipped(path=str(path), reason=reason))

    found = images.files(folder, refused=refused, hidden=hidden.append, linked=linked)
    for path in progress(list(found)):
        gathered.add(str(path), str(path), partial(_file, path, size))
    gathered.incomplete.clear()  # a file that is no image was never a request
    notes = [f"hidden files and folders, left out: {len(hidden):,}"] if hidden else []
    return gathered.found(notes)


def from_table(path: Path, size: EncoderSize, progress: ProgressBar) -> Found:
    """Read a CSV of sides or tokens; what the processor refuses is skipped with its request.

    Of a table that has both, sides count for images and tokens for texts and audio; a note says so.

    Raises:
        ValueError: If a cell is malformed, or the table has no tokens for an encoder of texts or audio.
    """
    of_images = size.rule.modality is Modality.IMAGE
    table = tables.read(path, prefer="sides" if of_images else "tokens")
    require(of_images or table.form == "tokens", no_images(str(path), size))
    gathered = _Gathered()
    for row in progress(table.rows):
        made = _tokens if table.form == "tokens" else _sides
        gathered.add(row.request, f"{path}:{row.line}", partial(made, row, size))
        if row.arrival_s is not None and row.request in gathered.requests:
            gathered.requests[row.request].arrivals_s.append(row.arrival_s)
    found = gathered.found()
    asked = sum(row.tokens for row in table.rows if row.request not in gathered.incomplete)
    return replace(found, notes=(*_table_notes(table, asked, found, size), *found.notes))


def from_chats(path: Path, size: EncoderSize, progress: ProgressBar) -> Found:
    """Read the images of chat requests; files must lie below the folder of the JSON lines.

    A request is left out if an image of it cannot be read or it has a clip, since neither its batch nor
    its time would be its own. Audio and files go to no vision encoder: a request is whole without them.

    Raises:
        ValueError: If a line is not a chat request.
    """
    gathered = _Gathered()
    without = 0
    for chat in progress(chats.read(path)):
        place = f"{path}:{chat.line}"
        without += not chat.urls and not chats.SEEN_PARTS.intersection(chat.unread)
        for url in chat.urls:
            gathered.add(str(chat.line), place, partial(_url, url, path.parent, size))
        for kind, count in Counter(chat.unread).items():
            reason = f"content parts of type {kind!r} are not read ({count})"
            if kind in chats.IMAGE_PARTS:
                reason += f"; write them as parts of type {chats.IMAGE_PART!r}"
            if kind in chats.SEEN_PARTS:
                gathered.lack(str(chat.line), place, reason)
            else:
                gathered.skipped.append(Skipped(path=place, reason=reason))
    complete = [r for key, r in gathered.requests.items() if key not in gathered.incomplete]
    inline = sum(not path for request in complete for path in request.paths)
    notes = {
        f"requests without images, left out: {without}": without,
        f"images in data URIs, for which no paths are kept: {inline}": inline,
    }
    return gathered.found([note for note, count in notes.items() if count])


def from_request_list(path: Path, size: EncoderSize, progress: ProgressBar) -> Found:
    """Read a JSON request list of patch grids."""
    listed = requestlists.read(path, size.rule)
    return Found(
        requests=tuple(
            tuple(sizes.item(grid, size.rule, request=index) for grid in grids)
            for index, grids in enumerate(progress(listed.requests))
        ),
        fit_tokens=listed.fit_tokens,
        notes=listed.notes,
    )


def _file(path: Path, size: EncoderSize) -> tuple[Item, str]:
    return _image(images.of_file(path), size)


def _url(url: str, folder: Path, size: EncoderSize) -> tuple[Item, str]:
    try:
        return _image(images.of_url(url, folder), size)
    except ValueError as error:
        raise ValueError(f"image {url[:URL_CHARS]!r}: {error}") from error


def _image(image: images.Sized, size: EncoderSize) -> tuple[Item, str]:
    width, height, path = image
    grid = sizes.image_grid(width, height, size.rule)
    return sizes.item(grid, size.rule, width=width, height=height), path


def _sides(row: TableRow, size: EncoderSize) -> tuple[Item, str]:
    if row.frames > 1:
        grid = sizes.video_grid(row.width, row.height, row.frames, size.rule)
    else:
        grid = sizes.image_grid(row.width, row.height, size.rule)
    item = sizes.item(
        grid,
        size.rule,
        width=row.width,
        height=row.height,
        modality=Modality.VIDEO if row.frames > 1 else Modality.IMAGE,
    )
    return item, ""


def _tokens(row: TableRow, size: EncoderSize) -> tuple[Item, str]:
    return sizes.item(_token_grid(row.tokens, size), size.rule), ""


def _token_grid(tokens: int, size: EncoderSize) -> Grid:
    """Grid of so many tokens: an image's, or a length where the encoder takes text or audio."""
    rule = size.rule
    if rule.modality is Modality.IMAGE:
        return sizes.near_square_grid(tokens, rule)
    require(
        tokens <= rule.max_pixels,
        f"{size.name} takes at most {rule.max_pixels:,} {rule.modality} tokens an item, "
        f"got {tokens:,}",
    )
    return Grid(1, 1, max(tokens, rule.min_pixels))


def _table_notes(table: Table, asked: int, found: Found, size: EncoderSize) -> list[str]:
    """Say which columns were passed over, and where items have other tokens than were asked for."""
    passed_over = f"the {table.form} count, {', '.join(table.unread)} are not read"
    notes = [*table.notes]
    notes += [f"the table has sides and tokens: {passed_over}"] if table.unread else []
    given = sum(item.tokens for request in found.requests for item in request)
    rule, in_all = size.rule, f"{given} tokens in all for {asked} asked"
    if table.form == "tokens" and rule.modality is Modality.IMAGE:
        grid = "as few tiles as have them" if rule.is_cut else "a near-square legal grid"
        notes.append(f"the table has tokens, not sides: each image has {grid}, {in_all}")
    elif table.form == "tokens" and given != asked:
        least = "every" if rule.min_pixels == rule.max_pixels else "the shortest"
        notes.append(
            f"{least} {rule.modality} item of {size.name} has {rule.min_pixels:,} tokens: {in_all}"
        )
    return notes
