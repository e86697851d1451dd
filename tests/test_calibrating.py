"""Costs measured on captured graphs decide between replay and eager, and change nothing else."""

import dataclasses
import time

import pytest
import torch
from helpers import RULE, TINY, batch, reference, tiny
from helpers_families import PACKED, built

from encgraph import (
    bench,
    calibrating,
    exact,
    packing,
    readings,
    sizes,
    strategies,
    study,
    systems,
    traffic,
)
from encgraph.encoders import inputs, registry
from encgraph.errors import CalibrationError, StaleBufferError
from encgraph.layouts import Keep
from encgraph.records import FallbackReason, Plan, Route
from encgraph.report import advice, page
from encgraph.runner import EncoderRunner

CPU = torch.device("cpu")


class SlowEager:
    """An adapter whose eager does its work several times over."""

    def __init__(self, encoder, times):
        self.encoder, self.times = encoder, times

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def eager(self, values):
        for _ in range(self.times - 1):
            self.encoder.eager(values)
        return self.encoder.eager(values)


def runner_of(encoder, *capacities, **options):
    planned = Plan(graphs=capacities, encoder=encoder.spec.name)
    made = EncoderRunner(encoder=encoder, plan=planned, backend="reference", **options)
    made.capture()
    return made


def of(tokens, count=1):
    grid = sizes.near_square_grid(tokens, RULE)
    return inputs.synthetic([grid] * count, size=TINY)


def routes(runner, values):
    """Steps of one execute."""
    steps, before = [], runner.observe

    def observe(step):
        steps.append(step)
        return before(step)

    runner.observe = observe
    runner.execute(values)
    runner.observe = before
    return steps


def test_a_small_item_is_not_replayed_in_a_huge_graph():
    # segments are bounded so that a CPU gets through; what counts is 64 tokens against 4,096
    huge = sizes.capacity(4096, RULE, items=64, longest_segment=256)
    with runner_of(tiny(), huge) as runner:
        assert [s.route for s in routes(runner, of(64))] == [Route.REPLAY]
        calibrating.calibrate(runner, TINY, limit_s=120, samples=1)
        [step] = routes(runner, of(64))
    assert step.route is Route.FALLBACK
    assert step.reason is FallbackReason.EAGER_IS_FASTER


def test_where_replay_is_faster_it_is_taken():
    encoder = SlowEager(tiny(), times=6)
    with runner_of(encoder, *(sizes.capacity(t, RULE, items=4) for t in (64, 256))) as runner:
        found = calibrating.calibrate(runner, TINY, limit_s=60)
        for values in (of(64), of(250), of(64, 4)):
            assert {s.route for s in routes(runner, values)} == {Route.REPLAY}
    load = calibrating.load_of(of(250))
    assert found.eager_ms(load) > 2 * found.replay_ms(runner.plan.graphs[1], load)


class WaitsForItsHost(SlowEager):
    """An adapter whose eager takes as long as its launches, and from some load on as long as its work."""

    def eager(self, values):
        patches = sum(value.item.patches for value in values)
        time.sleep(self.took_ms(patches) / 1e3)

    def took_ms(self, patches):
        return max(self.times, patches / 50)


def test_eager_of_loads_that_no_graph_holds_is_measured_where_the_host_hides_it():
    encoder = WaitsForItsHost(tiny(), times=25)
    with runner_of(encoder, *(sizes.capacity(t, RULE, items=4) for t in (32, 64))) as runner:
        found = calibrating.calibrate(runner, TINY, limit_s=60)
    for values in (of(64, 8), of(500), of(900, 2)):
        load = calibrating.load_of(values)
        assert load.patches > runner.plan.largest().patches
        assert found.eager_ms(load) == pytest.approx(encoder.took_ms(load.patches), rel=0.3)


def test_eager_that_the_device_binds_is_measured_no_further():
    encoder = WaitsForItsHost(tiny(), times=1)
    seen, before = [], encoder.eager
    encoder.eager = lambda values: seen.append(calibrating.load_of(values)) or before(values)
    with runner_of(encoder, sizes.capacity(256, RULE, items=4)) as runner:
        calibrating.calibrate(runner, TINY, limit_s=60)
        assert max(load.patches for load in seen) <= runner.plan.largest().patches


def test_the_costs_say_where_they_come_from_and_what_the_graphs_hold():
    with runner_of(tiny(), sizes.capacity(64, RULE, items=1)) as runner:
        found = calibrating.calibrate(runner, TINY, limit_s=60)
    assert found.source.startswith("measured at capture on ")
    assert "loop attention" in found.source
    assert found.recorded
    assert found.pool_bytes_per_patch == found.driver_bytes_per_graph == 0


def test_outputs_are_the_same_before_and_after():
    graphs_of = [sizes.capacity(t, RULE, items=4) for t in (64, 256)]
    values = batch([(8, 8), (12, 16)], tiny())
    with runner_of(tiny(), *graphs_of) as runner:
        before = runner.execute(values)
        [lent] = runner.borrow(values[:1])
        calibrating.calibrate(runner, TINY, limit_s=60)
        with pytest.raises(StaleBufferError):
            lent.tensor()
        runner.pack_by(lambda plan: packing.packer(plan, rule="ascending"))
        after = runner.execute(values)
    for one, other in zip(before, after, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.tensors, other.tensors, strict=True))


def test_too_little_time_is_an_error_and_the_runner_packs_as_before():
    with runner_of(tiny(), sizes.capacity(256, RULE, items=4)) as runner:
        with pytest.raises(
            CalibrationError, match=r"that fix a fit, got 0 in 0 s; raise its limit"
        ):
            calibrating.calibrate(runner, TINY, limit_s=0)
        assert [s.route for s in routes(runner, of(64))] == [Route.REPLAY]


class Failing(SlowEager):
    """An adapter whose eager fails once it has run so many times."""

    def eager(self, values):
        self.times -= 1
        if not self.times:
            raise RuntimeError("out of room")
        return self.encoder.eager(values)


def test_what_fails_midway_leaves_the_runner_packing_and_replaying_as_before():
    values = batch([(8, 8), (12, 16)], tiny())
    with runner_of(Failing(tiny(), times=3), sizes.capacity(256, RULE, items=4)) as runner:
        before, packer = runner.execute(values), runner.packer
        with pytest.raises(RuntimeError, match="out of room"):
            calibrating.calibrate(runner, TINY, limit_s=60)
        assert runner.packer is packer
        assert [s.route for s in routes(runner, values)] == [Route.REPLAY]
        after = runner.execute(values)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one.main, other.main)


def test_nothing_is_begun_after_the_limit():
    capacities = [sizes.capacity(t, RULE, items=16) for t in (128, 256, 512, 1024)]
    with runner_of(tiny(), *capacities) as runner:
        start = time.perf_counter()
        runner.encoder.eager(of(1024))
        slowest_s = time.perf_counter() - start
        start = time.perf_counter()
        try:
            calibrating.calibrate(runner, TINY, limit_s=1)
        except ValueError as error:
            assert "raise its limit" in str(error)
        assert time.perf_counter() - start < 1 + 20 * slowest_s


@pytest.mark.parametrize("name", PACKED)
def test_every_packed_family_can_be_calibrated(name):
    size = sizes.named(name)
    low = size.rule.min_tokens
    graph = sizes.capacity(max(4 * low, 64), size.rule, items=4)
    encoder = built(name, attention="loop")
    with runner_of(encoder, graph) as runner:
        found = calibrating.calibrate(runner, size, limit_s=60, samples=2)
        load = calibrating.load_of(
            inputs.synthetic([sizes.near_square_grid(low, size.rule)], size=size)
        )
        assert found.eager_ms(load) > 0
        assert found.replay_ms(graph, load) > 0


@pytest.mark.parametrize("name", ["siglip-tiny", "bert-tiny", "siglip2-naflex-tiny"])
def test_other_layouts_are_refused_by_name(name):
    size = sizes.named(name)
    encoder = registry.named(name, device=CPU, dtype=torch.float32)
    graph = sizes.capacity(2 * size.rule.max_tokens, size.rule, items=2)
    with (
        runner_of(encoder, graph) as runner,
        pytest.raises(
            ValueError, match=f"is of packed image grids, got '{name}' of the '{size.layout}'"
        ),
    ):
        calibrating.calibrate(runner, size)


def test_what_is_not_captured_from_a_plan_is_refused():
    encoder = tiny()
    none = EncoderRunner(encoder=encoder, plan=Plan(graphs=(), encoder=TINY.name))
    with pytest.raises(ValueError, match="graphs of a plan, captured"):
        calibrating.calibrate(none, TINY)
    with EncoderRunner(
        encoder=encoder,
        plan=none.plan,
        backend="reference",
        layouts=lambda e: exact.open_set(e, keep=Keep(), backend="reference"),
    ) as runner:
        runner.capture()
        with pytest.raises(ValueError, match="leave exact layouts alone"):
            calibrating.calibrate(runner, TINY)


def test_graphs_under_the_smallest_item_are_refused():
    with (
        runner_of(tiny(), sizes.capacity(16, RULE, items=1)) as runner,
        pytest.raises(ValueError, match=r"smallest item of 'qwen3-vl-tiny', 64 tokens.*\(16,\)"),
    ):
        calibrating.calibrate(runner, TINY)


@pytest.fixture
def setting():
    return reference(
        fit_on=traffic.read("builtin:coco", TINY, count=30, seed=4).requests,
        max_graphs=2,
        calibrate=True,
    )


def test_a_setting_calibrates_what_packs_by_predicted_time_and_bench_says_so(setting):
    drawn = traffic.read("builtin:coco", TINY, count=1, seed=3)
    chosen = [strategies.VLLM, strategies.ENCGRAPH_PLAIN]
    lines = bench.run(drawn, chosen, dataclasses.replace(setting, largest=256), repeats=1)
    found = readings.summaries(lines)
    assert found["vllm"].costs is None
    assert found["encgraph_plain"].costs.startswith("measured at capture on ")


def test_without_it_the_costs_of_the_setting_are_named(setting):
    strategy, plain = strategies.ENCGRAPH_PLAIN, dataclasses.replace(setting, calibrate=False)
    with systems.runner(strategy, plain) as made:
        made.capture()
        assert systems.calibrated(made, strategy, plain).source == plain.costs.source


def test_where_the_time_is_too_short_costs_are_kept_and_say_so(setting):
    before = setting.costs
    with runner_of(tiny(), sizes.capacity(256, RULE, items=4)) as runner:
        packer = runner.packer
        with pytest.warns(UserWarning, match="got 0 in 0 s; .*; packs by costs modelled"):
            kept = calibrating.tried(runner, TINY, otherwise=before, limit_s=0)
        assert runner.packer is packer
    assert kept.source.startswith(
        f"{before.source}; {advice.NOT_CALIBRATED}: calibration must time the "
    )
    assert dataclasses.replace(kept, source=before.source) == before


def test_a_study_calibrates_and_its_report_says_so(setting):
    drawn = traffic.read("builtin:coco", TINY, count=1, seed=3)
    small = dataclasses.replace(setting, largest=256)
    found = study.run(
        drawn, small, strategies.ENCGRAPH_PLAIN, study.Procedure(command="run", repeats=1)
    )
    assert found.encoder.costs.startswith(advice.MEASURED_HERE)
    assert f"Packed by costs {found.encoder.costs}." in page.render(found)
