"""What the tests of the page about several cards share: the page, its records and its commands."""

import re
from pathlib import Path

import torch
from helpers import reference

from encgraph import sharding, sizes, store, systems
from encgraph.results import Measurement
from encgraph.systems import Setting

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "data_parallel.md").read_text(encoding="utf-8")
PAGE = " ".join(TEXT.split())
NAMES = (
    "data_parallel",
    "data_parallel_rules",
    "data_parallel_mix",
    "data_parallel_mix_64",
    "data_parallel_mix_rules",
    "data_parallel_336",
    "data_parallel_native",
)
RECORDS = {name: store.load("h200", name) for name in NAMES}
SIZE = sizes.named("qwen3-vl-8b")
Lines = dict[tuple[int, str], Measurement]
"""By items a burst and strategy."""


def by_items(*names: str) -> Lines:
    """Lines of these records."""
    return {
        (round(m.numbers["burst_items_count"]), m.strategy): m for n in names for m in RECORDS[n]
    }


def several(name: str, rule: str = "longest_first", gather: str = "padded") -> str:
    """A strategy's line on two cards."""
    return f"{name}/2/{rule}/{gather}"


def ratio(one: Measurement, other: Measurement) -> float:
    """Mean over mean."""
    return one.latency.mean_ms / other.latency.mean_ms


def over(one: Measurement) -> float:
    """Encoder time measured over predicted."""
    return one.numbers["encode_mean_ms"] / one.numbers["predicted_encode_mean_ms"]


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def padded_more(one: Measurement) -> float:
    """Bytes that the gather `padded` moves more than `uneven`, as a ratio to the latter."""
    return one.numbers["padded_gather_bytes"] / one.numbers["uneven_gather_bytes"] - 1


def fullest_and_all_tokens(numbers) -> tuple[int, int]:
    """Tokens of the fuller of two ranks, and of both, from the bytes that a burst's gathers move."""
    moved = (numbers["padded_gather_bytes"] / 2, numbers["uneven_gather_bytes"])
    fullest, every = (round(size / sharding.token_bytes(SIZE)) for size in moved)
    return fullest, every


def other_rank_ms(numbers) -> float:
    """Of one burst on two ranks, the faster one's time."""
    return (1 - 2 * numbers["idle_ratio"]) * numbers["encode_mean_ms"]


def commands() -> dict[str, set[str]]:
    """Words of each command that the page says made a record, by the record's name."""
    block = re.search(r"```sh\n(.*?)```", TEXT[TEXT.index("## Two cards, measured") :], re.DOTALL)
    given = dict(re.findall(r'(?m)^(\w+)="(.*)"$', block[1]))
    said = {}
    for line in block[1].replace("\\\n", " ").splitlines():
        words = re.sub(r"\$(\w+)", lambda name: given[name[1]], line).split()
        words = words[words[0].startswith("OMP_NUM_THREADS=") :]
        if words[0] == "torchrun":
            said[words[words.index("--name") + 1]] = set(words)
    return said


def setting_of(**fields: object) -> Setting:
    """What the strategies share, priced by the recorded costs of the card."""
    priced = systems.prices(SIZE, on="h200", attention="fa3")
    return reference(size=SIZE, dtype=torch.bfloat16, priced=priced, **fields)
