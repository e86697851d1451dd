"""What the documents about checks say: the adapter runs, the quoted lines are said, names exist."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers
from helpers_cli import invoke
from packaging.version import Version

from encgraph.checks import checked, suite
from encgraph.checks.subject import Subject
from encgraph.encoders import wrap

pytest_plugins = ["encgraph.checks.fixture"]
ROOT = Path(__file__).parents[1]
ADAPTERS = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
FAULTS = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
MASKS_UNDER_CAPTURE = Version(transformers.__version__) < Version("5.24")
"""Whether the ViT of transformers makes a mask under capture alone, as 5.17 was seen to."""
WRAPPED, RUN, *ADAPTER = re.findall(r"```python\n(.*?)```", ADAPTERS, re.DOTALL)
"""The file of a wrapped module, what runs it, and those of the adapter."""
FIRST = ("__init__", "spec", "item_spec")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", ADAPTERS, re.DOTALL)


@pytest.fixture(scope="module")
def names():
    """What the file of the document defines."""
    defined = {"__name__": "my_vit"}
    for block in ADAPTER[:2]:
        exec(compile(block, "my_vit.py", "exec"), defined)
    return defined


def lines(names, kept):
    """What check says of the adapter with some of its methods."""
    members = {name: member for name, member in vars(names["Vit"]).items() if name in kept}
    encoder = type("Vit", (), members)(names["build"]("cpu", torch.float32).module)
    found = suite.run(Subject(encoder=encoder, make_inputs=names["make_inputs"]))
    return [line.rstrip() for one in found for line in checked.lines(one, width=14)]


def test_the_adapter_has_under_40_lines():
    body = ADAPTER[0].partition("class Vit")[2]
    assert 20 < len([line for line in body.splitlines() if line.strip()]) < 40


def test_the_file_beside_the_notebooks_is_that_of_the_document():
    text = (ROOT / "notebooks" / "my_vit.py").read_text(encoding="utf-8")
    _, _, body = text.partition("# fmt: off\n")
    assert body == "\n\n".join(ADAPTER[:2])


@pytest.fixture
def wrapped(tmp_path, monkeypatch):
    """The file of a wrapped module, in the folder the user stands in."""
    (tmp_path / "mine.py").write_text(WRAPPED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)


@pytest.mark.usefixtures("wrapped")
def test_the_wrapped_module_passes_every_check_that_applies():
    ran = invoke("check", "--encoder", "mine:build", "--backend", "reference", "--json")
    found = json.loads(ran.stdout)
    unjudged = {one["name"] for one in found if not one["passed"]}
    assert (ran.exit_code, len(found)) == (0, len(suite.CHECK_NAMES))
    assert unjudged == {"fallback", "boundaries", "clips", "last_row", "poison"}


@pytest.mark.usefixtures("wrapped")
def test_the_plan_of_the_wrapped_module_replays():
    made = {}
    exec(compile(RUN, "run.py", "exec"), made)
    assert made["plan"].token_budgets == (16, 32, 64, 128)
    assert [tuple(one.main.shape) for one in made["outputs"]] == [(16, 6)] * 3


def test_a_mask_that_the_model_makes_under_capture_alone_is_found(names):
    vit = names["build"]("cpu", torch.float32)
    whole = wrap.fixed(vit.module, torch.zeros(names["SHAPE"]))
    found = {
        one.name: one for one in suite.run(Subject(encoder=whole, make_inputs=names["make_inputs"]))
    }
    assert found["paths"].passed is not MASKS_UNDER_CAPTURE
    assert ("masking_utils.py" in "".join(found["paths"].detail)) is MASKS_UNDER_CAPTURE


@pytest.mark.parametrize(
    ("device", "backend"),
    [("cpu", "reference"), pytest.param("cuda", "cuda", marks=pytest.mark.cuda)],
)
def test_the_adapter_passes_every_check_that_applies(names, check_encoder, device, backend):
    adapter = names["build"](device, torch.float32)
    found = check_encoder(adapter, names["make_inputs"], backend=backend)
    unjudged = {one.name for one in found if not one.passed}
    assert unjudged == {"boundaries", "clips", "last_row", "poison"}


def test_each_step_says_what_is_missing(names):
    first, second = blocks("text")
    assert set(first.splitlines()) <= set(lines(names, FIRST))
    more = (*FIRST, "buffers", "fill", "forward")
    assert set(second.splitlines()) <= set(lines(names, more))


def test_every_check_is_in_the_table_of_adapters():
    table = ADAPTERS.partition("| check | asks |")[2].partition("Exact dtypes")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(suite.CHECK_NAMES)


def test_every_fault_is_shown_by_something_that_exists():
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    tests = {name for text in files for name in re.findall(r"def (test_\w+)", text)}
    assert set(re.findall(r"`check:(\w+)`", FAULTS)) <= set(suite.CHECK_NAMES)
    assert set(re.findall(r"`(test_\w+)`", FAULTS)) - tests == set()


def test_every_row_of_faults_names_a_check_a_test_or_what_is_lacking():
    rows = [row.split("|") for row in FAULTS.splitlines() if row.startswith("| ")]
    shown = [row[3] for row in rows if row[1].strip() != "fault"]
    assert len(shown) > 40
    assert [s for s in shown if not re.search(r"check:|`test_|not shown: ", s)] == []


def test_every_check_answers_for_some_fault():
    assert set(suite.CHECK_NAMES) - set(re.findall(r"check:(\w+)", FAULTS)) == set()
