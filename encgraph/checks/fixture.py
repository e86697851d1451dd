"""A pytest fixture that runs every check on an adapter of your own.

In `conftest.py`: `pytest_plugins = ["encgraph.checks.fixture"]`. In a test::

    def test_graphs_can_hold_my_encoder(check_encoder):
        check_encoder(MyEncoder(tower), make_inputs)
"""

from collections.abc import Iterable
from typing import Protocol

import pytest

from encgraph.checks import suite
from encgraph.checks.checked import Checked
from encgraph.checks.subject import MakeInputs, Subject
from encgraph.encoders.protocol import Encoder
from encgraph.records import Plan


class CheckEncoder(Protocol):
    """Run the checks and fail the test with a line for each that failed or left answers unproven."""

    def __call__(
        self,
        encoder: Encoder,
        make_inputs: MakeInputs,
        *,
        backend: str = "reference",
        layout: str = "packed",
        plan: Plan | None = None,
        skip: Iterable[str] = (),
    ) -> list[Checked]:
        """Return every outcome if none failed and right answers were proven.

        What is named in `skip` may fail; `forward` and `parity` named there may be left unrun.

        Budgets of a `plan` are filled as well as those that the checks make.
        """
        ...


@pytest.fixture
def check_encoder() -> CheckEncoder:
    """The suite as one call."""
    return _check


def _check(
    encoder: Encoder,
    make_inputs: MakeInputs,
    *,
    backend: str = "reference",
    layout: str = "packed",
    plan: Plan | None = None,
    skip: Iterable[str] = (),
) -> list[Checked]:
    allowed = set(skip)
    unknown = allowed - set(suite.CHECK_NAMES)
    if unknown:
        raise ValueError(f"skip must name checks of {suite.CHECK_NAMES}, got {sorted(unknown)}")
    subject = Subject(
        encoder=encoder, make_inputs=make_inputs, backend=backend, layout=layout, given=plan
    )
    found = list(suite.run(subject))
    failed = [one for one in found if one.passed is False and one.name not in allowed]
    lines = [f"{one.name}: {said}" for one in failed for said in one.detail]
    unproven = suite.unproven(one for one in found if one.name not in allowed)
    lines += [f"{name}: {said}" for name, said in unproven.items()]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
    return found
