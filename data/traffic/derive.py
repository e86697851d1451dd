"""Derive the traffic profiles beside this file from the published tables they come from.

`python derive.py SOURCES [OUT]`: SOURCES is the folder of CSV tables that README.md lists, OUT is
this folder unless given. The same sources give the same bytes.
"""

import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PER_MILLION = 1_000_000

FACTS: Mapping[str, Mapping[str, str]] = {
    "servegen": {
        "source": "ServeGen (NSDI '26), Alibaba Cloud: alibaba/ServeGen, data/multimodal/mm-image",
        "commit": "f891d11",
        "licence": "Apache-2.0",
        "evidence": "exact, rates summed over 6-hour windows",
        "derivation": (
            "Windows of a client that sent images. requests = sum of published 10-minute "
            "rates x 600 s. images = [images a request, share per million], 0 left out. tokens = "
            "[tokens of one image at 28 x 28 px a token, share per million], shares rounded, those "
            "that round to 0 left out. Windows of a client with equal tokens are pooled: requests "
            "added, images mixed by requests."
        ),
        "bias": (
            "Top clients of one service for one day, 4 to 1,280 tokens an image at 28 px: large "
            "images are censored at 980 tokens at 32 px, sides are unknown, and three keys of what "
            "looks like one tenant carry half of the images."
        ),
    },
    "coco": {
        "source": (
            "COCO 2017 val annotations, COCO Consortium; copy in ruizewang/evaluate, "
            "annotations/captions_val2017.json"
        ),
        "commit": "1152656",
        "licence": "CC BY 4.0 (annotations)",
        "evidence": "exact",
        "derivation": "sizes = [width, height, images], equal sizes counted together.",
        "bias": "Flickr photos already reduced to 640 px on the long side, all under 401 tokens.",
    },
    "receipts": {
        "source": "ICDAR 2019 SROIE receipts: zzzDavid/ICDAR-2019-SROIE, data/img/*.jpg",
        "commit": "27be427",
        "licence": "MIT (that repository); pixel sizes only",
        "evidence": "measured from JPEG headers, EXIF orientation not applied",
        "derivation": "sizes = [width, height, images], equal sizes counted together.",
        "bias": "Scanned receipts of Malaysian shops, mostly tall; 12 % are A4 scans at 600 dpi.",
    },
    "catalogue": {
        "source": (
            "MLPerf Inference Qwen3-VL benchmark, MLCommons: mlcommons/inference, "
            "multimodal/qwen3-vl/notebooks/shopify-global-catalogue.ipynb, cell 16"
        ),
        "commit": "b66003e",
        "licence": "Apache-2.0",
        "evidence": "digitised from a published plot, counts within 10",
        "derivation": "sizes = [width, height, images] of the 50 most frequent sizes.",
        "bias": "The 50 sizes cover 59 % of 48,289 product images and over-represent round squares.",
    },
    "phone": {
        "source": "TACO, P. F. Proenca and P. Simoes: pedropro/TACO, data/annotations.json",
        "commit": "29de1a9",
        "licence": "MIT",
        "evidence": "exact",
        "derivation": "sizes = [width, height, images], equal sizes counted together.",
        "bias": "Outdoor photos near full sensor size by few people: half of them have one size.",
    },
    "mix": {
        "source": "the profiles coco, catalogue, receipts and phone",
        "commit": "as theirs",
        "licence": "as theirs: CC BY 4.0, Apache-2.0, MIT",
        "evidence": "made: the shares are chosen, the sizes are those of the parts",
        "derivation": (
            "images = [images a request, weight]; parts = the profile of each image by weight, "
            "phone photos only in requests with one image."
        ),
        "bias": "A made mix of many regimes, from thumbnails to A4 scans; nobody's production.",
    },
}

SIZE_TABLES = {
    "coco": "coco_val2017_sizes.csv",
    "receipts": "sroie_receipt_sizes.csv",
    "catalogue": "shopify_mlperf_top50_sizes.csv",
    "phone": "taco_official_sizes.csv",
}

MIX = {
    "images": [[1, 66], [2, 16], [4, 12], [9, 6]],
    "parts": [
        {"profile": "coco", "weight": 50},
        {"profile": "catalogue", "weight": 30},
        {"profile": "receipts", "weight": 15},
        {"profile": "phone", "weight": 5, "only_alone": True},
    ],
}


def rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def size_counts(path: Path) -> list[list[int]]:
    """Count equal sizes: [width, height, images], in order of the sides."""
    counts: Counter[tuple[int, int]] = Counter()
    for row in rows(path):
        counts[int(row["width"]), int(row["height"])] += int(row.get("count_est", 1))
    return [[width, height, count] for (width, height), count in sorted(counts.items())]


def shares(weights: Mapping[int, float]) -> list[list[int]]:
    """Renormalise to shares per million, rounded; what rounds to 0 is left out."""
    total = sum(weights.values())
    rounded = ((value, round(w / total * PER_MILLION)) for value, w in sorted(weights.items()))
    return [[value, share] for value, share in rounded if share]


def tables(path: Path, value: str) -> dict[tuple[str, str], dict[int, float]]:
    """Distributions of one column, by client and window."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows(path):
        found[row["client"], row["window_start_s"]][int(row[value])] = float(row["prob"])
    return found


def windows(sources: Path) -> list[dict[str, Any]]:
    """Pool the windows of each client that have equal token tables."""
    counts = tables(sources / "servegen_mm_image_count.csv", "image_count")
    tokens = tables(sources / "servegen_mm_image_tokens.csv", "image_tokens")
    pooled: dict[tuple[int, str], list[tuple[float, dict[int, float]]]] = defaultdict(list)
    for row in rows(sources / "servegen_mm_windows.csv"):
        key = (row["client"], row["window_start_s"])
        images = {number: prob for number, prob in counts[key].items() if number and prob}
        requests = float(row["requests_est"])
        if requests and images and key in tokens:
            table = json.dumps(shares(tokens[key]))
            pooled[int(row["client"]), table].append((requests, images))
    return [pool(client, table, parts) for (client, table), parts in pooled.items()]


def pool(
    client: int, table: str, parts: Iterable[tuple[float, dict[int, float]]]
) -> dict[str, Any]:
    """Mix image counts by requests; each part's own counts are renormalised first."""
    images: dict[int, float] = defaultdict(float)
    requests = 0.0
    for volume, counts in parts:
        requests += volume
        total = sum(counts.values())
        for number, prob in counts.items():
            images[number] += volume * prob / total
    return {
        "client": client,
        "requests": round(requests),
        "images": shares(images),
        "tokens": json.loads(table),
    }


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write one field a line, and one element a line for lists, so that diffs can be read."""
    fields = []
    for key, value in values.items():
        text = json.dumps(value)
        if isinstance(value, list):
            lines = (json.dumps(element, separators=(",", ":")) for element in value)
            text = "[\n" + ",\n".join(lines) + "\n]"
        fields.append(f"{json.dumps(key)}: {text}")
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8", newline="\n")


def derive(sources: Path, out: Path) -> None:
    """Write every profile."""
    laws: dict[str, dict[str, Any]] = {
        name: {"sizes": size_counts(sources / table)} for name, table in SIZE_TABLES.items()
    }
    laws["servegen"] = {"pixels_a_token": 28 * 28, "windows": windows(sources)}
    laws["mix"] = dict(MIX)
    for name, law in laws.items():
        write(out / f"{name}.json", {"schema": 1, "name": name, **FACTS[name], **law})


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python derive.py SOURCES [OUT]")
    derive(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent)
