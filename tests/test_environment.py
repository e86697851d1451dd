"""environment.yml, pyproject.toml and constraints.txt say the same; no conda is needed to check it."""

import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="needs pyyaml: pip install 'encgraph[test]'")
packaging = pytest.importorskip("packaging.requirements", reason="needs packaging")

ROOT = Path(__file__).parents[1]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[str]:
    extras = [r for group in PROJECT["optional-dependencies"].values() for r in group]
    return [*PROJECT["dependencies"], *extras]


def test_conda_gives_a_python_that_the_project_allows() -> None:
    from packaging.specifiers import SpecifierSet

    [python] = [d for d in CONDA["dependencies"] if isinstance(d, str) and d.startswith("python=")]
    assert f"{python.split('=')[1]}.0" in SpecifierSet(PROJECT["requires-python"])


def test_conda_installs_by_pip_from_the_same_constraints_and_nothing_twice() -> None:
    [pip] = [d["pip"] for d in CONDA["dependencies"] if isinstance(d, dict)]
    assert pip == ["-c constraints.txt", "-e .[dev]"]
    assert [d for d in CONDA["dependencies"] if isinstance(d, str)] == ["python=3.11", "pip"]


def test_make_setup_installs_what_conda_does() -> None:
    assert "-c constraints.txt -e '.[dev]'" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("text", requirements())
def test_every_requirement_is_pinned_within_its_range(text: str) -> None:
    requirement = packaging.Requirement(text)
    if normal(requirement.name) != PROJECT["name"]:
        assert requirement.specifier.contains(PINS[normal(requirement.name)])


def test_pins_are_plain_versions_in_order_and_name_no_cuda_build() -> None:
    assert list(PINS) == sorted(PINS)
    assert [v for v in PINS.values() if not re.fullmatch(r"[\w.]+", v)] == []
    assert [n for n in PINS if n.startswith(("nvidia-", "triton"))] == ["nvidia-cudnn-frontend"]
    assert (PINS["torch"], PINS["transformers"]) == ("2.13.0", "5.24.0")


def test_dev_takes_every_extra_but_the_one_for_cards() -> None:
    [dev] = PROJECT["optional-dependencies"]["dev"]
    assert packaging.Requirement(dev).extras == {*PROJECT["optional-dependencies"]} - {
        "dev",
        "cuda",
    }


def test_every_package_of_the_tree_is_in_the_wheel_and_the_data_with_it() -> None:
    tree = {
        ".".join(p.parent.relative_to(ROOT).parts) for p in ROOT.glob("encgraph/**/__init__.py")
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == tree | {"encgraph._data"}
    assert PYPROJECT["tool"]["setuptools"]["package-dir"] == {"encgraph._data": "data"}


def test_the_version_is_said_once_and_the_changelog_has_it() -> None:
    import encgraph

    assert PROJECT["version"] == encgraph.__version__
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", encgraph.__version__]
