"""Take the picture of a recorded run's report that README shows.

    python benchmarks/report_picture.py data/measurements/h200/run-servegen-qwen3-vl-8b.json docs/report.png

Needs chromium on the path. The picture carries the hash of its record as text, which a test compares.
"""

import argparse
import hashlib
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from encgraph import codec
from encgraph.facts import Report
from encgraph.report import page

WIDTH, HEIGHT = 1200, 1230
COLOURS = 128


def take(record: Path, picture: Path) -> None:
    """Draw the top of the page into a PNG."""
    with tempfile.TemporaryDirectory() as folder:
        html, shot = Path(folder) / "report.html", Path(folder) / "shot.png"
        page.write(codec.loads(Report, record.read_text(encoding="utf-8")), html)
        subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--hide-scrollbars"),
                *(f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={shot}", html.as_uri()),
            ],
            check=True,
            capture_output=True,
        )
        info = PngInfo()
        info.add_text("record-sha256", hashlib.sha256(record.read_bytes()).hexdigest())
        drawn = Image.open(shot).convert("RGB").quantize(COLOURS)
        drawn.save(picture, optimize=True, pnginfo=info)


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    take(given.record, given.picture)


if __name__ == "__main__":
    main()
