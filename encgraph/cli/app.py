"""The `encgraph` command: its subcommands, and errors as one line that says what to do.

Exit status: 0, 1 for an error, 2 for wrong usage, 130 for an interrupt.
"""

import shutil
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import encgraph
from encgraph.cli import drawing, glossary, look, options, plan, prove, timing

EXPECTED = (ValueError, OSError, ImportError, RuntimeError)
"""What users can mend; anything else is a fault of ours and keeps its traceback."""


class OneLineErrors(TyperGroup):
    """Turns errors into one line on stderr, and keeps the command line for reports."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the command line in `ctx.obj`."""
        ctx.obj = ["encgraph", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        except EXPECTED as error:
            if ctx.params.get("traceback"):
                raise
            command = ctx.invoked_subcommand or "run"
            said = options.spoken(options.failed(error), self._options(ctx), command=command)
            typer.echo(f"error: {said}", err=True)
            raise typer.Exit(1) from error

    def _options(self, ctx: Any) -> dict[str, str]:
        """The options of the subcommand that runs, by the names of their parameters."""
        command = self.commands.get(ctx.invoked_subcommand or "")
        params = command.params if command else []
        return {p.name: p.opts[0] for p in params if p.name and p.opts[0].startswith("--")}


BOXED_WIDTH = 72
"""Columns from which help has room in boxes; on narrower terminals their names would be cut."""

BOXED = shutil.get_terminal_size().columns >= BOXED_WIDTH

app = typer.Typer(
    name="encgraph",
    cls=OneLineErrors,
    rich_markup_mode="rich" if BOXED else None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The words of each command's tables are explained by `encgraph COMMAND --help`.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(encgraph.__version__)
        raise typer.Exit


@app.callback()
def _encgraph(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say the version."),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error came from.")
    ] = False,
) -> None:
    """Plan, capture, pack, replay, prove, measure and explain CUDA graphs for encoders."""


_ending = partial(glossary.ending, boxed=BOXED)
_MEASURED = ("budget", "defer", "eager", "fallback", "padding", "replay", "replayed", "wall")

app.command(epilog=_ending("recorded", "modelled", "reference"))(look.doctor)
app.command()(look.encoders)
app.command(epilog=_ending("atoms", "p50, p90, p99", before=glossary.sources_read()))(look.traffic)
app.command(
    epilog=_ending(
        *("budget", "defer", "eager", "fill", "held out", "modelled", "p50, p90, p99"),
        *("padding", "recorded", "replayed", "tail smoothed"),
        before=glossary.sources_read(),
    )
)(plan.plan)
app.command(
    epilog=_ending(
        *(*_MEASURED, "error ratio", "fill", "poisoned", "slab", "pool", "driver"),
        before=glossary.presets(groups=False),
    )
)(prove.run)
app.command(epilog=_ending(*_MEASURED, "p50, p90, p99", before=glossary.presets(groups=True)))(
    timing.bench
)
app.command(epilog=_ending("replay", "eager"))(timing.record)
app.command(epilog=_ending("budget", "fallback", "poisoned"))(prove.check)
app.command()(drawing.figures)


def main() -> None:
    """Run the command line."""
    app(prog_name="encgraph")
