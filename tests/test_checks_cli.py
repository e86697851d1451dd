"""`encgraph check` of an encoder that is no published size: a module of the user's own."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from helpers_cli import error, invoke

EXAMPLES = Path(__file__).with_name("checks_examples.py")
REFERENCE = ("--backend", "reference")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module `mine`, as the user stands in it."""
    shutil.copy(EXAMPLES, tmp_path / "mine.py")
    lines = "\n\ndef begun(device, dtype):\n    return Begun()\n"
    lines += "\n\ndef wrong(device, dtype):\n    return ReadsTheGrid()\n"
    with (tmp_path / "mine.py").open("a", encoding="utf-8") as file:
        file.write(lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def test_outcomes_of_ones_own_encoder_are_json(folder):
    ran = invoke("check", "--encoder", "mine:begun", *REFERENCE, "--json")
    found = {one["name"]: one["passed"] for one in json.loads(ran.stdout)}
    assert (ran.exit_code, found["methods"], found["audit"]) == (1, False, None)


def test_the_line_that_stops_a_capture_is_said_and_the_status_is_1(folder):
    ran = invoke("check", "--encoder", "mine:wrong", *REFERENCE)
    said = ran.stdout
    assert ran.exit_code == 1
    assert "tolist() makes the host wait for the device" in said
    assert f"{folder / 'mine.py'}:" in said


@pytest.mark.parametrize(
    ("encoder", "what"),
    [
        ("nowhere:build", "'nowhere' is no module here; run from the folder it is in"),
        ("mine:nothing", "module 'mine' must have a function 'nothing'"),
    ],
)
def test_an_encoder_that_is_not_there_is_one_line(folder, encoder, what):
    assert what in error("check", "--encoder", encoder, *REFERENCE)
