"""Say before a long run on a CPU how long it will be, and which item takes most of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from encgraph import costs, meters, sizes
from encgraph.cli import pacing
from encgraph.encoders import inputs
from encgraph.encoders.protocol import Input
from encgraph.records import Item, Load
from encgraph.sizes import EncoderSize
from encgraph.systems import Setting
from encgraph.traffic import Traffic

PROBE_TOKENS = 1024
"""Of the larger item that is timed: enough for arithmetic to take the time, over in under a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What eager runs take here: a floor for anything, and a time for arithmetic."""

    floor_s: float
    flop_s: float

    def seconds(self, setting: Setting, items: Sequence[Item]) -> float:
        """One eager run of items."""
        return max(self.floor_s, self.flop_s * costs.flops(setting.size, Load.of(items)))


def shares(traffic: Traffic, size: EncoderSize) -> list[float]:
    """How long each request takes beside the others: by its arithmetic, quadratic in long segments."""
    return [costs.flops(size, Load.of(request)) for request in traffic.requests]


def say(
    eager: Callable[[Sequence[Input]], object], traffic: Traffic, setting: Setting, *, passes: int
) -> None:
    """Off a card, time two small items, and say what all requests will take if that is long.

    Args:
        eager: Runs a batch.
        traffic: What will be run.
        setting: Size, device and dtype.
        passes: How often every request is run.
    """
    if setting.device.type == "cuda" or not traffic.requests:
        return
    pace = paced(eager, setting)
    total_s = passes * sum(pace.seconds(setting, request) for request in traffic.requests)
    where, item = largest(traffic, setting.size)
    pacing.forewarn(
        total_s,
        largest=f"{where}, {item.tokens:,} tokens",
        largest_s=passes * pace.seconds(setting, [item]),
    )


def paced(eager: Callable[[Sequence[Input]], object], setting: Setting) -> Pace:
    """Time the smallest item and one of middling size, each warmed up first.

    A long request is not timed: saying that it takes minutes would take minutes.
    """
    rule, times = setting.size.rule, []
    for tokens in (rule.min_tokens, min(max(rule.min_tokens, PROBE_TOKENS), rule.max_tokens)):
        one = [sizes.item_of(tokens, rule)]
        batch = inputs.synthetic(one, size=setting.size, device=setting.device, dtype=setting.dtype)
        eager(batch)
        seconds = meters.wall_ms(partial(eager, batch), setting.device) / 1e3
        times.append((seconds, costs.flops(setting.size, Load.of(one))))
    (floor_s, _), (seconds, flops) = times
    return Pace(floor_s=floor_s, flop_s=seconds / flops)


def largest(traffic: Traffic, size: EncoderSize) -> tuple[str, Item]:
    """The item of most arithmetic, by its file or else by its place."""
    found = [
        (costs.flops(size, Load.of([item])), index, at)
        for index, request in enumerate(traffic.requests)
        for at, item in enumerate(request)
    ]
    _, index, at = max(found)
    place = f"item {at + 1} of request {index + 1}"
    return repr(traffic.paths[index][at]) if traffic.paths else place, traffic.requests[index][at]
