"""Tables of texts and audio: tokens are lengths, sides are none, and what is too long is skipped."""

import pytest

from encgraph import sizes, traffic


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_images_are_no_traffic_for_a_text_encoder():
    with pytest.raises(ValueError, match=r"bge-m3 takes text, and 'builtin:servegen' holds images"):
        traffic.read("builtin:servegen", sizes.named("bge-m3"))


def test_tokens_of_a_table_are_the_lengths_of_texts(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("tokens\n12\n400\n")
    read = traffic.read(str(table), sizes.named("bge-m3"))
    assert [item.patches for item in read.items] == [12, 400]
    assert {item.modality for item in read.items} == {"text"}
    assert read.notes == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bge-m3", "bge-m3 takes at most 8,192 text tokens an item, got 9,000"),
        (
            "whisper-large-v3",
            "whisper-large-v3 takes at most 1,500 audio tokens an item, got 9,000",
        ),
    ],
)
def test_an_item_longer_than_the_encoder_takes_is_skipped_with_its_line(tmp_path, name, reason):
    table = written(tmp_path / "texts.csv", "tokens\n12\n9000\n13\n")
    found = traffic.read(table, sizes.named(name))
    assert [i.request for i in found.items] == [0, 1]
    assert [(entry.path, entry.reason) for entry in found.skipped] == [(f"{table}:3", reason)]
    assert "requests of which no item could be read, left out: 1" in found.notes


def test_a_table_of_texts_that_are_all_too_long_says_so(tmp_path):
    table = written(tmp_path / "texts.csv", "tokens\n9000\n")
    with pytest.raises(ValueError, match=r"holds no text that can be read; 1 skipped, the first"):
        traffic.read(table, sizes.named("bge-m3"))


@pytest.mark.parametrize("name", ["bge-m3", "whisper-large-v3"])
@pytest.mark.parametrize("file", ["t.csv", "T.CSV"])
def test_sides_are_no_lengths_of_texts_or_audio(tmp_path, name, file):
    table = written(tmp_path / file, "width,height\n100,200\n")
    with pytest.raises(ValueError, match=r"holds images; give a CSV whose column tokens has the"):
        traffic.read(table, sizes.named(name))


@pytest.mark.parametrize(
    ("name", "tokens", "said"),
    [
        ("bge-m3", 7, "the tokens count, width, height are not read"),
        ("qwen3-vl-tiny", 72, "the sides count, tokens are not read"),
    ],
)
def test_a_table_of_sides_and_tokens_says_which_count(tmp_path, name, tokens, said):
    table = written(tmp_path / "t.csv", "width,height,tokens\n100,200,7\n")
    found = traffic.read(table, sizes.named(name))
    assert [i.tokens for i in found.items] == [tokens]
    assert said in found.notes[0]


def test_tokens_that_fill_a_window_of_audio_are_said_to(tmp_path):
    table = written(tmp_path / "t.csv", "tokens\n7\n1500\n")
    found = traffic.read(table, sizes.named("whisper-large-v3"))
    assert {i.tokens for i in found.items} == {1500}
    assert found.notes == (
        "every audio item of whisper-large-v3 has 1,500 tokens: 3000 tokens in all for 1507 asked",
    )
