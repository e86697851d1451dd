import time
from datetime import datetime

import pytest
import torch

from encgraph import codec, meters
from encgraph.results import Environment


def test_an_environment_names_versions_dtype_and_moment():
    found = meters.environment(torch.bfloat16, "cpu")
    assert (found.torch, found.dtype) == (torch.__version__, "bfloat16")
    assert datetime.fromisoformat(found.utc).tzinfo is not None
    assert found.cpu
    assert (found.gpu, found.driver, found.cuda) == (None, None, None)


@pytest.mark.cuda
def test_an_environment_names_the_card_of_what_ran_on_it():
    found = meters.environment(torch.bfloat16, "cuda")
    assert found.gpu == torch.cuda.get_device_name()
    assert found.cuda == torch.version.cuda


def test_an_environment_takes_a_dtype_by_name_too():
    assert meters.environment("float32", "cpu").dtype == "float32"


def test_an_environment_survives_json():
    found = meters.environment("float32", "cpu")
    assert codec.loads(Environment, codec.dumps(found)) == found


def test_a_folder_that_is_no_checkout_has_no_commit(tmp_path):
    assert meters._commit(tmp_path) is None


def test_wall_counts_only_samples_after_the_warm_ups():
    calls = []
    found = meters.wall(lambda: calls.append(1), samples=5, warmups=2)
    assert (found.samples, found.warmups, found.clock, len(calls)) == (5, 2, "wall", 7)


def test_wall_reads_milliseconds():
    def spin():
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass

    assert meters.wall(spin, samples=3).p10_ms >= 5


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        meters.wall(lambda: None, samples=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a card")
def test_device_time_without_a_card_is_refused():
    with pytest.raises(ValueError, match=r"use meters\.wall"):
        meters.device(lambda: None, samples=1)


@pytest.mark.cuda
def test_device_time_is_positive_on_a_card():
    a = torch.randn(2048, 2048, device="cuda")
    assert meters.device(lambda: a @ a, samples=5, warmups=2).p50_ms > 0
