"""Parts of the benchmark scripts that a card must not find out about first."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest

from encgraph import store

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import bars  # noqa: E402
import inside_the_tower  # noqa: E402
import vllm_manager  # noqa: E402


def test_a_bar_begins_nothing_after_its_time_but_always_the_first():
    assert list(bars.until()(range(5), "all")) == [0, 1, 2, 3, 4]
    assert list(bars.until(0)(range(5), "one")) == [0]
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


def test_a_strategy_that_fails_to_be_captured_loses_no_time_of_those_before(tmp_path):
    command = (
        f"{BENCHMARKS / 'capture_time.py'} builtin:coco --cpu --encoder qwen3-vl-tiny "
        f"--priced-as qwen3-vl-8b --count 30 --graphs 1 --largest 128 "
        f"--strategies encgraph_plain,no_such_strategy --out {tmp_path}"
    )
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True)
    assert done.returncode != 0
    assert "no_such_strategy" in done.stderr
    kept = store.read(tmp_path / "capture-qwen3-vl-tiny.jsonl")
    assert [m.numbers["warm_cache_count"] for m in kept] == [0, 1]
