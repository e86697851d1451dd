"""Write docs/encoders.md: every family with its layout and sizes, and what is proven of it where.

    python benchmarks/encoder_docs.py

Families and sizes come from the registry, the card's columns from the rows of `encoder_table.py`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from encoder_rows import CHOICES, EXPERIMENT

from encgraph import sizes, store
from encgraph.checks import suite
from encgraph.encoders import pixels, readers, registry
from encgraph.published.tiles import EDGE_TILES, RATIO_TILES
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize

PAGE = Path(__file__).parents[1] / "docs" / "encoders.md"
CARD = "h200"
PICTURES = ((640, 480), (1000, 1000), (4000, 1000))
LAYOUTS = {
    "packed": (
        "patches of all items end to end, told apart by offsets",
        "tests/test_encoder_families.py",
    ),
    "ragged": (
        "one padded row of patches an item, told apart by its shape",
        "tests/test_fixed_layouts.py",
    ),
    "fixed": ("slots of one shape, an item takes one or several", "tests/test_fixed_layouts.py"),
    "text": ("symbols of all texts end to end, pooled inside the graph", "tests/test_text.py"),
}
TEXT = """# Encoders

Written by `benchmarks/encoder_docs.py` from the registry and the recorded measurements; a test compares.
How to add one: [adapters.md](adapters.md). Which fault each check finds: [faults.md](faults.md).

## Layouts

{layouts}

## Families

Every family has a tiny size that runs all of `encgraph check` on a CPU; published sizes carry random weights
from a seed, or those of a saved model through `registry.from_pretrained`.

{families}

## Images cut into tiles

The processors of InternVL, Idefics3 and SmolVLM cut a picture into squares of the tower's resolution and add one
of the whole: InternVL in the grid of at most {ratio} nearest in ratio, the others with {edge} along the longer side.
Planning counts tiles from a file's header as the processors do, and `inputs.from_files` has the pixels cut by the
processor itself (`tests/test_cut_images.py` compares). A saved model's processor may state other numbers.

{tiles}

A tile is a slot of a graph and a segment of its item. So a budget holds one picture of many tiles or several of
few, and `budgets.auto` has the largest picture and its halves down to one tile. A table of tokens gives each item
as few tiles as have them; a request list of patch grids is refused, since it does not say how many.

## What is proven where

On a CPU, in float32, by the suite (`tests/test_encoder_table.py`): those of the {checks} checks that apply, of
every family at its tiny size, against the untouched module of transformers. "Reference" replays run the captured
forward again; no graph is captured there. `poison` is not judged for fixed slots and texts, whose `fill` leaves
the forward no poison to meet; `tests/test_fixed_layouts.py` poisons their buffers after it.

On a card, at one real size a family in bfloat16, by `benchmarks/encoder_table.py`. A row says how many checks
passed of those that apply, the worst error of a replay and what was allowed, seconds and bytes of three
graphs, and how many times faster than the best eager forward {counts} typical items are; what is timed is
proven first, as the bench does. The graphs fit the items exactly: what padding costs depends on the plan, not
on the encoder. An item of InternVL, Idefics3 or SmolVLM is one tile here.

{measured}

Not proven there: a row that says so; saved weights other than tiny ones; sizes that are not in the table.

{failed}

## Releases of transformers

The suite runs on transformers 5.24 with torch 2.13 and passes on 5.17 with torch 2.11, which the table above
was measured with. At every tiny size the same checks pass on both (`encoder_table.py --tiny --stages checks`);
the audit counts a few operators more or fewer in some families.

One difference reaches users. To look a patch's position up, Idefics3 and SmolVLM of 5.17 round its place to the
dtype of the pixels: in bfloat16, 420 of the 676 patches of an `idefics3-8b` tile and 288 of the 729 of
`smolvlm2-2.2b` get the embedding of another (counted by `tests/test_tiles.py`); 5.24 rounds none away. Graphs and
fallbacks here compute positions in float32 under every release. So their worst error is small beside what the
table allows them, 1.25 times the error of the untouched module. The check `fallback` fails there all the same:
with such a module it has nothing to judge by. Relative distance from float32 of one tile at the real size, on a CPU
(`benchmarks/near_float32.py`, `data/measurements/cpu/near-float32.jsonl`):

{near}

## Pixels that enter

* Pixels of float32, float16 or bfloat16 enter buffers of any of the three, converted once, on the device.
* `uint8` pixels, 0 to 255 and in the shape of float ones, are normalised on the device by mean and deviation
  of the family's processor, or of the saved model's. `fill` copies a quarter of float32's bytes, computes in
  float32 and rounds once to the buffer's dtype: within one rounding of float pixels normalised on the host.
  Float and 8-bit items share a replay; there is nothing to switch on. `inputs.from_files(...,
  dtype=torch.uint8)` reads files so for {readers}. Where the table says "floats" they are refused by name;
  so are they for a saved processor that rescales otherwise.

## Items over a processor's limits

| item | what happens |
|---|---|
| image or clip of more pixels than the processor allows (packed, but Pixtral) | encoded; goes eager with "tokens over every budget" unless a budget holds it |
| image with a side past Pixtral's position table | refused by name, since a card would read past the table |
| more patches than a NaFlex slot, more tiles than the processor cuts, another resolution or length of audio | refused by name |
| text longer than the position table | refused by name: cut or split it |
| clip of more frames than every graph | goes eager with "segments over every budget" or "frames over every budget" |

`execute` raises for a refused item and encodes nothing; `execute_each` gives its error in its place and
encodes the others. `tests/test_processor_limits.py` pins each line.

## Several modalities in one batch

Images and clips of one encoder share a runner: each modality is packed for itself, outputs come back in the
order given. Audio and images are two encoders: `mixed.MixedRunner({{Modality.IMAGE: seeing, Modality.VIDEO:
seeing, Modality.AUDIO: listening}})` sends each item to its encoder's runner and restores the order; errors
name the place in the whole batch.
"""


def page(rows: Sequence[Measurement]) -> str:
    """The page, with what was measured on the card."""
    return TEXT.format(
        layouts=_table(
            ("layout", "what a static buffer holds", "proven alike by"),
            ((name, what, f"`{test}`") for name, (what, test) in LAYOUTS.items()),
        ),
        families=_table(
            ("family", "layout", "takes", "8-bit pixels", "published sizes"),
            (_family(family) for family in registry.FAMILIES),
        ),
        measured=_table(
            ("family", "size", "checks", "worst error", "capture", "bytes", "1", "8", "32"),
            (_measured(family, rows) for family in registry.FAMILIES),
        ),
        tiles=_table(
            (
                "size",
                "tokens a tile",
                *(f"tiles of {wide} x {high}" for wide, high in PICTURES),
                "most tiles",
            ),
            (_tiles(size) for size in sizes.SIZES.values() if size.rule.is_cut),
        ),
        ratio=RATIO_TILES,
        edge=EDGE_TILES,
        failed=_failed(rows),
        near=_table(("size", "transformers", "untouched, bfloat16", "ours, bfloat16"), _near()),
        checks=len(suite.CHECK_NAMES),
        counts="1, 8 and 32",
        readers=", ".join(sorted(readers.READERS)),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _family(family: str) -> tuple[str, ...]:
    known = [size for size in sizes.SIZES.values() if size.family == family]
    names = ", ".join(f"`{size.name}`" for size in known)
    return (family, known[0].layout, _takes(known[0]), _raw(known[0]), names)


def _takes(size: EncoderSize) -> str:
    clips = ["video"] if size.rule.video_max_pixels else []
    return ", ".join([size.rule.modality, *clips])


def _raw(size: EncoderSize) -> str:
    if size.layout == "text":
        return "-"
    return "normalised" if size.family in pixels.NORMALISATIONS else "floats"


def _measured(family: str, rows: Sequence[Measurement]) -> tuple[str, ...]:
    """The last rows of a family's chosen size, "not run" where there are none."""
    name = CHOICES[family].size
    mine = [row for row in rows if row.encoder == name]
    checks = next((row for row in reversed(mine) if row.strategy == "checks"), None)
    graphs = next((row for row in reversed(mine) if row.memory is not None), None)
    numbers = checks.numbers if checks else {}
    ran = numbers.get("passed_count", 0) + numbers.get("failed_count", 0)
    error, allowed = (numbers.get(f"parity_{n}_ratio") for n in ("worst_error", "tolerance"))
    return (
        family,
        f"`{name}`",
        f"{numbers['passed_count']:.0f} of {ran:.0f}" if checks else "not run",
        f"{error:.2g} (allowed {allowed:.2g})" if error is not None else "-",
        f"{graphs.numbers['capture_s']:.1f} s" if graphs else "not run",
        f"{graphs.memory.total_bytes / 1e6:.0f} MB" if graphs and graphs.memory else "-",
        *(_speedup(mine, count) for count in (1, 8, 32)),
    )


def _failed(rows: Sequence[Measurement]) -> str:
    """The checks that failed, a line a size."""
    lines = []
    for row in rows:
        names = [n.removeprefix("passed_").removesuffix("_count") for n in row.numbers]
        failed = [n for n in names if row.numbers.get(f"passed_{n}_count") == 0]
        if failed:
            lines.append(f"* Failed at `{row.encoder}`: `{'`, `'.join(failed)}`.")
    return "\n".join(lines) if lines else "No check failed."


def _tiles(size: EncoderSize) -> tuple[str, ...]:
    """Size, tokens of a tile, and tiles of pictures of three sizes and of the largest."""
    counts = [sizes.image_grid(*sides, size.rule).t for sides in PICTURES]
    cells = (size.rule.slot_tokens, *counts, size.rule.max_tiles)
    return (f"`{size.name}`", *(str(cell) for cell in cells))


def _near() -> Iterable[tuple[str, ...]]:
    """Size, release and both distances from float32, as recorded."""
    for row in store.load("cpu", "near-float32"):
        distances = (row.numbers[f"{who}_error_ratio"] for who in ("untouched", "ours"))
        release = row.environment.transformers
        yield (f"`{row.encoder}`", release, *(f"{ratio:.2g}" for ratio in distances))


def _speedup(rows: Sequence[Measurement], count: int) -> str:
    found = [
        row.numbers["speedup_ratio"]
        for row in rows
        if "speedup_ratio" in row.numbers and row.numbers["items_count"] == count
    ]
    return f"{found[-1]:.2f}x" if found else "-"


def recorded() -> tuple[Measurement, ...]:
    """Rows measured on the card so far."""
    return store.load(CARD, EXPERIMENT) if EXPERIMENT in store.experiments(CARD) else ()


if __name__ == "__main__":
    PAGE.write_text(page(recorded()), encoding="utf-8")
