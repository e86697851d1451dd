"""Time to first token of the tiny model on the reference backend: which lines come, and that they fit together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from helpers import RULE, TINY, plan, reference
from helpers_cli import error, passes, photos, read_json

from encgraph import costs, first_token, loads, meters, sizes, store, strategies, ways
from encgraph.cli import answering
from encgraph.costs import Costs
from encgraph.encoders import inputs
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import ParityError
from encgraph.loads import Workload
from encgraph.model_runner import models
from encgraph.model_runner.runner import ModelRunner
from encgraph.records import Item, Modality, Plan
from encgraph.results import LEAST_OF_P99, Measurement
from encgraph.sizes import Grid
from encgraph.strategies import Strategy
from encgraph.systems import Setting
from encgraph.traffic import Traffic
from encgraph.ways import Graphed

Value = TypeVar("Value")
SMALL = Workload(
    concurrency=(1, 2), text_tokens=5, new_tokens=3, max_tokens=256, repeats=2, samples=2
)
WAYS = ["eager", "encoder_graphs", "all_graphs", "cache_warm"]
CLIP = sizes.item(Grid(2, 16, 16), RULE, modality=Modality.VIDEO)


def image(*side: int) -> Item:
    return sizes.item(Grid(1, *side), RULE)


def requests(*members: tuple[Item, ...]) -> Traffic:
    return Traffic(name="mine", source="mine", encoder=TINY.name, requests=members)


def setting() -> Setting:
    return reference(costs=costs.modelled(TINY), largest=64)


@pytest.fixture(scope="module")
def lines() -> list[Measurement]:
    traffic = requests((image(16, 16), image(8, 8)), (CLIP,), (image(40, 40),), (image(16, 16),))
    return first_token.run(traffic, setting(), graphed=Graphed(plan=plan(16, 64)), load=SMALL)


def test_every_way_has_a_line_a_batch_and_one_for_all(lines: list[Measurement]) -> None:
    found = [(m.strategy, m.numbers["concurrency_count"]) for m in first_token.summaries(lines)]
    assert found == [(way, count) for count in (1, 2) for way in WAYS]
    batches = [m for m in lines if m.request is not None]
    assert len(batches) == len(WAYS) * (3 + 1)  # three requests fit, one batch of two
    assert {m.traffic for m in lines} == {"mine"}
    assert {m.experiment for m in lines} == {"time_to_first_token-qwen3-vl-tiny"}
    assert {m.environment.gpu for m in lines} == {None}


def test_the_encoder_is_proven_in_every_way_before_it_is_timed(lines: list[Measurement]) -> None:
    proven = {m.strategy: m.numbers for m in lines if m.strategy.endswith("/proven")}
    assert set(proven) == {f"{way}/proven" for way in WAYS[:3]}
    for numbers in proven.values():
        assert numbers["proven_items_count"] >= 3
        assert numbers["error_over_allowed_ratio"] <= 1
    order = [m.strategy.endswith("/proven") for m in lines if m.strategy.startswith("eager")]
    assert order[0]


def test_a_wrong_encoder_is_named_and_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(runner: ModelRunner, items: Sequence[Input]) -> list[EncoderOutput]:
        outputs = encode(runner, items)
        if runner.gates.eager_only or runner.gates.decoder_graphs:
            return outputs
        return [replace(output, main=-output.main) for output in outputs]

    encode = ModelRunner.encode
    monkeypatch.setattr(ModelRunner, "encode", wrong)
    timed: list[list[Measurement]] = []
    with pytest.raises(ParityError, match=r"strategy 'encoder_graphs', request 1: item 0 differs"):
        first_token.run(
            requests((image(16, 16),), (image(8, 8),)),
            setting(),
            graphed=Graphed(plan=plan(64)),
            load=SMALL,
            keep=timed.append,
        )
    assert not any(m.latency for lines in timed for m in lines)


def comparison_of(strategy: Strategy, priced: Costs) -> ways.Comparison:
    return ways.Comparison(
        model=models.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32),
        traffic=requests((image(16, 16),)),
        setting=reference(costs=priced, largest=64),
        graphed=Graphed(plan=plan(16, 64), strategy=strategy),
        load=SMALL,
        environment=meters.environment("float32", "cpu"),
    )


def graphed_runner(strategy: Strategy, priced: Costs) -> ModelRunner:
    return comparison_of(strategy, priced).runner("encoder_graphs")


def test_graphs_pack_by_the_rule_of_their_strategy() -> None:
    dear = replace(costs.modelled(TINY), step_ms=1e6)
    items = [image(8, 8), image(4, 4)]
    for strategy, replayed in ((strategies.VLLM, 2), (strategies.ENCGRAPH_PLAIN, 0)):
        with graphed_runner(strategy, dear) as runner:
            assert runner.encoders is not None
            made = runner.encoders.packer(plan(16, 64))(items)
            assert sum(len(one.items) for one in made.bins) == replayed


def test_graphs_run_the_body_of_their_strategy() -> None:
    for strategy in (strategies.VLLM, strategies.ENCGRAPH_PLAIN):
        with graphed_runner(strategy, costs.modelled(TINY)) as runner:
            assert runner.encoders is not None
            encoder, capacity = runner.encoders.encoder, plan(16).graphs[0]
            buffers = encoder.buffers(capacity, torch.device("cpu"), torch.float32)
            assert ("offsets" in buffers) == (strategy.metadata == "host")
            assert ("attention" in buffers) == (strategy.slabs == "shared")


def test_eager_runs_the_strategys_body_too_where_that_is_not_the_plain_one() -> None:
    compiled = comparison_of(
        replace(strategies.ENCGRAPH_PLAIN, compiled=True), costs.modelled(TINY)
    )
    assert compiled.ways == ("eager", "eager_same_body", "encoder_graphs", "all_graphs")
    for way in compiled.ways:
        with compiled.runner(way) as runner:
            assert runner.encoders is not None
            assert runner.encoders.encoder.spec.compiled is (way != "eager")
            assert runner.gates.eager_only is way.startswith("eager")


def test_a_run_cut_short_has_every_concurrency_and_its_batches_were_kept_as_they_came() -> None:
    kept: list[list[Measurement]] = []

    def three(batches: Iterable[Value], about: str) -> Iterator[Value]:
        return islice(batches, 3)

    made = first_token.run(
        requests(*[(image(16, 16),)] * 4),
        setting(),
        graphed=Graphed(plan=plan(64)),
        load=SMALL,
        progress=three,
        keep=kept.append,
    )
    found = {
        way: [
            (m.numbers["concurrency_count"], m.request)
            for m in made
            if m.strategy == way and m.request is not None
        ]
        for way in WAYS
    }
    assert list(found.values()) == [[(1, 0), (2, 0), (1, 1)]] * len(WAYS)
    counts = [[m.latency.samples for m in first_token.summaries(one)[:: len(WAYS)]] for one in kept]
    assert [c for c in counts if c] == [[1], [1, 1], [2, 1], [2, 1]]  # the last with the jitter
    assert kept[-1] == made


def test_batches_go_by_their_first_request_and_miss_none() -> None:
    order = loads.order(37, (1, 4, 16))
    starts = [count * index for count, index in order]
    assert starts == sorted(starts)
    assert len(set(order)) == len(order) == 37 + 9 + 2
    assert {count for count, _ in order[:3]} == {1, 4, 16}


def test_the_stages_make_up_the_first_token(lines: list[Measurement]) -> None:
    for line in [m for m in lines if m.request is not None]:
        numbers = line.numbers
        stages = sum(numbers[name] for name in first_token.STAGES)
        assert stages > 0
        assert 0 < numbers["encode_share_ratio"] < 1
        assert numbers["decode_ms"] > 0
    for line in first_token.summaries(lines):
        assert line.latency is not None
        assert line.latency.mean_ms == pytest.approx(line.numbers["first_token_ms"])


def test_a_warm_cache_leaves_the_encoder_little(lines: list[Measurement]) -> None:
    share = {
        m.strategy: m.numbers["encode_share_ratio"]
        for m in first_token.summaries(lines)
        if m.numbers["concurrency_count"] == 1
    }
    assert share["cache_warm"] < share["all_graphs"] / 2


def test_captures_are_told_by_part(lines: list[Measurement]) -> None:
    graphs = {m.strategy: m.numbers["graphs_count"] for m in lines if "graphs_count" in m.numbers}
    assert graphs == {
        "encoder_graphs/encoder": 2,
        "encoder_graphs/decoder": 0,
        "all_graphs/encoder": 2,
        "all_graphs/decoder": 2,
    }


def test_jitter_is_of_a_replay_and_a_fallback_alone_and_in_turn(lines: list[Measurement]) -> None:
    [line] = [m for m in lines if m.strategy == first_token.JITTER]
    ways = ("replay_alone", "replay_alternating", "fallback_alone", "fallback_alternating")
    assert set(line.numbers) == {f"{way}_{at}_ms" for way in ways for at in ("p50", "p99")}
    assert min(line.numbers.values()) > 0


def test_the_second_extreme_is_just_over_every_budget_and_fits_the_prompt() -> None:
    small, over = (sizes.item(g, RULE).tokens for g in loads.extremes(plan(64), TINY, SMALL))
    assert small <= 64 < over <= SMALL.room
    assert loads.extremes(plan(256), TINY, SMALL) == ()
    assert loads.extremes(Plan(graphs=(), encoder=TINY.name), TINY, SMALL) == ()


def test_a_clip_has_a_timestamp_a_step_and_the_tokens_that_are_reckoned_with() -> None:
    config = models.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32).config
    values = inputs.synthetic([CLIP, image(16, 16)], size=TINY)
    made = loads.prompt(values, config, SMALL, seed=3)
    assert len(made.token_ids) == loads.tokens([CLIP, image(16, 16)]) + SMALL.text_tokens
    assert len(made.keys) == 2
    assert loads.prompt(values, config, SMALL, seed=3).token_ids == made.token_ids
    hashed = Workload(is_hashed=True, text_tokens=5)
    assert loads.prompt(values, config, hashed, seed=3).keys == ()


def test_too_few_requests_for_a_batch_and_no_batch_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"concurrency must be at most 1, got 2: 1 of 2 requests fit 256"
    ):
        loads.fitting(requests((image(16, 16),), (image(40, 40),)), SMALL)
    with pytest.raises(ValueError, match=r"concurrency must be 1 or more requests, got \(\)"):
        Workload(concurrency=())


def test_the_command_writes_the_lines_and_says_whose_latencies_they_are(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos", *[(64, 64), (256, 320)] * 2)
    command = ("bench", folder, "--encoder", "qwen3-vl-tiny", "--first-token")
    command = (*command, "--backend", "reference", "--largest", "128", "--out", tmp_path)
    said = passes(*command, "--concurrency", "1,2")
    assert "latencies are the reference backend's on a CPU: no statement about a card" in said
    assert "jitter: slowest first token of a replayed prompt" in said
    assert max(answering.CPU_SAMPLES, answering.CARD_SAMPLES) < LEAST_OF_P99
    found = store.load(None, "time_to_first_token-qwen3-vl-tiny", root=tmp_path)
    assert len(first_token.summaries(found)) == 2 * len(WAYS)
    made = read_json(*command, "--concurrency", "2")
    assert [m["strategy"] for m in made["summaries"]] == WAYS
    assert Path(made["file"]) == store.path(None, found[0].experiment, root=tmp_path)
    assert len(store.read(Path(made["file"]))) < len(found)


def test_what_the_command_cannot_measure_is_refused_in_a_line() -> None:
    command = ("bench", "builtin:servegen", "--first-token", "--backend", "reference", "--encoder")
    assert "known for encoders" in error(*command, "clip-tiny")
    assert "of ['qwen3-vl-tiny'] alone" in error(*command, "qwen3-vl-8b")
    assert "1,4,16, got '1,,2'" in error(*command, "qwen3-vl-tiny", "--concurrency", "1,,2")
    assert "got '0'" in error(*command, "qwen3-vl-tiny", "--concurrency", "0")


def test_unless_given_batches_are_no_larger_than_the_requests_that_fit() -> None:
    item, room = sizes.item_of(64, TINY.rule), sizes.item_of(16384, TINY.rule)
    few, none = [(item,), (item,), (item,), (room,)], [(room,)]
    assert answering.concurrency(None, few, on_card=False) == (1,)
    assert answering.concurrency(None, [(item,)] * 4, on_card=False) == (1, 4)
    assert answering.concurrency(None, [(item,)] * 16, on_card=True) == (1, 4, 16)
    assert answering.concurrency("2,16", few, on_card=False) == (2, 16)
    assert answering.concurrency(None, none, on_card=True) == (1,)  # refused by what does not fit


def test_the_help_says_what_is_not_of_the_first_token() -> None:
    told = " ".join(passes("bench", "--help").split())
    assert "eager_varlen, vllm, encgraph_plain" in told
    assert "not by a recorded curve. Needs a card." in told


def test_jitter_that_was_not_measured_is_said() -> None:
    assert answering.jitter([]).startswith("jitter: not measured")
