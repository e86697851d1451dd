"""Every combination of gates is in one row of the table, the documentation has the same rows, and a runner obeys."""

import itertools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers_model_runner import batch_of_three, runner, tiny_model
from torch import nn

from encgraph.model_runner import gates
from encgraph.model_runner.gates import CONDITIONS, TABLE, Gates, Row, Said, Why

ROOT = Path(__file__).parents[1]
ALL = [
    Gates(**dict(zip((*CONDITIONS, "timing"), values, strict=True)))
    for values in itertools.product((False, True), repeat=len(CONDITIONS) + 1)
]


class Foreign(nn.Module):
    """A tower of another class."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower
        self.eval()


WORDS = {None: "any", True: "yes", False: "no"}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


def example(row: Row, timing: bool) -> Gates:
    """The gates of a row, what it leaves open taken as yes."""
    filled = [True if value is None else value for value in row.when]
    return Gates(**dict(zip(CONDITIONS, filled, strict=True)), timing=timing)


def documented() -> list[list[str]]:
    """Cells of the table in the documentation."""
    text = (ROOT / "docs" / "model_runner.md").read_text(encoding="utf-8")
    table = text.split("<!-- gates -->")[1].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_all_128_combinations_are_in_exactly_one_row() -> None:
    assert len(set(ALL)) == 128
    assert [g for g in ALL if sum(row.holds(g) for row in TABLE) != 1] == []


def test_no_row_is_without_a_combination() -> None:
    assert [row for row in TABLE if not any(row.holds(g) for g in ALL)] == []


def test_the_documentation_has_the_same_table() -> None:
    assert documented() == [
        [
            *(WORDS[value] for value in row.when),
            row.encoder_off or "captured",
            row.decoder_off or "captured",
            row.said,
        ]
        for row in TABLE
    ]


@pytest.mark.parametrize("given", ALL, ids=str)
def test_what_is_captured_follows_from_the_rules_in_words(given: Gates) -> None:
    decision = gates.decide(given)
    encoder = (
        given.encoder_graphs
        and not given.eager_only
        and given.encoder_supported
        and given.encoder_cache
    )
    decoder = given.decoder_graphs and not given.eager_only and not given.encoder_only
    wanted = {"encoder": encoder, "decoder": decoder}
    assert decision.captured == tuple(name for name, on in wanted.items() if on)
    assert [name for name, _ in decision.skipped] == [n for n, on in wanted.items() if not on]
    if not encoder and not decoder:
        assert f"encoder_graphs={given.encoder_graphs}" in decision.warning
        assert f"decoder_graphs={given.decoder_graphs}" in decision.warning
        assert all(why in decision.warning for _, why in decision.skipped)
    built = {"encoder cache": given.encoder_cache, "decoder": not given.encoder_only}
    built["timing"] = given.timing
    assert decision.built == tuple(name for name, on in built.items() if on)


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: str(TABLE.index(row)))
def test_a_runner_builds_captures_and_says_what_its_row_says(
    row: Row, timing: bool, model: Any
) -> None:
    given = example(row, timing)
    with runner(model, given, options={"batch_sizes": (1,)}) as made:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = made.capture()
        assert (report.encoder.graphs > 0) == (row.encoder_off is None)
        assert (report.decoder.graphs > 0) == (row.decoder_off is None)
        assert report.encoder.skipped == row.encoder_off
        assert report.decoder.skipped == row.decoder_off
        assert (made.cache is not None) == given.encoder_cache
        assert (made.decoder is None) == given.encoder_only
        assert (made.encoders is not None) == given.encoder_supported
        said = [str(warning.message) for warning in caught]
        assert said == ([] if row.said is Said.NOTHING else [made.decision.warning])
        if not given.encoder_only:
            [answer] = made.generate(batch_of_three(model)[1:2], new_tokens=1)
            assert (answer.times is not None) == timing


def test_when_nothing_is_captured_one_warning_names_both_switches_and_why(model: Any) -> None:
    off = Gates(decoder_graphs=False, encoder_cache=False)
    expected = (
        "no graphs are captured, all runs eager: encoder_graphs=True, but there is no encoder cache; "
        "decoder_graphs=False: it is switched off"
    )
    with runner(model, off) as made, pytest.warns(UserWarning) as caught:
        made.capture()
    assert [str(warning.message) for warning in caught] == [expected]


def test_an_unsupported_tower_closes_the_gate_whatever_the_user_says(model: Any) -> None:
    made = tiny_model()
    made.model.visual = Foreign(made.model.visual)
    with runner(made, Gates(decoder_graphs=False)) as one:
        assert one.decision.encoder_off is Why.UNSUPPORTED
        with pytest.warns(UserWarning, match="the encoder is not supported"):
            one.capture()


def test_deciding_needs_no_torch() -> None:
    code = "import sys, encgraph.model_runner.gates; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.stdout.strip() == "False"
