"""What a report claims at its head, and what it must not."""

from dataclasses import replace

import report_examples as examples
from helpers_report import all_eager, words

from encgraph.report import advice, headline


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
    for costs in (None, f"{advice.MEASURED_HERE} on NVIDIA H200"):
        other = replace(report, encoder=replace(report.encoder, costs=costs))
        [said] = [s for s in advice.recommendations(other) if s.startswith("The tail")]
        assert "--calibrate" not in said


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
