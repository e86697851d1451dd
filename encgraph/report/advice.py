"""Answer "what should I change?" from the facts of a run, most urgent first."""

from dataclasses import replace

from encgraph import regimes
from encgraph.facts import FallbackFacts, Report
from encgraph.records import FallbackReason
from encgraph.report import findings
from encgraph.report.text import factor, ms, percent, plural
from encgraph.results import LEAST_OF_P99

LOW_FILL = 0.75
MANY_FALLBACKS = 0.01
"""Share of items from which a reason to fall back is worth removing."""
MUCH_JITTER = 1.15
MEASURED_HERE = "measured at capture"
"""How the source of calibrated costs begins."""
NOT_CALIBRATED = "not calibrated"
"""Stands in the source of costs whose calibration was tried and refused."""

_WAYS_OUT = {
    FallbackReason.OVER_TOKENS: "raise the largest token budget to at least {largest}",
    FallbackReason.OVER_PATCHES: "raise the largest budget's patches, or its token budget to {largest}",
    FallbackReason.OVER_ITEMS: "allow more items a graph, or add a second item cap to the budget",
    FallbackReason.OVER_SEGMENTS: "allow more segments a graph (clips have one a temporal step)",
    FallbackReason.OVER_LONGEST_SEGMENT: "plan again with a longer longest segment, from this traffic",
    FallbackReason.OVER_FRAMES: "allow more frames a graph, or send shorter clips",
    FallbackReason.NOT_CAPTURED: "call capture() before the first batch",
    FallbackReason.CAPTURE_FAILED: "find out why the capture failed (plan table) and capture again",
    FallbackReason.UNSUPPORTED_MODALITY: "use an encoder whose graphs support this modality",
    FallbackReason.FORWARD_HOOKS: "remove the forward hooks from the encoder",
}
"""Reasons that something can be done about; the others are choices of the plan."""


def advised(report: Report) -> Report:
    """The report with its recommendations worked out."""
    return replace(report, recommendations=recommendations(report))


def recommendations(report: Report) -> tuple[str, ...]:
    """What to change, one sentence each, most urgent first; never empty."""
    found = [
        *_about_the_run(report),
        *_about_captures(report),
        *_about_fallbacks(report),
        *_about_sizes(report),
        *_about_tail(report),
        *_about_packing(report),
        *_about_jitter(report),
        *_about_samples(report),
    ]
    if found:
        return tuple(found)
    if not report.plan.graphs:
        return ("Nothing: the plan leaves graphs off for this traffic.",)
    return ("Nothing: keep this plan. Plan again when the traffic or the card changes.",)


def _about_the_run(report: Report) -> list[str]:
    found = []
    parity = report.parity
    if parity is not None and not parity.passed:
        found.append(
            f"Do not use these graphs: item {parity.worst_item} is {parity.worst_error_ratio:.3g} "
            f"times as far from the oracle as eager, allowed is {parity.tolerance_ratio:.3g}."
            if parity.worst_error_ratio > parity.tolerance_ratio
            else "Do not use these graphs: poisoned padding reached an output, so rows leak."
        )
    if not report.complete:
        found.append("Run again to the end: this report covers only what ran before it stopped.")
    if report.environment.gpu is None:
        proven = "the results of eager only" if report.replayed_nothing else "results and plan only"
        found.append(
            "Run it on a machine with a card (--backend cuda) for latency and memory; "
            f"this run proves {proven}."
        )
    elif report.encoder.backend != "cuda":
        found.append("Run it with --backend cuda: the reference backend replays no graph.")
    return found


def _about_captures(report: Report) -> list[str]:
    failed = [s for s in report.graphs if not s.captured]
    if not failed or not report.complete:
        return []
    budgets = "; ".join(f"{report.plan.graphs[s.graph].tokens:,}" for s in failed)
    return [
        f"{plural(len(failed), 'graph')} failed to capture (budget {budgets}): {failed[0].why}; "
        "drop them from the plan or remove the cause."
    ]


def _about_fallbacks(report: Report) -> list[str]:
    items = len(report.traffic.item_tokens)
    worth = [f for f in report.fallbacks if f.items >= MANY_FALLBACKS * items]
    return [_way_out(f) for f in worth if f.reason in _WAYS_OUT]


def _way_out(fallback: FallbackFacts) -> str:
    """One reason, how many items it cost, and what removes it."""
    way = _WAYS_OUT[fallback.reason].format(largest=f"{fallback.largest_tokens:,}")
    return f"{plural(fallback.items, 'item')} fell back, {fallback.reason}: {way}."


def _about_sizes(report: Report) -> list[str]:
    if not (report.on_card and report.plan.graphs):
        return []
    found = regimes.by_size(report.times)
    slower = [r for r in found if r.speedup < 1 - findings.EVEN]
    if not slower:
        return []
    if len(slower) == len(found):
        return ["Leave graphs off for this traffic: eager is faster in every size regime."]
    worst = min(slower, key=lambda r: r.speedup)
    if worst is found[-1]:
        way = f"cap the largest budget at {worst.over_tokens:,} so that those run eager"
    else:
        way = "add budgets there, or pack by predicted cost so that those run eager"
    return [f"Graphs reach only {factor(worst.speedup)} eager at {worst.label} tokens: {way}."]


def _about_tail(report: Report) -> list[str]:
    tail = findings.tail_speedup(report)
    if not (report.on_card and report.plan.graphs and report.latencies):
        return []
    if tail >= 1 - findings.EVEN or len(report.times) == 1:
        return []
    costs = report.encoder.costs
    was_tried = costs is None or costs.startswith(MEASURED_HERE) or NOT_CALIBRATED in costs
    ways = "budgets for the largest requests (--largest)"
    ways += ", or --calibrate to run eager what eager runs faster here" if not was_tried else ""
    name = report.latencies.ours_wall.tail_name
    return [f"The tail is no better than eager's, {name} {factor(tail)}: try {ways}."]


def _about_packing(report: Report) -> list[str]:
    packing, found = report.packing, []
    replayed = findings.fill_by_budget(report)
    if packing is None or not replayed:
        return []
    if packing.fill_ratio < LOW_FILL:
        more = max(4, 2 * len(report.plan.graphs))
        found.append(
            f"Replays are only {percent(packing.fill_ratio)} full: plan more budgets "
            f"(--max-graphs {more}) fitted to this traffic."
        )
    idle = [b for b in report.plan.token_budgets if b not in replayed]
    if idle and report.complete:
        listed = "; ".join(f"{b:,}" for b in idle)
        budgets, them = ("budgets", "them") if len(idle) > 1 else ("budget", "it")
        found.append(
            f"No batch used {budgets} {listed}: drop {them}, or measure more requests first."
        )
    return found


def _about_jitter(report: Report) -> list[str]:
    ratio = findings.alternation(report)
    if not report.on_card or ratio < MUCH_JITTER or report.jitter is None:
        return []
    slowest = max(report.jitter.replay_alternating_ms)
    return [
        f"A replay after a fallback takes {factor(ratio)} a replay alone (slowest {ms(slowest)}): "
        "cover what falls back with a budget if the tail matters."
    ]


def _about_samples(report: Report) -> list[str]:
    count = len(report.times)
    if not (report.on_card and report.complete and 0 < count < LEAST_OF_P99):
        return []
    return [f"Measure more requests: the tail of {count:,} is the single slowest one."]
