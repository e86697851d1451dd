"""Say in one line what the words of the tables mean: under a table, and at the end of a command's help."""

from rich.console import Console

from encgraph import strategies

WORDS = {
    "atoms": "token counts that come back in the traffic, commonest first",
    "budget": "tokens a graph computes, padding too",
    "defer": "vLLM's packing starts another replay where two small budgets cost fewer rows than one "
    "that holds both",
    "driver": "memory CUDA takes for the graphs",
    "eager": "run without graphs",
    "error ratio": "an output's error over eager's own; in float32 the error itself",
    "fallback": "items that run eager although there are graphs; always with a reason",
    "fill": "real tokens over the budget",
    "held out": "requests that no budget was fitted on: a plan is judged on them",
    "modelled": "from arithmetic, since no curve of that encoder was recorded on that card",
    "p50, p90, p99": "50, 90 and 99 of 100 are at most this",
    "padding": "computed tokens that are nobody's, over all computed",
    "poisoned": "padding was filled with NaN, which must reach no output",
    "pool": "memory for what graphs compute in between",
    "quick host": "small eager runs as quick as the quickest tenth recorded; they wait for their host",
    "recorded": "from a curve that `encgraph record` measured on that card",
    "replay": "launch a captured graph on new inputs",
    "replayed": "items that went through a graph, over all items",
    "reference": "backend without a card: runs what the graphs would, and gives the same outputs",
    "slab": "static buffer that all budgets share",
    "tail smoothed": "as if more large requests had come",
    "wall": "time on the clock from request to output, the host's work included",
}
"""One idea a word, one line each; the keys are what tables and verdicts say."""


def gloss(*words: str) -> str:
    """Words and what they mean, in one line.

    >>> gloss("eager")
    'eager: run without graphs'
    """
    return "; ".join(f"{word}: {WORDS[word]}" for word in words)


def footnote(console: Console, *words: str) -> None:
    """Say what words mean, dim, under the table that has them."""
    console.print(gloss(*words), style="dim")


def tail(console: Console, note: str) -> None:
    """Say why a table has no p99, dim, below it; nothing where it has."""
    if note:
        console.print(note, style="dim")


def ending(*words: str, before: str = "", boxed: bool = True) -> str:
    """The end of a command's help: what its words mean, a line each.

    Args:
        words: Of `WORDS`.
        before: What comes first, such as `presets`.
        boxed: Whether help is shown in boxes; else a mark is needed for lines to stay lines.
    """
    listed = "\n".join(["Words:", *(f"{word}: {WORDS[word]}" for word in words)])
    parts = [before, listed] if before else [listed]
    return "\n\n".join(parts if boxed else (f"\b\n{part}" for part in parts))


SOURCES_READ = (
    "Sources:",
    "a folder: the images below it, a request each; headers alone are read, so that a file damaged "
    "further on still counts",
    ".csv: columns width,height in pixels, or tokens; optionally request, frames, arrival_s",
    ".jsonl: a chat request a line, images as parts of type image_url",
    '.json: an object whose "requests" lists requests, each a list of pairs: the patches of an image in '
    "height and in width after its resize, not pixels",
    "builtin:NAME: requests drawn from a published profile, such as builtin:servegen",
)
"""What `SOURCE` may be, a line each."""


def sources_read() -> str:
    """What `SOURCE` may be, for the end of a command's help."""
    return "\n".join(SOURCES_READ)


def presets(*, groups: bool) -> str:
    """Every strategy and what it is, a line each.

    Args:
        groups: Whether to add the names that stand for several.
    """
    lines = ["Strategies:", *(f"{s.name}: {s.about}" for s in strategies.STRATEGIES.values())]
    if groups:
        for name, members in strategies.GROUPS.items():
            lines.append(f"{name}: the {len(members)} of its name, {name}_*, one after another")
    return "\n".join(lines)
