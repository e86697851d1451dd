"""Explore traffic, plans, packings, memory, ranks and stale state by hand: explorers for JupyterLab.

Each function returns one widget. Its only state is that of its controls, and what it shows comes from
the functions a notebook would call itself. JupyterLab 4 is what is tested; other front ends that
know ipywidgets and anywidget may work. Without a front end a saved notebook keeps the tables.
"""

from encgraph.widgets.breakeven import break_even
from encgraph.widgets.duels import packing_duel
from encgraph.widgets.linked import explorer
from encgraph.widgets.ruler import budget_ruler
from encgraph.widgets.shards import sharding
from encgraph.widgets.stale import stale_state
from encgraph.widgets.strata import memory_strata
from encgraph.widgets.timelines import timeline

__all__ = [
    "break_even",
    "budget_ruler",
    "explorer",
    "memory_strata",
    "packing_duel",
    "sharding",
    "stale_state",
    "timeline",
]
