"""What a second comparison does to the first one's file: said or refused before anything is measured."""

from dataclasses import replace
from pathlib import Path

from helpers_cli import TINY, error, invoke, photos, read_json

from encgraph import store

SIDES = ((64, 64), (64, 128), (96, 96))
REFERENCE = (*TINY, "--backend", "reference", "--largest", "128")


def bench(tmp_path: Path) -> tuple[object, ...]:
    """A comparison of a folder, into a folder; the strategies are to follow."""
    folder = photos(tmp_path / "My Photos", *SIDES)
    return ("bench", folder, *REFERENCE, "--out", tmp_path, "--strategies")


def test_a_run_that_measures_all_again_replaces_its_encoder_and_says_so_before(
    tmp_path: Path,
) -> None:
    command = bench(tmp_path)
    file = Path(read_json(*command, "encgraph_plain")["file"])
    assert file == store.path(None, "bench-my-photos", root=tmp_path)
    first = store.read(file)
    other = [replace(m, encoder="qwen3-vl-8b") for m in first]
    store.write(file, [*first, *other])
    said = invoke(*command, "eager_varlen,encgraph_plain").stderr.splitlines()
    assert said[1].startswith(
        "will replace in bench-my-photos.jsonl: encgraph_plain of qwen3-vl-tiny, measured 20"
    )
    after = store.read(file)
    mine = [m for m in after if m.encoder == "qwen3-vl-tiny"]
    assert {m.strategy for m in mine} == {"eager_varlen", "encgraph_plain"}
    assert not [m for m in mine if m in first]
    assert {m.strategy for m in after if m.encoder == "qwen3-vl-8b"} == {"encgraph_plain"}


def test_a_run_that_would_lose_strategies_is_refused_before_it_measures(tmp_path: Path) -> None:
    command = bench(tmp_path)
    file = Path(read_json(*command, "eager_varlen,encgraph_plain")["file"])
    before = file.read_bytes()
    said = error(*command, "encgraph_plain,vllm")
    assert said.startswith(f"{str(file)!r} has eager_varlen of qwen3-vl-tiny, measured 20")
    assert said.endswith("; name them in --strategies too, since times of two runs are no "
                         "comparison, or choose another --out")  # fmt: skip
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_read_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    file = store.path(None, "bench-my-photos", root=tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text("no measurement\n")
    assert error(*bench(tmp_path), "encgraph_plain").startswith(f"{file}:1: ")
    assert file.read_text() == "no measurement\n"
