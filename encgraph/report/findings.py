"""Say what a report found: the four verdicts, and the sentence under each figure."""

from collections.abc import Sequence

from encgraph import facts
from encgraph.budgets import Routed
from encgraph.facts import CardPrediction, Report
from encgraph.records import Route
from encgraph.regimes import Regime
from encgraph.report.text import factor, mib, ms, percent, plural
from encgraph.results import Memory

_WHISKERS = "Dashed: as fast as eager; whiskers: p10 to p90 of requests."
UNPROVEN = "no item was replayed, so no replay was checked: eager with eager"
EVEN = 0.02
"""Speedups within this of 1 count as neither faster nor slower."""
SAME_RATE = 1e-6
"""Replay rates this close are one."""


def tail_speedup(report: Report) -> float:
    """Eager's p99 over the runner's, of few requests the slowest's; 1 if not measured."""
    if report.latencies is None:
        return 1.0
    return report.latencies.eager_wall.p99_ms / report.latencies.ours_wall.p99_ms


def other_packing(report: Report) -> str | None:
    """How a complete run packed otherwise than it was predicted for; None if it did not."""
    predicted = report.prediction.replay_rate if report.prediction else None
    ran = report.packing.replay_rate if report.packing and report.complete else None
    if predicted is None or ran is None or abs(predicted - ran) < SAME_RATE:
        return None
    return (
        f"of another packing: predicted with {percent(predicted)} of items replayed, "
        f"this run replayed {percent(ran)}"
    )


def mean_speedup(report: Report) -> float:
    """Eager's mean over the runner's over all timed requests."""
    return sum(t.eager_ms for t in report.times) / sum(t.ours_ms for t in report.times)


def parts(memory: Memory) -> str:
    """Memory by what holds it, in words."""
    return (
        f"slabs {mib(memory.slabs_bytes)}, pool {mib(memory.pool_bytes)}, "
        f"driver {mib(memory.driver_bytes)}"
    )


def routed(report: Report) -> Routed:
    """Where the tokens of each request went, of the requests that were executed."""
    found: dict[int, list[int]] = {}
    for timed in report.steps:
        if timed.request is not None:
            step = timed.step
            sums = found.setdefault(timed.request, [0, 0, 0])
            sums[0] += step.real_tokens
            sums[1] += (step.token_budget or step.real_tokens) - step.real_tokens
            sums[2] += 0 if step.route is Route.REPLAY else step.real_tokens
    return Routed(
        plan=report.plan,
        pack=f"of strategy {report.encoder.strategy}",
        tokens=tuple(tokens for tokens, _, _ in found.values()),
        padding=tuple(padding for _, padding, _ in found.values()),
        eager=tuple(eager for _, _, eager in found.values()),
    )


def of_traffic(report: Report) -> str:
    """Sizes of requests, and how many of their tokens were replayed."""
    tokens = report.traffic.request_tokens
    half, most = facts.quantile(tokens, 0.5), facts.quantile(tokens, 0.99)
    said = f"Half of the requests have at most {half:,} tokens, 99% at most {most:,}."
    if not report.plan.graphs:
        return said
    ran = routed(report)
    if not ran.tokens:
        return said
    eager = sum(ran.eager) / sum(ran.tokens)
    said += f" {percent(1 - eager)} of all tokens were replayed"
    return said + (f", {percent(eager)} ran eager." if eager else ".")


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
    """Mean and p99 against eager's; of few requests the slowest."""
    assert report.latencies is not None
    ours, eager = report.latencies.ours_wall, report.latencies.eager_wall
    tail = "shorter" if ours.p99_ms < eager.p99_ms else "longer"
    return (
        f"Mean {ms(ours.mean_ms)} against eager's {ms(eager.mean_ms)}; the tail is {tail}: "
        f"{ours.tail_name} {ms(ours.p99_ms)} against {ms(eager.p99_ms)}."
    )


def of_speedup(found: Sequence[Regime]) -> str:
    """Where the runner wins and where it loses."""
    slower = [r for r in found if r.speedup < 1 - EVEN]
    best = max(found, key=lambda r: r.speedup)
    if len(slower) == len(found):
        return f"Eager is faster in every size regime. {_WHISKERS}"
    if best.speedup <= 1 + EVEN:
        lead = f"Nothing is gained in any size regime ({factor(best.speedup)} at most)"
    else:
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


def of_prediction(prediction: CardPrediction, other: str | None = None) -> str:
    """Predicted mean, named as a prediction, and as one of another packing where it is."""
    what = "Predicted, not measured" + (f", {other}" if other else "")
    said = f"{what}: mean {ms(prediction.ours.mean_ms)}"
    if prediction.eager:
        said += f" against eager's {ms(prediction.eager.mean_ms)}"
    if prediction.doubling:
        said += f" and doubling budgets' {ms(prediction.doubling.mean_ms)}"
    return f"{said}, for {prediction.encoder} on {prediction.card}."
