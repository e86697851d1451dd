"""Ranks in real processes started by torchrun, and what needs no second rank."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import TINY, batch, close, plan, tiny
from rank_cases import CASES, MIXED
from torch.distributed import HashStore

from encgraph import balance, costs
from encgraph.parallel import contents, gathering, identity, ranks
from encgraph.parallel.notices import Board, Notice, RankError
from encgraph.parallel.sharded import Lazy, ShardedRunner
from encgraph.runner import EncoderRunner

HERE = Path(__file__).parent
FEW = (
    "every_number_of_items",
    "one_giant_among_tiny_items",
    "without_graphs",
    "a_failing_rank_fails_all_alike",
    "different_batches_are_refused",
    "other_pixels_of_the_same_sizes_are_refused",
    "different_buffers_are_refused",
)
KILLED = "a_killed_rank_is_named"
LAUNCHES = {("cpu", 2): FEW, ("cpu", 3): tuple(CASES), ("cpu", 4): FEW, ("cuda", 2): tuple(CASES)}
COSTS = costs.modelled(TINY)


FEW_CARDS = torch.cuda.device_count() < 2
ON_CARDS = [
    pytest.mark.cuda,
    pytest.mark.skipif(FEW_CARDS, reason="needs two NVIDIA GPUs for two ranks"),
]
SIZES = [
    pytest.param(device, size, marks=ON_CARDS if device == "cuda" else [])
    for device, size in LAUNCHES
]


@pytest.mark.parametrize(("device", "size"), SIZES)
def test_every_case_holds_on_every_rank(device, size, tmp_path):
    """One launch for all cases: starting the processes takes longer than most of them.

    Ranks print each case as it begins and ends: `-s` shows where a launch is that does not end.
    """
    cases = LAUNCHES[device, size]
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    script = (str(HERE / "rank_cases.py"), str(tmp_path), device, *cases)
    subprocess.run(
        [*command, "--nproc-per-node", str(size), *script],
        timeout=420,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    killed = {(size - 1, KILLED)} if KILLED in cases else set()
    expected = {(rank, case) for rank in range(size) for case in cases} - killed
    found = {
        (rank, case): text
        for rank, file in enumerate(tmp_path / f"{rank}.json" for rank in range(size))
        if file.exists()
        for case, text in json.loads(file.read_text()).items()
    }
    assert {at: text for at, text in found.items() if text != "as it should be"} == {}
    assert set(found) == expected


def alone(*budgets: int, **options) -> ShardedRunner:
    runner = EncoderRunner(encoder=tiny(), plan=plan(*budgets), backend="reference")
    assign = balance.rule("longest_first", COSTS)
    return ShardedRunner(runner=runner, ranks=ranks.connect("cpu"), assign=assign, **options)


@pytest.mark.parametrize("gather", ["padded", "uneven"])
def test_one_rank_needs_no_process_group(gather):
    with alone(16, 64, gather=gather) as one:
        one.capture()
        inputs = batch(MIXED, one.runner.encoder)
        expected = one.runner.encoder.eager(inputs)
        for mine, eager in zip(one.execute(inputs), expected, strict=True):
            assert close(mine, eager, one.runner.encoder)
        assert one.execute([]) == []
        assert one.last.sent_bytes == 0
    assert not torch.distributed.is_initialized()


def test_one_rank_raises_the_error_itself():
    with alone(16) as one, pytest.raises(TypeError, match="item 0 must be an Input or Lazy, got"):
        one.execute([torch.zeros(3)])


def test_a_lazy_item_of_another_size_is_named():
    with alone(16) as one:
        small, large = batch([(4, 4), (8, 8)], one.runner.encoder)
        lying = Lazy(item=small.item, load=lambda: large)
        with pytest.raises(ValueError, match="item 1 must have the 4 tokens it was planned with"):
            one.execute([small, lying])


def test_gather_and_ownership_are_checked():
    with pytest.raises(ValueError, match=r"gather must be one of \['padded', 'uneven'\], got 'x'"):
        alone(gather="x")
    with pytest.raises(ValueError, match="ownership must be one of"):
        alone(ownership="mine")


def test_connect_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="device must be one of"):
        ranks.connect("tpu")
    with pytest.raises(ValueError, match="time_limit_s must be positive, got 0"):
        ranks.connect("cpu", time_limit_s=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a card lacks")
def test_a_process_without_a_card_says_what_to_do():
    with pytest.raises(ValueError, match=r"needs a card of its own, this host has 0; .*'cpu'"):
        ranks.connect("cuda")


@pytest.mark.skipif(torch.distributed.is_nccl_available(), reason="NCCL is there")
def test_missing_nccl_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="ranks on cards need NCCL"):
        ranks._device("cuda", 0, 2)


def test_ranks_that_torchrun_did_not_start_say_so(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match=r"RANK, .*start them with torchrun"):
        ranks.connect("cpu")


def board(store: HashStore, rank: int, size: int = 2) -> Board:
    return Board(store=store, rank=rank, size=size, time_limit_s=0.05)


def test_a_silent_rank_is_named_and_ends_the_board():
    mine = board(HashStore(), 0, 3)
    named = "rank 1, 2 of 3 said nothing within 0.05 s"
    with pytest.raises(RankError, match=named):
        mine.exchange(Notice(said="here"))
    with pytest.raises(RankError, match=named):
        mine.exchange(Notice(said="here"))


def test_a_board_forgets_the_turns_all_have_read():
    store = HashStore()
    store.set("0/1", '{"said": "a", "failure": null}')
    store.set("1/1", '{"said": "b", "failure": null}')
    mine = board(store, 0)
    assert [n.said for n in mine.exchange(Notice(said="x"))] == ["x", "a"]
    assert [n.said for n in mine.exchange(Notice(said="y"))] == ["y", "b"]
    assert not store.check(["0/0"])
    assert store.check(["1/0"])


def test_padded_and_uneven_rows_lie_where_they_should():
    like = torch.empty(0, dtype=torch.bfloat16)
    padded = gathering.padded_rows([2, 0, 3], 2, width=4, like=like)
    uneven = gathering.uneven_rows([2, 0, 3], 2, width=4, like=like)
    assert padded.whole.shape == (9, 4)
    assert uneven.whole.shape == (5, 4)
    for rows in (padded, uneven):
        assert [len(part) for part in rows.parts] == [2, 0, 3]
        assert rows.mine.dtype == torch.bfloat16
        assert all(p.untyped_storage().data_ptr() == rows.whole.data_ptr() for p in rows.parts)
    assert padded.parts[2].storage_offset() == 6 * 4


def test_facts_tell_weights_apart_by_one_value():
    encoder = tiny()
    before = identity.weights_digest(encoder.module)
    assert identity.weights_digest(tiny().module) == before
    with torch.no_grad():
        encoder.module.blocks[3].norm2.weight[0] += 1e-6
    assert identity.weights_digest(encoder.module) != before


def test_facts_tell_buffers_apart_whatever_their_dtype():
    module = torch.nn.BatchNorm1d(4)
    module.register_buffer("turns", torch.ones(3, dtype=torch.complex64), persistent=False)
    seen = {identity.weights_digest(module)}
    for edit in (module.running_mean, module.num_batches_tracked, module.turns):
        edit.add_(1)
        seen.add(identity.weights_digest(module))
    module.turns.add_(1j)
    seen.add(identity.weights_digest(module))
    assert len(seen) == 5


def test_pixels_are_compared_where_two_ranks_hold_them_on_the_host():
    made, others = (batch([(4, 4), (8, 8)], tiny(), seed=seed) for seed in (0, 1))
    lazy = Lazy(item=made[1].item, load=lambda: made[1])
    strided = replace(made[1], pixels=made[1].pixels.t().contiguous().t())
    near = [replace(v, pixels=v.pixels + 0.01) for v in made]
    unread = ([others[0], lazy], [made[0], others[1]], [made[0], lazy], [made[0], strided])
    contents.check_alike([contents.sampled(each) for each in (near, made, *unread[2:])])
    with pytest.raises(RankError, match="item 1 has other pixels on rank 2 than on rank 0"):
        contents.check_alike([contents.sampled(each) for each in (made, unread[2], unread[1])])
    with pytest.raises(RankError, match="item 0 has other pixels on rank 1 than on rank 0"):
        contents.check_alike([contents.sampled(each) for each in (made, unread[0])])


def test_pixels_that_are_not_finite_are_alike_where_they_are_the_same():
    value = float("nan")
    broken = [replace(v, pixels=torch.full_like(v.pixels, value)) for v in batch([(4, 4)], tiny())]
    other = batch([(8, 8), (4, 4)], tiny())
    contents.check_alike(
        [
            contents.sampled([*broken, *other]),
            contents.sampled([*broken, Lazy(item=other[0].item, load=lambda: other[0]), other[1]]),
        ]
    )
    with pytest.raises(RankError, match="item 0 has other pixels"):
        contents.check_alike([contents.sampled(broken), contents.sampled(other[1:])])


def test_differences_name_fact_and_rank():
    facts = [{"dtype": "float32", "plan": "a"}, {"dtype": "float32", "plan": "a"}]
    assert identity.differences(facts) == []
    assert identity.differences([*facts, {"dtype": "bfloat16", "plan": "a", "more": "x"}]) == [
        "dtype: rank 0 has float32, rank 2 has bfloat16",
        "more: rank 0 has None, rank 2 has x",
    ]
