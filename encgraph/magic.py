"""`%load_ext encgraph`: records show themselves, and `%%encgraph` profiles a cell by route.

`%%encgraph [NAME ...]` watches the runners of those names, or every runner in the notebook, while the
cell runs, and shows what each route took. The cell's own result is kept; the runners' observers are
put back, also after an error or an interrupt.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from encgraph import handles, shows, tabular
from encgraph.errors import require
from encgraph.report.text import plural

if TYPE_CHECKING:
    from encgraph.measure import ObservedStep, Recorder
    from encgraph.runner import EncoderRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProfile:
    """What a cell's encoder calls took, step by step."""

    steps: "tuple[ObservedStep, ...]"

    def table(self) -> tabular.Shown:
        """A row a route and budget: steps, items, real tokens, fill and milliseconds."""
        groups: dict[tuple[str, int | None], list[ObservedStep]] = {}
        for timed in self.steps:
            key = (timed.step.route.value, timed.step.token_budget)
            groups.setdefault(key, []).append(timed)
        rows = tuple(
            _row(key, groups[key]) for key in sorted(groups, key=lambda k: (k[0], k[1] or 0))
        )
        columns = ("route", "budget", "steps", "items", "real tokens", "fill", "time")
        title = plural(len(self.steps), "step") if self.steps else "no encoder call in this cell"
        return tabular.Shown(title=title, columns=columns if rows else (), rows=rows)


def _row(key: tuple[str, int | None], mine: "list[ObservedStep]") -> tuple[str, ...]:
    route, budget = key
    real = sum(t.step.real_tokens for t in mine)
    return (
        route,
        f"{budget:,}" if budget else "",
        str(len(mine)),
        str(sum(t.step.items for t in mine)),
        f"{real:,}",
        f"{real / budget / len(mine):.2f}" if budget else "",
        f"{sum(t.ms for t in mine):.3g} ms",
    )


def runners(namespace: Mapping[str, Any], names: list[str]) -> "dict[str, EncoderRunner]":
    """Runners by name in a namespace; all of them when no name is given.

    Raises:
        ValueError: If a name is no runner, or there is none at all.
    """
    from encgraph.runner import EncoderRunner

    found = {n: v for n, v in namespace.items() if isinstance(v, EncoderRunner)}
    known = sorted(n for n in found if not n.startswith("_"))
    for name in names:
        require(name in found, f"runner must be one of {known}, got {name!r}")
    require(bool(found), "there is no EncoderRunner to profile; make one in a cell before")
    return {n: found[n] for n in names or known}


@contextmanager
def recording(watched: "Mapping[str, EncoderRunner]") -> "Iterator[list[Recorder]]":
    """Record the steps of runners over a block, and put their observers back."""
    from encgraph.measure import Recorder

    recorders: list[Recorder] = []
    with ExitStack() as stack:
        for runner in {id(r): r for r in watched.values()}.values():
            recorder = Recorder(runner.encoder.spec.device)
            stack.callback(setattr, runner, "observe", runner.observe)
            runner.observe = recorder
            recorders.append(recorder)
        yield recorders


def load(shell: Any) -> None:
    """Register the formatters and the cell magic with an IPython shell."""
    register(shell)

    def encgraph(line: str, cell: str) -> None:
        """Profile the cell's encoder calls by route: %%encgraph [RUNNER ...]."""
        watched = runners(shell.user_ns, line.split())
        with recording(watched) as recorders:
            shell.run_cell(cell).raise_error()
        steps = tuple(timed for recorder in recorders for timed in recorder.steps)
        shell.user_ns["_profile"] = profile = CellProfile(steps=steps)
        from IPython.display import display

        display(profile)  # type: ignore[no-untyped-call]

    shell.register_magic_function(encgraph, magic_kind="cell", magic_name="encgraph")


def register(shell: Any) -> None:
    """Teach an IPython shell to show every record and handle; doing it again changes nothing.

    A terminal gets Rich tables, anything else plain text beside the HTML.
    """
    formatters = shell.display_formatter.formatters
    plain = _in_colour if shell.__class__.__name__.startswith("Terminal") else _pretty
    formatters["text/html"].for_type(tabular.Shown, _html)
    formatters["text/plain"].for_type(tabular.Shown, plain)
    for kind in (CellProfile, *shows.CARDS):
        formatters["text/html"].for_type(kind, _html)
        formatters["text/plain"].for_type(kind, plain)
    for module, name in handles.CARDS_BY_NAME:
        formatters["text/html"].for_type_by_name(module, name, _html)
        formatters["text/plain"].for_type_by_name(module, name, plain)


def _shown(record: object) -> tabular.Shown:
    if isinstance(record, CellProfile):
        return record.table()
    return record if isinstance(record, tabular.Shown) else shows.card(record)


def _html(record: object) -> str:
    return tabular.page(_shown(record))


def _pretty(record: object, printer: Any, cycle: bool) -> None:
    printer.text(tabular.lines(_shown(record)))


def _in_colour(record: object, printer: Any, cycle: bool) -> None:
    """As Rich would print it here: in colour where the terminal has any."""
    from rich.console import Console

    console = Console()
    with console.capture() as captured:
        console.print(tabular.rich(_shown(record)))
    printer.text(captured.get().rstrip("\n"))
