import base64
import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from encgraph.sources import images


def save(path: Path, size: tuple[int, int] = (40, 20), *, orientation: int = 1) -> Path:
    exif = Image.Exif()
    exif[0x112] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path, exif=exif)
    return path


def png_header(width: int, height: int) -> bytes:
    """A PNG without pixels: only its header can be read."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checked = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    return b"\x89PNG\r\n\x1a\n" + checked + struct.pack(">I", 1000) + b"IDAT"


def data_uri(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_sides_are_those_after_exif_transpose(tmp_path, suffix, orientation):
    path = save(tmp_path / f"a.{suffix}", orientation=orientation)
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).size
    assert images.of_file(path)[:2] == upright
    assert upright == ((20, 40) if orientation >= 5 else (40, 20))


def test_pixels_are_never_decoded(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png_header(640, 480))
    with pytest.raises(OSError), Image.open(path) as image:
        image.load()
    assert images.of_file(path) == (640, 480, str(path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty file"),
        (b"hello", "not an image"),
        (b"\x89PNG\r\n\x1a\n", "not an image"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "not an image|broken header|cannot be read"),
    ],
)
def test_broken_files_say_why(tmp_path, content, reason):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        images.of_file(path)


def test_heic_says_what_to_do(tmp_path):
    path = tmp_path / "a.HEIC"
    path.write_bytes(b"\x00\x00\x00\x18ftypheic")
    with pytest.raises(ValueError, match="convert it to JPEG"):
        images.of_file(path)


def test_a_large_picture_is_sized_and_gives_no_warning(tmp_path, recwarn):
    path = tmp_path / "a.png"
    path.write_bytes(png_header(12_000, 12_000))
    assert images.of_file(path)[:2] == (12_000, 12_000)
    assert images.of_url(data_uri(path.read_bytes()), tmp_path)[:2] == (12_000, 12_000)
    assert not recwarn


def test_a_picture_that_pillow_refuses_to_decode_is_refused_with_the_limit(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png_header(30_000, 30_000))
    with pytest.raises(Image.DecompressionBombError):
        Image.open(path)
    said = (
        f"too large: Pillow, .* refuses over {2 * Image.MAX_IMAGE_PIXELS:,} pixels; scale it down"
    )
    with pytest.raises(ValueError, match=said):
        images.of_file(path)
    with pytest.raises(ValueError, match=f"data URI holds no readable image: {said}"):
        images.of_url(data_uri(path.read_bytes()), tmp_path)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif", "gif", "jp2", "ppm", "webp"])
def test_the_limit_on_decoding_is_that_of_pillow_in_every_format(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (40, 20)).save(path)
    assert images.of_file(path)[:2] == (40, 20)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match=r"too large: Pillow, .* over 200 pixels"):
        images.of_file(path)


def test_a_data_uri_that_is_no_image_names_no_object(tmp_path):
    with pytest.raises(ValueError, match=r"no readable image: not an image \(JPEG") as caught:
        images.of_url("data:image/png;base64,aGVsbG8=", tmp_path)
    assert "BytesIO" not in str(caught.value)


def test_a_path_with_too_long_a_name_is_one_bad_image(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: File name too long"):
        images.of_url("x" * 5000, tmp_path)


def test_files_are_found_recursively_in_order_and_missing_folders_are_reported(tmp_path):
    for name in ("b/2.png", "a.png", "b/1.png"):
        save(tmp_path / name)
    refused, hidden, linked = [], [], []
    told = {"refused": refused.append, "hidden": hidden.append, "linked": linked.append}
    found = images.files(tmp_path, **told)
    assert [str(p.relative_to(tmp_path)) for p in found] == ["a.png", "b/1.png", "b/2.png"]
    missing = images.files(tmp_path / "none", **told)
    assert list(missing) == []
    assert (len(refused), hidden, linked) == (1, [], [])


def test_names_that_begin_with_a_dot_are_no_files_of_a_folder_unless_it_is_the_one_asked_for(
    tmp_path,
):
    folder = tmp_path / ".asked"
    for name in ("a.png", ".a.png", "b/._2.png", "b/2.png", ".thumbnails/deep/3.png"):
        save(folder / name)
    refused, hidden, linked = [], [], []
    told = {"refused": refused.append, "hidden": hidden.append, "linked": linked.append}
    found = images.files(folder, **told)
    assert [str(p.relative_to(folder)) for p in found] == ["a.png", "b/2.png"]
    names = [str(p.relative_to(folder)) for p in hidden]
    assert sorted(names) == [".a.png", ".thumbnails", "b/._2.png"]
    assert refused == []


def test_a_missing_file_and_a_folder_say_why(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        images.of_file(tmp_path / "none.png")
    with pytest.raises(ValueError, match="not a regular file"):
        images.of_file(tmp_path)


def test_urls_of_every_local_form_are_read(tmp_path):
    path = save(tmp_path / "my photos" / "a.png")
    for url in ("my photos/a.png", "file://" + str(path).replace(" ", "%20"), str(path)):
        assert images.of_url(url, tmp_path)[:2] == (40, 20)
    assert images.of_url(data_uri(path.read_bytes()), tmp_path) == (40, 20, "")


def test_a_data_uri_is_decoded_only_as_far_as_its_header(tmp_path):
    broken_behind = data_uri(png_header(64, 48) + bytes(100_000)) + "A"
    assert images.of_url(broken_behind, tmp_path)[:2] == (64, 48)


def test_a_data_uri_with_a_long_header_is_read_whole(tmp_path):
    held = io.BytesIO()
    Image.new("RGB", (40, 20)).save(held, "JPEG", icc_profile=bytes(200_000))
    assert images.of_url(data_uri(held.getvalue()), tmp_path)[:2] == (40, 20)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://example.org/a.png", "https URLs are not fetched"),
        ("../a.png", "leads out of"),
        ("/etc/hostname", "leads out of"),
        ("file:///etc/hostname", "leads out of"),
        ("link.png", "leads out of"),
        ("loop.png", "leads out of|symbolic links"),
        ("none.png", "No such file"),
        ("a\0b", "NUL"),
        ("data:image/png,hello", "must be base64"),
        ("data:image/png;base64,", "empty data URI"),
        ("data:image/png;base64,aGVsbG8=", "no readable image"),
        ("data:image/png;base64,a", "no readable image"),
    ],
)
def test_urls_that_are_not_read_say_why(tmp_path, url, reason):
    folder = tmp_path / "inside"
    folder.mkdir()
    save(tmp_path / "a.png")
    (folder / "link.png").symlink_to(tmp_path / "a.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    with pytest.raises(ValueError, match=reason):
        images.of_url(url, folder)
