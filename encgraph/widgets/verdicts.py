"""What budgets are predicted to give, in words and rows, beside doubling and eager."""

from encgraph import tabular
from encgraph.records import Plan
from encgraph.results import Latency
from encgraph.widgets import panels
from encgraph.widgets.cases import Case, PlanEffect

COLUMNS = (
    "predicted for a request", "graphs", "mean fitted on, ms", "mean held out, ms",
    "p99, ms", "worst, ms", "padding", "replayed", "memory, MiB",
)  # fmt: skip


def verdict(case: Case, judged: PlanEffect) -> str:
    """What the budgets give beside doubling and eager, and whether their tail is worse than eager's."""
    mine = judged.prediction.latency
    doubling, eager = (
        case.judged(plan, pack="ascending").prediction.latency for plan in (case.doubling, case.off)
    )
    tail = mine.tail_name
    said = (
        f"predicted for a held-out request, mean and {tail}: {_both(mine)} ms with these budgets, "
        f"{_both(doubling)} ms with vLLM's doubling, {_both(eager)} ms without graphs"
    )
    above = mine.p99_ms - eager.p99_ms
    if f"{above:.2f}" > "0.00":
        said += f"; the {tail} of these budgets is {above:.2f} ms above that without graphs"
    return said


def _both(latency: Latency) -> str:
    return f"{latency.mean_ms:.2f} and {latency.p99_ms:.2f}"


def others(case: Case) -> list[list[str]]:
    """Rows of doubling and of eager."""
    return [
        row("vLLM's doubling, its packing", case.doubling, None, case, pack="ascending"),
        row("no graphs: eager", case.off, None, case, pack="ascending"),
    ]


def row(name: str, plan: Plan, judged: PlanEffect | None, case: Case, pack: str = "") -> list[str]:
    """A plan's row under `COLUMNS`; no p99 where there are too few requests for one."""
    held = (judged or case.judged(plan, pack=pack)).prediction
    tail_ms = held.latency.tail_ms
    return [
        name,
        str(len(plan.graphs)),
        f"{case.fitted_ms(plan, pack):.2f}",
        f"{held.mean_ms:.2f}",
        "" if tail_ms is None else f"{tail_ms:.2f}",
        f"{held.latency.worst_ms:.2f}",
        f"{held.padding_ratio:.1%}",
        f"{held.replay_rate:.0%}",
        f"{held.memory.total_bytes / tabular.MIB:,.0f}",
    ]


def note(case: Case, judged: PlanEffect) -> str:
    """On what the rows were judged, why there may be no p99, and where costs come from."""
    said = (case.how, judged.prediction.latency.tail_note, panels.priced(case.costs))
    return "; ".join(filter(None, said))
