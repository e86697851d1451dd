"""Host time before a launch, and the work it is made of, in counts that are alike on any machine."""

import sys
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest
from helpers import batch, plan, tiny
from torch.utils._python_dispatch import TorchDispatchMode

from encgraph import costs, exact, packing, sidelines, sizes
from encgraph.layouts import Keep
from encgraph.runner import EncoderRunner

SMALL = [(4, 4), (4, 8), (8, 8), (4, 12), (8, 4), (12, 4), (4, 16), (8, 12)]


class Launch:
    """Stands where a graph is and says when it would be launched."""

    def __init__(self):
        self.launched = False

    def replay(self):
        self.launched = True


@contextmanager
def launching():
    """A runner that packs by cost, whose graphs are stand-ins, and what tells of the first launch."""
    encoder, launch = tiny(), Launch()
    model = costs.modelled(sizes.named("qwen3-vl-8b")).lent_to("qwen3-vl-tiny")
    packer = partial(packing.packer, costs=model, rule="cheapest")
    planned = plan(16, 64, 128, items=8)
    with EncoderRunner(encoder=encoder, plan=planned, backend="reference", packer=packer) as runner:
        runner.capture()
        for graph in runner.graphs.graphs:
            graph.graph = launch
        yield runner, launch


def calls_before_the_launch(grids):
    """Calls of functions, Python's and built-in ones, from the entry of `execute` to the launch."""
    with launching() as (runner, launch):
        runner.execute(batch([(8, 8)], runner.encoder))  # whatever is made once
        inputs, calls = batch(grids, runner.encoder), []
        launch.launched = False

        def seen(frame, event, argument):
            if not launch.launched and event in ("call", "c_call"):
                calls.append(event)

        sys.setprofile(seen)
        try:
            runner.execute(inputs)
        finally:
            sys.setprofile(None)
        assert launch.launched
        return len(calls)


def test_few_functions_are_called_before_the_launch():
    one, eight = (calls_before_the_launch(SMALL[:count]) for count in (1, 8))
    assert one < 130
    assert (eight - one) / 7 < 20


class Operators(TorchDispatchMode):
    """Counts what torch dispatches before the launch."""

    def __init__(self, launch):
        super().__init__()
        self.launch, self.count = launch, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not self.launch.launched
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("grids", [SMALL[:1], SMALL], ids=["one item", "eight items"])
def test_few_operators_precede_the_launch_however_many_the_items(grids):
    with launching() as (runner, launch):
        runner.execute(batch([(8, 8)], runner.encoder))
        inputs, launch.launched = batch(grids, runner.encoder), False
        with Operators(launch) as operators:
            runner.execute(inputs)
    assert launch.launched
    assert 2 <= operators.count <= 5


def test_host_time_is_of_batches_that_differ_from_sample_to_sample():
    seen = []

    def observe(step):
        seen.append(step)
        return nullcontext()

    with launching() as (runner, _):
        runner.observe = observe
        small = batch([(4, 4)] * len(SMALL), runner.encoder)
        requests = [batch(SMALL, runner.encoder), batch(SMALL[2:], runner.encoder, seed=1)]
        found = sidelines.host_numbers(runner, small, requests, [(1, 0), (1, 0)])
    assert 0 < found["before_launch_p10_us"] <= found["before_launch_us"]
    assert found["before_launch_items_count"] == len(SMALL)
    assert found["before_launch_mixed_us"] > 0
    assert 0 < found["before_launch_mixed_count"] <= 50
    assert {step.items for step in seen} == {len(SMALL)}
    assert len({step.real_tokens for step in seen}) > 8


def test_a_request_stands_in_where_graphs_do_not_take_the_small_items():
    encoder = tiny()
    layouts = partial(exact.open_set, keep=Keep(min_hits=1), backend="reference")
    request, small = batch(SMALL[:2], encoder), batch([(4, 4)] * 4, encoder)
    with EncoderRunner(encoder=encoder, plan=plan(), layouts=layouts) as runner:
        runner.capture()
        runner.graphs.warm([[value.item for value in request]])
        found = sidelines.host_numbers(runner, small, [request], [(1, 0)])
        assert sidelines.host_numbers(runner, small, [request], [(0, 1)]) == {}
    assert 0 < found["before_launch_p10_us"] <= found["before_launch_us"]
    assert found["before_launch_items_count"] == 2
