"""Kernels read from traces written by hand, as torch's profiler exports them on a card."""

from pathlib import Path
from typing import Any

import pytest

from encgraph import kernels
from encgraph.kernels import Kernel

REPLAY = "encgraph replay 64 tokens, 2 items, 50 % full"
EAGER = "encgraph eager 60 tokens, 1 item"
MAIN, STREAM = 1, 7


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    tid = STREAM if cat in kernels.GPU_WORK else MAIN
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "tid": tid, "args": args}


ON_CARD = [
    event(EAGER, "user_annotation", 0, 100),
    event("blocks.0", "user_annotation", 10, 50),
    event("blocks.0.mlp", "user_annotation", 20, 20),
    event("cudaLaunchKernel", "cuda_runtime", 25, 2, correlation=1),
    event("cudaLaunchKernel", "cuda_runtime", 50, 2, correlation=2),
    event(REPLAY, "user_annotation", 200, 10),
    event("cudaGraphLaunch", "cuda_runtime", 203, 2, correlation=3),
    event("gemm", "kernel", 300, 40, correlation=1, stream=STREAM),
    event("norm", "kernel", 340, 10, correlation=2, stream=STREAM),
    event("gemm", "kernel", 400, 30, correlation=3, stream=STREAM, **{"graph node id": 77}),
    event("copy", "gpu_memcpy", 430, 5, correlation=3, stream=STREAM, **{"graph node id": 78}),
    event("stray", "kernel", 500, 5, correlation=9, stream=STREAM),
    {"ph": "i", "name": "instant", "ts": 1},
]


def read(**options: Any) -> tuple[Kernel, ...]:
    return kernels.from_trace({"traceEvents": ON_CARD}, **options)


def test_a_kernel_belongs_to_the_innermost_range_that_launched_it() -> None:
    found = read()
    assert [(k.name, k.module, k.title) for k in found[:2]] == [
        ("gemm", "blocks.0.mlp", EAGER),
        ("norm", "blocks.0", EAGER),
    ]
    assert found[0].start_ms == pytest.approx(0.3)
    assert (found[0].ms, found[0].stream, found[0].on_card) == (0.04, STREAM, True)


def test_kernels_of_a_replay_share_its_launch_and_know_no_module_unless_annotated() -> None:
    replayed = [k for k in read() if k.title == REPLAY]
    assert [(k.name, k.step, k.module) for k in replayed] == [("gemm", 1, None), ("copy", 1, None)]
    notes = {77: [{"str": "blocks.3.attn"}], 78: ["merger"]}
    replayed = [k for k in read(annotations=notes) if k.title == REPLAY]
    assert [k.module for k in replayed] == ["blocks.3.attn", "merger"]


def test_a_kernel_outside_of_every_step_is_kept_without_one() -> None:
    stray = read()[-1]
    assert (stray.name, stray.step, stray.title, stray.start_ms) == ("stray", None, None, None)


def test_without_a_card_the_outermost_operators_stand_for_kernels() -> None:
    trace = [
        event(EAGER, "user_annotation", 0, 100),
        event("aten::linear", "cpu_op", 10, 50),
        event("aten::addmm", "cpu_op", 20, 30),
        event("aten::add", "cpu_op", 70, 10),
    ]
    found = kernels.from_trace({"traceEvents": trace})
    assert [(k.name, k.on_card, k.stream) for k in found] == [
        ("aten::linear", False, None),
        ("aten::add", False, None),
    ]
    assert {k.title for k in found} == {EAGER}


def test_an_empty_trace_has_no_kernels() -> None:
    assert kernels.from_trace({"traceEvents": []}) == ()


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must have traceEvents"):
        kernels.from_trace({})
    with pytest.raises(ValueError, match="cannot be read"):
        kernels.from_trace(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        kernels.from_trace(tmp_path / "bad.json")
