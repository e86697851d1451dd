"""Checks that could not prove right answers do not pass."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from checks_examples import Toy, make_inputs
from helpers_cli import invoke, passes

from encgraph import store
from encgraph.checks import suite
from encgraph.encoders.protocol import EncoderOutput

pytest_plugins = ["encgraph.checks.fixture"]
NO_MEMORY = "right answers were not proven: there is too little memory for it here"


class Doubled(Toy):
    """Twice what it should be, and short of memory where that would show."""

    def forward(self, buffers, capacity):
        return EncoderOutput(main=2 * super().forward(buffers, capacity).main)

    def eager(self, inputs):
        return [EncoderOutput(main=2 * output.main) for output in super().eager(inputs)]

    def stock(self):
        raise MemoryError("no room")


class OutOfCardMemory(Doubled):
    def stock(self):
        raise torch.OutOfMemoryError("no room")


def build(device, dtype):
    return Doubled()


def right(device, dtype):
    return Toy()


def check(*arguments):
    return invoke("check", "--encoder", f"{__name__}:build", "--backend", "reference", *arguments)


def test_the_status_is_1_and_the_last_line_says_why():
    ran = check()
    lines = ran.stdout.splitlines()
    assert ran.exit_code == 1
    assert not any("FAILED" in line for line in lines)
    assert lines[-1] == f"{NO_MEMORY} (forward, parity not run)"


def test_json_stays_one_value_and_the_reason_is_on_stderr():
    ran = check("--json")
    found = {one["name"]: one["passed"] for one in json.loads(ran.stdout)}
    assert (ran.exit_code, found["parity"], found["forward"]) == (1, None, None)
    assert ran.stderr.splitlines()[-1] == f"{NO_MEMORY} (forward, parity not run)"


def test_checks_that_do_not_apply_may_be_not_run():
    said = passes("check", "--encoder", f"{__name__}:right", "--backend", "reference")
    assert "clips           not run  toy takes image alone" in said
    assert "not proven" not in said


@pytest.mark.parametrize("encoder", [Doubled, OutOfCardMemory])
def test_the_fixture_fails_unless_told_to_skip(check_encoder, encoder):
    with pytest.raises(pytest.fail.Exception, match=f"forward: {NO_MEMORY}\nparity: {NO_MEMORY}"):
        check_encoder(encoder(), make_inputs)
    with pytest.raises(pytest.fail.Exception, match=f"^parity: {NO_MEMORY}$"):
        check_encoder(encoder(), make_inputs, skip=["forward"])
    found = {
        one.name: one.passed for one in check_encoder(encoder(), make_inputs, skip=suite.PROOFS)
    }
    assert found["parity"] is None


def test_a_row_of_the_table_that_leaves_right_answers_unproven_has_failed(monkeypatch, tmp_path):
    def short(subject):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setitem(suite.STATIC, "forward", (short, ()))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    table = importlib.import_module("encoder_table")
    table.main(["--tiny", "--only", "clip", "--stages", "checks", "--out", str(tmp_path)])
    [row] = store.read(tmp_path / "cpu" / "encoders.jsonl")
    assert (row.numbers["failed_count"], row.numbers["passed_forward_count"]) == (1, 0)
    assert f"clip-tiny forward: {NO_MEMORY}" in (tmp_path / "cpu" / "encoders.txt").read_text()
