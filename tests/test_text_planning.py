"""Plans for pooled encoders: budgets bound the tokens that are computed, not the rows that come out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from encgraph import budgets, cards, export, packing, sizes
from encgraph.budgets import Limits, Target
from encgraph.encoders import inputs, registry
from encgraph.records import FallbackReason, Item, Modality, Plan, Route, Step
from encgraph.runner import EncoderRunner

BERT = sizes.named("bert-base-uncased")
TARGET = Target(size=BERT)
COSTS = cards.price(BERT)


def text(length: int) -> Item:
    return Item(modality=Modality.TEXT, tokens=length, patches=length)


def texts(seed: int, count: int, *, most: int, longest: int = 512) -> list[list[Item]]:
    draw = np.random.default_rng(seed)
    return [
        [
            text(min(longest, 3 + int(n)))
            for n in draw.lognormal(3.5, 1.2, draw.integers(1, most + 1))
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("most", [1, 8, 40])
@pytest.mark.parametrize("pack", ["cheapest", "ascending"])
def test_fitted_costs_no_more_than_doubling_or_quantile_with_as_many_graphs(
    most: int, pack: str
) -> None:
    requests = texts(most, 150, most=most)
    total = max(sum(item.tokens for item in request) for request in requests)
    fit = budgets.fitted(requests, target=TARGET, costs=COSTS, limits=Limits(pack=pack))
    rivals = [budgets.quantile(requests, count, target=TARGET) for count in (1, 3, 6)]
    rivals += [budgets.doubling(64, upper, target=TARGET) for upper in (512, max(total, 512))]
    rivals += [budgets.doubling(16, 512, target=TARGET, items=16), budgets.auto(TARGET)]
    for rival in rivals:
        theirs = budgets.judge(requests, rival, costs=COSTS, pack=pack)
        mine = fit.frontier[len(rival.graphs)].prediction
        assert mine.mean_ms <= theirs.mean_ms * (1 + 1e-9), rival.token_budgets


def test_texts_of_very_different_length_do_not_get_the_same_budget() -> None:
    requests = [[text(n)] for n in (8, 9, 480, 500) * 20]
    plan = budgets.fitted(requests, target=TARGET, costs=COSTS).best.plan
    packed = packing.packer(plan, COSTS)
    [short], [long] = (packed([text(n)]).bins for n in (9, 500))
    assert short.token_budget < 100
    assert 500 <= long.token_budget <= 512
    assert short.capacity.patches < long.capacity.patches
    assert plan.reasons[short.graph].startswith(
        f"{short.token_budget} tokens, up to 1 item: expected to take"
    )


def test_many_short_texts_share_a_replay_though_each_is_smaller_than_their_number() -> None:
    requests = [[text(4)] * 32 for _ in range(20)]
    plan = budgets.fitted(requests, target=TARGET, costs=COSTS).best.plan
    packed = packing.packer(plan, COSTS)(requests[0])
    assert [(bin.token_budget, len(bin.items)) for bin in packed.bins] == [(128, 32)]
    assert packed.padding_ratio == 0


def test_no_budget_has_a_longer_segment_than_the_longest_text() -> None:
    fit = budgets.fitted(texts(0, 100, most=20), target=TARGET, costs=COSTS)
    assert max(graph.tokens for graph in fit.best.plan.graphs) > 512
    assert max(graph.longest_segment for graph in fit.best.plan.graphs) <= 512


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_byte_limit_is_kept_for_texts(share: float) -> None:
    requests = texts(2, 100, most=8)
    free = budgets.fitted(requests, target=TARGET, costs=COSTS).frontier[-1].plan
    limit = round(share * COSTS.memory(free).total_bytes)
    fit = budgets.fitted(requests, target=TARGET, costs=COSTS, limits=Limits(max_bytes=limit))
    assert fit.best.plan.graphs
    assert all(COSTS.memory(choice.plan).total_bytes <= limit for choice in fit.frontier)


def test_one_cap_is_the_same_for_every_budget_of_texts() -> None:
    limits = Limits(one_cap=True, pack="ascending")
    fit = budgets.fitted(texts(1, 100, most=8), target=TARGET, costs=COSTS, limits=limits)
    assert len({graph.items for graph in fit.best.plan.graphs}) == 1


@pytest.mark.parametrize(
    "name", ["siglip2-so400m-16-naflex", "whisper-large-v3", "siglip-so400m-14-384"]
)
def test_slots_are_planned_by_items_whatever_is_in_them(name: str) -> None:
    size = sizes.named(name)
    rule, price = size.rule, cards.price(size)
    lengths = (1, rule.max_tokens) if rule.resize == "patch_limit" else (rule.max_tokens,)
    items = [sizes.item(sizes.near_square_grid(n, rule), rule) for n in lengths * 3]
    requests = [items[:count] for count in (1, 2, len(items)) * 10]
    plan = budgets.fitted(requests, target=Target(size=size), costs=price).best.plan
    packed = packing.packer(plan, price)
    assert packed(requests[0]).bins
    for request in requests[:3]:
        for one in packed(request).bins:  # none where eager is as fast
            assert one.token_budget == len(one.items) * rule.slot_tokens


@pytest.fixture
def steps() -> list[Step]:
    return []


@pytest.fixture
def runner(steps: list[Step]):
    size = sizes.named("bert-tiny")
    requests = texts(3, 60, most=6, longest=40)
    plan = budgets.fitted(requests, target=Target(size=size), costs=cards.price(size)).best.plan
    encoder = registry.named("bert-tiny", device="cpu", dtype=torch.float32)

    class Seen:
        def __init__(self, step: Step) -> None:
            steps.append(step)

        def __enter__(self) -> None: ...

        def __exit__(self, *exc: object) -> None: ...

    with EncoderRunner(
        encoder=encoder, plan=replace(plan, dtype="float32"), backend="reference", observe=Seen
    ) as made:
        made.capture()
        steps.clear()
        yield made


def test_a_run_counts_fill_padding_and_rows_in_tokens(runner, steps: list[Step]) -> None:
    for request in texts(4, 30, most=6, longest=40):
        steps.clear()
        batch = inputs.synthetic(request, size=sizes.named("bert-tiny"))
        outputs = runner.execute(batch)
        assert [tuple(one.main.shape) for one in outputs] == [(1, 32)] * len(request)
        assert sum(step.real_tokens for step in steps) == sum(item.tokens for item in request)
        budgets_of = [g.tokens for g in runner.plan.graphs]
        assert all(step.token_budget in budgets_of for step in steps if step.route is Route.REPLAY)
        true = runner.encoder.stock().eager(batch)
        for mine, other in zip(outputs, true, strict=True):
            torch.testing.assert_close(mine.main, other.main, atol=1e-5, rtol=1e-4)


def test_a_text_over_every_budget_falls_back_for_its_tokens(runner, steps: list[Step]) -> None:
    plan = Plan(graphs=runner.plan.graphs[:1], encoder="bert-tiny")
    length = plan.graphs[0].tokens + 1
    [left] = packing.ascending([text(length)], plan).fallback
    assert left.reason is FallbackReason.OVER_TOKENS
    assert packing.ascending([text(length - 1)], plan).padding_ratio == pytest.approx(
        1 - (length - 1) / plan.graphs[0].tokens
    )


def test_vllm_has_no_flags_for_texts() -> None:
    plan = budgets.auto(TARGET)
    with pytest.raises(ValueError, match=r"vLLM has no encoder graphs for 'bert-b"):
        export.vllm(plan)
