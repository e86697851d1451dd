import time
from datetime import datetime

import pytest
import torch

from encgraph import codec, measure, meters
from encgraph.records import Modality, Route, Step
from encgraph.results import Environment

CPU, SECOND = torch.device("cpu"), torch.device("cuda", 1)
WAITED: list[torch.device] = []


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
    found = meters.wall(lambda: calls.append(1), CPU, samples=5, warmups=2)
    assert (found.samples, found.warmups, found.clock, len(calls)) == (5, 2, "wall", 7)


def test_wall_reads_milliseconds():
    def spin():
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass

    assert meters.wall(spin, CPU, samples=3).p10_ms >= 5


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        meters.wall(lambda: None, CPU, samples=0)


def test_device_time_of_no_card_is_refused():
    with pytest.raises(ValueError, match=r"of a CUDA card, got 'cpu'; use meters\.wall"):
        meters.device(lambda: None, CPU, samples=1)


class Event:
    """Stands where a CUDA event does, and says on whose stream it was recorded."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self, stream):
        self.on = stream.on

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1.0 if (self.on, other.on) == (SECOND, SECOND) else 0.0


class Stream:
    """Stands where the current stream of a card does."""

    def __init__(self, on):
        self.on = on

    def synchronize(self):
        WAITED.append(self.on)


@pytest.fixture
def waited(monkeypatch):
    """Devices that were waited for, on a machine that says it has cards."""
    WAITED.clear()
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "synchronize", WAITED.append)
    return WAITED


def test_clocks_run_on_the_encoders_card_not_on_the_current_one(waited):
    assert meters.device(lambda: None, SECOND, samples=3, warmups=1).p50_ms == 1.0
    assert waited == [SECOND]
    meters.wall(lambda: None, SECOND, samples=1)
    assert waited == [SECOND] * 3


def test_a_recorder_takes_the_times_of_its_own_card(waited):
    recorder = measure.Recorder(SECOND)
    step = Step(route=Route.EAGER, modality=Modality.IMAGE, items=1, real_tokens=4)
    for _ in range(2):
        with recorder(step):
            pass
    assert [timed.device_ms for timed in recorder.steps] == [1.0, 1.0]
    first, second = recorder.steps
    assert second.began_ms == first.start_ms + 1.0


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two cards")
def test_work_on_a_second_card_is_timed_while_the_first_is_current():
    a = torch.randn(8192, 8192, device="cuda:1")
    with torch.cuda.device(0):
        found = meters.device(lambda: a @ a, SECOND, samples=5, warmups=2)
        wall = meters.wall(lambda: a @ a, SECOND, samples=5, warmups=2)
    assert 0.5 < found.p50_ms <= 1.2 * wall.p50_ms


@pytest.mark.cuda
def test_device_time_is_positive_on_a_card():
    a = torch.randn(2048, 2048, device="cuda")
    assert meters.device(lambda: a @ a, a.device, samples=5, warmups=2).p50_ms > 0
