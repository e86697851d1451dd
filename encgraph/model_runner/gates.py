"""Decide, from switches and facts alone, what is built, captured and skipped, and what is said.

`TABLE` is closed: each of the combinations matches exactly one row. The documentation holds the same
table, and a test compares them.
"""

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Why a kind of graphs is off."""

    EAGER_ONLY = "eager_only is set"
    SWITCH = "it is switched off"
    UNSUPPORTED = "the encoder is not supported"
    NO_CACHE = "there is no encoder cache"
    ENCODER_ONLY = "encoder-only mode has no decoder"


class Said(StrEnum):
    """What a decision warns about."""

    NOTHING = "nothing"
    NO_ENCODER_GRAPHS = "no encoder graphs"
    NO_GRAPHS = "no graphs"
    NO_DECODER_GRAPHS = "no decoder graphs"
    """In no row: only after a decoder capture that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Switches a user sets and facts about the model."""

    eager_only: bool = False
    """Whether graphs of any kind are forbidden."""
    encoder_graphs: bool = True
    """The encoder's switch."""
    decoder_graphs: bool = True
    """The decoder's switch."""
    encoder_supported: bool = True
    """Whether the tower can be wrapped by an encoder of this project."""
    encoder_cache: bool = True
    """Whether outputs of the encoder are kept by content."""
    encoder_only: bool = False
    """Whether items are only encoded: no prefill, no decoder."""
    timing: bool = False
    """Whether each stage is synchronized and timed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: what must hold, and what follows."""

    when: tuple[bool | None, ...]
    """In the order of `CONDITIONS`; None: either."""
    encoder_off: Why | None
    """Why encoder graphs are off; None: captured."""
    decoder_off: Why | None
    """Why decoder graphs are off; None: captured."""
    said: Said

    def holds(self, gates: Gates) -> bool:
        """Whether the row is about these gates."""
        found = conditions(gates)
        pairs = zip(self.when, found, strict=True)
        return all(wanted is None or wanted == given for wanted, given in pairs)


CONDITIONS = (
    "eager_only", "encoder_only", "encoder_graphs", "encoder_supported", "encoder_cache",
    "decoder_graphs",
)  # fmt: skip
"""Columns of the table; timing changes no graph, so it has none."""


def conditions(gates: Gates) -> tuple[bool, ...]:
    """The gates in the order of `CONDITIONS`."""
    return (
        gates.eager_only,
        gates.encoder_only,
        gates.encoder_graphs,
        gates.encoder_supported,
        gates.encoder_cache,
        gates.decoder_graphs,
    )


_Y, _N = True, False
_X: bool | None = None
# fmt: off
TABLE: tuple[Row, ...] = (
    #    eager only grph supp cache decoder
    Row((_Y, _N, _X, _X, _X, _X), Why.EAGER_ONLY,  Why.EAGER_ONLY,   Said.NO_GRAPHS),
    Row((_Y, _Y, _X, _X, _X, _X), Why.EAGER_ONLY,  Why.ENCODER_ONLY, Said.NO_GRAPHS),
    Row((_N, _N, _N, _X, _X, _N), Why.SWITCH,      Why.SWITCH,       Said.NO_GRAPHS),
    Row((_N, _N, _N, _X, _X, _Y), Why.SWITCH,      None,             Said.NOTHING),
    Row((_N, _N, _Y, _N, _X, _N), Why.UNSUPPORTED, Why.SWITCH,       Said.NO_GRAPHS),
    Row((_N, _N, _Y, _N, _X, _Y), Why.UNSUPPORTED, None,             Said.NO_ENCODER_GRAPHS),
    Row((_N, _N, _Y, _Y, _N, _N), Why.NO_CACHE,    Why.SWITCH,       Said.NO_GRAPHS),
    Row((_N, _N, _Y, _Y, _N, _Y), Why.NO_CACHE,    None,             Said.NO_ENCODER_GRAPHS),
    Row((_N, _N, _Y, _Y, _Y, _N), None,            Why.SWITCH,       Said.NOTHING),
    Row((_N, _N, _Y, _Y, _Y, _Y), None,            None,             Said.NOTHING),
    Row((_N, _Y, _N, _X, _X, _X), Why.SWITCH,      Why.ENCODER_ONLY, Said.NO_GRAPHS),
    Row((_N, _Y, _Y, _N, _X, _X), Why.UNSUPPORTED, Why.ENCODER_ONLY, Said.NO_GRAPHS),
    Row((_N, _Y, _Y, _Y, _N, _X), Why.NO_CACHE,    Why.ENCODER_ONLY, Said.NO_GRAPHS),
    Row((_N, _Y, _Y, _Y, _Y, _X), None,            Why.ENCODER_ONLY, Said.NOTHING),
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a runner builds, captures and skips, and what it says."""

    gates: Gates
    encoder_off: Why | None
    """Why encoder graphs are skipped; None: captured."""
    decoder_off: Why | None
    """Why decoder graphs are skipped; None: captured."""
    warning: str | None
    """What is said; None: nothing."""

    @property
    def built(self) -> tuple[str, ...]:
        """Parts that exist besides the encoder, in the order they are built."""
        parts = {
            "encoder cache": self.gates.encoder_cache,
            "decoder": not self.gates.encoder_only,
            "timing": self.gates.timing,
        }
        return tuple(name for name, wanted in parts.items() if wanted)

    @property
    def captured(self) -> tuple[str, ...]:
        """What is captured, the encoder first."""
        off = {"encoder": self.encoder_off, "decoder": self.decoder_off}
        return tuple(name for name, why in off.items() if why is None)

    @property
    def skipped(self) -> tuple[tuple[str, Why], ...]:
        """What is not captured, with why."""
        off = {"encoder": self.encoder_off, "decoder": self.decoder_off}
        return tuple((name, why) for name, why in off.items() if why is not None)


def row(gates: Gates) -> Row:
    """The one row about these gates."""
    [found] = [one for one in TABLE if one.holds(gates)]
    return found


def decide(gates: Gates) -> Decision:
    """Decide from the table.

    >>> decide(Gates(decoder_graphs=False)).captured
    ('encoder',)
    """
    found = row(gates)
    return Decision(
        gates=gates,
        encoder_off=found.encoder_off,
        decoder_off=found.decoder_off,
        warning=warning(gates, found.said, encoder=found.encoder_off, decoder=found.decoder_off),
    )


def warning(gates: Gates, said: Said, *, encoder: str | None, decoder: str | None) -> str | None:
    """One sentence about what is not captured.

    Args:
        gates: The switches to name.
        said: What it is about.
        encoder: Why encoder graphs are off.
        decoder: Why decoder graphs are off.

    Returns:
        The sentence, or None where nothing is to be said.
    """
    encoder_off = _off("encoder_graphs", gates.encoder_graphs, encoder)
    decoder_off = _off("decoder_graphs", gates.decoder_graphs, decoder)
    return {
        Said.NOTHING: None,
        Said.NO_ENCODER_GRAPHS: f"{encoder_off}; items run eager",
        Said.NO_DECODER_GRAPHS: f"{decoder_off}; decode steps run eager",
        Said.NO_GRAPHS: f"no graphs are captured, all runs eager: {encoder_off}; {decoder_off}",
    }[said]


def _off(switch: str, position: bool, why: str | None) -> str:
    return f"{switch}={position}{', but' if position else ':'} {why}"
