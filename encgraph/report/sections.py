"""Build the parts of a report that are text: notices, verdicts, tables."""

from collections import Counter
from collections.abc import Iterable

from encgraph import facts, tabular
from encgraph.facts import Report
from encgraph.report import advice, findings, headline, timetables
from encgraph.report.text import (
    Html,
    definitions,
    element,
    esc,
    join,
    mib,
    paragraph,
    percent,
    plural,
    prose,
    seconds,
    section,
    table,
)

_SHARES = (("min", 0.0), ("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def notices(report: Report) -> Html:
    """What a reader must know before any number: no card, or cut short."""
    found = []
    if not report.on_card:
        found.append(_no_card(report))
    if not report.complete:
        text = f"Partial report: the run stopped before its end ({report.interrupted})."
        found.append(element("aside", paragraph(text), css="notice"))
    return join(found)


def _no_card(report: Report) -> Html:
    where = report.environment
    machine = f"this CPU ({where.cpu})" if where.gpu is None else f"this card ({where.gpu})"
    first = (
        f"Latencies in this report are those of the reference backend on {machine}. "
        "They are no statement about a card."
    )
    texts = [element("p", element("strong", esc(first)))]
    if report.prediction is None:
        texts.append(paragraph("Nothing was predicted for a card either.", "soft"))
        return element("aside", join(texts), css="notice")
    texts.append(paragraph(f"Beside it, a prediction: {report.prediction.source}.", "soft"))
    if other := findings.other_packing(report):
        texts.append(paragraph(f"That prediction is {other}."))
    return element(
        "aside", element("div", *texts), timetables.predicted(report.prediction), css="notice"
    )


def header(report: Report) -> Html:
    """What was run, in one title and one sentence."""
    traffic, encoder, plan = report.traffic, report.encoder, report.plan
    where = report.environment.gpu or report.environment.cpu
    graphs = f"through {plural(len(plan.graphs), 'graph')}" if plan.graphs else "with graphs off"
    lead = (
        f"{plural(len(traffic.request_tokens), 'request')} with "
        f"{plural(len(traffic.item_tokens), 'item')} and {plural(traffic.tokens, 'token')}, "
        f"{graphs}, strategy {encoder.strategy}, {encoder.backend} backend; "
        f"{tabular.parameters(encoder.parameters)} parameters, {encoder.dtype}, "
        f"attention {_attention(report)}; on {where}."
    )
    packed = f"Packed by costs {encoder.costs}." if encoder.costs else ""
    return element(
        "header",
        paragraph(f"encgraph {report.encgraph} run report, {report.environment.utc}", "eyebrow"),
        element("h1", esc(f"{encoder.name} over {traffic.name}")),
        paragraph(lead, "lead"),
        paragraph(packed, "soft") if packed else Html(""),
    )


def _attention(report: Report) -> str:
    """Its name, and what was chosen for the graphs where that was to be measured."""
    chosen = Counter(graph.attention for graph in report.graphs if graph.attention)
    said = ", ".join(f"{name} for {plural(n, 'graph')}" for name, n in chosen.items())
    return f"{report.encoder.attention} ({said})" if said else report.encoder.attention


def verdicts(report: Report) -> Html:
    """The headline row."""
    return element(
        "div",
        *(
            element(
                "div",
                paragraph(v.question, "question"),
                paragraph(v.answer, "answer"),
                element("ul", *(element("li", prose(line)) for line in v.lines)),
                css=f"verdict {v.tone}",
            )
            for v in headline.verdicts(report)
        ),
        css="verdicts",
    )


def change(report: Report) -> Html:
    """What to change."""
    found = report.recommendations or advice.recommendations(report)
    entries = (element("li", prose(sentence)) for sentence in found)
    return element(
        "section",
        element("h2", esc("What should I change?")),
        element("ol", *entries),
        css="change",
    )


def plan(report: Report) -> Html:
    """Each graph of the plan: why it is there, what became of it, how it was used."""
    if not report.plan.graphs:
        why = " ".join(report.plan.reasons) or "No reason was recorded."
        return section("Plan: no graphs", paragraph(why))
    headers = ("budget", "items", "longest", "captured", "replays", "fill", "why it is there")
    note = (
        "Budget: output tokens a replay computes, padding included. Items: most in one replay. "
        "Longest: patches of the longest attention segment."
    )
    rows = table(headers, _plan_rows(report), css="stack")
    count = plural(len(report.plan.graphs), "graph")
    return section(f"Plan: {count}", element("div", rows, css="scroll"), paragraph(note, "soft"))


def _plan_rows(report: Report) -> Iterable[tuple[str, ...]]:
    used = findings.fill_by_budget(report)
    states = {state.graph: state for state in report.graphs}
    reasons = report.plan.reasons or ("no reason recorded",) * len(report.plan.graphs)
    above = 0
    for index, (graph, reason) in enumerate(zip(report.plan.graphs, reasons, strict=True)):
        count, ratio = used.get(graph.tokens, (0, 0.0))
        shared = graph.tokens == above
        above = graph.tokens
        yield (
            f"{graph.tokens:,}",
            f"{graph.items:,}",
            f"{graph.longest_segment:,}",
            _captured(states.get(index)),
            "as above" if shared else f"{count:,}",
            "as above" if shared else percent(ratio) if count else "unused",
            reason,
        )


def _captured(state: facts.GraphState | None) -> str:
    if state is None:
        return "not reached"
    if not state.captured:
        return f"failed: {state.why}"
    took = f", {seconds(state.seconds)}" if state.seconds is not None else ""
    size = f", {mib(state.num_bytes)}" if state.num_bytes is not None else ""
    return f"yes{took}{size}"


def fallbacks(report: Report) -> Html:
    """Fallbacks by reason."""
    if report.packing is None:
        return Html("")
    if not report.fallbacks:
        return section("Fallbacks", paragraph("No item fell back."))
    rows = [
        (f.reason.value, f"{f.items:,}", f"{f.tokens:,}", f"{f.largest_tokens:,}")
        for f in report.fallbacks
    ]
    headers = ("reason", "items", "tokens in all", "tokens of the largest step")
    return section("Fallbacks", element("div", table(headers, rows), css="scroll"))


def parity(report: Report) -> Html:
    """What was compared and by which tolerance."""
    found = report.parity
    if found is None:
        return section("Parity", paragraph("No output was compared with eager."))
    poison = {None: "not tried", True: "passed: outputs unchanged", False: "failed"}
    pairs = (
        ("verdict", "passed" if found.passed else "failed"),
        ("items compared", f"{found.items:,}"),
        *((("replays", findings.UNPROVEN),) if report.replayed_nothing else ()),
        ("worst error ratio", f"{found.worst_error_ratio:.4g}, item {found.worst_item}"),
        ("tolerance", f"{found.tolerance_ratio:.4g}: {found.tolerance_source}"),
        ("oracle", f"eager in {found.oracle_dtype}"),
        ("poisoned padding", poison[found.poison_passed]),
    )
    return section("Parity", definitions(pairs))


def traffic(report: Report) -> Html:
    """Where the traffic came from, its sizes, and what was skipped."""
    seen = report.traffic
    rows = [
        (of, f"{len(values):,}", *(f"{facts.quantile(values, s):,}" for _, s in _SHARES))
        for of, values in (("request", seen.request_tokens), ("item", seen.item_tokens))
        if values
    ]
    headers = ("tokens of each", "count", *(name for name, _ in _SHARES))
    content = [paragraph(f"Source: {seen.source}"), *(paragraph(note) for note in seen.notes)]
    content.append(element("div", table(headers, rows), css="scroll"))
    if seen.skipped:
        skipped = table(("file skipped", "why"), [(s.path, s.reason) for s in seen.skipped])
        content.append(paragraph(f"{plural(len(seen.skipped), 'file')} skipped:"))
        content.append(element("div", skipped, css="scroll"))
    return section("Traffic", *content)


def environment(report: Report) -> Html:
    """Where it ran and how to run it again."""
    where = report.environment
    pairs = (
        ("card", where.gpu or "none"),
        ("driver, CUDA", f"{where.driver or 'none'}, {where.cuda or 'none'}"),
        ("CPU", where.cpu),
        ("Python", where.python),
        ("torch", where.torch),
        ("transformers", where.transformers),
        ("encgraph", f"{where.encgraph}, commit {where.commit or 'unknown (installed package)'}"),
        ("dtype", where.dtype),
        ("time", where.utc),
    )
    return join(
        [
            section("Environment", definitions(pairs)),
            section("How to reproduce", element("pre", esc(report.command))),
        ]
    )
