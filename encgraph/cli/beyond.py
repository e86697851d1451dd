"""Say which requests no budget of a plan holds and why none is larger, by planning again without each limit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from encgraph import sizes
from encgraph import traffic as traffics
from encgraph.cli import planning
from encgraph.cli.planning import Planned, WantedPlan
from encgraph.traffic import Traffic

MANY_GRAPHS = 16
"""Graphs that are tried where fewer were asked for."""
Lift = Callable[[WantedPlan], WantedPlan]
Tried = Literal["none", "slower", "faster"]
"""Whether larger budgets are planned, and how fast they are on requests held out."""

UNWANTED: Mapping[Tried, str] = {
    "none": "no larger one is predicted to pay for the requests that budgets were fitted on",
    "slower": "larger ones are predicted to be slower on requests that they were not fitted on",
}


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
    """The option that keeps budgets from being larger, where larger ones are predicted to pay.

    They are fitted and judged as the plan was: on a part of the requests, and on the others.
    """
    lifts = _lifts(wanted, max(traffic.tokens_by_request))
    every = wanted
    for lift in lifts.values():
        every = lift(every)
    found = _tried(every, traffic, made) if lifts else "none"
    if found != "faster":
        return UNWANTED[found]
    alone = [
        option
        for option, lift in lifts.items()
        if len(lifts) == 1 or _tried(lift(wanted), traffic, made) == "faster"
    ]
    return f"{' or '.join(alone)} raises it" if alone else f"{' and '.join(lifts)} raise it"


def _lifts(wanted: WantedPlan, longest: int) -> Mapping[str, Lift]:
    """What lifts each limit on budgets, by its option."""
    most = planning.largest(wanted)
    found: dict[str, Lift] = {}
    if wanted.max_bytes is not None:
        found["--memory"] = lambda asked: replace(asked, max_bytes=None)
    if most is not None and most < longest:
        found["--largest"] = lambda asked: replace(asked, largest=longest)
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
