import pytest

from encgraph import summaries
from encgraph.records import Item


def items(*tokens):
    return tuple(Item(tokens=t, patches=4 * t) for t in tokens)


def test_a_summary_counts_items_and_tokens():
    about = summaries.of([items(64), items(64, 300), items(64)])
    assert (about.requests, about.items) == (3, 4)
    assert about.items_per_request.max == 2
    assert about.tokens_per_item.mean == 123
    assert (about.tokens_per_request.p50, about.tokens_per_request.max) == (64, 364)
    assert about.atoms == (summaries.Atom(tokens=64, share_ratio=0.75),)


def test_quantiles_are_values_that_occur_and_never_decrease():
    found = summaries.quantiles([7, 1, 5, 3])
    levels = [found.p5, found.p25, found.p50, found.p75, found.p90, found.p95, found.max]
    assert levels == [1, 1, 3, 5, 7, 7, 7]


def test_fewer_than_a_hundred_values_have_no_p99():
    assert summaries.quantiles(range(99)).p99 is None
    assert summaries.quantiles(range(100)).p99 == 98


def test_nothing_has_no_quantiles():
    with pytest.raises(ValueError, match="at least one value"):
        summaries.of([])
