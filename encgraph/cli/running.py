"""Check what was asked of `run` before torch is loaded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from encgraph import codec, sizes, strategies
from encgraph.cli import options, output, planning, sources
from encgraph.cli.idle import Idle
from encgraph.cli.options import Backend
from encgraph.errors import require
from encgraph.records import Plan
from encgraph.sizes import EncoderSize, TokenRule
from encgraph.strategies import Strategy
from encgraph.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRun:
    """What was asked of `run`."""

    command: Sequence[str]
    source: str
    encoder: str
    plan_file: Path | None = None
    backend: Backend | None = None
    strategy: str = "encgraph_plain"
    count: int | None = None
    largest: int | None = None
    repeats: int | None = None
    seed: int = 0
    calibrate: bool = False
    out: Path = Path()
    trace: Path | None = None

    @property
    def names_budgets(self) -> bool:
        """Whether the strategy captures budgets of a plan."""
        return strategies.named(self.strategy).plan not in strategies.UNPLANNED

    @property
    def packs_by_times(self) -> bool:
        """Whether the strategy packs by predicted time."""
        return strategies.named(self.strategy).packing == "cheapest"


RUN_IDLE: tuple[Idle[WantedRun], ...] = (
    Idle(
        option="--plan",
        when=lambda wanted: not wanted.names_budgets,
        why="with this --strategy, which captures no budgets of a plan",
    ),
    Idle(
        option="--largest",
        when=lambda wanted: wanted.plan_file is not None,
        why="with --plan, whose budgets are what is captured",
    ),
    Idle(
        option="--largest",
        when=lambda wanted: not wanted.names_budgets,
        why="with this --strategy, which captures no budgets",
    ),
    Idle(
        option="--calibrate",
        when=lambda wanted: not wanted.packs_by_times,
        why="with this --strategy, whose packing goes by no times",
    ),
)
"""What may be asked of `run` to no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRun:
    """What was asked of `run` and found in order."""

    wanted: WantedRun
    size: EncoderSize
    strategy: Strategy
    plan: Plan | None
    """Read from the file given; None where one is to be made."""
    traffic: Traffic
    """As read; what cannot be decoded is still there."""


def checked(wanted: WantedRun) -> ReadyRun:
    """Look everything up and read the traffic.

    Raises:
        ValueError: If something asked for cannot be had; nothing is written before the plan is read.
    """
    size, strategy = sizes.named(wanted.encoder), strategies.named(wanted.strategy)
    planning.check_largest(wanted.largest, size)
    options.check_calibrate(wanted.calibrate, wanted.backend)
    plan = None if wanted.plan_file is None else load_plan(wanted.plan_file, size)
    output.folder(wanted.out)
    if wanted.trace is not None:
        output.file(wanted.trace)
    traffic = sources.read(wanted.source, size, count=wanted.count, seed=wanted.seed)
    return ReadyRun(wanted=wanted, size=size, strategy=strategy, plan=plan, traffic=traffic)


def load_plan(path: Path, size: EncoderSize) -> Plan:
    """Read a plan for an encoder of a published size.

    Raises:
        ValueError: If it is no plan, of a newer schema, for another encoder or useless for this one.
    """
    new = path.with_name("new-plan.json") if path.exists() else path
    make = f"make it with `encgraph plan SOURCE --encoder {size.name} -o {new}`"
    return plan_for(path, size.name, size.rule, make=make)


def plan_for(path: Path, encoder: str, rule: TokenRule, *, make: str) -> Plan:
    """Read a plan for an encoder of a name and a rule.

    Args:
        path: Its file.
        encoder: What it must be for.
        rule: Which items are legal.
        make: How such a file is made, for errors.

    Raises:
        ValueError: If it is no plan, of a newer schema, for another encoder or useless for this one.
    """
    try:
        plan = codec.loads(Plan, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"plan {str(path)!r} cannot be read: {error.strerror}; {make}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"plan {str(path)!r} is not JSON: {error}; {make}") from error
    except ValueError as error:
        raise ValueError(f"plan {str(path)!r}: {error}; {make}") from error
    require(
        plan.encoder == encoder,
        f"plan {str(path)!r} is for encoder {plan.encoder!r}, got --encoder {encoder!r}; {make}",
    )
    smallest = rule.min_tokens
    low = [budget for budget in plan.token_budgets if budget < smallest]
    require(
        not low,
        f"plan {str(path)!r} has budgets {low!r}, under the smallest item of {encoder!r}, "
        f"{smallest} tokens; raise or drop them",
    )
    try:
        sizes.check_plan(plan, rule)
    except ValueError as error:
        raise ValueError(f"plan {str(path)!r}: {error}; {make}") from error
    return plan
