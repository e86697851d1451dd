"""Measurements come back from their files, and a bad line is named by file and number."""

from dataclasses import replace
from pathlib import Path

import pytest

from encgraph import codec, datadir, store
from encgraph.records import Capacity, Route
from encgraph.results import Environment, Latency, Measurement

CAPACITY = Capacity(tokens=64, patches=256, items=2, segments=2, longest_segment=256, frames=2)


@pytest.fixture
def measured(environment: Environment) -> tuple[Measurement, ...]:
    first = Measurement(
        experiment="bench",
        encoder="qwen3-vl-8b",
        environment=environment,
        traffic="servegen",
        request=2,
        route=Route.REPLAY,
        latency=Latency.of([2.0, 4.0], clock="wall"),
        numbers={"capture_s": 0.5},
    )
    return (first, replace(first, request=10, latency=None), replace(first, request=9))


def test_what_is_written_is_loaded(tmp_path: Path, measured: tuple[Measurement, ...]) -> None:
    store.write(store.path("NVIDIA H200", "bench", root=tmp_path), measured)
    found = store.load("h200", "bench", root=tmp_path)
    assert sorted(m.request or 0 for m in found) == [2, 9, 10]
    assert set(map(codec.dumps, found)) == set(map(codec.dumps, measured))
    assert store.load("NVIDIA H200", "bench", root=tmp_path) == found


def test_the_order_of_a_file_does_not_depend_on_how_measurements_came(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    a, b, c = measured
    small = replace(a, request=None, capacity=CAPACITY)
    large = replace(a, request=None, capacity=replace(CAPACITY, tokens=1000))
    for name, given in (("x", (a, b, c, small, large)), ("y", (large, c, small, b, a))):
        store.write(tmp_path / name, given)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    found = store.read(tmp_path / "x")
    assert [m.request for m in found] == [None, None, 2, 9, 10]
    assert [m.capacity.tokens for m in found[:2] if m.capacity] == [64, 1000]


def test_writing_replaces_and_leaves_nothing_else(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    file = tmp_path / "deep" / "bench.jsonl"
    store.write(file, measured)
    store.write(file, measured[:1])
    assert store.read(file) == measured[:1]
    assert list(file.parent.iterdir()) == [file]


def test_appending_adds_in_the_order_given(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    file = tmp_path / "new" / "bench.jsonl"
    store.append(file, measured[:2])
    store.append(file, measured[2:])
    assert store.read(file) == measured


def test_a_line_that_an_interrupted_run_left_unfinished_is_named_and_not_glued_to_the_next(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    file = tmp_path / "bench.jsonl"
    store.append(file, measured[:1])
    with file.open("a") as stream:
        stream.write('{"experiment": "ben')
    store.append(file, measured[1:])
    with pytest.raises(ValueError, match=r"bench\.jsonl:2: "):
        store.read(file)
    lines = file.read_text().splitlines()
    assert [codec.loads(Measurement, line) for line in lines[2:]] == list(measured[1:])


def test_a_bad_line_is_named_by_file_and_number(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    file = store.path("h200", "bench", root=tmp_path)
    store.write(file, measured)
    lines = file.read_text().splitlines()
    lines[1] = lines[1].replace('"wall"', '"sundial"').replace('"encoder"', '"encodre"')
    file.write_text("\n" + "\n".join(lines))
    with pytest.raises(ValueError, match=r"bench\.jsonl:3: not a valid Measurement: .*encodre"):
        store.load("h200", "bench", root=tmp_path)


def test_a_missing_experiment_says_which_there_are(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    with pytest.raises(ValueError, match="on 'h200'; measured so far: nothing"):
        store.load("h200", "curve", root=tmp_path)
    store.write(store.path("h200", "bench", root=tmp_path), measured)
    store.write(store.path("NVIDIA A100-SXM4-80GB", "replay_curve", root=tmp_path), measured)
    with pytest.raises(
        ValueError,
        match=r"of 'curve' on 'h200'; measured so far: a100-sxm4-80gb/replay_curve, h200/bench; ",
    ):
        store.load("h200", "curve", root=tmp_path)


def test_cards_and_experiments_are_listed_in_order(
    tmp_path: Path, measured: tuple[Measurement, ...]
) -> None:
    assert store.gpus(root=tmp_path) == store.experiments("h200", root=tmp_path) == ()
    for gpu, name in (("h200", "b"), ("h200", "a"), (None, "a")):
        store.write(store.path(gpu, name, root=tmp_path), measured)
    assert store.gpus(root=tmp_path) == ("cpu", "h200")
    assert store.experiments("NVIDIA H200", root=tmp_path) == ("a", "b")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", ".hidden", "two words"])
def test_an_experiment_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="experiment must be"):
        store.path("h200", name, root=tmp_path)


def test_a_gpu_without_a_letter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"card name .* got '../..'"):
        store.slug("../..")


def test_every_recorded_file_reads_and_lies_where_it_says() -> None:
    assert store.root() == datadir.root()
    for gpu in store.gpus():
        for experiment in store.experiments(gpu):
            for m in store.load(gpu, experiment):
                assert (store.slug(m.environment.gpu), m.experiment) == (gpu, experiment)


def test_a_frame_has_a_row_a_measurement_and_flat_columns(
    measured: tuple[Measurement, ...],
) -> None:
    pytest.importorskip("pandas", reason="needs pandas: pip install 'encgraph[lab]'")
    frame = store.to_frame(measured)
    assert frame["request"].tolist() == [2, 10, 9]
    assert frame["latency.mean_ms"].fillna(-1).tolist() == [3.0, -1, 3.0]
    assert frame["environment.gpu"].unique().tolist() == ["NVIDIA H200"]
    assert frame["capture_s"].tolist() == [0.5] * 3
    assert "memory" not in frame.columns
    assert len(store.to_frame([])) == 0


@pytest.mark.parametrize(
    "use", [store.read, lambda f: store.write(f, []), lambda f: store.append(f, [])]
)
def test_a_name_in_place_of_a_path_is_refused_with_what_to_write(use) -> None:
    with pytest.raises(TypeError, match=r"must be a pathlib.Path, got 'a.jsonl'; give it as Path"):
        use("a.jsonl")
