"""Fixtures and marks that several tests share."""

import os
from importlib.util import find_spec

import pytest

from encgraph.results import Environment

os.environ.setdefault("HF_HUB_OFFLINE", "1")

NEEDED = {
    "test_links.py": "nbformat",
    "test_notebooks.py": "nbformat",
    "test_widgets*.py": "ipywidgets",
}
"""Tests that import what comes with notebooks, and what they import."""
collect_ignore_glob = [tests for tests, package in NEEDED.items() if find_spec(package) is None]


def pytest_report_header() -> list[str]:
    """Say what is left out."""
    return [f"not collected: {tests}, needs {NEEDED[tests]}" for tests in collect_ignore_glob]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda` where there is no card, and say so."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if marked and not _has_card():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; torch sees none"))


def _has_card() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture
def environment() -> Environment:
    """Environment of a card, for measurements written by hand."""
    return Environment(
        gpu="NVIDIA H200",
        driver="580.159",
        cuda="13.0",
        cpu="test",
        python="3.11.7",
        torch="2.13.0",
        transformers="5.24.0",
        encgraph="0.1.0",
        commit=None,
        dtype="bfloat16",
        utc="2026-11-29T12:00:00+00:00",
    )
