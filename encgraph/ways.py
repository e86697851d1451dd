"""The ways of running one model that are compared by their first token: what is graphed, and how.

Graphs run the encoder as a strategy does: its budgets, its packing, its body. Without graphs the encoder
runs eager, its attention packed and its block plain; where the strategy's block is not, eager runs that
too, so that what graphs give and what the body gives can be told apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from encgraph import handles, loads, sizes, systems
from encgraph.encoders.protocol import Input
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.loads import Workload
from encgraph.model_runner.facts import Options
from encgraph.model_runner.gates import Gates
from encgraph.model_runner.prompts import Prompt
from encgraph.model_runner.runner import ModelRunner
from encgraph.records import Plan
from encgraph.results import Environment, Measurement
from encgraph.sizes import Grid
from encgraph.strategies import ENCGRAPH_PLAIN, Strategy
from encgraph.systems import Setting
from encgraph.traffic import Traffic

GATES = {
    "eager": Gates(eager_only=True, timing=True),
    "eager_same_body": Gates(eager_only=True, timing=True),
    "encoder_graphs": Gates(decoder_graphs=False, timing=True),
    "all_graphs": Gates(timing=True),
}
WARM = "cache_warm"
"""All graphs, every item in the cache already."""
_PLAIN, _SAME_BODY = list(GATES)[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphed:
    """The encoder's graphs."""

    plan: Plan
    strategy: Strategy = ENCGRAPH_PLAIN
    """Whose packing and body they have; the plan may be another's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What all ways of one comparison share."""

    model: Any
    traffic: Traffic
    setting: Setting
    graphed: Graphed
    load: Workload
    environment: Environment

    @property
    def extremes(self) -> tuple[Grid, ...]:
        """Grids of an image that replays and of one over every budget."""
        return loads.extremes(self.graphed.plan, self.setting.size, self.load)

    @property
    def longest(self) -> int:
        """Tokens of the longest request and its answer, those of the jitter among them."""
        asked = [loads.tokens(request) for request in self.traffic.requests]
        rule = self.setting.size.rule
        asked += [loads.tokens([sizes.item(grid, rule)]) for grid in self.extremes]
        return max(asked) + self.load.text_tokens + self.load.new_tokens

    @property
    def ways(self) -> tuple[str, ...]:
        """All but the cache's; eager in the strategy's body only where that is not the plain one."""
        strategy = self.graphed.strategy
        own = strategy.compiled or strategy.fused
        return tuple(way for way in GATES if own or way != _SAME_BODY)

    def runner(self, way: str) -> ModelRunner:
        """The model run in one way, not captured yet."""
        options = Options(
            backend=self.setting.backend,
            attention=self.setting.attention,
            batch_sizes=tuple(sorted(set(self.load.concurrency))),
            length=self.longest,
            cache_bytes=self.load.cache_bytes,
        )
        return ModelRunner(
            model=self.model,
            size=self.setting.size,
            plan=self.graphed.plan,
            gates=GATES[way],
            options=options,
            encoder=None if way == _PLAIN else self._encoder(),
            packer=systems.packer(self.graphed.strategy, self.setting),
        )

    def _encoder(self) -> QwenVL:
        """The model's own tower, run as the strategy runs it."""
        strategy, tower = self.graphed.strategy, self.model.model.visual
        attention = self.setting.target(strategy).attention
        return QwenVL(tower, self.setting.size, attention=attention, **strategy.switches)

    def prompt(self, values: Sequence[Input], *, seed: int) -> Prompt:
        """A prompt of a request's items; on a card their pixels are in pinned memory."""
        if self.setting.device.type == "cuda":
            values = [replace(value, pixels=value.pixels.pin_memory()) for value in values]
        return loads.prompt(values, self.model.config, self.load, seed=seed)

    def line(self, way: str, runner: ModelRunner, **fields: Any) -> Measurement:
        """One figure or several of a way."""
        spec = runner.encoders.encoder.spec if runner.encoders else None
        return Measurement(
            experiment=f"{handles.FIRST_TOKEN}{self.setting.size.name}",
            encoder=self.setting.size.name,
            environment=self.environment,
            strategy=way,
            attention=spec.attention if spec else "auto",
            compiled=spec.compiled if spec else False,
            fused=spec.fused if spec else False,
            traffic=self.traffic.name,
            **fields,
        )
