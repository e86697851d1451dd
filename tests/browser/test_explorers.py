import re

import pytest
from lab import WAIT_MS, Open
from playwright.sync_api import Locator, Page, expect

from encgraph import budgets, cards, sizes, traffic, widgets
from encgraph.budgets import Limits
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


def ranks_follow_the_rule(page: Page, known: Case) -> None:
    """Choose another balance rule on the linked explorer's last tab."""
    page.get_by_role("tab", name="ranks").click()
    page.get_by_label("balance rule").select_option("count")
    view = widgets.sharding(known.held_out.requests, SIZE, known.costs)
    view.rule.value = "count"
    expect(page.locator(".encgraph-plot [role=img]").filter(visible=True).last).to_have_attribute(
        "aria-label", re.compile(f"slowest {view.looked.makespan_ms:.2f} ms")
    )


def memory_is_drawn_when_seen(page: Page, graphs: int) -> None:
    """A plot behind a tab waits until the tab is chosen."""
    strata = page.locator(".encgraph-plot [role=img]").nth(3)
    expect(strata.locator(".main-svg")).to_have_count(0)
    page.get_by_role("tab", name="memory").click()
    expect(strata.locator(".main-svg").first).to_be_visible()
    expect(strata).to_have_attribute("aria-label", re.compile(f"^Stacked bars of {graphs} graphs"))


def drawings_follow_the_theme(page: Page) -> None:
    """Ink of the page is ink of the drawings, as soon as the theme changes."""
    page.evaluate(
        """() => {
          document.body.style.setProperty('--jp-ui-font-color1', 'rgb(1, 2, 3)');
          document.body.setAttribute('data-jp-theme-name', 'another');
        }"""
    )
    tick = page.locator(".js-plotly-plot .xtick text, .js-plotly-plot .x2tick text").first
    expect(tick).to_have_css("fill", "rgb(1, 2, 3)")


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
    memory_is_drawn_when_seen(page, len(moved.graphs))
    view = ruler.BudgetRuler(known, count=2)
    view.plot.tokens = [tokens, *view.plot.tokens[1:]]
    [padding] = [trace.y for trace in view.plot.figure.data if trace.name == "padding"]
    assert padding_drawn(page) == pytest.approx(list(padding))
    ranks_follow_the_rule(page, known)
    page.get_by_label("plan for").select_option("vllm")
    expect(page.get_by_label("vLLM flags")).to_have_value(re.compile("--compilation-config"))
    drawings_follow_the_theme(page)
