"""What ranks tell each other over a store, on the host, before any collective reaches a card.

Every turn each rank posts one notice and reads all others'. A rank that failed posts why, so all
raise the same error and none waits for it; one that posts nothing within the time limit is named as
lost. Ranks must take turns alike: all execute, or none.

A store, not a gloo collective: it says which rank is missing, and a failed turn leaves it usable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from torch.distributed import Store  # type: ignore[attr-defined]

from encgraph import codec
from encgraph.errors import require

_Value = TypeVar("_Value")
CAUSE_CHARACTERS = 2000
"""Of a failure's text; the rank that failed raises from the whole of it."""


class RankError(RuntimeError):
    """Some rank failed or was lost; raised with the same words on every rank that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What one rank says in one turn."""

    said: str = ""
    """What all ranks must agree on; their own business where they need not."""
    failure: str | None = None
    """Why the rank cannot go on; None when it can."""


@dataclass(slots=True, kw_only=True, eq=False)
class Board:
    """One rank's view of the notices of all."""

    store: Store | None
    """None for a single rank, which has nobody to ask."""
    rank: int
    size: int
    time_limit_s: float
    lost: str | None = None
    """Why no further turn is possible; None while all ranks are there."""
    _turn: int = 0

    def __post_init__(self) -> None:
        require(self.time_limit_s > 0, f"time_limit_s must be positive, got {self.time_limit_s!r}")

    def exchange(self, mine: Notice) -> list[Notice]:
        """Post a notice and read everybody's, in rank order.

        Raises:
            RankError: If a rank posts nothing within the time limit, now or in an earlier turn.
        """
        if self.store is None:
            return [mine]
        if self.lost:
            raise RankError(self.lost)
        turn = self._turn
        keys = [f"{turn}/{rank}" for rank in range(self.size)]
        try:
            self.store.set(keys[self.rank], codec.dumps(mine))
            self.store.wait(keys, timedelta(seconds=self.time_limit_s))
            texts = self.store.multi_get(keys)
            self._turn += 1
            if turn:
                # Everybody has posted this turn, so everybody has read the one before.
                self.store.delete_key(f"{turn - 1}/{self.rank}")
        except RuntimeError as error:
            self.lost = self._missing(keys)
            raise RankError(self.lost) from error
        return [codec.loads(Notice, text.decode()) for text in texts]

    def _missing(self, keys: Sequence[str]) -> str:
        assert self.store is not None
        ended = "; all ranks stop; start them again"
        try:
            silent = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
        except RuntimeError as error:
            return f"the store that ranks meet at is gone ({_short(error)}){ended}"
        named = ", ".join(map(str, silent)) or "none"
        return (
            f"rank {named} of {self.size} said nothing within {self.time_limit_s:g} s: "
            f"killed, hung or not in this call{ended}"
        )

    def hear(
        self, attempt: Callable[[], tuple[_Value, str]], *, about: str
    ) -> tuple[_Value, list[str]]:
        """Try something on every rank; return its value and what each rank says of it.

        Args:
            attempt: Returns a value and what to say; may raise.
            about: What is attempted, for the error; the same words on every rank.

        Raises:
            RankError: If it raised on some rank: the same on all, naming rank and cause.
        """
        try:
            value, said = attempt()
        except Exception as error:
            if self.size > 1:
                self._refuse_failures(self.exchange(Notice(failure=_short(error))), about, error)
            raise
        notices = self.exchange(Notice(said=said))
        self._refuse_failures(notices, about, None)
        return value, [notice.said for notice in notices]

    def agree(self, attempt: Callable[[], tuple[_Value, str]], *, about: str) -> _Value:
        """Try something on every rank; return its value if all succeeded and said the same.

        Raises:
            RankError: The same on all ranks: who failed and why, or who said something else.
        """
        value, said = self.hear(attempt, about=about)
        check_same(said, about=about)
        return value

    def _refuse_failures(
        self, notices: Sequence[Notice], about: str, mine: Exception | None
    ) -> None:
        failed = [f"rank {r}: {n.failure}" for r, n in enumerate(notices) if n.failure is not None]
        if failed:
            raise RankError(
                f"{about} failed on {len(failed)} of {self.size} ranks: {'; '.join(failed)}"
            ) from mine


def check_same(said: Sequence[str], *, about: str) -> None:
    """Refuse what ranks said if one said something else than rank 0.

    Raises:
        RankError: If one did; names it and both texts.
    """
    other = next((rank for rank, text in enumerate(said) if text != said[0]), None)
    if other is not None:
        raise RankError(
            f"{about} must be the same on every rank; rank 0 has {said[0]}, "
            f"rank {other} has {said[other]}"
        )


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:CAUSE_CHARACTERS]
