"""Systems by strategy: how each plans, packs and refuses, on the reference backend."""

import dataclasses

import pytest
import torch
from helpers import TINY, batch, close, reference, tiny

from encgraph import (
    cards,
    curves,
    datadir,
    graphs,
    packing,
    peers,
    sizes,
    store,
    strategies,
    systems,
    traffic,
)
from encgraph.encoders import compiling
from encgraph.errors import CaptureError
from encgraph.exact import ExactSet
from encgraph.records import FallbackReason, Item, Plan, Route

BIG = sizes.named("qwen3-vl-8b")


@pytest.fixture
def setting():
    return reference(
        fit_on=traffic.read("builtin:coco", TINY, count=60, seed=4).requests, max_graphs=4
    )


def observed(steps):
    def observe(step):
        steps.append(step)
        return graphs.unobserved(step)

    return observe


def test_exact_layouts_are_made_from_earlier_traffic_and_then_kept(setting):
    steps = []
    [often] = [batch([(8, 8)], tiny())]
    fit_on = [[v.item for v in often]] * 3 + [[Item(tokens=4, patches=16)]]
    setting = dataclasses.replace(setting, fit_on=fit_on)
    made = systems.runner(strategies.SGLANG_EXACT, setting, observe=observed(steps))
    with made:
        systems.ready(made, setting)
        assert isinstance(made.graphs, ExactSet)
        assert [g.capacity.tokens for g in made.graphs.graphs] == [16]
        encoder = made.encoder
        [output] = made.execute(often)
        assert close(output, encoder.eager(often)[0], encoder)
        for _ in range(3):
            made.execute(batch([(12, 12)], encoder))
    routes = [step.route for step in steps]
    assert routes == [Route.CAPTURE, Route.REPLAY, *[Route.FALLBACK] * 3]
    assert steps[-1].reason is FallbackReason.NOT_CAPTURED


def test_an_exact_item_count_replays_with_padding_in_a_segment_of_its_own(setting):
    steps = []
    encoder = systems.encoder(strategies.TRTLLM, setting)
    pair = batch([(8, 8), (6, 10)], encoder)
    fit_on = [[v.item for v in pair]] * 3
    setting = dataclasses.replace(setting, fit_on=fit_on)
    made = systems.runner(strategies.TRTLLM, setting, observe=observed(steps))
    with made:
        systems.ready(made, setting)
        [capacity] = made.plan.graphs
        assert (capacity.tokens, capacity.items) == (32, 3)
        for mine, alone in zip(made.execute(pair), made.encoder.eager(pair), strict=True):
            assert close(mine, alone, made.encoder)
        made.execute(pair[:1])
        made.execute(batch([(16, 16), (8, 8)], made.encoder))
        made.execute(batch([(2, 4, 4), (2, 4, 4)], made.encoder))
    assert [(s.route, s.reason) for s in steps[1:]] == [
        (Route.REPLAY, None),
        (Route.FALLBACK, FallbackReason.OVER_ITEMS),
        (Route.FALLBACK, FallbackReason.OVER_TOKENS),
        (Route.FALLBACK, FallbackReason.OVER_SEGMENTS),
    ]


def test_a_batch_that_leaves_the_dummy_no_token_falls_back(setting):
    plan = peers.by_item_count(
        [[Item(tokens=15, patches=60)]], target=setting.target(strategies.TRTLLM), largest=64,
        max_graphs=2,
    )  # fmt: skip
    pack = peers.item_count_packer(plan)
    assert plan.token_budgets == (16,)
    assert pack([Item(tokens=15, patches=60)]).bins
    assert pack([Item(tokens=16, patches=64)]).fallback[0].reason is FallbackReason.OVER_TOKENS


def test_the_graphs_kept_are_those_that_requests_use_most(setting):
    requests = [[Item(tokens=20, patches=80)]] * 3 + [[Item(tokens=100, patches=400)]] * 2
    requests += [[Item(tokens=20, patches=80)] * 2, [Item(tokens=3000, patches=12000)]]
    target = setting.target(strategies.TRTLLM)
    plan = peers.by_item_count(requests, target=target, largest=512, max_graphs=2)
    assert [(g.tokens, g.items) for g in plan.graphs] == [(32, 2), (128, 2)]
    assert plan.reasons[0] == "32 tokens, 1 items: used by 3 of 7 requests"


def test_reduce_overhead_is_refused_off_a_card_with_the_reason(setting):
    with pytest.raises(ValueError, match="needs backend 'cuda', got 'reference'"):
        systems.runner(strategies.COMPILE_REDUCE_OVERHEAD, setting)


def test_a_whole_forward_under_torch_compile_gives_the_same_rows(setting):
    """Compiled without generating code: that the forward can be traced as one."""
    torch._dynamo.reset()
    encoder = tiny(attention_slab=False)
    around = peers.ReduceOverhead(encoder, backend="eager")
    inputs = batch([(8, 8), (12, 16)], encoder)
    keep = systems.Keep(min_hits=1, max_graphs=peers.RECOMPILES, evict=False)
    made = systems.exact.open_set(
        around, keep, backend="reference", record=peers.recorded_by_running
    )
    with made:
        [part] = made.pack([v.item for v in inputs]).bins
        packed = made.replay(part.capacity, inputs)
        assert made.graphs[0].seconds > 0
        eager = torch.cat([torch.cat(o.tensors, dim=1) for o in encoder.eager(inputs)])
        torch.testing.assert_close(packed, eager, rtol=1e-4, atol=1e-5)
    assert around.spec.compiled
    torch._dynamo.reset()


def test_a_compiler_of_a_name_that_is_not_there_is_named(monkeypatch, setting):
    monkeypatch.setattr(compiling, "BACKEND", "no_such_compiler")
    with pytest.raises(CaptureError, match=r"no_such_compiler.*does not compile"):
        systems.encoder(strategies.ENCGRAPH, setting)


@pytest.mark.parametrize("name", ["eager_compiled", "sglang_exact", "ladder_slabs", "eager"])
def test_of_what_no_model_speaks_of_nothing_is_predicted(setting, name):
    strategy = strategies.named(name)
    plan = systems.plan(strategy, setting)
    found = systems.predicted(strategy, setting, plan, setting.fit_on[:3])
    assert (found is None) == (name in ("sglang_exact", "eager"))


def test_one_item_cap_or_one_a_budget(setting):
    one = systems.plan(strategies.named("ladder_slabs"), setting)
    assert len({graph.items for graph in one.graphs}) == 1
    each = systems.plan(strategies.ENCGRAPH_PLAIN, setting)
    assert all(graph.items <= systems.TUNED_ITEMS for graph in one.graphs)
    assert each != one


def test_a_strategy_is_priced_by_its_attention_and_body(setting):
    setting = dataclasses.replace(setting, priced=systems.prices(BIG, on="h200"))
    sources = {name: setting.price(strategies.named(name)).source for name in strategies.STRATEGIES}
    assert "flash attention, " in sources["ladder_caps"]
    assert "fa3 attention, " in sources["encgraph_plain"]
    assert "fa3 attention, compiled" in sources["ladder_compile"]
    assert setting.target(strategies.named("ladder_caps")).attention == "auto"  # no card here


def test_a_body_that_was_not_recorded_is_priced_as_the_plain_one(setting):
    priced = systems.prices(sizes.named("qwen3-vl-4b"), on="h200")
    assert "compiled" not in priced(strategies.ENCGRAPH).source
    assert priced(strategies.ENCGRAPH).recorded


@pytest.fixture
def recorded_anew(monkeypatch, tmp_path):
    """A data folder in which the fused body was recorded under "measured" attention alone."""
    points = [m for m in cards.recorded(BIG, "h200") if not m.fused]
    fused = [dataclasses.replace(m, attention="measured", fused=True) for m in points if m.compiled]
    store.write(store.path("h200", curves.experiment(BIG.name), root=tmp_path), [*points, *fused])
    monkeypatch.setattr(datadir, "root", lambda: tmp_path)


@pytest.mark.usefixtures("recorded_anew")
def test_a_body_recorded_under_another_attention_is_priced_by_that():
    priced = systems.prices(BIG, on="h200")
    for name in ("ladder_kernels", "encgraph"):
        assert "measured attention, compiled and fused" in priced(strategies.named(name)).source
    assert "fa3 attention, compiled," in priced(strategies.named("ladder_compile")).source


def test_an_attention_that_nobody_recorded_is_priced_as_the_fastest():
    priced = systems.prices(BIG, on="h200", attention="cudnn")
    for strategy in (strategies.VLLM, strategies.ENCGRAPH):
        assert "fa3 attention" in priced(strategy).source


def test_a_body_that_was_recorded_only_fused_does_not_price_the_compiled_one(monkeypatch, tmp_path):
    points = [m for m in cards.recorded(BIG, "h200") if not (m.compiled or m.attention == "flash")]
    fused = [dataclasses.replace(m, compiled=True, fused=True) for m in points]
    store.write(store.path("h200", curves.experiment(BIG.name), root=tmp_path), [*points, *fused])
    monkeypatch.setattr(datadir, "root", lambda: tmp_path)
    priced = systems.prices(BIG, on="h200")
    assert "fa3 attention, 20" in priced(strategies.named("ladder_compile")).source
    assert "compiled and fused" in priced(strategies.ENCGRAPH).source


def test_a_small_item_with_one_huge_graph_goes_eager_where_that_is_faster():
    """The forced bad case of break-even, at what an H200 was recorded to take."""
    recorded = cards.price(BIG)
    assert recorded.recorded
    plan = Plan(graphs=(sizes.capacity(4096, BIG.rule, items=8),), encoder=BIG.name)
    small = [Item(tokens=64, patches=256)]
    [left] = packing.packer(plan, recorded, rule="cheapest")(small).fallback
    assert left.reason is FallbackReason.EAGER_IS_FASTER
    [replayed] = packing.packer(plan, rule="ascending")(small).bins
    assert replayed.token_budget == 4096
    assert recorded.replay_ms(replayed.capacity, replayed.load) > 2 * recorded.eager_ms(
        replayed.load
    )


def test_a_strategy_that_a_layout_cannot_have_is_refused_by_name():
    setting = reference(size=sizes.named("siglip-tiny"))
    with pytest.raises(ValueError, match=r"strategy 'trtllm' .* got 'siglip-tiny' of the 'fixed'"):
        systems.encoder(strategies.named("trtllm"), setting)
