"""What a report claims at its head, and what it must not."""

from dataclasses import replace

import report_examples as examples
from helpers_report import all_eager, words

from encgraph.facts import Report
from encgraph.report import advice, findings, headline, timetables
from encgraph.results import LEAST_OF_P99, Latency


def test_a_tail_that_gains_nothing_is_not_kept_silent() -> None:
    base = examples.card_report()
    assert base.latencies is not None
    slow = replace(base.latencies.ours_wall, p99_ms=base.latencies.eager_wall.p99_ms / 0.96)
    slow = replace(slow, worst_ms=max(slow.worst_ms, slow.p99_ms))
    report = replace(base, latencies=replace(base.latencies, ours_wall=slow), jitter=None)
    packed = replace(report, encoder=replace(report.encoder, costs="recorded on NVIDIA H200"))
    [said] = [s for s in advice.recommendations(packed) if s.startswith("The tail")]
    assert "no better than eager's, p99 0.96" in said
    assert "--largest" in said
    assert "--calibrate" in said
    tried = f"recorded on NVIDIA H200; {advice.NOT_CALIBRATED}: calibration must time 9 replays"
    for costs in (None, f"{advice.MEASURED_HERE} on NVIDIA H200", tried):
        other = replace(report, encoder=replace(report.encoder, costs=costs))
        [said] = [s for s in advice.recommendations(other) if s.startswith("The tail")]
        assert "--calibrate" not in said
    few = replace(report.latencies, ours_wall=replace(slow, samples=LEAST_OF_P99 - 1))
    [said] = [
        s
        for s in advice.recommendations(replace(report, latencies=few))
        if s.startswith("The tail")
    ]
    assert "no better than eager's, slowest 0.96" in said


def report_of(count: int) -> Report:
    """A report of a card whose requests took 1 to so many ms, eager twice that."""
    base = examples.card_report()
    assert base.latencies is not None
    ours, eager = (
        Latency.of([ms * by for ms in range(1, count + 1)], clock="wall") for by in (1, 2)
    )
    return replace(base, latencies=replace(base.latencies, ours_wall=ours, eager_wall=eager))


def test_of_few_requests_a_report_calls_the_slowest_by_its_name() -> None:
    few = report_of(LEAST_OF_P99 - 1)
    assert headline._tail_lines(few) == ("slowest: 2.00\N{MULTIPLICATION SIGN}",)
    assert findings.of_latencies(few).endswith("slowest 99.0 ms against 198 ms.")
    shown = timetables.measured(few)
    assert ">-</td>" in shown
    assert "No p99: of fewer than 100 it is the slowest." in shown


def test_of_a_hundred_requests_a_report_has_a_p99() -> None:
    many = report_of(LEAST_OF_P99)
    assert headline._tail_lines(many)[0].startswith("p99: 2.00")
    assert findings.of_latencies(many).endswith("p99 99.0 ms against 198 ms.")
    shown = timetables.measured(many)
    assert ">-</td>" not in shown
    assert "No p99" not in shown


def test_a_report_without_replays_proves_none() -> None:
    right, _, _, _ = headline.verdicts(all_eager())
    assert (right.answer, right.tone) == ("Eager only", "plain")
    assert "no item was replayed, so no replay was checked: eager with eager" in right.lines
    assert "so no replay was checked" in words(all_eager())
    failed = replace(all_eager(), parity=examples.parity(worst=3.5))
    assert headline.verdicts(failed)[0].answer == "No"


def test_a_prediction_of_another_packing_is_no_headline() -> None:
    base = examples.cpu_report()
    assert base.prediction and base.packing
    same = replace(base.prediction, replay_rate=base.packing.replay_rate)
    report = replace(base, prediction=same)
    assert headline.verdicts(report)[1].answer.startswith("Predicted ")
    assert "another packing" not in words(report)
    other = replace(base, prediction=replace(same, replay_rate=0.25))
    faster = headline.verdicts(other)[1]
    assert faster.answer == "Not predicted for this packing"
    assert any("another packing: predicted with 25% of items replayed" in s for s in faster.lines)
    assert words(other).count("of another packing") == 3


def test_one_request_has_no_mean_and_no_tail() -> None:
    _, faster, _, _ = headline.verdicts(examples.card_report(count=1))
    assert "1 request: no mean, no tail" in faster.lines
    assert not any(line.startswith("p99") for line in faster.lines)
