"""Say what a report found: the four verdicts, and the sentence under each figure."""

from collections.abc import Sequence
from dataclasses import dataclass

from encgraph import facts, regimes
from encgraph.facts import CardPrediction, Report
from encgraph.records import Route
from encgraph.regimes import Regime
from encgraph.report.text import factor, mib, ms, percent, plural
from encgraph.results import Memory

_WHISKERS = "Dashed: as fast as eager; whiskers: p10 to p90 of requests."
EVEN = 0.02
"""Speedups within this of 1 count as neither faster nor slower."""


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
    return Verdict(
        question=question,
        answer="Yes" if parity.passed else "No",
        tone="good" if parity.passed else "bad",
        lines=(
            f"{plural(parity.items, 'item')} compared with eager",
            ratio,
            f"worst: item {parity.worst_item}",
            poison,
        ),
    )


def _faster(report: Report) -> Verdict:
    question = "Faster than eager?"
    if not report.on_card:
        return _faster_predicted(report.prediction, question)
    if not report.plan.graphs:
        line = "The plan has no graphs: every item ran eager."
        return Verdict(question=question, answer="Graphs off", tone="plain", lines=(line,))
    if not report.times:
        line = "The run stopped before requests were timed."
        return Verdict(question=question, answer="Not measured", tone="plain", lines=(line,))
    speedup = mean_speedup(report)
    answer = "Yes" if speedup > 1 + EVEN else "No" if speedup < 1 - EVEN else "Even"
    return Verdict(
        question=question,
        answer=f"{answer}, {factor(speedup)}",
        tone={"Yes": "good", "No": "bad", "Even": "plain"}[answer],
        lines=(
            "mean over all requests",
            *size_lines(regimes.by_size(report.times)),
            *_tail_lines(report),
        ),
    )


def _tail_lines(report: Report) -> tuple[str, ...]:
    """The tail in one line; means hide it."""
    if report.latencies is None:
        return ()
    ours, eager = report.latencies.ours_wall, report.latencies.eager_wall
    tail, worst = eager.p99_ms / ours.p99_ms, eager.worst_ms / ours.worst_ms
    return (f"p99: {factor(tail)}, slowest: {factor(worst)}",)


def _faster_predicted(prediction: CardPrediction | None, question: str) -> Verdict:
    unmeasured = "Not measured on a card"
    if prediction is None or prediction.eager is None:
        return Verdict(question=question, answer="Not measured", tone="plain", lines=(unmeasured,))
    speedup = prediction.eager.mean_ms / prediction.ours.mean_ms
    sizes = size_lines(regimes.by_size(prediction.times))
    return Verdict(
        question=question,
        answer=f"Predicted {factor(speedup)}",
        tone="plain",
        lines=(f"{unmeasured}; predicted for {prediction.encoder} on {prediction.card}", *sizes),
    )


def mean_speedup(report: Report) -> float:
    """Eager's mean over the runner's over all timed requests."""
    return sum(t.eager_ms for t in report.times) / sum(t.ours_ms for t in report.times)


def size_lines(found: Sequence[Regime]) -> tuple[str, ...]:
    """One line a size regime: its range, its speedup and, if under 1, that it is slower."""
    return tuple(
        f"{regime.label} tokens: {factor(regime.speedup)}"
        + (" (slower)" if regime.speedup < 1 - EVEN else "")
        for regime in found
    )


def parts(memory: Memory) -> str:
    """Memory by what holds it, in words."""
    return (
        f"slabs {mib(memory.slabs_bytes)}, pool {mib(memory.pool_bytes)}, "
        f"driver {mib(memory.driver_bytes)}"
    )


def _memory(report: Report) -> Verdict:
    question = "Memory for graphs"
    predicted = report.prediction.memory if report.prediction else None
    memory = report.memory
    if memory is not None:
        peak = f"peak during capture {mib(memory.peak_bytes)}" if memory.peak_bytes else ""
        lines = tuple(line for line in (*parts(memory).split(", "), peak) if line)
        return Verdict(question=question, answer=mib(memory.total_bytes), tone="plain", lines=lines)
    if predicted is not None and report.prediction is not None:
        of = f"{report.prediction.encoder} on {report.prediction.card}"
        lines = (f"Not measured; for {of}", *parts(predicted).split(", "))
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


def of_traffic(report: Report) -> str:
    """Sizes of requests against the largest budget."""
    tokens = report.traffic.request_tokens
    half, most = facts.quantile(tokens, 0.5), facts.quantile(tokens, 0.99)
    said = f"Half of the requests have at most {half:,} tokens, 99% at most {most:,}."
    if not report.plan.graphs:
        return said
    largest = report.plan.token_budgets[-1]
    over = sum(t > largest for t in tokens)
    fits = "All fit" if not over else f"{over:,} of {plural(len(tokens), 'request')} do not fit"
    return f"{said} {fits} the largest budget of {largest:,}."


def of_items(report: Report) -> str:
    """Sizes of items."""
    tokens = report.traffic.item_tokens
    return (
        f"{plural(len(tokens), 'item')} from {min(tokens):,} to {max(tokens):,} tokens, "
        f"median {facts.quantile(tokens, 0.5):,}."
    )


def fill_by_budget(report: Report) -> dict[int, tuple[int, float]]:
    """Replays and fill ratio of each token budget that was replayed."""
    groups: dict[int, list[int]] = {}
    for timed in report.steps:
        if timed.step.route is Route.REPLAY and timed.step.token_budget:
            groups.setdefault(timed.step.token_budget, []).append(timed.step.real_tokens)
    return {b: (len(g), sum(g) / (b * len(g))) for b, g in sorted(groups.items())}


def of_fill(report: Report) -> str:
    """Overall fill and the emptiest budget."""
    budgets = fill_by_budget(report)
    emptiest = min(budgets, key=lambda b: budgets[b][1])
    count, ratio = budgets[emptiest]
    overall = percent(report.packing.fill_ratio) if report.packing else "partly"
    return (
        f"Replays are {overall} full in all; the emptiest budget is {emptiest:,} at "
        f"{percent(ratio)} ({plural(count, 'replay')})."
    )


def of_routes(report: Report) -> str:
    """Median time of each route."""
    said = []
    for route in (Route.REPLAY, Route.FALLBACK, Route.EAGER):
        times = [s.ms for s in report.steps if s.step.route is route]
        if times:
            noun = "eager run" if route is Route.EAGER else route.value
            said.append(f"{plural(len(times), noun)}, median {ms(facts.quantile(times, 0.5))}")
    return "; ".join(said) + "."


def charted(report: Report) -> tuple[str, str]:
    """Title over the charts of latency, and why there are no measured ones; empty on a card."""
    if report.on_card:
        return "Latency", ""
    why = "Not drawn: the times measured here, which are the reference backend's and say nothing of graphs"
    prediction = report.prediction
    if prediction is None:
        return "Latency", f"{why}. Run on a card (--backend cuda) for charts."
    title = f"Latency predicted for {prediction.encoder} on {prediction.card}, not measured"
    return title, f"{why}. Run on a card (--backend cuda) to measure."


def of_latencies(report: Report) -> str:
    """Mean and p99 against eager's."""
    assert report.latencies is not None
    ours, eager = report.latencies.ours_wall, report.latencies.eager_wall
    tail = "shorter" if ours.p99_ms < eager.p99_ms else "longer"
    return (
        f"Mean {ms(ours.mean_ms)} against eager's {ms(eager.mean_ms)}; the tail is {tail}: "
        f"p99 {ms(ours.p99_ms)} against {ms(eager.p99_ms)}."
    )


def of_speedup(found: Sequence[Regime]) -> str:
    """Where the runner wins and where it loses."""
    slower = [r for r in found if r.speedup < 1 - EVEN]
    best = max(found, key=lambda r: r.speedup)
    if len(slower) == len(found):
        return f"Eager is faster in every size regime. {_WHISKERS}"
    lead = f"Most is gained at {best.label} tokens ({factor(best.speedup)})"
    if not slower:
        return f"{lead}; no size regime is slower than eager. {_WHISKERS}"
    named = ", ".join(f"{r.label} ({factor(r.speedup)})" for r in slower)
    return f"{lead}; eager is faster at {named} tokens. {_WHISKERS}"


def of_memory(memory: Memory) -> str:
    """What stays taken."""
    return f"{mib(memory.total_bytes)} stay taken: {parts(memory)}."


def of_fallbacks(report: Report) -> str:
    """The commonest reason."""
    first = report.fallbacks[0]
    total = sum(f.items for f in report.fallbacks)
    share = f"{first.items:,} of them: " if len(report.fallbacks) > 1 else ""
    return f"{plural(total, 'item')} ran eager as a fallback; {share}{first.reason}."


def alternation(report: Report) -> float:
    """Median replay right after a fallback over median replay alone; 1 if not measured."""
    if report.jitter is None:
        return 1.0
    alternating = facts.quantile(report.jitter.replay_alternating_ms, 0.5)
    return alternating / facts.quantile(report.jitter.replay_alone_ms, 0.5)


def of_jitter(report: Report) -> str:
    """What alternation does to a replay."""
    return f"A replay right after a fallback takes {factor(alternation(report))} a replay alone."


def of_prediction(prediction: CardPrediction) -> str:
    """Predicted mean and p99, named as a prediction."""
    said = f"Predicted, not measured: mean {ms(prediction.ours.mean_ms)}"
    if prediction.eager:
        said += f" against eager's {ms(prediction.eager.mean_ms)}"
    if prediction.doubling:
        said += f" and doubling budgets' {ms(prediction.doubling.mean_ms)}"
    return f"{said}, for {prediction.encoder} on {prediction.card}."
