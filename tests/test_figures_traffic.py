"""Traffic as a histogram, and budgets over it."""

import report_examples as examples

from encgraph import figures


def test_a_histogram_counts_every_request_once() -> None:
    tokens = [64, 64, 65, 100, 127, 128, 4000]
    trace = figures.traffic_histogram(tokens).data[0]
    assert sum(trace.y[:-1]) == len(tokens)
    assert trace.x[0] == 64
    assert trace.y[0] == 3


def test_sizes_that_recur_are_marks_of_their_own_within_a_bin() -> None:
    tokens = [930] * 30 + [961] * 20 + [992] * 2 + list(range(100, 140))
    drawn = figures.traffic_histogram(tokens, of="item")
    bins, atoms = drawn.data
    assert sum(1 for count in bins.y[:-1] if count >= 52) == 1, "all three lie in one bin"
    assert (list(atoms.x), list(atoms.y)) == ([930, 961, 992], [30, 20, 2])
    assert list(atoms.error_y.arrayminus) == [30, 20, 2]
    labels = drawn.layout.annotations
    assert [label.text for label in labels] == ["930", "961", "992"]
    assert len({label.ax for label in labels}) == 3, "fanned out"


def test_a_traffic_without_recurring_sizes_has_no_marks() -> None:
    drawn = figures.traffic_histogram(list(range(100, 400)))
    assert [trace.uid for trace in drawn.data] == ["traffic"]
    assert drawn.layout.annotations == ()


def test_padding_lies_between_a_request_and_the_smallest_budget_that_holds_it() -> None:
    drawn = figures.budgets_over_traffic(examples.plan((64, 256)), [300, 64, 10, 65])
    traces = {trace.uid: trace for trace in drawn.data}
    assert list(traces["requests"].y) == [10, 64, 65, 300]
    assert list(traces["padding"].y) == [64, 64, 256, 300]
    assert traces["padding"].fill == "tonexty"
    assert list(traces["fallback"].y) == [300]


def test_a_plan_without_graphs_leaves_every_request_to_fallback() -> None:
    drawn = figures.budgets_over_traffic(examples.plan(()), [10, 20])
    assert [trace.uid for trace in drawn.data] == ["requests", "fallback"]


def test_many_requests_are_thinned_but_both_ends_stay() -> None:
    drawn = figures.budgets_over_traffic(examples.plan((64,)), list(range(1, 5001)))
    requests = drawn.data[0]
    assert len(requests.y) == 400
    assert (requests.y[0], requests.y[-1], requests.x[-1]) == (1, 5000, 1.0)
