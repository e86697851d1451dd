"""Refuse what an explorer cannot show, in words and before any work."""

from collections.abc import Sequence

from encgraph.budgets import Limits
from encgraph.errors import require
from encgraph.records import Item
from encgraph.sizes import EncoderSize
from encgraph.traffic import Traffic

MOST_OF_A_REQUEST = 1_000
"""Most items of a request whose packings are explored; time grows faster than they do."""
_LARGE = 64
"""Requests of more items are packed by a search that takes a few hundred microseconds an item."""
MOST_OF_LARGE = 20_000
"""Most items of all such requests together: some five seconds until an explorer comes up."""


def traffic(given: Traffic) -> None:
    """Refuse what is no traffic, is empty, or is too large to be packed while somebody waits."""
    require(
        isinstance(given, Traffic),
        f"traffic must be a Traffic, got {type(given).__name__}; `traffic.read` makes one",
    )
    name = given.name
    require(
        bool(given.requests), f"traffic {name!r} has no requests; read a source that holds some"
    )
    large = [len(items) for items in given.requests if len(items) > _LARGE]
    most = max(large, default=0)
    require(
        most <= MOST_OF_A_REQUEST,
        f"a request to explore must have at most {MOST_OF_A_REQUEST:,} items, got {most:,} in one "
        f"of traffic {name!r}; split it, or leave it out",
    )
    require(
        sum(large) <= MOST_OF_LARGE,
        f"requests of more than {_LARGE} items must have at most {MOST_OF_LARGE:,} in all to be "
        f"explored, got {sum(large):,} in traffic {name!r}; explore some of its requests",
    )


def limits(given: Limits | None) -> None:
    """Refuse what are no limits of a fit."""
    require(
        given is None or isinstance(given, Limits),
        f"limits must be Limits, got {type(given).__name__}; `budgets.Limits` makes them",
    )


def size(given: EncoderSize) -> None:
    """Refuse what is no encoder's size."""
    require(
        isinstance(given, EncoderSize),
        f"size must be an EncoderSize, got {type(given).__name__}; `sizes.named` has them",
    )


def items(what: str, given: Sequence[Item]) -> None:
    """Refuse what is no sequence of items; `what` says which one it is."""
    require(
        isinstance(given, Sequence),
        f"{what} must be a sequence of items, got {type(given).__name__}; put items into a list",
    )
    wrong = next((type(item).__name__ for item in given if not isinstance(item, Item)), None)
    require(
        wrong is None,
        f"{what} must be a sequence of items, got one that holds {wrong}; "
        "`traffic.requests` has such sequences",
    )


def requests(given: Sequence[Sequence[Item]]) -> None:
    """Refuse what is no sequence of requests."""
    require(
        isinstance(given, Sequence),
        f"requests must be a sequence of requests, got {type(given).__name__}; "
        "a traffic has them as `traffic.requests`",
    )
    for request in given:
        items("a request", request)
