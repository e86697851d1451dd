"""Traffic as a histogram."""

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
