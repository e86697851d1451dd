"""Fixtures of the browser tests: JupyterLab, Debian's chromium, and a notebook of given cells run in both."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

pytest.importorskip("playwright", reason="browser tests need playwright: pip install -e '.[test]'")
pytest.importorskip("jupyterlab", reason="browser tests need JupyterLab: pip install -e '.[lab]'")

import lab as labs
from lab import WAIT_MS, Open
from playwright.sync_api import Page

CHROMIUM = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or ""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
RAN = """() => {
  const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(e => e.textContent);
  return prompts.length && prompts.every(text => /\\[\\d+\\]/.test(text));
}"""
END_SESSIONS = """async () => {
  const config = JSON.parse(document.getElementById('jupyter-config-data').textContent);
  const xsrf = (document.cookie.match(/_xsrf=([^;]+)/) || [])[1];
  const headers = { Authorization: 'token ' + config.token, 'X-XSRFToken': xsrf };
  const url = config.baseUrl + 'api/sessions';
  for (const session of await (await fetch(url, { headers })).json())
    await fetch(url + '/' + session.id, { method: 'DELETE', headers });
}"""


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    if not CHROMIUM:
        pytest.skip("browser tests need chromium: apt-get install chromium")
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": ARGUMENTS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    size = {"width": 1280, "height": 1200}
    return {**browser_context_args, "viewport": size, "locale": "en-US", "timezone_id": "UTC"}


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="session")
def lab(root: Path) -> Iterator[tuple[str, str]]:
    with labs.server(root) as server:
        yield server


@pytest.fixture(scope="session")
def dark_lab(root: Path) -> Iterator[tuple[str, str]]:
    with labs.server(root, theme="JupyterLab Dark") as server:
        yield server


@pytest.fixture
def open_and_run(page: Page, root: Path) -> Iterator[Open]:
    """Write a notebook, open it, run all cells; fails afterwards on any error of page or console."""
    errors: list[str] = []
    page.set_default_timeout(WAIT_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)

    def go(server: tuple[str, str], name: str, *cells: str) -> Page:
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(made, root / f"{name}.ipynb")
        base, token = server
        page.goto(f"{base}/doc/workspaces/{name}/tree/{name}.ipynb?token={token}&reset")
        # the toolbar says "idle" before there is any kernel; the status bar names it
        page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_function(RAN, timeout=2 * WAIT_MS)
        wrong = page.locator("[data-mime-type='application/vnd.jupyter.stderr']")
        assert wrong.count() == 0, wrong.all_inner_texts()
        return page

    yield go
    page.evaluate(END_SESSIONS)
    assert errors == []
