"""How long a run on a CPU will be, and which item takes most of it, said before it starts."""

import pytest
import torch
from helpers import TINY, reference

from encgraph import sizes, traffic
from encgraph.cli import forecast
from encgraph.cli.forecast import Pace
from encgraph.encoders import registry
from encgraph.records import Item


def drawn(*tokens: int, name: str = "qwen3-vl-tiny", paths: bool = False) -> traffic.Traffic:
    rule = sizes.named(name).rule
    requests = tuple((sizes.item_of(n, rule),) for n in tokens)
    files = tuple((f"{n}.png",) for n in tokens)
    return traffic.Traffic(
        name="made", source="made", encoder=name, requests=requests, paths=files if paths else ()
    )


def test_the_largest_item_is_named_by_its_file_or_its_place() -> None:
    assert forecast.largest(drawn(64, 900, 65, paths=True), TINY)[0] == "'900.png'"
    where, item = forecast.largest(drawn(64, 65, 900), TINY)
    assert (where, item.tokens) == ("item 1 of request 3", 900)


def test_a_huge_item_is_named_with_what_it_costs_before_it_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    huge = drawn(64, 16384)
    seen: list[Item] = []

    def eager(batch: list) -> object:  # type: ignore[type-arg]
        seen.extend(value.item for value in batch)
        return encoder.eager(batch)

    forecast.say(eager, huge, reference(), passes=10_000)
    said = capsys.readouterr().err
    assert said.startswith("this run takes about ")
    assert "the largest item (item 1 of request 2, 16,384 tokens) takes about " in said
    assert max(item.tokens for item in seen) <= 1100  # the huge one itself was not run


def test_short_runs_say_nothing_and_small_requests_cost_at_least_a_launch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    forecast.say(lambda batch: None, drawn(64), reference(), passes=1)
    assert capsys.readouterr().err == ""
    pace = Pace(floor_s=0.5, flop_s=1e-30)
    assert pace.seconds(reference(), drawn(64).requests[0]) == 0.5


def test_a_request_of_one_long_segment_takes_more_than_its_share_of_tokens() -> None:
    short, long = forecast.shares(drawn(64, 16_384), TINY)
    assert long > 1.5 * 256 * short


@pytest.mark.parametrize("name", ["qwen3-vl-tiny", "siglip-tiny", "internvl-tiny", "whisper-tiny", "bert-tiny"])  # fmt: skip
def test_every_modality_is_paced(name: str) -> None:
    size = sizes.named(name)
    encoder = registry.named(name, device="cpu", dtype=torch.float32)
    pace = forecast.paced(encoder.eager, reference(size=size))
    assert pace.floor_s > 0
    assert pace.flop_s > 0
