"""Plan, capture, pack, replay, prove, measure and explain CUDA graphs for encoders."""

import importlib
from typing import Any

__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """Serve `%load_ext encgraph`: records show themselves as tables, `%%encgraph` profiles a cell."""
    importlib.import_module("encgraph.magic").load(shell)
