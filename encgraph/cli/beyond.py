"""Say which requests no budget of a plan holds and why none is larger, by planning again without each limit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Literal

from encgraph import export, sizes
from encgraph import traffic as traffics
from encgraph.cli import planning
from encgraph.cli.planning import Planned, WantedPlan
from encgraph.traffic import Traffic

MANY_GRAPHS = 16
"""Graphs that are tried where fewer were asked for."""
Lift = Callable[[WantedPlan], WantedPlan]
Tried = Literal["none", "slower", "faster"]
"""Whether larger budgets are planned, and how fast they are on requests held out."""
WORTH: tuple[Tried, ...] = ("none", "slower", "faster")


def told(wanted: WantedPlan, traffic: Traffic, made: Planned) -> list[str]:
    """How many requests are over the largest budget, and why, in a sentence; none if none is."""
    count = planning.beyond(traffic, made.plan)
    if not made.plan.graphs or not count:
        return []
    judged = planning.beyond(traffics.parted(traffic, seed=wanted.seed).held_out, made.plan)
    unseen = "" if judged else "; none of them is among those that the table is of"
    return [
        f"requests over the largest budget, which run eager or in parts: {count:,} of "
        f"{len(traffic.requests):,}{unseen}; {why(wanted, traffic, made)}"
    ]


def why(wanted: WantedPlan, traffic: Traffic, made: Planned) -> str:
    """What keeps budgets from being larger: limits, by their options, or what larger ones would take.

    They are fitted and judged as the plan was: on a part of the requests, and on the others.
    """
    found = _without_limits(wanted, traffic, made)
    faster = [options for options, tried in found.items() if tried == "faster"]
    alone = [options[0] for options in faster if len(options) == 1]
    if faster:
        return f"{' or '.join(alone)} raises it" if alone else f"{' and '.join(faster[0])} raise it"
    slower = [options for options, tried in found.items() if tried == "slower"]
    if slower:
        limits = " and ".join(_limit(option, wanted) for option in slower[0])
        return (
            f"without {limits} larger ones would be planned, predicted slower on requests held out"
        )
    if wanted.method == "fitted":
        return "no larger one is predicted to pay for the requests that budgets were fitted on"
    return f"no larger one was tried: --method {wanted.method} has none over what it was fitted on"


def _without_limits(
    wanted: WantedPlan, traffic: Traffic, made: Planned
) -> Mapping[tuple[str, ...], Tried]:
    """What budgets would be without each limit and without all, by their options; the best of several."""
    longest = max(traffic.tokens_by_request)
    found: dict[tuple[str, ...], Tried] = {}
    for ceiling in sorted({min(longest, export.VLLM_LARGEST), longest}):
        lifts = _lifts(wanted, ceiling)
        each: list[tuple[str, ...]] = [(option,) for option in lifts]
        for options in dict.fromkeys([*each, tuple(lifts)]):
            if options and found.get(options) != "faster":
                lifted = reduce(lambda asked, option: lifts[option](asked), options, wanted)
                tried = _tried(lifted, traffic, made)
                found[options] = max(tried, found.get(options, "none"), key=WORTH.index)
    return found


def _limit(option: str, wanted: WantedPlan) -> str:
    """A limit as it was given, or as vLLM has it unless one is."""
    if option == "--largest" and wanted.largest is None:
        return f"vLLM's own limit of {export.VLLM_LARGEST:,} tokens (--largest)"
    return option


def _lifts(wanted: WantedPlan, ceiling: int) -> Mapping[str, Lift]:
    """What lifts each limit on budgets, that on tokens up to a ceiling, by its option."""
    most = planning.largest(wanted)
    if most is None and wanted.method == "doubling":
        most = export.VLLM_LARGEST
    found: dict[str, Lift] = {}
    if wanted.max_bytes is not None:
        found["--memory"] = lambda asked: replace(asked, max_bytes=None)
    if most is not None and most < ceiling:
        found["--largest"] = lambda asked: replace(asked, largest=ceiling)
    if wanted.max_graphs < MANY_GRAPHS:
        found["--max-graphs"] = lambda asked: replace(asked, max_graphs=MANY_GRAPHS)
    return found


def _tried(wanted: WantedPlan, traffic: Traffic, made: Planned) -> Tried:
    size = sizes.named(wanted.encoder)
    costs, parts = planning.priced(wanted, size), traffics.parted(traffic, seed=wanted.seed)
    try:
        plan = planning.make(wanted, size, costs, parts.fit)
    except ValueError:  # limits that are left refuse what is larger by rule
        return "none"
    if not plan.graphs or plan.largest().tokens <= made.plan.largest().tokens:
        return "none"
    mean_ms = planning.judged(parts, plan, costs, planning.rule(wanted)).latency.mean_ms
    return "faster" if mean_ms < made.prediction.latency.mean_ms else "slower"
