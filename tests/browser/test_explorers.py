import re

import pytest
from lab import WAIT_MS, Open
from playwright.sync_api import Locator, Page, expect

from encgraph import budgets, cards, sizes, traffic
from encgraph.budgets import Limits, Target
from encgraph.widgets import ruler
from encgraph.widgets.cases import Case

expect.set_options(timeout=WAIT_MS)
SETUP = """from encgraph import cards, sizes, traffic, widgets
from encgraph.budgets import Limits, Target, doubling
from encgraph.records import Item
size = sizes.named("qwen3-vl-8b")
requests = traffic.read("builtin:servegen", size, count=400)
costs, limits = cards.price(size), Limits(max_graphs=4)"""
SIZE = sizes.named("qwen3-vl-8b")


def case() -> Case:
    requests = traffic.read("builtin:servegen", SIZE, count=400)
    return Case.of(requests, cards.price(SIZE), limits=Limits(max_graphs=4))


def cell(table: Locator, row: int, column: int) -> Locator:
    return table.locator("tr").nth(row).locator("th, td").nth(column)


def padding_drawn(page: Page) -> list[float]:
    """The bars of padding as the browser has them."""
    drawn: list[float] = page.evaluate(
        """() => Array.from([...document.querySelectorAll('.js-plotly-plot')]
            .flatMap(plot => plot.data).find(trace => trace.name === 'padding').y)"""
    )
    return drawn


def dragged_then_stepped(page: Page, handle: Locator, tokens: int) -> int:
    """Drag a handle by mouse, then step it by key; returns what it says then."""
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 7, box["y"] + 11)
    page.mouse.down()
    page.mouse.move(box["x"] + 47, box["y"] + 11, steps=6)
    page.mouse.up()
    expect(handle).not_to_have_attribute("aria-valuenow", str(tokens))
    before = int(handle.get_attribute("aria-valuenow") or 0)
    page.keyboard.press("ArrowRight")
    expect(handle).to_have_attribute("aria-valuenow", str(before + 1))
    return before + 1


def test_slider_and_handles_of_the_explorer_give_what_the_library_computes(
    lab: tuple[str, str], open_and_run: Open
) -> None:
    known = case()
    page = open_and_run(lab, "linked", SETUP, "widgets.explorer(requests, size, limits=limits)")
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    table = page.locator(".encgraph-explorer .encgraph-explorer table").first
    handles = page.get_by_role("slider", name=re.compile("^token budget"))

    count = page.locator(".noUi-handle").first
    count.focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    expect(cell(table, 1, 1)).to_have_text("0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    plan = known.fit.frontier[2].plan
    expect(cell(table, 1, 1)).to_have_text(str(len(plan.graphs)))
    expect(cell(table, 1, 3)).to_have_text(f"{known.judged(plan).prediction.mean_ms:.2f}")
    expect(handles).to_have_count(len(plan.graphs))

    tokens = dragged_then_stepped(page, handles.first, plan.graphs[0].tokens)
    moved = known.moved(plan, [tokens, *(g.tokens for g in plan.graphs[1:])])
    mean = budgets.judge(known.held_out.requests, moved, costs=known.costs).mean_ms
    expect(cell(table, 1, 3)).to_have_text(f"{mean:.2f}")
    expect(page.get_by_label("plan JSON")).to_have_value(re.compile(f'"tokens": {tokens}'))
    page.get_by_role("tab", name="memory").click()
    expect(page.locator(".encgraph-plot [role=img]").nth(3)).to_have_attribute(
        "aria-label", re.compile(f"^Stacked bars of {len(moved.graphs)} graphs")
    )
    drawing = ruler.drawing(known, moved, known.judged(moved))
    [padding] = [trace.y for trace in drawing.data if trace.name == "padding"]
    assert padding_drawn(page) == pytest.approx(list(padding))
    page.get_by_label("plan for").select_option("vllm")
    expect(page.get_by_label("vLLM flags")).to_have_value(re.compile("--compilation-config"))


def test_a_duel_plays_and_steps_in_the_dark(dark_lab: tuple[str, str], open_and_run: Open) -> None:
    page = open_and_run(
        dark_lab,
        "duel",
        SETUP,
        "batch = [Item(tokens=n, patches=4 * n) for n in (250, 60, 4)]\n"
        "widgets.packing_duel(batch, doubling(64, 512, target=Target(size=size)), costs)",
    )
    lanes = page.locator(".encgraph-lane")
    expect(lanes).to_have_count(3)
    ascending = lanes.first
    expect(ascending.locator(".item")).to_have_count(3)
    expect(ascending.locator(".encgraph-said")).to_contain_text(
        "B(64) + B(250) = 64 + 256 < 512 = B(314)"
    )
    page.locator(".noUi-handle").last.focus()
    page.keyboard.press("ArrowLeft")
    expect(ascending.locator(".item")).to_have_count(2)
    page.locator(".widget-play button").first.click()
    expect(ascending.locator(".item")).to_have_count(3)
    assert page.locator("body").get_attribute("data-jp-theme-light") == "false"
    plan = budgets.doubling(64, 512, target=Target(size=SIZE))
    assert {g.tokens for g in plan.graphs} >= {
        int(text) for text in ascending.locator(".budget").all_inner_texts()
    }


def test_a_safeguard_taken_away_lets_nan_reach_live_rows(
    lab: tuple[str, str], open_and_run: Open
) -> None:
    page = open_and_run(lab, "stale", "from encgraph import widgets\nwidgets.stale_state()")
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    explorer = page.locator(".encgraph-explorer")
    expect(explorer).to_contain_text("all 75 live rows are right")
    page.get_by_label("own, cleared attention slab").uncheck()
    expect(explorer).to_contain_text("75 of 75 live rows are wrong, first after block 2")
    page.wait_for_function(
        "() => document.querySelector('.js-plotly-plot').data[0].z[0][2] === 5", timeout=WAIT_MS
    )
