"""Answer the four questions at the head of a report, each in a word and a few lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from encgraph import regimes
from encgraph.facts import Report
from encgraph.regimes import Regime
from encgraph.report import findings
from encgraph.report.text import factor, mib, ms, percent, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One question of the headline row and its answer."""

    question: str
    answer: str
    tone: str
    """"good", "bad" or "plain"; the answer says the same in words."""
    lines: tuple[str, ...] = ()


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Right, faster, memory and replay rate, in this order."""
    return (_right(report), _faster(report), _memory(report), _replays(report))


def _right(report: Report) -> Verdict:
    parity = report.parity
    question = "Right?"
    if parity is None:
        line = "No output was compared with eager."
        return Verdict(question=question, answer="Not checked", tone="bad", lines=(line,))
    ratio = (
        f"worst error ratio {parity.worst_error_ratio:.3g}, {parity.tolerance_ratio:.3g} allowed"
    )
    poison = {
        None: "padding was not poisoned",
        True: "poisoned padding changed nothing",
        False: "poisoned padding changed an output",
    }[parity.poison_passed]
    if not parity.passed:
        answer, tone = "No", "bad"
    elif report.replayed_nothing:
        answer, tone = "Eager only", "plain"
    else:
        answer, tone = "Yes", "good"
    return Verdict(
        question=question,
        answer=answer,
        tone=tone,
        lines=(
            f"{plural(parity.items, 'item')} compared with eager",
            *((findings.UNPROVEN,) if report.replayed_nothing else ()),
            ratio,
            f"worst: item {parity.worst_item}",
            poison,
        ),
    )


def _faster(report: Report) -> Verdict:
    question = "Faster than eager?"
    if not report.on_card:
        return _faster_predicted(report, question)
    if not report.plan.graphs:
        line = "The plan has no graphs: every item ran eager."
        return Verdict(question=question, answer="Graphs off", tone="plain", lines=(line,))
    if not report.times:
        line = "The run stopped before requests were timed."
        return Verdict(question=question, answer="Not measured", tone="plain", lines=(line,))
    speedup = findings.mean_speedup(report)
    answer = (
        "Yes" if speedup > 1 + findings.EVEN else "No" if speedup < 1 - findings.EVEN else "Even"
    )
    return Verdict(
        question=question,
        answer=f"{answer}, {factor(speedup)}",
        tone={"Yes": "good", "No": "bad", "Even": "plain"}[answer],
        lines=(
            _over(len(report.times)),
            *_expected(report),
            *_fit_lines(report),
            *(("no item was replayed",) if report.replayed_nothing else ()),
            *size_lines(regimes.by_size(report.times)),
            *_tail_lines(report),
        ),
    )


def _over(requests: int) -> str:
    return "mean over all requests" if requests != 1 else "1 request: no mean, no tail"


def _expected(report: Report) -> tuple[str, ...]:
    """The mean measured and the mean that was predicted of the same packing."""
    prediction, found = report.prediction, report.latencies
    if prediction is None or found is None or findings.other_packing(report):
        return ()
    return (f"mean {ms(found.ours_wall.mean_ms)}, predicted {ms(prediction.ours.mean_ms)}",)


def _fit_lines(report: Report) -> tuple[str, ...]:
    """That the budgets knew the requests, where they did."""
    said = "budgets fitted on these very requests: expect less on others"
    return (said,) if report.encoder.fitted_on_run else ()


def _tail_lines(report: Report) -> tuple[str, ...]:
    """The tail in one line; means hide it. One request has none."""
    if report.latencies is None or len(report.times) == 1:
        return ()
    ours, eager = report.latencies.ours_wall, report.latencies.eager_wall
    slowest = f"slowest: {factor(eager.worst_ms / ours.worst_ms)}"
    if ours.tail_ms is None:
        return (slowest,)
    return (f"p99: {factor(findings.tail_speedup(report))}, {slowest}",)


def _faster_predicted(report: Report, question: str) -> Verdict:
    prediction, other = report.prediction, findings.other_packing(report)
    unmeasured = "Not measured on a card"
    if prediction is None or prediction.eager is None:
        return Verdict(question=question, answer="Not measured", tone="plain", lines=(unmeasured,))
    speedup = prediction.eager.mean_ms / prediction.ours.mean_ms
    sizes = size_lines(regimes.by_size(prediction.times))
    answer = f"Predicted {factor(speedup)}"
    return Verdict(
        question=question,
        answer=answer if other is None else "Not predicted for this packing",
        tone="plain",
        lines=(
            f"{unmeasured}; predicted for {prediction.encoder} on {prediction.card}",
            *((f"{answer}, {other}",) if other else ()),
            *(("1 request: no mean, no tail",) if prediction.ours.samples == 1 else ()),
            *_fit_lines(report),
            *sizes,
        ),
    )


def size_lines(found: Sequence[Regime]) -> tuple[str, ...]:
    """One line a size regime: its range, its speedup and, if under 1, that it is slower."""
    return tuple(
        f"{regime.label} tokens: {factor(regime.speedup)}"
        + (" (slower)" if regime.speedup < 1 - findings.EVEN else "")
        for regime in found
    )


def _memory(report: Report) -> Verdict:
    question = "Memory for graphs"
    predicted = report.prediction.memory if report.prediction else None
    memory = report.memory
    if memory is not None:
        peak = f"peak during capture {mib(memory.peak_bytes)}" if memory.peak_bytes else ""
        said = f"predicted {mib(predicted.total_bytes)}" if predicted else ""
        lines = tuple(line for line in (*findings.parts(memory).split(", "), peak, said) if line)
        return Verdict(question=question, answer=mib(memory.total_bytes), tone="plain", lines=lines)
    if predicted is not None and report.prediction is not None:
        of = f"{report.prediction.encoder} on {report.prediction.card}"
        lines = (f"Not measured; for {of}", *findings.parts(predicted).split(", "))
        answer = f"Predicted {mib(predicted.total_bytes)}"
        return Verdict(question=question, answer=answer, tone="plain", lines=lines)
    return Verdict(
        question=question, answer="Not measured", tone="plain", lines=("No memory was read.",)
    )


def _replays(report: Report) -> Verdict:
    question = "Replay rate"
    packing = report.packing
    if packing is None:
        return Verdict(question=question, answer="Nothing executed", tone="plain")
    items = packing.replayed_items + packing.eager_items
    lines = [f"{packing.replayed_items:,} of {plural(items, 'item')} replayed"]
    if packing.replayed_items:
        lines.append(f"replays {percent(packing.fill_ratio)} full")
    lines += [f"{f.items:,} fell back: {f.reason.value}" for f in report.fallbacks[:2]]
    return Verdict(
        question=question, answer=percent(packing.replay_rate), tone="plain", lines=tuple(lines)
    )
