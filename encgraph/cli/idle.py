"""Refuse options that would change nothing beside the others given, by name and with the reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import typer

from encgraph.errors import require

_Wanted = TypeVar("_Wanted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Generic[_Wanted]):
    """An option, and when it has no effect."""

    option: str
    when: Callable[[_Wanted], bool]
    """Whether it has none, by all that was asked of the command."""
    why: str
    """Goes on from "has no effect"."""
    cure: str = "leave one of them out"


def refuse(ctx: typer.Context, wanted: _Wanted, rules: Sequence[Idle[_Wanted]]) -> None:
    """Refuse the first option on the command line that has no effect; defaults are nobody's wish.

    Raises:
        ValueError: If there is one.
    """
    given = {
        option
        for param in ctx.command.params
        if _is_given(ctx, param.name)
        for option in param.opts
    }
    for rule in rules:
        require(
            not (rule.option in given and rule.when(wanted)),
            f"{rule.option} has no effect {rule.why}; {rule.cure}",
        )


def _is_given(ctx: typer.Context, name: str | None) -> bool:
    source = ctx.get_parameter_source(name) if name else None
    return source is not None and source.name == "COMMANDLINE"
