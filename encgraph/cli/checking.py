"""Check one encoder, of the registry or the user's own: a line a check, problems beneath it."""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from encgraph import sizes
from encgraph.checks import checked, places, subject, suite
from encgraph.checks.checked import Checked
from encgraph.checks.subject import MakeInputs, Subject
from encgraph.cli import machines, output, running
from encgraph.cli.machines import Machine
from encgraph.cli.options import Backend, Body
from encgraph.encoders import protocol
from encgraph.encoders.protocol import Encoder
from encgraph.errors import require
from encgraph.records import Plan

NAME_WIDTH = max(len(name) for name in suite.CHECK_NAMES)
MASKED = ("ragged",)
"""Layouts that multiply padding by zero."""


def show(
    encoder: str,
    backend: Backend | None,
    *,
    body: Body = "plain",
    plan_file: Path | None = None,
    seed: int,
    as_json: bool,
) -> None:
    """Run the checks, a line each.

    Args:
        encoder: A published size, or `module:function`: the function is called with `device` and
            `dtype` and returns an encoder; a `make_inputs` beside it makes its inputs.
        backend: What replays; None for cuda where there is a card.
        body: Of a published size; the user's own has the one that its function gives it.
        plan_file: A plan whose budgets are filled too; None for those of the checks alone.
        seed: Of weights and inputs.
        as_json: Whether to write one JSON value instead of lines.

    Raises:
        typer.Exit: With status 1 if one failed, or one that proves right answers was not run.
        ValueError: If there is no such encoder, it has no such body, or the plan is not for it.
    """
    machine = machines.chosen(backend)
    if ":" in encoder:
        made = _own(encoder, machine, seed)
    else:
        made = _published(encoder, machine, seed, body=body)
    if plan_file is not None:
        made = replace(made, given=_plan(plan_file, made.encoder))
    output.note(machine.said)
    found = []
    for one in suite.run(made):
        found.append(one)
        if not as_json:
            for line in checked.lines(one, width=NAME_WIDTH):
                output.line(line)
    if as_json:
        output.machine(found)
    _end(found, output.note if as_json else output.line)


def _end(found: Sequence[Checked], say: Callable[[str], None]) -> None:
    """Raise unless no check failed and those that prove right answers were run."""
    unproven = suite.unproven(found)
    if unproven:
        said = next(iter(unproven.values()))
        say(f"{said} ({', '.join(unproven)} not run)")
    if unproven or any(one.passed is False for one in found):
        raise typer.Exit(1)


def _published(name: str, machine: Machine, seed: int, *, body: Body) -> Subject:
    size = sizes.named(name)
    built = machines.built(size, machine, body=body, seed=seed)
    return Subject(
        encoder=built,
        make_inputs=subject.synthetic(built.spec),
        backend=machine.backend,
        layout="masked" if size.layout in MASKED else "packed",
        seed=seed,
    )


def _plan(path: Path, encoder: Encoder) -> Plan:
    """The plan of a file, which must be for this encoder."""
    spec = encoder.spec
    if spec.name in sizes.SIZES:
        plan = running.load_plan(path, sizes.named(spec.name))
    else:
        make = "write `codec.dumps(plan)` of an `encgraph.records.Plan` for it"
        plan = running.plan_for(path, spec.name, spec.rule, make=make)
    require(bool(plan.graphs), f"plan {str(path)!r} must have budgets to fill, got none")
    return plan


def _own(path: str, machine: Machine, seed: int) -> Subject:
    """An encoder from a module of the user's, found as `python -m` would find it.

    Raises:
        ValueError: If module or function are not there, or break off; names file and line.
    """
    module_name, _, name = path.partition(":")
    require(
        bool(name) and all(part.isidentifier() for part in module_name.split(".")),
        f"encoder must be a name that `encgraph encoders` lists, or module:function, got {path!r}",
    )
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = vars(importlib.import_module(module_name))
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and _is_within(error.name, module_name):
            raise ValueError(
                f"encoder {path!r} must be module:function, and {error.name!r} is no module here; "
                "run from the folder it is in"
            ) from error
        raise ValueError(f"module {module_name!r} cannot be imported: {_told(error)}") from error
    require(name in module, f"module {module_name!r} must have a function {name!r}")
    built = _called(path, module[name], machine)
    has_members = set(protocol.missing(built)) < set(protocol.MEMBERS)
    require(has_members, f"{path!r} must return an encoder, got {built!r}")
    return Subject(
        encoder=built,
        make_inputs=module.get("make_inputs") or _synthetic(built, module_name),
        backend=machine.backend,
        layout=module.get("layout", "packed"),
        seed=seed,
    )


def _called(path: str, build: Callable[..., Encoder], machine: Machine) -> Encoder:
    try:
        return build(device=machine.device, dtype=machine.dtype)
    except Exception as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is None:  # the call itself: nothing of it ran
            raise ValueError(
                f"{path!r} must take device= and dtype= and return an encoder, got {_told(error)}"
            ) from error
        raise ValueError(
            f"{path!r} raised while it built the encoder: {places.told(error, own=True)}"
        ) from error


def _synthetic(built: Encoder, module_name: str) -> MakeInputs:
    try:
        return subject.synthetic(built.spec)
    except Exception as error:
        raise ValueError(
            f"module {module_name!r} must have make_inputs(wanted, seed), since its encoder is of no "
            f"published size: {_told(error)}"
        ) from error


def _is_within(missing: str | None, module_name: str) -> bool:
    """Whether what was not found is the module asked for or a package of it, not what it imports."""
    return f"{module_name}.".startswith(f"{missing}.")


def _told(error: Exception) -> str:
    """The error with the line that raised it, unless that is the call here."""
    trace = error.__traceback__
    return places.told(error.with_traceback(trace.tb_next if trace else None))
