"""A stage of the table of all families that takes too long is told as such, whatever it breaks into."""

import importlib
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("encoder_table")
    sys.modules.pop("encoder_table", None)


def interrupted_in_the_middle():
    try:
        time.sleep(5)
    finally:
        raise RuntimeError("left half done")


def test_what_breaks_upon_the_interrupt_is_out_of_time_too(table):
    with pytest.raises(table.OutOfTime, match=r"longer than the 0.01 s"), table.limited(0.01):
        interrupted_in_the_middle()


def test_what_breaks_by_itself_is_told_as_it_is(table):
    with pytest.raises(RuntimeError, match="by itself"), table.limited(5):
        raise RuntimeError("by itself")
