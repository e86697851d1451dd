"""Parts of the benchmark scripts that a card must not find out about first."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from encgraph import bars, first_token, readings, sizes, store, strategies

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FIRST_THEN_TERM = f"""
import os, signal, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
sys.argv = sys.argv[1:]
import ladder

def ending(values, about):
    for index, value in enumerate(values):
        if index == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        yield value

ladder.until = lambda seconds: ending
ladder.main()
"""
"""Ends the ladder by the signal that a time limit sends, once two requests are timed."""
sys.path.insert(0, str(BENCHMARKS))
import data_parallel  # noqa: E402
import inside_the_tower  # noqa: E402
import sharded_systems  # noqa: E402
import time_to_first_token  # noqa: E402
import vllm_agreement  # noqa: E402
import vllm_manager  # noqa: E402


def test_a_bar_begins_nothing_after_its_time_but_always_the_first():
    assert list(bars.until()(range(5), "all")) == [0, 1, 2, 3, 4]
    assert list(bars.until(0)(range(5), "one")) == [0]
    assert list(bars.until(0, least=3)(range(5), "three")) == [0, 1, 2]
    ended = bars.until(0.05)
    time.sleep(0.06)
    assert list(ended(range(5), "its time counts from before")) == [0]


def test_a_bar_writes_nothing_where_there_is_no_terminal(capfd):
    assert len(list(bars.until()(range(50), "bench"))) == 50
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNN", "products"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<...>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("triton_poi_fused_addmm_gelu_view_4", "gelu"),
        ("triton_per_fused__to_copy_add_addmm_native_layer_norm_2", "norms"),
        ("triton_per_fused_add_addmm_linear_gelu_native_layer_norm_view_3", "norms"),
        ("triton_poi_fused__to_copy_add_cat_mul_neg_1", "rotary"),
        ("triton_poi_fused__to_copy_add_3", "other"),
        ("rotate_pairs", "rotary"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
    ],
)
def test_a_kernel_that_a_compiler_made_is_not_what_merely_went_into_it(name, kind):
    assert inside_the_tower.kind_of(name) == kind


@pytest.fixture
def stood_in(monkeypatch):
    before = dict(sys.modules)
    vllm_manager._stand_ins()
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


@pytest.mark.usefixtures("stood_in")
def test_what_looks_for_vllm_is_not_misled_by_what_stands_in_for_it():
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert not found.submodule_search_locations


def test_what_vllms_manager_returns_is_taken_apart_into_outputs_before_it_is_proven():
    made = [torch.arange(10.0).view(2, 5), torch.arange(5.0).view(1, 5)]
    first, second = vllm_agreement.outputs(made, (3, 1, 1))
    assert first.main.tolist() == [[0, 1, 2], [5, 6, 7]]
    assert [one.tolist() for one in first.extra] == [[[3], [8]], [[4], [9]]]
    assert [one.shape for one in second.tensors] == [(1, 3), (1, 1), (1, 1)]


def test_a_strategy_that_fails_to_be_captured_stops_no_other(tmp_path):
    command = (
        f"{BENCHMARKS / 'capture_time.py'} builtin:coco --cpu --encoder qwen3-vl-tiny "
        f"--priced-as qwen3-vl-8b --count 30 --graphs 1 --largest 128 "
        f"--strategies compile_reduce_overhead,encgraph_plain --out {tmp_path}"
    )
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True)
    assert done.returncode != 0
    assert "not made ready: compile_reduce_overhead;" in done.stderr
    kept = store.read(tmp_path / "capture-qwen3-vl-tiny.jsonl")
    assert [(m.strategy, m.numbers["warm_cache_count"]) for m in kept] == [
        ("encgraph_plain", 0),
        ("encgraph_plain", 1),
    ]


def test_the_first_token_of_a_run_out_of_time_is_written_all_the_same(tmp_path, monkeypatch):
    command = (
        "time_to_first_token.py builtin:coco --cpu --model qwen3-vl-tiny --requests 4 --fit-count 20 "
        f"--strategy vllm --largest 128 --length 2048 --concurrency 1 2 --repeats 1 --samples 1 --seconds 0 --out {tmp_path}"
    )
    monkeypatch.setattr(sys, "argv", command.split())
    time_to_first_token.main()
    [file] = tmp_path.glob("measurements/cpu/time_to_first_token-*.jsonl")
    found = first_token.summaries(store.read(file))
    assert {m.latency.samples for m in found} == {1}
    assert {m.strategy for m in found} == {"eager", "encoder_graphs", "all_graphs", "cache_warm"}


def test_a_ladder_that_is_told_to_end_writes_what_was_timed(tmp_path):
    command = (
        f"{BENCHMARKS / 'ladder.py'} builtin:coco --cpu --encoder qwen3-vl-tiny --fit-on builtin:coco "
        "--fit-count 30 --largest 256 --count 4 --repeats 1 --runs 1 "
        f"--strategies eager_varlen,encgraph_plain --out {tmp_path}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", FIRST_THEN_TERM, *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    told, failed = process.communicate()
    assert process.returncode == 1, failed
    assert "interrupted" in failed
    kept = readings.summaries(store.read(tmp_path / "bench-ladder-coco.jsonl"))
    assert {name: m.latency.samples for name, m in kept.items()} == {
        "eager_varlen": 2,
        "encgraph_plain": 2,
    }
    assert [line.split()[0] for line in told.splitlines()] == ["eager_varlen", "encgraph_plain"]


@pytest.fixture
def over_ranks(monkeypatch, tmp_path):
    """Run the comparison over cards on one rank and the CPU; the lines it kept."""

    def run(options):
        command = (
            f"data_parallel.py {options} --device cpu --backend reference --dtype float32 --encoder "
            f"qwen3-vl-tiny --largest 128 --fit-count 20 --repeats 1 --out {tmp_path}"
        )
        monkeypatch.setattr(sys, "argv", command.split())
        data_parallel.main()
        return store.read(tmp_path / "data_parallel.jsonl")

    return run


def test_every_burst_size_of_every_source_is_measured_however_little_time_there_is(
    over_ranks, capsys
):
    kept = over_ranks(
        "images:64x64x3 builtin:coco --count 4 --bursts 1,2 --strategies eager,vllm --seconds 0"
    )
    sources = ("images-64x64x3", "coco")
    expected = {f"{name}-bursts-of-{size}" for name in sources for size in (1, 2)}
    assert {line.traffic for line in kept} == expected
    assert {line.numbers["bursts_count"] for line in kept} == {1}
    assert all(line.numbers["proven_items_count"] > 0 for line in kept)
    assert all(line.numbers["error_over_allowed_ratio"] <= 1 for line in kept)
    assert not [n for line in kept for n in line.numbers if n.startswith("predicted")]
    assert capsys.readouterr().out.count("measured") == len(expected)


def test_without_a_time_limit_all_bursts_are_measured(over_ranks):
    kept = over_ranks("images:64x64x3 --count 2 --bursts requests,2 --strategies eager_varlen")
    assert {m.traffic: m.numbers["bursts_count"] for m in kept} == {
        "images-64x64x3": 2,
        "images-64x64x3-bursts-of-2": 3,
    }
    assert all(m.latency.samples == m.numbers["bursts_count"] for m in kept)


@pytest.mark.parametrize(
    ("strategy", "attention", "gpu", "known"),
    [
        ("eager_varlen", "auto", "NVIDIA H200", True),
        ("encgraph", "fa3", "NVIDIA H200", True),
        ("encgraph", "cudnn", "NVIDIA H200", False),
        ("eager", "auto", "NVIDIA H200", False),
        ("eager_varlen", "auto", "cpu", False),
    ],
)
def test_a_way_of_running_that_nobody_recorded_is_not_predicted(strategy, attention, gpu, known):
    size, named = sizes.named("qwen3-vl-8b"), strategies.named(strategy)
    assert sharded_systems.on_record(named, size, attention=attention, gpu=gpu) is known
