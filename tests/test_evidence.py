"""What notebooks draw from, read and measured again; the card is stood in for by the reference backend."""

from pathlib import Path

import pytest
import torch

from encgraph import cards, datadir, evidence, figures, readings, sizes, store, systems, traffic
from encgraph.regimes import SIZE_EDGES

STRATEGIES = {"eager_varlen", "vllm", "encgraph_plain"}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No card and no time: three strategies on record, and every limit is over before it begins."""
    data = datadir.root()
    (tmp_path / "traffic").symlink_to(data / "traffic")
    lines = [m for m in store.load("h200", "bench-servegen") if m.strategy in STRATEGIES]
    store.write(tmp_path / "measurements" / "h200" / "bench-coco.jsonl", lines)
    monkeypatch.setattr(datadir, "root", lambda: tmp_path)
    monkeypatch.setattr(evidence, "_card", lambda: ("cpu", "reference"))
    monkeypatch.setattr(evidence, "FIT_REQUESTS", 50)
    monkeypatch.setattr(evidence, "REQUESTS", 20)
    monkeypatch.setattr(evidence, "LARGEST", 512)
    monkeypatch.setattr(evidence, "SECONDS", 0.0)
    monkeypatch.setattr(evidence, "CURVE_SECONDS", 0.0)


@pytest.mark.usefixtures("slow")
def test_a_bench_measured_again_ends_by_time_and_keeps_what_was_timed() -> None:
    lines = evidence.bench("coco", encoder="qwen3-vl-tiny", again=True)
    assert readings.summaries(lines).keys() == STRATEGIES
    for line in readings.summaries(lines).values():
        assert line.encoder == "qwen3-vl-tiny"
        assert line.latency is not None and line.latency.samples == evidence.LEAST
    assert f"{evidence.LEAST} requests of coco" in readings.source(lines)
    assert figures.ladder(lines).data


@pytest.mark.usefixtures("slow")
def test_a_curve_recorded_again_ends_by_time_and_is_one_to_draw() -> None:
    size = sizes.named("qwen3-vl-tiny")
    points = evidence.curve(size.name, again=True)
    budgets = {m.capacity.tokens for m in points if m.route == "replay" and m.capacity}
    assert budgets == {64, 128, 256, 1024}  # whole executes are of 1,024 tokens
    assert evidence.kernels(points)
    assert figures.replay_cost(points, cards.price(size)).data and figures.spread(points).data


def test_a_few_requests_are_of_every_size_and_none_is_lost() -> None:
    drawn = traffic.read("builtin:servegen", sizes.named("qwen3-vl-8b"), count=300)
    ordered = evidence._each_size_first(drawn)
    small, middle, large = ordered.tokens_by_request[: evidence.LEAST]
    assert small <= SIZE_EDGES[0] < middle <= SIZE_EDGES[1] < large
    assert sorted(ordered.tokens_by_request) == sorted(drawn.tokens_by_request)
    assert max(drawn.tokens_by_request[:100]) <= SIZE_EDGES[1]  # else the order would not matter


def test_measuring_again_without_a_card_says_what_to_do() -> None:
    if torch.cuda.is_available():
        pytest.skip("has a card")
    for again in (evidence.bench, evidence.curve):
        name = "servegen" if again is evidence.bench else "qwen3-vl-8b"
        with pytest.raises(ValueError, match=r"needs a CUDA card .* set REMEASURE = False"):
            again(name, again=True)


def test_every_strategy_measured_again_is_planned_by_the_curve_of_its_own_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from encgraph import bench, strategies

    given = []
    monkeypatch.setattr(evidence, "_card", lambda: ("cpu", "reference"))
    monkeypatch.setattr(bench, "run", lambda *values, **options: given.append(values) or [])
    evidence.bench("servegen", again=True)
    [(_, chosen, setting)] = given
    assert {s.name for s in chosen} >= {"encgraph", "encgraph_plain", "vllm"}
    fused, plain = setting.price(strategies.ENCGRAPH), setting.price(strategies.ENCGRAPH_PLAIN)
    assert fused == systems.prices(setting.size, on="h200")(strategies.ENCGRAPH)
    assert plain == setting.costs != fused


def test_a_statement_that_fails_is_an_error_on_the_record_and_a_warning_elsewhere() -> None:
    evidence.claims({"water is wet": True})
    said = {"water is wet": True, "fire is wet": False}
    with pytest.raises(AssertionError, match=r"does not bear out that fire is wet$"):
        evidence.claims(said)
    with pytest.warns(UserWarning, match="not so in what was measured here: fire is wet"):
        evidence.claims(said, again=True)
