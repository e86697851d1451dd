"""What the tests of explorers share: a small traffic, and ways to read tables and figures."""

import random
import re
from typing import Any

from encgraph import costs, sizes
from encgraph.budgets import Limits, Target
from encgraph.records import Item
from encgraph.traffic import Traffic

SIZE = sizes.named("qwen3-vl-8b")
COSTS = costs.modelled(SIZE)
TARGET = Target(size=SIZE)


def images(*tokens: int) -> tuple[Item, ...]:
    return tuple(Item(tokens=n, patches=4 * n) for n in tokens)


def made_traffic(count: int, *, most: int = 3) -> Traffic:
    rng = random.Random(count)

    def tokens() -> int:
        return rng.choice((64, 64, 196, 930, rng.randint(64, 3000)))

    requests = tuple(images(*(tokens() for _ in range(rng.randint(1, most)))) for _ in range(count))
    return Traffic(name="made", source="made", encoder=SIZE.name, requests=requests)


SMALL = made_traffic(80)
FEW = Limits(max_graphs=4)


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]


def trace(figure: Any, uid: str) -> Any:
    return next(t for t in figure.data if t.uid == uid)
