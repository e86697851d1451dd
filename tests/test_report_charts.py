"""What a report draws with a card and without one, and the reasons it counts."""

import re
from dataclasses import replace

import report_examples as examples
from helpers_report import words

from encgraph import figures
from encgraph.facts import FallbackFacts, Report
from encgraph.records import FallbackReason, Load, Modality, Route, Step
from encgraph.report import page
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
