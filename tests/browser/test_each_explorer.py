"""Each explorer takes one interaction in JupyterLab and shows what the library computes, in both themes."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from lab import WAIT_MS, Open
from playwright.sync_api import Locator, Page, expect

from encgraph import balance, budgets, cards, sizes, tabular, traffic
from encgraph.budgets import Limits, Target
from encgraph.records import Item
from encgraph.widgets import breakeven, ruler, strata
from encgraph.widgets.cases import Case

expect.set_options(timeout=WAIT_MS)
SETUP = """from encgraph import cards, sizes, traffic, widgets
from encgraph.budgets import Limits, Target, doubling
from encgraph.facts import TimedStep
from encgraph.records import Item, Modality, Route, Step
size = sizes.named("qwen3-vl-8b")
requests = traffic.read("builtin:servegen", size, count=400)
costs, limits = cards.price(size), Limits(max_graphs=4)
plan = doubling(64, 512, target=Target(size=size))
batch = [Item(tokens=n, patches=4 * n) for n in (250, 60, 4)]
step = Step(route=Route.REPLAY, modality=Modality.IMAGE, items=1, real_tokens=60, token_budget=80)
steps = [TimedStep(step=step, ms=ms, request=n) for n, ms in ((0, 4.0), (1, 2.0), (1, 6.0))]"""
CELLS = (
    "widgets.budget_ruler(requests, costs, limits=limits)",
    "widgets.packing_duel(batch, plan, costs)",
    "widgets.break_even(costs, requests, limits=limits, compiled=cards.price(size, compiled=True))",
    "widgets.memory_strata(plan, costs, cards.recorded(size, 'h200'))",
    "widgets.sharding([batch], size, costs)",
    "widgets.stale_state()",
    "widgets.timeline(steps)",
)
SIZE = sizes.named("qwen3-vl-8b")
COSTS = cards.price(SIZE)
PLAN = budgets.doubling(64, 512, target=Target(size=SIZE))
BATCH = [Item(tokens=n, patches=4 * n) for n in (250, 60, 4)]
DRAWN = """([plot, name, key, expected]) => {
  const found = plot.data?.find(trace => trace.name === name);
  const shown = found ? Array.from(found[key]) : [];
  return shown.length === expected.length
    && shown.every((v, i) => Math.abs(v - expected[i]) <= 1e-6 * Math.max(1, Math.abs(expected[i])));
}"""

STACKED = """([one, other]) => {
  const [a, b] = [one, other].map(span => span.getBoundingClientRect());
  return Math.abs(a.x - b.x) < 1 && Math.abs(a.y - b.y) >= a.height - 1;
}"""


@pytest.fixture(scope="module")
def case() -> Case:
    requests = traffic.read("builtin:servegen", SIZE, count=400)
    return Case.of(requests, COSTS, limits=Limits(max_graphs=4))


def draws(view: Locator, name: str, expected: Any, *, key: str = "y", plot: int = 0) -> None:
    """Wait until a trace of the explorer's plot holds these values."""
    handle = view.locator(".js-plotly-plot").nth(plot).element_handle()
    values = [float(value) for value in expected]
    view.page.wait_for_function(DRAWN, arg=[handle, name, key, values], timeout=WAIT_MS)


def cell(view: Locator, row: int, column: int) -> Locator:
    return view.locator("table tr").nth(row).locator("th, td").nth(column)


def ruler_steps_by_key(view: Locator, case: Case) -> None:
    plan = case.fit.best.plan
    handle = view.get_by_role("slider", name="token budget 1")
    handle.focus()
    view.page.keyboard.press("ArrowRight")
    tokens = [g.tokens for g in plan.graphs]
    moved = case.moved(plan, [tokens[0] + 1, *tokens[1:]])
    mean = budgets.judge(case.held_out.requests, moved, costs=COSTS).mean_ms
    expect(handle).to_have_attribute("aria-valuenow", str(tokens[0] + 1))
    expect(cell(view, 1, 3)).to_have_text(f"{mean:.2f}")
    expect(view.locator(".encgraph-handle.labelled")).to_have_count(len(tokens))
    for key, at in (("End", ruler.BudgetRuler(case).plot.limits[1]), ("Home", 1)):
        view.page.keyboard.press(key)
        expect(handle).to_have_attribute("aria-valuenow", str(at))
    handles_that_stand_together_are_labelled(view)


def handles_that_stand_together_are_labelled(view: Locator) -> None:
    """Two handles on one budget: both stay readable, one label above the other."""
    both = [view.get_by_role("slider", name=f"token budget {n}") for n in (1, 2)]
    for handle in both:
        handle.focus()
        view.page.keyboard.press("End")
    values = [handle.get_attribute("aria-valuenow") for handle in both]
    assert values[0] == values[1]
    spans = [handle.locator("span") for handle in both]
    for span in spans:
        expect(span).to_be_visible()
    view.page.wait_for_function(STACKED, arg=[s.element_handle() for s in spans], timeout=WAIT_MS)


def duel_steps_and_plays(view: Locator) -> None:
    ascending = view.locator(".encgraph-lane").first
    said = ascending.locator(".encgraph-said")
    expect(said).to_contain_text("B(64) + B(250) = 64 + 256 < 512 = B(314)")
    view.locator(".noUi-handle").last.focus()
    view.page.keyboard.press("ArrowLeft")
    expect(ascending.locator(".item")).to_have_count(2)
    expect(ascending.locator(".encgraph-ms")).to_contain_text("2 of 3 placed, unfinished")
    view.locator(".widget-play button").first.click()
    expect(ascending.locator(".item")).to_have_count(3)
    shown = {int(text) for text in ascending.locator(".budget").all_inner_texts()}
    assert shown <= set(PLAN.token_budgets)


def break_even_takes_another_strategy(view: Locator, case: Case) -> None:
    plan = case.fit.best.plan
    view.get_by_label("by strategy").select_option(breakeven.COMPILED)
    compiled = cards.price(SIZE, compiled=True)
    expected = budgets.judge(case.held_out.requests, plan, costs=compiled).latency.p99_ms
    expect(cell(view, 2, 0)).to_have_text(breakeven.COMPILED)
    expect(cell(view, 2, 1)).to_have_text(f"{expected:.2f}")
    view.locator(".noUi-handle").last.focus()
    view.page.keyboard.press("ArrowLeft")
    expect(cell(view, 0, 0)).to_have_text("p98 of held-out requests")


def strata_stop_sharing(view: Locator) -> None:
    shared, private = (strata.added(PLAN, COSTS, sharing=on) for on in (True, False))
    draws(view, "pool", [m.pool_bytes / tabular.MIB for m in shared])
    view.get_by_label("share one slab and one pool").uncheck()
    draws(view, "pool", [m.pool_bytes / tabular.MIB for m in private])


def sharding_takes_another_rule(view: Locator) -> None:
    view.get_by_label("balance rule").select_option("round_robin")
    view.locator(".noUi-handle").first.focus()
    view.page.keyboard.press("ArrowLeft")
    view.page.keyboard.press("ArrowLeft")
    shared = balance.round_robin(BATCH, 2)
    loads = [balance.exact_ms([BATCH[i] for i in mine], COSTS) for mine in shared.ranks]
    draws(view, "encoding", loads)
    expect(cell(view, 1, 1)).to_have_text(f"{max(loads):.2f}")


def a_safeguard_taken_away_lets_nan_reach_live_rows(view: Locator) -> None:
    expect(view).to_contain_text("all 75 live rows are right")
    view.get_by_label("attention slab zeroed each replay").uncheck()
    expect(view).to_contain_text("75 of 75 live rows are wrong, first after block 2")
    plot = view.locator(".js-plotly-plot").element_handle()
    view.page.wait_for_function("plot => plot.data[0].z[0][2] === 5", arg=plot, timeout=WAIT_MS)


def timeline_goes_to_the_next_batch(view: Locator) -> None:
    view.locator(".noUi-handle").first.focus()
    view.page.keyboard.press("ArrowRight")
    label = view.locator(".encgraph-plot [role=img]").first
    expect(label).to_have_attribute("aria-label", re.compile(r"^2 steps, 8\.00 ms"))


def keep(page: Page, views: Locator, theme: str) -> None:
    """Screenshots of all explorers, where `ENCGRAPH_SCREENSHOTS` names a folder."""
    folder = os.environ.get("ENCGRAPH_SCREENSHOTS")
    if folder:
        page.mouse.move(0, 0)
        for index in range(views.count()):
            views.nth(index).screenshot(path=Path(folder) / f"{theme}-{index + 1}.png")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_explorer_answers_with_what_the_library_computes(
    theme: str, request: pytest.FixtureRequest, open_and_run: Open, case: Case
) -> None:
    server = request.getfixturevalue("lab" if theme == "light" else "dark_lab")
    page = open_and_run(server, f"each-{theme}", SETUP, *CELLS)
    assert (
        page.locator("body").get_attribute("data-jp-theme-light") == str(theme == "light").lower()
    )
    views = page.locator(".encgraph-explorer")
    expect(views).to_have_count(len(CELLS))
    ruler_steps_by_key(views.nth(0), case)
    duel_steps_and_plays(views.nth(1))
    break_even_takes_another_strategy(views.nth(2), case)
    strata_stop_sharing(views.nth(3))
    sharding_takes_another_rule(views.nth(4))
    a_safeguard_taken_away_lets_nan_reach_live_rows(views.nth(5))
    timeline_goes_to_the_next_batch(views.nth(6))
    keep(page, views, theme)
