"""`encgraph check` of an encoder that is no published size: a module of the user's own."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import checks_blind as blind
import pytest
from checks_examples import make_inputs
from helpers_cli import error, invoke, passes

from encgraph import codec, sizes
from encgraph.records import Plan

EXAMPLES = Path(__file__).with_name("checks_examples.py")
REFERENCE = ("--backend", "reference")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module `mine`, as the user stands in it."""
    shutil.copy(EXAMPLES, tmp_path / "mine.py")
    lines = "\n\ndef begun(device, dtype):\n    return Begun()\n"
    lines += "\n\ndef nothing(device, dtype):\n    pass\n"
    lines += "\n\ndef breaks(device, dtype):\n    return Toy(undefined)\n"
    lines += "\n\ndef refuses(device, dtype):\n    return torch.nn.Linear(1, 1).no_such_part\n"
    lines += "\n\ndef refuses_value(device, dtype):\n    raise ValueError('no such size')\n"
    lines += "\n\ndef right(device, dtype):\n    return Toy()\n"
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
        ("mine:absent", "module 'mine' must have a function 'absent'"),
        ("mine:nothing", "'mine:nothing' must return an encoder, got None"),
        (
            "mine:breaks",
            "'mine:breaks' raised while it built the encoder: NameError: name 'undefined'",
        ),
        ("mine:breaks", "is not defined at {mine}:"),
        ("mine:refuses", "no attribute 'no_such_part' at {mine}:"),
        (
            "mine:refuses_value",
            "raised while it built the encoder: ValueError: no such size at {mine}:",
        ),
        ("mine:Tower", "got TypeError: Tower.__init__() got an unexpected keyword argument"),
    ],
)
def test_an_encoder_that_is_not_there_is_one_line(folder, encoder, what):
    said = error("check", "--encoder", encoder, *REFERENCE)
    assert what.format(mine=folder / "mine.py") in said


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\ndef build(:\n", "SyntaxError: invalid syntax at {file}:2 (def build(:)"),
        ("x = 1\nimport nowhere\n", "'nowhere' at {file}:2 (import nowhere)"),
        ("\n\nraise OSError('gone')\n", "OSError: gone at {file}:3 (raise OSError('gone'))"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_line_with_its_line(folder, monkeypatch, text, what):
    file = folder / "faulty.py"
    file.write_text(text, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    said = error("check", "--encoder", "faulty:build", *REFERENCE)
    assert said == f"module 'faulty' cannot be imported: {said.partition(': ')[2]}"
    assert what.format(file=file) in said


def test_an_encoder_without_inputs_of_its_own_must_be_of_a_published_size(folder):
    with (folder / "mine.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef build(device, dtype):\n    return Toy()\n\n\ndel make_inputs\n")
    said = error("check", "--encoder", "mine:build", *REFERENCE)
    assert said.startswith("module 'mine' must have make_inputs(wanted, seed)")
    assert "encoder must be a published size, got 'toy'" in said


def planned(folder, encoder):
    file = folder / "plan.json"
    file.write_text(codec.dumps(replace(blind.OF_TWELVE, encoder=encoder)), encoding="utf-8")
    return file


def test_budgets_of_a_plan_are_filled_and_fail_where_items_mix(folder, monkeypatch):
    monkeypatch.setattr(blind, "make_inputs", make_inputs, raising=False)
    monkeypatch.setattr(
        blind, "build", lambda device, dtype: blind.MixesAboveEight(), raising=False
    )
    checked = ("check", "--encoder", "checks_blind:build", *REFERENCE)
    found = {one["name"]: one for one in json.loads(invoke(*checked, "--json").stdout)}
    assert found["full_budget"]["passed"]
    assert "no plan was given" in found["full_budget"]["detail"][0]
    ran = invoke(*checked, "--json", "--plan", planned(folder, "toy"))
    found = {one["name"]: one for one in json.loads(ran.stdout)}
    assert (ran.exit_code, found["full_budget"]["passed"]) == (1, False)
    assert f"item 0 of a batch of {[4] * 12} tokens" in found["full_budget"]["detail"][0]


def test_a_plan_for_another_encoder_or_without_budgets_is_refused(folder):
    given = ("check", "--encoder", "mine:right", *REFERENCE, "--plan")
    said = error(*given, planned(folder, "another"))
    assert "is for encoder 'another', got --encoder 'toy'; write `codec.dumps(plan)`" in said
    empty = folder / "empty.json"
    plan = replace(blind.OF_TWELVE, graphs=(), encoder="toy")
    empty.write_text(codec.dumps(plan), encoding="utf-8")
    assert "must have budgets to fill, got none" in error(*given, empty)
    said = error("check", "--encoder", "siglip-tiny", "--plan", planned(folder, "toy"))
    assert "is for encoder 'toy', got --encoder 'siglip-tiny'; make it with `encgraph plan" in said


def test_a_plan_of_a_published_size_is_filled(tmp_path):
    plan = tmp_path / "plan.json"
    size = sizes.named("bert-tiny")
    graphs = (sizes.capacity(80, size.rule, items=20, frames=20),)
    made = Plan(graphs=graphs, encoder="bert-tiny", dtype="float32")
    plan.write_text(codec.dumps(made), encoding="utf-8")
    said = passes("check", "--encoder", "bert-tiny", *REFERENCE, "--plan", plan)
    assert "80 tokens by 20 items; up to 20 items in one replay, budgets of the plan given" in said
