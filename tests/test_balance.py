"""Every balance rule: each item once, near the best possible, and what each of them weighs by."""

import random
from itertools import product

import pytest

from encgraph import balance, costs, sizes
from encgraph.balance import Assignment
from encgraph.records import Item

SIZE = sizes.named("qwen3-vl-8b")
COSTS = costs.modelled(SIZE)


def items(*tokens: int) -> list[Item]:
    return [Item(tokens=n, patches=4 * n) for n in tokens]


def random_items(seed: int, most: int = 24) -> list[Item]:
    draw = random.Random(seed)
    return items(*(round(draw.lognormvariate(6, 1.2)) + 1 for _ in range(draw.randint(0, most))))


def makespan(shared: Assignment, weights: list[float]) -> float:
    return max(sum(weights[i] for i in mine) for mine in shared.ranks)


def best(weights: list[float], ranks: int) -> float:
    """The least makespan of all assignments, by trying them all."""
    owners = product(range(ranks), repeat=len(weights))
    return min(makespan(Assignment.of("any", own, ranks), weights) for own in owners)


@pytest.mark.parametrize("name", balance.RULES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_each_item_goes_to_one_rank(name, ranks):
    rule = balance.rule(name, COSTS)
    for seed in range(12):
        batch = random_items(seed)
        shared = rule(batch, ranks)
        assert len(shared.ranks) == ranks
        assert sorted(i for mine in shared.ranks for i in mine) == list(range(len(batch)))
        assert all(list(mine) == sorted(mine) for mine in shared.ranks)
        assert shared == rule(batch, ranks)
        assert shared.rule == name
        assert [shared.ranks[own].count(i) for i, own in enumerate(shared.owners)] == [1] * len(
            batch
        )


@pytest.mark.parametrize("ranks", [2, 3])
def test_longest_first_is_within_four_thirds_of_the_best(ranks):
    for seed in range(25):
        batch = random_items(seed, most=7)
        weights = [balance.price_ms(item, COSTS) for item in batch]
        shared = balance.longest_first(batch, ranks, costs=COSTS)
        bound = 4 / 3 - 1 / (3 * ranks)
        assert makespan(shared, weights) <= best(weights, ranks) * bound + 1e-9


def test_a_giant_counts_for_its_attention():
    """By patches four quarters weigh as much as one giant; by time they do not."""
    batch = items(8192, *[2048] * 4, *[256] * 8)
    by_patches = balance.patches(batch, 2).ranks
    by_time = balance.longest_first(batch, 2, costs=COSTS).ranks
    assert by_patches[0].count(0) == by_time[0].count(0) == 1
    assert len(by_time[0]) < len(by_patches[0])


def test_patches_is_the_rule_of_vllm():
    """Longest first by patches, the first of the least loaded ranks wins."""
    assert balance.patches(items(1000, 100, 200, 50), 2).ranks == ((0,), (1, 2, 3))
    assert balance.patches(items(5, 5, 5), 2).ranks == ((0, 2), (1,))


def test_count_and_round_robin_weigh_nothing():
    batch = items(9, 1, 1, 1, 1)
    assert balance.count(batch, 3).ranks == ((0, 1), (2, 3), (4,))
    assert balance.round_robin(batch, 3).ranks == ((0, 3), (1, 4), (2,))


def test_tokens_weighs_tokens_not_patches():
    clip = Item(tokens=10, patches=400)
    batch = [clip, *items(20, 9)]
    assert balance.tokens(batch, 2).ranks == ((1,), (0, 2))
    assert balance.patches(batch, 2).ranks == ((0,), (1, 2))


def test_exact_time_of_nothing_is_nothing():
    assert balance.exact_ms([], COSTS) == 0.0


def test_a_rule_without_its_costs_is_refused():
    with pytest.raises(ValueError, match="balance rule 'longest_first' needs costs, got None"):
        balance.rule("longest_first")


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match=r"balance rule must be one of \['count', .*got 'best'"):
        balance.rule("best", COSTS)


@pytest.mark.parametrize("name", balance.RULES)
def test_no_ranks_are_refused(name):
    with pytest.raises(ValueError, match="ranks must be at least 1, got 0"):
        balance.rule(name, COSTS)(items(1), 0)


@pytest.mark.parametrize("ranks", [(), ((0,), (0, 1)), ((0, 2),)])
def test_an_assignment_refuses_contradictions(ranks):
    with pytest.raises(ValueError, match="an assignment"):
        Assignment(rule="any", ranks=ranks)
