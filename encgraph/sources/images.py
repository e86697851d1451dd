"""Read how large images are from their headers; pixels are never decoded.

Sizes are those after EXIF orientation, as transformers' `load_image` feeds them: whoever decodes a
file must apply `PIL.ImageOps.exif_transpose` first. An EXIF block that follows the pixels of a PNG is
not seen, nor is damage behind a sound header. What Pillow refuses to open for its size is refused here
too, since no engine that decodes with it takes it.
"""

import base64
import io
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from PIL import ExifTags, Image, UnidentifiedImageError

from encgraph.errors import require

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM")
"""Formats read; others Pillow knows are stubs without pixels or need another program."""

SIDEWAYS = frozenset({5, 6, 7, 8})
"""EXIF orientations that swap width and height."""

HEADER_CHARS = 1 << 16
"""Base64 characters of a data URI tried first; a header that is longer is read from all of them."""


class Sized(NamedTuple):
    """An upright image's sides in pixels, and its file if it has one."""

    width: int
    height: int
    path: str = ""


def files(
    folder: Path,
    *,
    refused: Callable[[OSError], None],
    hidden: Callable[[Path], None],
    linked: Callable[[Path], None],
) -> Iterator[Path]:
    """Every file below a folder, in order of path; links to folders are not followed.

    Args:
        folder: Where to look.
        refused: Called for each folder that cannot be listed.
        hidden: Called for each file or folder left out because its name begins with a dot.
        linked: Called for each link to a folder, which may lead in a circle.
    """
    for place, folders, names in os.walk(folder, onerror=refused):
        for name in (*folders, *names):
            if name.startswith("."):
                hidden(Path(place) / name)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (Path(place) / name).is_symlink():
                linked(Path(place) / name)
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def of_file(path: Path) -> Sized:
    """Sides of an image file.

    Raises:
        ValueError: If it is no readable image, with the reason alone.
    """
    try:
        status = path.stat()
        require(stat.S_ISREG(status.st_mode), "not a regular file")
        require(status.st_size > 0, "empty file (0 bytes)")
        with path.open("rb") as file:
            return Sized(*_upright(file), str(path))
    except UnidentifiedImageError as error:
        raise ValueError(_unidentified(path.suffix)) from error
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error


def of_url(url: str, folder: Path) -> Sized:
    """Sides of an image that a chat request points to.

    Args:
        url: A base64 data URI, a `file://` URL or a path; a relative one starts at the folder.
        folder: No file outside of it is read.

    Raises:
        ValueError: If it is no readable image or not one of these, with the reason alone.
    """
    if url.startswith("data:"):
        return _of_data(url)
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    require(scheme in ("", "file"), f"{scheme} URLs are not fetched; download the image first")
    place = unquote(url[len("file://") :]) if scheme else url
    require("\0" not in place, "a path must not contain a NUL byte")
    path = folder / place
    require(
        _is_inside(path, folder),
        f"leads out of {str(folder)!r}, the folder of the JSON lines; only files below it are read: put "
        "the JSON lines into a folder above the images",
    )
    return of_file(path)


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path stays below a folder, links followed; a loop of links leads nowhere."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except RuntimeError:
        return False
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _of_data(url: str) -> Sized:
    """Decode as little of the base64 text as the header needs."""
    kind, comma, text = url.partition(",")
    require(bool(comma) and kind.endswith(";base64"), "a data URI must be base64")
    text = unquote_to_bytes(text).decode("latin-1") if "%" in text[:HEADER_CHARS] else text
    require(bool(text.strip()), "empty data URI (0 bytes)")
    try:
        if len(text) > HEADER_CHARS:
            with suppress(OSError, ValueError):
                return _of_base64(text[:HEADER_CHARS])
        return _of_base64(text)
    except UnidentifiedImageError as error:
        raise ValueError(f"data URI holds no readable image: {_unidentified('')}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"data URI holds no readable image: {error}") from error


def _of_base64(text: str) -> Sized:
    return Sized(*_upright(io.BytesIO(base64.b64decode(text))))


def _upright(file: BinaryIO) -> tuple[int, int]:
    """Width and height after EXIF orientation.

    Pillow warns of large pictures and odd EXIF; neither concerns a header. What it raises on broken
    ones is of many types, so that all are turned into one.
    """
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(file, formats=known) as image:
                return _turned(image)
        except OSError:
            raise
        except Image.DecompressionBombError as error:
            raise ValueError(_too_large()) from error
        except Exception as error:
            raise ValueError(f"broken header: {type(error).__name__}: {error}") from error


def _turned(image: Image.Image) -> tuple[int, int]:
    """The base class's EXIF reader: PNG's own would decode the pixels to look behind them."""
    width, height = image.size
    if image.format == "TIFF":
        return width, height
    orientation = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    return (height, width) if orientation in SIDEWAYS else (width, height)


def _too_large() -> str:
    """Pillow warns from its limit on and refuses from twice that on."""
    most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
    return (
        f"too large: Pillow, with which engines decode, refuses over {most:,} pixels; scale it down"
    )


def _unidentified(suffix: str) -> str:
    if suffix.lower() in (".heic", ".heif"):
        return "HEIC is not read; convert it to JPEG or AVIF"
    return f"not an image ({', '.join(FORMATS)} are read)"
