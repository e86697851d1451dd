"""Say which line of code something comes from: of an adapter, not of torch or of the checks."""

import contextlib
import linecache
import os
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch

from encgraph import errors

TORCH = str(Path(torch.__file__).parent) + os.sep
HERE = str(Path(__file__).parent)
PROJECT = str(Path(errors.__file__).parent)
NO_ADAPTERS = (PROJECT, str(Path(TORCH).parent), sysconfig.get_path("stdlib"))
"""Where the project, installed packages and the standard library lie."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code outside torch."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({linecache.getline(self.file, self.line).strip()})"


def told(error: Exception, *, own: bool = False) -> str:
    """An error in one line, with the deepest line of code outside torch and the checks.

    Where that is one of the project's own, the deepest line of an adapter outside it, if there is one.

    Args:
        error: As caught; of a file that cannot be read as Python, the line is the file's.
        own: Whether to pass over all installed packages too, where a line outside them is there.
    """
    first = next(iter(str(error).splitlines()), "")
    if isinstance(error, SyntaxError) and error.filename:
        line = (error.text or "").strip()
        return f"{type(error).__name__}: {error.msg} at {error.filename}:{error.lineno} ({line})"
    frames = traceback.extract_tb(error.__traceback__)
    others = (TORCH, HERE, errors.__file__, contextlib.__file__, "<")
    near = [f for f in frames if not f.filename.startswith(others)]
    inside = near or frames
    if inside and (
        own or inside[-1].filename.startswith(PROJECT)
    ):  # a helper, where an adapter called it
        inside = [f for f in near if not f.filename.startswith(NO_ADAPTERS)] or inside
    if not inside:
        return f"{type(error).__name__}: {first}"
    where = f"{inside[-1].filename}:{inside[-1].lineno} ({inside[-1].line})"
    return f"{type(error).__name__}: {first} at {where}"


def running() -> Place:
    """The deepest running line outside torch and this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((TORCH, HERE, "<")):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)
