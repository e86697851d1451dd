"""Turn a plan that was judged into flags of vLLM, or those of what is predicted to take no longer than it."""

from collections.abc import Mapping
from dataclasses import replace

from encgraph import export, sizes, tabular
from encgraph.cli import planning
from encgraph.cli.planning import FlagsOf, Planned, WantedPlan
from encgraph.costs import Costs
from encgraph.export import VllmFlags
from encgraph.records import Plan
from encgraph.traffic import Traffic, parted

MADE_BY_FLAGS: Mapping[FlagsOf, str] = {
    "defaults": "the flags turn graphs on with vLLM's default budgets",
    "off": "the flags leave graphs off",
}


def with_flags(wanted: WantedPlan, made: Planned, traffic: Traffic) -> Planned:
    """Add flags of the plan fitted on all requests, or of what was judged to take no longer than it."""
    size, version = sizes.named(wanted.encoder), wanted.engine_version
    costs = planning.priced(wanted, size)
    plan, said = made.plan, made.parts
    parts = parted(traffic, seed=wanted.seed)
    is_refitted = wanted.is_fitted and parts.fit is not parts.held_out.requests
    if is_refitted:
        everything = [*parts.fit, *parts.held_out.requests]
        plan = planning.make(wanted, size, costs, everything)
        said += f"; what is exported is fitted on all {len(everything):,} after that"
    flags_of = _flags_of(wanted, made, costs)
    flags = {
        "plan": export.vllm(plan, engine_version=version),
        "defaults": export.vllm_defaults(engine_version=version),
        "off": export.vllm(Plan(graphs=(), encoder=size.name), engine_version=version),
    }
    return replace(
        made,
        plan=plan,
        memory=costs.memory(plan),
        parts=said,
        beyond_ratio=planning.beyond(traffic, plan) / len(traffic.requests),
        flags=flags[flags_of],
        flags_of=flags_of,
        is_refitted=is_refitted,
    )


def _flags_of(wanted: WantedPlan, made: Planned, costs: Costs) -> FlagsOf:
    """What is predicted fastest in the mean on held-out requests, within the limits asked for."""
    theirs = planning.defaults(sizes.named(wanted.encoder))
    if wanted.max_graphs == 0 or made.plan.graphs == theirs.graphs:
        return "plan"
    found: list[tuple[float, FlagsOf]] = [(made.prediction.latency.mean_ms, "plan")]
    if made.plan.graphs:
        found.append((made.eager.latency.mean_ms, "off"))
    if made.doubling and _is_within(theirs, wanted, costs):
        found.append((made.doubling.latency.mean_ms, "defaults"))
    return min(reversed(found), key=lambda one: one[0])[1]


def _is_within(plan: Plan, wanted: WantedPlan, costs: Costs) -> bool:
    if wanted.largest is not None and plan.largest().tokens > wanted.largest:
        return False
    try:
        planning.check_limits(plan, wanted, costs)
    except ValueError:
        return False
    return True


def remarks_on_flags(made: Planned, flags: VllmFlags) -> list[str]:
    """What somebody should know who hands the flags to vLLM, a sentence each."""
    said = []
    theirs = made.doubling or made.eager
    if made.flags_of != "plan":
        rival = made.eager if made.flags_of == "off" else theirs
        said.append(
            f"{MADE_BY_FLAGS[made.flags_of]}, not the plan's: on held-out requests those are "
            f"predicted to take a mean of {rival.latency.mean_ms:.3f} ms, the plan "
            f"{made.prediction.latency.mean_ms:.3f} ms"
        )
    elif made.plan.graphs and made.prediction.latency.mean_ms > theirs.latency.mean_ms:
        said.append(
            "the flags are predicted to be slower than vLLM's defaults, which are over the limits "
            f"asked for: a mean of {made.prediction.latency.mean_ms:.3f} ms against "
            f"{theirs.latency.mean_ms:.3f} ms"
        )
    taken = {"plan": made.memory, "defaults": theirs.memory, "off": made.eager.memory}
    held = tabular.mib(taken[made.flags_of].total_bytes)
    said.append(f"the graphs of the flags are predicted to take {held}")
    return [*said, *([flags.assumed] if flags.assumed else [])]
