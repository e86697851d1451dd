"""Make a plan from a traffic and predict it on requests it was not fitted on."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from encgraph import budgets, cards, export, sizes
from encgraph.budgets import Limits, Prediction, Target
from encgraph.cli import output
from encgraph.cli.options import Body, Engine, Export, Method
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.export import VllmFlags
from encgraph.records import Plan
from encgraph.report.text import plural
from encgraph.results import Memory
from encgraph.sizes import EncoderSize
from encgraph.traffic import Parts, Requests, Traffic, parted

FlagsOf = Literal["plan", "defaults", "off"]
GRAPHS_OFF = "graphs are off, as --max-graphs 0 asks"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPlan:
    """What was asked of `plan`."""

    source: str
    encoder: str
    engine: Engine = "encgraph"
    method: Method = "fitted"
    max_graphs: int = 16
    max_bytes: int | None = None
    largest: int | None = None
    card: str = "h200"
    count: int | None = None
    seed: int = 0
    plan_file: Path | None = None
    export: Export | None = None
    engine_version: str = "0.33"
    body: Body = "plain"
    as_json: bool = False

    @property
    def for_vllm(self) -> bool:
        """Whether vLLM's packing and one item cap apply."""
        return self.engine == "vllm"

    @property
    def is_fitted(self) -> bool:
        """Whether budgets follow the requests; doubling and no graphs are the same for any."""
        return self.method != "doubling" and self.max_graphs > 0

    def has_flags(self, size: EncoderSize) -> bool:
        """Whether flags are written: those exported, and in JSON those of what vLLM has graphs for."""
        in_json = self.as_json and self.for_vllm and size.family in export.VLLM_FAMILIES
        return self.export == "vllm" or in_json


@dataclass(frozen=True, slots=True, kw_only=True)
class OnQuickHost:
    """Predictions with eager as in the quickest tenth of the runs recorded, where launches bind it."""

    plan: Prediction
    eager: Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, what it is predicted to give, and beside what."""

    plan: Plan
    engine: str
    method: str
    body: Body
    """Of the plan and of eager; vLLM's defaults are of the plain block."""
    prediction: Prediction
    memory: Memory
    """Of the plan; that of the prediction is of what was fitted on a part."""
    doubling: Prediction | None
    """vLLM's default budgets under vLLM's packing; None for what vLLM has no graphs for."""
    eager: Prediction
    quick: OnQuickHost | None
    """What a claim against eager stands on; None where the runs on record do not scatter."""
    parts: str
    is_split: bool
    """Whether the requests judged on are a part that the seed chooses."""
    beyond_ratio: float
    """Requests with more tokens than the largest budget, 0 to 1; held out or not."""
    costs: str
    """What the costs come from."""
    recorded: bool
    flags: VllmFlags | None
    """Flags of vLLM; None unless asked for, or planned for vLLM in JSON, where it has graphs."""
    flags_of: FlagsOf = "plan"
    """What the flags make: the plan, or vLLM's default budgets or no graphs where those are
    predicted to take no longer."""
    is_refitted: bool = False
    """Whether the plan is fitted on all requests, after what is predicted was on a part."""


def make(wanted: WantedPlan, size: EncoderSize, costs: Costs, fit: Requests) -> Plan:
    """The plan asked for.

    Raises:
        ValueError: If the limits leave no room for it.
    """
    target = Target(size=size, compiled=wanted.body != "plain")
    check_largest(wanted.largest, size)
    most = largest(wanted)
    if wanted.max_graphs == 0:
        return target.plan((), (GRAPHS_OFF,))
    if wanted.method == "fitted":
        limits = Limits(
            max_graphs=wanted.max_graphs,
            max_bytes=wanted.max_bytes,
            largest=most,
            one_cap=wanted.for_vllm,
            pack=rule(wanted),
        )
        with output.working(f"fitting budgets to {len(fit):,} requests"):
            return budgets.fitted(fit, target=target, costs=costs, limits=limits).best.plan
    if wanted.method == "doubling":
        plan = defaults(size, largest=wanted.largest)
    else:
        within = [r for r in fit if not most or sum(i.tokens for i in r) <= most]
        require(
            bool(within),
            f"no request has at most the {most!r} tokens that --largest allows; raise it or use "
            "--method fitted",
        )
        plan = budgets.quantile(within, wanted.max_graphs, target=target)
    check_limits(plan, wanted, costs)
    return plan


def largest(wanted: WantedPlan) -> int | None:
    """Most tokens of a budget; None where the requests alone decide."""
    return wanted.largest or (export.VLLM_LARGEST if wanted.for_vllm else None)


def check_largest(largest: int | None, size: EncoderSize) -> None:
    """Refuse a largest budget that holds no item.

    Raises:
        ValueError: If it is under the smallest item's tokens.
    """
    smallest = size.rule.min_tokens
    require(
        largest is None or largest >= smallest,
        f"--largest must be at least {smallest:,} tokens, the smallest item of {size.name!r}, "
        f"got {largest!r}; --max-graphs 0 of `encgraph plan` leaves graphs off",
    )


def rule(wanted: WantedPlan) -> str:
    """Packing rule of the engine."""
    return "ascending" if wanted.for_vllm else "cheapest"


SMALLEST_UNKNOWN = 64
"""First budget, and items, where there is no default of vLLM's to follow."""


def defaults(size: EncoderSize, *, largest: int | None = None) -> Plan:
    """The budgets vLLM infers for an encoder; for one it has no graphs for, those of 64 items."""
    known = size.family in export.VLLM_FAMILIES
    smallest = max(size.rule.min_tokens, 0 if known else SMALLEST_UNKNOWN)
    return budgets.doubling(
        smallest,
        max(smallest, largest or export.VLLM_LARGEST),
        target=Target(size=size),
        items=smallest,
    )


def check_limits(plan: Plan, wanted: WantedPlan, costs: Costs) -> None:
    """Refuse a plan of more graphs or bytes than were asked for.

    Raises:
        ValueError: If it has more.
    """
    count, taken = len(plan.graphs), costs.memory(plan).total_bytes
    require(
        count <= wanted.max_graphs,
        f"method {wanted.method!r} makes {count} graphs, --max-graphs allows {wanted.max_graphs}; "
        "raise it or use --method fitted",
    )
    limit = taken if wanted.max_bytes is None else wanted.max_bytes
    require(
        taken <= limit,
        f"method {wanted.method!r} makes graphs of {taken:,} bytes, --memory allows "
        f"{limit:,}; raise it, lower --largest or use --method fitted",
    )


def planned(wanted: WantedPlan, traffic: Traffic) -> Planned:
    """Plan, and judge the plan beside vLLM's defaults and eager."""
    size = sizes.named(wanted.encoder)
    mine = priced(wanted, size)
    costs = replace(mine, private_slabs=False)
    parts = parted(traffic, seed=wanted.seed)
    # What vLLM captures, whatever body is asked for; by the model where that body is by the model.
    plain = cards.price(size, on=wanted.card) if mine.recorded else costs
    theirs = plain.with_private_slabs()
    plan = make(wanted, size, mine, parts.fit)
    off = Plan(graphs=(), encoder=size.name)
    if wanted.has_flags(size):
        export.vllm(plan, engine_version=wanted.engine_version)
    return Planned(
        plan=plan,
        engine=wanted.engine,
        method=wanted.method,
        body=wanted.body,
        prediction=judged(parts, plan, mine, rule(wanted)),
        memory=mine.memory(plan),
        doubling=(
            judged(parts, defaults(size), theirs, "ascending")
            if size.family in export.VLLM_FAMILIES
            else None
        ),
        eager=judged(parts, off, costs, "ascending"),
        quick=OnQuickHost(
            plan=judged(parts, plan, mine.on_quick_host(), rule(wanted)),
            eager=judged(parts, off, costs.on_quick_host(), "ascending"),
        )
        if costs.eager_spread_ms
        else None,
        parts=parts.how if wanted.is_fitted else unfitted(parts.held_out, traffic, wanted.seed),
        is_split=len(parts.held_out.requests) < len(traffic.requests),
        beyond_ratio=beyond(traffic, plan) / len(traffic.requests),
        costs=costs.source,
        recorded=costs.recorded,
        flags=None,
    )


def unfitted(held_out: Traffic, traffic: Traffic, seed: int) -> str:
    """On what a plan is judged that follows no requests."""
    count, total = len(held_out.requests), len(traffic.requests)
    part = f"{count:,} of {plural(total, 'request')} (seed {seed})"
    return f"no budget is fitted; judged on {part if count < total else plural(total, 'request')}"


def priced(wanted: WantedPlan, size: EncoderSize) -> Costs:
    """Costs of the body and the engine asked for.

    Raises:
        ValueError: If the engine runs another, or the card is not on record.
    """
    compiled, fused = wanted.body != "plain", wanted.body == "fused"
    require(
        not (wanted.for_vllm and compiled),
        f"--for vllm captures the plain block, got --body {wanted.body}; leave it out",
    )
    costs = cards.price(size, on=wanted.card, compiled=compiled, fused=fused)
    return costs.with_private_slabs() if wanted.for_vllm else costs


def beyond(traffic: Traffic, plan: Plan) -> int:
    """Requests with more tokens than the largest budget."""
    largest = plan.largest().tokens if plan.graphs else 0
    return sum(count > largest for count in traffic.tokens_by_request)


def judged(parts: Parts, plan: Plan, costs: Costs, pack: str) -> Prediction:
    """Predict on the held-out requests; single ones are kept where they are few, for a range."""
    found = budgets.judge(parts.held_out.requests, plan, costs=costs, pack=pack)
    return found if found.latency.tail_ms is None else replace(found, by_request_ms=())
