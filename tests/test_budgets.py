import pytest
from planning_examples import MODELLED, SLOW_EAGER, TARGET, clip, images

from encgraph import budgets, sizes, traffic
from encgraph.fitting.shapes import Target
from encgraph.sources import profiles


def test_doubling_starts_at_the_smallest_and_appends_the_largest() -> None:
    assert budgets.doubling(64, 8192, target=TARGET).token_budgets == tuple(
        64 * 2**k for k in range(8)
    )
    assert budgets.doubling(64, 300, target=TARGET).token_budgets == (64, 128, 256, 300)
    assert budgets.doubling(49, 49 * 4, target=TARGET).token_budgets == (49, 98, 196)


@pytest.mark.parametrize(
    ("smallest", "largest", "items"),
    [(64, 8192, 64), (64, 16384, 64), (64, 256, 4), (324, 2592, 8), (64, 127, 1), (256, 256, 1)],
)
@pytest.mark.filterwarnings("ignore:budgets .* hold 1 item")
def test_doubling_infers_items_from_its_range(smallest: int, largest: int, items: int) -> None:
    plan = budgets.doubling(smallest, largest, target=TARGET)
    assert {g.items for g in plan.graphs} == {items}
    assert 1 <= items <= plan.graphs[0].tokens
    assert all(g.patches == 4 * g.tokens for g in plan.graphs)
    assert len(plan.reasons) == len(plan.graphs)


def test_a_range_of_one_budget_warns_that_items_do_not_share() -> None:
    with pytest.warns(UserWarning, match="hold 1 item a replay; pass items"):
        budgets.doubling(256, 256, target=TARGET)
    assert budgets.doubling(256, 256, target=TARGET, items=4).graphs[0].items == 4


@pytest.mark.parametrize(
    ("smallest", "largest", "items", "message"),
    [
        (0, 64, None, "smallest must be at least 1, got 0"),
        (128, 64, None, "1 <= smallest <= largest, got 128 and 64"),
        (64, 4096, 128, r"items must be within 1..64 \(the smallest budget\), got 128"),
        (64, 4096, 0, "items must be at least 1, got 0"),
        (64, 256.5, None, "largest must be a whole number of at least 1, got 256.5"),
        (64, 10**30, None, "largest must be at most 10,000,000, got 1000000"),
        (True, 64, None, "smallest must be a whole number of at least 1, got True"),
        (64, 256, 1.5, "items must be a whole number of at least 1, got 1.5"),
    ],
)
def test_an_impossible_range_is_refused(
    smallest: int, largest: int, items: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        budgets.doubling(smallest, largest, target=TARGET, items=items)


def test_quantile_budgets_are_quantiles_of_tokens_a_request() -> None:
    requests = [images(n) for n in range(100, 200)] + [images(500, 500)]
    plan = budgets.quantile(requests, 4, target=TARGET)
    assert plan.token_budgets == (125, 150, 175, 1000)
    assert plan.graphs[0].items == 2
    weighted = budgets.quantile([images(64), images(900)], 2, target=TARGET, weights=[9, 1])
    assert weighted.token_budgets == (64, 900)
    assert budgets.quantile([images(64)] * 9, 5, target=TARGET).token_budgets == (64,)


def test_quantile_budgets_hold_the_clips_they_were_made_from() -> None:
    requests = [[clip(10, 64)], [clip(4, 88)]]
    plan = budgets.quantile(requests, 2, target=TARGET)
    judged = budgets.judge(requests, plan, costs=SLOW_EAGER, pack="ascending")
    assert judged.replay_rate == 1.0


def test_quantile_without_requests_or_budgets_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one request"):
        budgets.quantile([], 4, target=TARGET)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        budgets.quantile([images(64)], 0, target=TARGET)


@pytest.mark.parametrize("name", sizes.SIZES)
def test_auto_covers_the_encoder_with_a_reason_for_each_number(name: str) -> None:
    target = Target(size=sizes.named(name), dtype="float16")
    plan = budgets.auto(target)
    rule = target.size.rule
    first, last = plan.token_budgets[0], plan.token_budgets[-1]
    assert len(plan.reasons) == len(plan.graphs)
    if rule.slot_tokens:
        assert first == rule.slot_tokens
        assert all(graph.tokens == graph.items * first for graph in plan.graphs)
    else:
        assert last == min(rule.max_tokens, budgets.REASONABLE_TOKENS)
        assert rule.min_tokens <= first <= max(rule.min_tokens, last // 128, 16)
        assert plan.graphs[0].items > 1
        assert "smallest item" in plan.reasons[0]
    if name == "qwen3-vl-8b":
        assert (first, last) == (64, 8192)
        assert "16384 tokens, run eager" in plan.reasons[-1]
    assert (plan.encoder, plan.dtype) == (name, "float16")


@pytest.mark.parametrize("name", profiles.PROFILE_NAMES)
def test_on_held_out_requests_of_a_profile_fitted_is_no_worse_at_p99_than_doubling(
    name: str,
) -> None:
    requests = traffic.read(f"builtin:{name}", TARGET.size, count=1200).requests
    fit_on, held_out = requests[:800], requests[800:]
    for costs in (MODELLED, SLOW_EAGER):
        fit = budgets.fitted(fit_on, target=TARGET, costs=costs)
        mine = budgets.judge(held_out, fit.best.plan, costs=costs)
        doubled = budgets.doubling(64, 8192, target=TARGET)
        theirs = budgets.judge(held_out, doubled, costs=costs)
        assert mine.latency.p99_ms <= theirs.latency.p99_ms + 1e-9
        # Fewer graphs are preferred within half a percent of the mean.
        assert mine.mean_ms <= theirs.mean_ms * 1.006


USES = {
    "fitted": lambda read: budgets.fitted(read, target=TARGET, costs=MODELLED),
    "judge": lambda read: budgets.judge(read, TARGET.plan([]), costs=MODELLED),
    "quantile": lambda read: budgets.quantile(read, 2, target=TARGET),
    "routed": lambda read: budgets.routed(read, TARGET.plan([]), costs=MODELLED),
}


@pytest.mark.parametrize("use", USES)
def test_a_traffic_in_place_of_its_requests_says_where_they_are(use) -> None:
    read = traffic.read("builtin:coco", TARGET.size, count=5)
    said = (
        r"requests must be a sequence of requests.*got Traffic; a Traffic has them as `\.requests`"
    )
    with pytest.raises(TypeError, match=said):
        USES[use](read)
