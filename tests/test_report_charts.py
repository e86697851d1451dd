"""What a report draws with a card and without one, and the reasons it counts."""

import re
from dataclasses import replace

import pytest
import report_examples as examples
from helpers_report import all_eager, words

from encgraph import figures
from encgraph.facts import FallbackFacts, Report, TimedStep
from encgraph.records import FallbackReason, Load, Modality, Route, Step
from encgraph.report import drawings, findings, page
from encgraph.results import Latency


def figure_ids(report: Report) -> set[str]:
    return set(re.findall(r'id="figure-([a-z-]+)"', page.render(report)))


def test_a_cpu_draws_the_prediction_as_one_and_no_time_of_its_own() -> None:
    report = examples.cpu_report()
    assert {"prediction", "predicted-speedup"} <= figure_ids(report)
    assert not {"latency", "speedup", "routes", "jitter"} & figure_ids(report)
    said = words(report)
    assert "Latency predicted for qwen3-vl-8b on H200, not measured" in said
    assert "Not drawn: the times measured here, which are the reference backend's" in said
    assert "Times of the reference backend: no statement about a card" in said
    assert said.count("speedup") == said.count("Predicted speedup")


def test_a_cpu_without_a_prediction_says_why_no_chart_is_there() -> None:
    report = replace(examples.cpu_report(), prediction=None)
    assert not {"prediction", "latency", "speedup"} & figure_ids(report)
    assert "Run on a card (--backend cuda) for charts." in words(report)


def test_a_card_draws_what_it_measured() -> None:
    assert {"latency", "speedup", "routes"} <= figure_ids(examples.card_report())
    assert "Not drawn" not in words(examples.card_report())


def split() -> Report:
    """A request whose items go three ways, one replayed whole, one not reached."""
    base = examples.card_report(count=3)
    steps = (
        (0, examples.step(64)),
        (0, examples.step(200)),
        (0, examples.step(9000)),
        (1, examples.step(60)),
    )
    return replace(
        base,
        steps=tuple(TimedStep(step=step, ms=1, request=request) for request, step in steps),
        fallbacks=FallbackFacts.by_reason(step for _, step in steps),
    )


def test_budgets_over_the_traffic_show_what_the_packing_did() -> None:
    routed = findings.routed(split())
    assert routed.tokens == (64 + 200 + 9000, 60)
    assert routed.padding == (208 - 200, 64 - 60)
    assert routed.eager == (9000, 0)


@pytest.mark.parametrize("report", [split(), all_eager(), examples.card_report()])
def test_the_chart_runs_eager_what_the_table_of_fallbacks_lists(report: Report) -> None:
    [chart] = [d for d in drawings.evidence(report) if d.key == "budgets"]
    shares = {bar.name: sum(bar.y) for bar in chart.drawn.data[:3]}
    executed = sum(timed.step.real_tokens for timed in report.steps)
    fell_back = sum(f.tokens for f in report.fallbacks) / executed
    assert shares["real tokens run eager"] == pytest.approx(fell_back)
    assert shares["real tokens replayed"] == pytest.approx(1 - fell_back)
    assert "over every budget" not in chart.drawn.to_json()


def test_a_run_that_executed_nothing_draws_sizes_alone() -> None:
    report = replace(examples.card_report(), steps=())
    assert {"requests", "items"} <= figure_ids(report)
    assert "budgets" not in figure_ids(report)


def test_a_chart_of_few_requests_draws_no_p99() -> None:
    for count in (99, 100):
        latency = Latency.of(range(1, count + 1), clock="wall")
        [bars] = figures.latency_quantiles({"ours": latency}).data
        assert ("p99" in bars.x) == (count == 100)
        assert list(bars.x)[:3] == ["mean", "p50", "p90"]
        assert bars.y[-1] == count


def test_fallbacks_are_grouped_by_reason_most_items_first() -> None:
    over = [examples.step(9000), examples.step(5000)]
    none = [examples.step(64, ())]
    found = FallbackFacts.by_reason([*none, *over])
    assert [(f.reason, f.items, f.largest_tokens) for f in found] == [
        (FallbackReason.OVER_TOKENS, 2, 9000),
        (FallbackReason.NO_GRAPHS, 1, 64),
    ]


def test_every_reason_of_a_step_is_counted_with_its_own_items_and_tokens() -> None:
    mixed = Step(
        route=Route.FALLBACK,
        modality=Modality.IMAGE,
        items=3,
        real_tokens=9100,
        reason=FallbackReason.OVER_TOKENS,
        reasons={
            FallbackReason.OVER_TOKENS: Load(items=1, tokens=9000),
            FallbackReason.EAGER_IS_FASTER: Load(items=2, tokens=100),
        },
    )
    found = FallbackFacts.by_reason([mixed, examples.step(5000)])
    assert [(f.reason, f.items, f.tokens, f.largest_tokens) for f in found] == [
        (FallbackReason.EAGER_IS_FASTER, 2, 100, 100),
        (FallbackReason.OVER_TOKENS, 2, 14000, 9000),
    ]
