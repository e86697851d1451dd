"""Calibration cut short gives right times for every captured capacity, or none at all."""

import dataclasses
import random
from types import SimpleNamespace

import pytest
import torch
from helpers import RULE

from encgraph import calibrating, curves, points, sizes, store
from encgraph.costs import Costs
from encgraph.curves import Kernels
from encgraph.errors import CalibrationError
from encgraph.points import Recording
from encgraph.records import Plan, Route
from encgraph.results import Latency, Measurement, Memory

CPU = torch.device("cpu")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Known(Recording):
    """Every point takes what known costs say, within some scatter; nothing runs."""

    truth: Costs
    kernels: Kernels
    draw: random.Random
    scatter: float

    def inputs(self, tokens, count):
        grid = sizes.near_square_grid(points._fitting(tokens), self.size.rule)
        return [SimpleNamespace(item=sizes.item(grid, self.size.rule))] * count

    def known(self, route, batch, ms, **fields):
        seen = ms * self.draw.uniform(1 - self.scatter, 1 + self.scatter)
        return Measurement(
            experiment="curve",
            encoder=self.size.name,
            environment=self.environment,
            attention=self.kernels.attention,
            compiled=self.kernels.compiled,
            fused=self.kernels.fused,
            route=route,
            load=points.load_of(batch),
            latency=Latency.of([seen], clock="wall"),
            **fields,
        )

    def bare_ms(self, capacity, batch):
        load = points.load_of(batch)
        return self.truth.replay_ms(capacity, load) - self.truth.item_ms * load.items

    def replay(self, made, capacity, batch):
        return self.known(Route.REPLAY, batch, self.bare_ms(capacity, batch), capacity=capacity)

    def execute(self, made, capacity, batch, run):
        whole = self.truth.replay_ms(capacity, points.load_of(batch)) + self.truth.request_ms
        device = {"device_ms": self.bare_ms(capacity, batch)}
        return self.known(Route.REPLAY, batch, whole, capacity=capacity, numbers=device)

    def eager(self, batch):
        return self.known(Route.EAGER, batch, self.truth.eager_ms(points.load_of(batch)))


def off(recording, costs, graph):
    """How far costs are from the truth for loads that fill a graph or half of it, as ratios."""
    truth = recording.truth
    for tokens in {graph.tokens, max(graph.tokens // 2, RULE.min_tokens)}:
        for values in calibrating._split(recording, tokens, graph):
            load = points.load_of(values)
            whole_ms = truth.replay_ms(graph, load) + truth.request_ms
            yield costs.replay_ms(graph, load) / whole_ms - 1
            yield costs.eager_ms(load) / truth.eager_ms(load) - 1


TWELVE = (64, 128, 192, 256, 384, 512, 640, 800, 1000, 1200, 1600, 2000)
DOUBLING = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


@pytest.mark.parametrize("scatter", [0.0, 0.02])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("tokens", "items"), [(TWELVE, 8), (TWELVE, 1), (DOUBLING, 64), ((2000,), 8), ((64,), 1)]
)
@pytest.mark.parametrize("name", ["qwen3-vl-2b", "qwen3-vl-8b"])
def test_points_cut_anywhere_give_right_times_or_are_refused(name, tokens, items, fused, scatter):
    size, recorded = sizes.named(name), store.load("h200", curves.experiment(name))
    kernels = Kernels(attention="fa3", compiled=fused, fused=fused)
    graphs_of = [sizes.capacity(t, size.rule, items=items) for t in tokens]
    recording = Known(
        encoder=SimpleNamespace(spec=SimpleNamespace(device=CPU)),
        size=size,
        environment=recorded[0].environment,
        truth=curves.fit(recorded, size, kernels),
        kernels=kernels,
        draw=random.Random(0),
        scatter=scatter,
    )
    made = SimpleNamespace(
        captured_plan=Plan(graphs=tuple(graphs_of), encoder=name),
        memory=Memory(slabs_bytes=0, pool_bytes=0, driver_bytes=0),
    )
    jobs = calibrating._jobs(recording, made)
    every = [job() for job in (*jobs.telling, *jobs.further)]
    for cut in range(len(every) + 1):
        if cut < len(jobs.telling):
            with pytest.raises(CalibrationError, match=f"got {cut} in 9 s"):
                calibrating._check(jobs, every[:cut], 9)
            continue
        found = calibrating._fitted(recording, made, every[:cut])
        worst = max(abs(ratio) for graph in graphs_of for ratio in off(recording, found, graph))
        assert worst < 0.25, (cut, worst)
