import json
import re
from pathlib import Path

import pytest
from PIL import Image

from encgraph import codec, sizes, traffic
from encgraph.traffic import Traffic

SIZE = sizes.named("qwen3-vl-tiny")


def photos(folder, count, size=(640, 480)):
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        Image.new("RGB", size).save(folder / f"{index}.jpg")
    return folder


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_gives_one_request_an_image_with_its_file(tmp_path):
    folder = photos(tmp_path / "my.photos", 2)
    found = traffic.read(folder, SIZE)
    assert [(i.tokens, i.width, i.height, i.request) for i in found.items] == [
        (300, 640, 480, 0),
        (300, 640, 480, 1),
    ]
    assert found.paths == ((str(folder / "0.jpg"),), (str(folder / "1.jpg"),))
    assert (found.name, found.encoder, found.skipped) == ("my.photos", "qwen3-vl-tiny", ())


def test_files_that_are_no_images_are_reported_and_never_stop_the_reading(tmp_path):
    folder = photos(tmp_path / "in", 1)
    Image.new("RGB", (6032, 30)).save(folder / "aspect.png")
    (folder / "broken.jpg").write_bytes((folder / "0.jpg").read_bytes()[:20])
    (folder / "empty.png").touch()
    written(folder / "notes.txt", "hello")
    Image.new("RGB", (1, 1)).save(folder / "pixel.png")
    found = traffic.read(folder, SIZE)
    assert [i.tokens for i in found.items] == [300, 64]
    assert [i.request for i in found.items] == [0, 1]
    reasons = {entry.path.rsplit("/", 1)[1]: entry.reason for entry in found.skipped}
    assert set(reasons) == {"aspect.png", "broken.jpg", "empty.png", "notes.txt"}
    assert "aspect ratio must be at most 200, got 201.1" in reasons["aspect.png"]
    assert reasons["empty.png"] == "empty file (0 bytes)"


def test_hidden_files_are_no_traffic_and_a_note_says_how_many(tmp_path):
    folder = photos(tmp_path / "in", 2)
    (folder / "1.jpg").rename(folder / ".1.jpg")
    written(folder / "._0.jpg", "a resource fork")
    photos(folder / ".thumbnails", 3)
    found = traffic.read(folder, SIZE)
    assert found.paths == ((str(folder / "0.jpg"),),)
    assert (found.skipped, found.notes) == ((), ("hidden files and folders, left out: 3",))
    (folder / "0.jpg").unlink()
    with pytest.raises(ValueError, match=r"no image that can be read; hidden .* left out: 3"):
        traffic.read(folder, SIZE)


def test_a_link_to_a_folder_is_left_out_with_a_word(tmp_path):
    folder = photos(tmp_path / "in", 1)
    (folder / "more").symlink_to(photos(tmp_path / "elsewhere", 2))
    (folder / "circle").symlink_to(folder)
    found = traffic.read(folder, SIZE)
    assert [one.reason[:18] for one in found.skipped] == ["a link to a folder"] * 2


def test_a_strip_is_traffic_of_an_encoder_whose_processor_takes_it(tmp_path):
    Image.new("RGB", (4000, 10)).save(tmp_path / "strip.png")
    found = traffic.read(tmp_path, sizes.named("siglip-base-16-224"))
    assert [(i.tokens, i.width, i.height) for i in found.items] == [(196, 4000, 10)]
    assert found.skipped == ()
    with pytest.raises(ValueError, match=r"strip\.png: aspect ratio must be at most 200"):
        traffic.read(tmp_path, sizes.named("glm4v-9b"))


def test_progress_sees_every_file(tmp_path):
    seen = []
    traffic.read(
        photos(tmp_path, 3), SIZE, progress=lambda files: [*map(seen.append, files)] and files
    )
    assert len(seen) == 3


def test_a_folder_without_images_is_an_error_with_the_first_reason(tmp_path):
    with pytest.raises(ValueError, match="holds no image that can be read; it is empty"):
        traffic.read(tmp_path, SIZE)
    written(tmp_path / "a.txt", "hello")
    with pytest.raises(ValueError, match=r"1 skipped, the first: .*a\.txt: not an image"):
        traffic.read(tmp_path, SIZE)


def test_table_rows_join_by_request_and_keep_arrivals(tmp_path):
    path = written(
        tmp_path / "t.csv",
        "width,height,request,arrival_s\n640,480,b,2\n64,48,a,3\n480,640,b,1\n",
    )
    found = traffic.read(path, SIZE)
    assert [[i.width for i in request] for request in found.requests] == [[640, 480], [64]]
    assert [[i.request for i in request] for request in found.requests] == [[0, 0], [1]]
    assert found.arrivals_s == (1.0, 3.0)
    assert found.paths == ()


def test_rows_with_frames_are_clips(tmp_path):
    path = written(tmp_path / "t.csv", "width,height,frames\n640,480,8\n640,480,1\n")
    clip, image = traffic.read(path, SIZE).items
    assert (clip.modality, clip.frames, clip.tokens) == ("video", 4, 4 * 30 * 40 // 4)
    assert (image.modality, image.tokens) == ("image", 300)


def test_a_row_that_the_processor_refuses_is_skipped_with_its_line(tmp_path):
    path = written(tmp_path / "t.csv", "width,height\n6032,30\n640,480\n")
    found = traffic.read(path, SIZE)
    assert [i.request for i in found.items] == [0]
    assert found.skipped[0].path == f"{path}:2"
    assert "aspect ratio" in found.skipped[0].reason


def test_thirty_thousand_pixel_sides_are_resized_as_the_processor_does(tmp_path):
    path = written(tmp_path / "t.csv", "width,height\n30000,30000\n")
    assert traffic.read(path, SIZE).items[0].tokens == 16_384


def test_tokens_get_a_near_square_grid_and_a_note(tmp_path):
    path = written(tmp_path / "t.csv", "tokens\n300\n10\n")
    found = traffic.read(path, SIZE)
    assert [i.tokens for i in found.items] == [300, 64]
    assert "near-square legal grid, 364 tokens in all for 310 asked" in found.notes[0]


def test_too_many_tokens_for_one_image_are_skipped_with_the_line(tmp_path):
    path = written(tmp_path / "t.csv", "tokens\n300\n20000\n")
    found = traffic.read(path, SIZE)
    assert [i.tokens for i in found.items] == [300]
    [skipped] = found.skipped
    assert skipped.path == f"{path}:3"
    assert skipped.reason == "tokens must be at most 16384 for one image, got 20000"
    assert "300 tokens in all for 300 asked" in found.notes[0]


def test_chats_give_their_images_and_report_the_rest(tmp_path):
    photos(tmp_path, 2)
    urls = [["0.jpg", "https://example.org/x.png"], [], ["../x.png"], ["1.jpg", "0.jpg"], ["0.jpg"]]
    lines = [
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": u}} for u in line]}]}
        for line in urls
    ]
    path = written(tmp_path / "c.jsonl", "\n".join(map(json.dumps, lines)))
    found = traffic.read(path, SIZE)
    assert [[i.request for i in request] for request in found.requests] == [[0, 0], [1]]
    assert found.paths[0] == (str(tmp_path / "1.jpg"), str(tmp_path / "0.jpg"))
    assert [entry.path for entry in found.skipped] == [f"{path}:1", f"{path}:3"]
    assert found.notes == (
        "requests without images, left out: 1",
        "incomplete requests, left out: 1 (with 1 items that could be read)",
        "requests of which no item could be read, left out: 1",
    )


def test_a_request_list_gives_grids_and_fit_tokens(tmp_path):
    values = {"requests": [[[30, 40], [16, 16]]], "fit_tokens": [961]}
    found = traffic.read(written(tmp_path / "r.json", json.dumps(values)), SIZE)
    assert found.tokens_by_request == (364,)
    assert found.fit_tokens == (961,)


def test_builtin_profiles_are_drawn_by_seed_and_count():
    found = traffic.read("builtin:mix", SIZE, count=30, seed=5)
    assert (found.name, len(found.requests)) == ("mix", 30)
    assert found == traffic.read("builtin:mix", SIZE, count=30, seed=5)
    assert found != traffic.read("builtin:mix", SIZE, count=30, seed=6)
    assert "known bias" in found.notes[2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("builtin:servgen", "did you mean 'builtin:servegen'"),
        ("none/photos", "source 'none/photos' does not exist; give a folder of images"),
        ("servegen", "did you mean 'builtin:servegen'"),
    ],
)
def test_unknown_sources_say_what_to_give(source, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        traffic.read(source, SIZE)


def test_chats_without_any_image_say_so(tmp_path):
    line = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
    with pytest.raises(ValueError, match="requests without images, left out: 1"):
        traffic.read(written(tmp_path / "c.jsonl", line), SIZE)


def test_a_file_of_another_form_is_refused(tmp_path):
    with pytest.raises(ValueError, match="source must be a folder of images"):
        traffic.read(written(tmp_path / "a.txt", "hello"), SIZE)


def test_count_keeps_a_seeded_part_and_says_when_there_are_fewer(tmp_path):
    path = written(tmp_path / "t.csv", "tokens\n" + "\n".join(map(str, range(100, 200))))
    part = traffic.read(path, SIZE, count=10, seed=1)
    indices = [i.request for i in part.items]
    assert len(set(indices)) == 10
    assert indices == sorted(indices)
    assert part == traffic.read(path, SIZE, count=10, seed=1)
    assert (
        "200 requests were asked for, the source has 100"
        in traffic.read(path, SIZE, count=200).notes
    )
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        traffic.read(path, SIZE, count=0)


@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_a_split_parts_the_requests_without_loss(tmp_path, share):
    path = written(
        tmp_path / "t.csv",
        "width,height,arrival_s\n" + "".join(f"640,{n},{n}\n" for n in range(100, 160)),
    )
    whole = traffic.read(path, SIZE)
    fit, held_out = whole.split(share, seed=2)
    mine, theirs = ({i.request for i in side.items} for side in (fit, held_out))
    assert mine
    assert theirs
    assert not mine & theirs
    assert mine | theirs == set(range(60))
    assert [a - 100 for a in fit.arrivals_s] == [i.request for i in fit.items]
    assert whole.split(share, seed=2) == (fit, held_out)
    assert share != 0.5 or whole.split(share, seed=3) != (fit, held_out)


def test_a_split_needs_two_requests_and_a_share(tmp_path):
    one = traffic.read("builtin:coco", SIZE, count=1)
    with pytest.raises(ValueError, match="at least 2 requests, got 1"):
        one.split(0.5)
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        one.split(1)


def test_traffic_survives_json():
    found = traffic.read("builtin:mix", SIZE, count=5)
    assert codec.loads(Traffic, codec.dumps(found)) == found


def test_traffic_refuses_paths_that_do_not_match_its_requests():
    found = traffic.read("builtin:coco", SIZE, count=2)
    with pytest.raises(ValueError, match="paths must be parallel"):
        Traffic(name="x", source="x", encoder="x", requests=found.requests, paths=(("a",),))


def test_about_sums_up_the_requests():
    about = traffic.read("builtin:coco", SIZE, count=500).about()
    assert about.requests == about.items == 500
    assert {atom.tokens for atom in about.atoms[:2]} == {260, 300}


def test_notes_of_chats_account_for_every_line(tmp_path):
    photos(tmp_path, 1)
    urls = [["0.jpg"], ["none.jpg"], [], ["0.jpg", "none.jpg"], ["none.jpg", "none.jpg"]]
    contents = [[{"type": "image_url", "image_url": {"url": u}} for u in line] for line in urls]
    contents.append([{"type": "video_url", "video_url": {"url": "a.mp4"}}])
    lines = [json.dumps({"messages": [{"content": content}]}) for content in contents]
    found = traffic.read(written(tmp_path / "c.jsonl", "\n".join(lines)), SIZE)
    left = [int(re.search(r"left out: (\d+)", note)[1]) for note in found.notes]
    assert left == [1, 1, 3]
    assert len(found.requests) + sum(left) == len(lines)


def test_a_source_whose_name_is_too_long_is_said_with_its_start():
    with pytest.raises(ValueError, match="cannot be read: File name too long") as caught:
        traffic.read("x" * 5000, SIZE)
    assert len(str(caught.value)) < 200


def test_a_source_that_does_not_exist_is_no_matter_of_modality():
    with pytest.raises(ValueError, match=r"'nowhere\.txt' does not exist"):
        traffic.read("nowhere.txt", sizes.named("bge-m3"))


def test_a_folder_without_a_name_is_called_by_its_path(tmp_path, monkeypatch):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    monkeypatch.setattr(Path, "resolve", lambda self: Path("/"))
    assert traffic.read(tmp_path, SIZE).name == str(tmp_path)


def test_an_image_outside_the_folder_of_its_lines_names_the_way_out(tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    lines = tmp_path / "below" / "chats.jsonl"
    lines.parent.mkdir()
    part = {"type": "image_url", "image_url": {"url": f"file://{tmp_path}/a.png"}}
    lines.write_text(json.dumps({"messages": [{"content": [part]}]}), encoding="utf-8")
    with pytest.raises(ValueError, match="put the JSON lines into a folder above the images"):
        traffic.read(lines, SIZE)
