"""What tests of the command line share: an invocation, its one line of error, small images."""

import json
from pathlib import Path
from typing import Any

from PIL import Image
from typer.testing import CliRunner, Result

from encgraph.cli.app import app

TINY = ("--encoder", "qwen3-vl-tiny")


def invoke(*arguments: object) -> Result:
    """Run a command in this process, on a terminal too wide to break a line."""
    return CliRunner(env={"COLUMNS": "400"}).invoke(app, [str(a) for a in arguments])


def passes(*arguments: object) -> str:
    """Standard output of a command that must succeed."""
    result = invoke(*arguments)
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    return result.stdout


def read_json(*arguments: object) -> Any:
    """The JSON a command writes with `--json`, which must be all of its standard output."""
    return json.loads(passes(*arguments, "--json"))


def error(*arguments: object) -> str:
    """The one line of a command that must fail with status 1 and say nothing else."""
    result = invoke(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("error: ")
    assert [line for line in lines[:-1] if not line.startswith("backend ")] == []
    return lines[-1].removeprefix("error: ")


def photos(folder: Path, *sides: tuple[int, int]) -> Path:
    """A folder of images, one of each (width, height)."""
    folder.mkdir(exist_ok=True)
    for index, (width, height) in enumerate(sides):
        image = Image.effect_noise((width, height), 40).convert("RGB")
        image.save(folder / f"{index:03}.png")
    return folder
