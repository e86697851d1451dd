import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import report_examples as examples
from helpers_report import LIBRARY, all_eager, words

from encgraph import codec
from encgraph.facts import (
    GraphState,
    PackingFacts,
    ParityFacts,
    Report,
    quantile,
)
from encgraph.records import FallbackReason
from encgraph.regimes import Regime, RequestTimes
from encgraph.report import advice, findings, headline, page
from encgraph.report.text import mib, ms
from encgraph.results import Memory

EXAMPLES: dict[str, Callable[[], Report]] = {
    "card": examples.card_report,
    "cpu": examples.cpu_report,
    "partial": examples.partial_report,
    "no graphs": lambda: examples.card_report(budgets=()),
    "empty": examples.empty_report,
    "hostile": examples.hostile_report,
    "all eager": all_eager,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_report_survives_json_and_renders_to_the_same_bytes(name: str) -> None:
    report = EXAMPLES[name]()
    again = codec.loads(Report, codec.dumps(report))
    assert again == report
    assert page.render(again) == page.render(report)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_loads_nothing_and_carries_plotly_at_most_once(name: str) -> None:
    text = page.render(EXAMPLES[name]())
    assert text.count(LIBRARY) == (0 if name == "empty" else 1)
    own = text.replace(LIBRARY, "")
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?|@import|url\(|https?:""", own)


def test_hostile_names_stay_text() -> None:
    own = page.render(examples.hostile_report()).replace(LIBRARY, "")
    assert "<script>alert" not in own
    assert own.count("&lt;script&gt;alert") > 10
    assert own.count("<script") == own.count("</script>")
    assert examples.HOSTILE in words(examples.hostile_report())


def test_a_page_reads_on_a_phone_and_in_the_dark() -> None:
    text = page.render(examples.empty_report())
    assert 'name="viewport"' in text
    assert "prefers-color-scheme:dark" in text
    assert "@media (max-width:640px)" in text


def test_the_file_holds_the_rendered_page(tmp_path: Path) -> None:
    report = examples.empty_report()
    page.write(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == page.render(report).encode()


def test_the_first_line_on_a_cpu_disowns_its_latencies_and_predicts_beside_them() -> None:
    said = words(examples.cpu_report())
    first = "Latencies in this report are those of the reference backend on this CPU"
    body = said[said.index(": encgraph") + len(": encgraph") :]
    assert body.strip().startswith(first)
    assert "They are no statement about a card." in said
    assert "Prediction for qwen3-vl-8b on H200 (recorded curve)" in said
    modelled = examples.cpu_report()
    assert modelled.prediction
    modelled = replace(modelled, prediction=replace(modelled.prediction, recorded=False))
    assert "modelled, nothing recorded" in words(modelled)


def test_a_card_report_has_no_such_line() -> None:
    assert "no statement about a card" not in words(examples.card_report())


def test_the_reference_backend_on_a_card_says_so_too() -> None:
    base = examples.card_report(count=5)
    said = words(replace(base, encoder=replace(base.encoder, backend="reference")))
    assert "those of the reference backend on this card (NVIDIA H200)" in said


def test_a_card_report_puts_what_was_predicted_beside_what_was_measured() -> None:
    base = examples.card_report()
    assert base.packing and base.latencies and base.memory
    said_before = replace(
        examples.prediction(base.times), source="recorded", replay_rate=base.packing.replay_rate
    )
    report = replace(base, prediction=said_before)
    _, faster, memory, _ = headline.verdicts(report)
    mean = base.latencies.ours_wall.mean_ms
    assert f"mean {ms(mean)}, predicted {ms(said_before.ours.mean_ms)}" in faster.lines
    assert f"predicted {mib(said_before.memory.total_bytes)}" in memory.lines  # type: ignore[union-attr]
    said = words(report)
    assert "ours, predicted" in said and "eager, predicted" in said
    assert "Predicted before the run: recorded." in said
    other = replace(report, prediction=replace(said_before, replay_rate=0.25))
    assert not any("predicted" in line for line in headline.verdicts(other)[1].lines)
    assert "of another packing: predicted with 25% of items replayed" in words(other)
    assert 'id="figure-prediction"' not in page.render(report)


def test_the_headline_answers_the_four_questions() -> None:
    report = examples.card_report()
    right, faster, memory, rate = headline.verdicts(report)
    expected = sum(t.eager_ms for t in report.times) / sum(t.ours_ms for t in report.times)
    assert (right.answer, right.tone) == ("Yes", "good")
    assert faster.answer.startswith(f"Yes, {expected:.2f}")
    assert any(line.startswith("up to 512 tokens: ") for line in faster.lines)
    assert memory.answer == "1,774 MiB"
    assert rate.answer == "99%"


def test_a_page_names_every_budget_reason_command_and_version() -> None:
    report = examples.card_report()
    said = words(report)
    for text in (*report.plan.reasons, report.command, "580.159, 13.0", "commit 3f2c1ab"):
        assert text in said.replace("\N{NO-BREAK SPACE}", " ")


def test_a_size_at_which_eager_wins_is_called_slower_and_capped() -> None:
    base = examples.card_report()
    times = tuple(
        replace(t, ours_ms=t.eager_ms * 1.3) if t.tokens > 2048 else t for t in base.times
    )
    report = replace(base, times=times)
    _, faster, _, _ = headline.verdicts(report)
    assert any("over 2,048 tokens" in line and "(slower)" in line for line in faster.lines)
    assert any("cap the largest budget at 2,048" in s for s in advice.recommendations(report))


def test_an_item_too_far_from_eager_is_named_and_comes_first() -> None:
    report = replace(examples.card_report(), parity=examples.parity(worst=3.5))
    assert headline.verdicts(report)[0].answer == "No"
    first = advice.recommendations(report)[0]
    assert "Do not use these graphs" in first
    assert "request 117, item 0" in first


@pytest.mark.parametrize("ratio", [1.2500001, float("nan"), float("inf")])
def test_parity_fails_above_its_tolerance_and_on_nan(ratio: float) -> None:
    assert not examples.parity(worst=ratio).passed
    assert examples.parity(worst=1.25).passed


def test_parity_fails_when_poison_reached_an_output() -> None:
    leaked = replace(examples.parity(), poison_passed=False)
    assert isinstance(leaked, ParityFacts) and not leaked.passed
    assert (
        "poisoned padding"
        in advice.recommendations(replace(examples.card_report(), parity=leaked))[0]
    )


def test_items_over_every_budget_ask_for_a_larger_one() -> None:
    report = examples.card_report(budgets=(64, 512))
    largest = max(report.traffic.request_tokens)
    assert any(
        f"raise the largest token budget to at least {largest:,}" in s
        for s in advice.recommendations(report)
    )


def test_half_empty_replays_ask_for_more_budgets() -> None:
    report = examples.card_report(budgets=(64, 8236))
    assert any("plan more budgets" in s for s in advice.recommendations(report))


def test_a_cpu_is_told_to_use_a_card_and_never_to_leave_graphs_off() -> None:
    found = advice.recommendations(examples.cpu_report())
    assert "--backend cuda" in found[0]
    assert not any("eager" in s for s in found)


def test_a_failed_capture_is_reported_with_its_budget_and_why() -> None:
    base = examples.card_report()
    failed = GraphState(graph=11, captured=False, why="out of memory")
    report = replace(base, graphs=(*base.graphs[:11], failed))
    assert any("4,096): out of memory" in s for s in advice.recommendations(report))
    assert "failed: out of memory" in words(report)


def test_a_choice_of_the_plan_is_not_called_a_fault() -> None:
    found = advice.recommendations(all_eager())
    assert not any(FallbackReason.EAGER_IS_FASTER in s for s in found)
    assert headline.verdicts(all_eager())[3].answer == "0%"


def test_a_plan_without_graphs_says_graphs_are_off_and_why() -> None:
    said = words(examples.card_report(budgets=()))
    assert "Graphs off" in said
    assert "eager is faster for every request of this traffic" in said


def test_a_partial_report_says_what_stopped_it_and_asks_to_run_again() -> None:
    said = words(examples.partial_report())
    assert "Partial report" in said
    assert "Ctrl-C after 12 of 40 requests" in said
    assert "Not checked" in said
    assert "Run again to the end" in said


def test_a_report_is_complete_or_says_why_not() -> None:
    with pytest.raises(ValueError, match="says what stopped it"):
        replace(examples.card_report(count=3), complete=False)


def test_a_report_from_a_newer_release_is_refused() -> None:
    text = codec.dumps(examples.card_report(count=3)).replace('"schema": 1', '"schema": 99')
    with pytest.raises(ValueError, match="newer than this release"):
        codec.loads(Report, text)


def test_advice_in_the_record_is_what_the_page_shows() -> None:
    report = advice.advised(examples.card_report())
    assert report.recommendations == advice.recommendations(examples.card_report())
    said = replace(report, recommendations=("Write to the person who measured this.",))
    assert "Write to the person who measured this." in words(said)


def test_packing_counts_tokens_of_replays_and_items_of_all_routes() -> None:
    steps = [examples.step(60), examples.step(200), examples.step(9000)]
    found = PackingFacts.of(steps)
    assert found.fill_ratio == pytest.approx(260 / 272)
    assert found.padding_ratio == pytest.approx(12 / 272)
    assert found.replay_rate == pytest.approx(2 / 3)
    assert PackingFacts.of([]).replay_rate == 0


def test_a_quantile_is_the_smallest_value_with_that_share() -> None:
    assert [quantile([1, 2, 3, 4], s) for s in (0, 0.25, 0.26, 1)] == [1, 1, 2, 4]
    with pytest.raises(ValueError, match="needs values"):
        quantile([], 0.5)


def test_memory_is_never_one_number_only() -> None:
    lines = headline.verdicts(examples.card_report())[2].lines
    assert [line.split()[0] for line in lines] == ["slabs", "pool", "driver", "peak"]
    nothing = replace(examples.card_report(), memory=None)
    assert headline.verdicts(nothing)[2].answer == "Not measured"
    assert Memory(slabs_bytes=1, pool_bytes=2, driver_bytes=3).total_bytes == 6


@pytest.mark.parametrize(
    ("eager_ms", "said"),
    [
        (2.01, "Nothing is gained in any size regime (1.00"),
        (4.0, "Most is gained at"),
        (1.0, "Eager is faster in every size regime"),
    ],
)
def test_no_gain_is_not_called_one(eager_ms: float, said: str) -> None:
    one = RequestTimes(request=0, tokens=64, items=1, ours_ms=2.0, eager_ms=eager_ms)
    found = [Regime(over_tokens=0, max_tokens=512, times=(one,))]
    assert said in findings.of_speedup(found)
