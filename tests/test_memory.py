"""Memory: what is free, and graphs that would not fit, refused before any is made."""

import re

import pytest
import torch
from helpers import TINY, plan, reference

from encgraph import graphs, memory, strategies, systems
from encgraph.encoders import registry
from encgraph.errors import CaptureError
from encgraph.records import Plan

CPU = torch.device("cpu")


@pytest.mark.parametrize("slabs", ["shared", "private"])
def test_graphs_that_do_not_fit_are_refused_by_name_before_any_is_made(slabs: str) -> None:
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    budgets = plan(64, 256)
    with graphs.capture(encoder, budgets, backend="reference", slabs=slabs) as made:
        held = made.memory.slabs_bytes
    said = (
        r"budgets of up to 256 tokens need about .* MiB on cpu \(slabs .*, pool .*\), 0 MiB are "
        "free; plan smaller or fewer budgets"
    )
    with pytest.raises(CaptureError, match=said):
        memory.check_room(encoder, budgets, TINY, slabs=slabs, free=lambda device: 0)
    with pytest.raises(CaptureError):  # slabs alone leave nothing for the pool
        memory.check_room(encoder, budgets, TINY, slabs=slabs, free=lambda device: held)
    memory.check_room(encoder, budgets, TINY, slabs=slabs, free=lambda device: 2 * held)


def test_slabs_are_predicted_to_the_byte() -> None:
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    budgets = plan(64, 256)
    for slabs in ("shared", "private"):
        with graphs.capture(encoder, budgets, backend="reference", slabs=slabs) as made:
            held = made.memory.slabs_bytes / 2**20
        with pytest.raises(CaptureError) as refused:
            memory.check_room(encoder, budgets, TINY, slabs=slabs, free=lambda device: 0)
        told = re.search(r"slabs ([\d,]+) MiB", str(refused.value))
        assert told is not None
        assert told[1] == f"{held:,.0f}"


def test_nothing_is_refused_where_nothing_is_captured_or_nobody_says_what_is_free() -> None:
    encoder = registry.named("qwen3-vl-tiny", device="cpu", dtype=torch.float32)
    nothing = Plan(graphs=(), encoder="qwen3-vl-tiny")
    memory.check_room(encoder, nothing, TINY, slabs="shared", free=lambda device: 0)
    memory.check_room(encoder, plan(64), TINY, slabs="shared", free=lambda device: None)


def test_a_machine_says_what_is_free() -> None:
    free = memory.free_bytes(CPU)
    assert free is None or free > 0


def test_a_strategy_of_more_than_there_is_is_refused_before_it_is_captured() -> None:
    setting = reference(largest=10_000_000_000 // 1024)
    made = systems.runner(strategies.VLLM, setting)
    free = memory.free_bytes(CPU)
    if free is None or free > 2**38:
        pytest.skip("this machine may hold them")
    with pytest.raises(CaptureError, match="need about"):
        systems.ready(made, setting)
