"""Run notebooks and store what they show, so that a second run writes the same bytes.

No widget state (megabytes of JavaScript), no ids, no timestamps; beside each plotly figure one PNG where
kaleido and a browser are there, for pages that run no JavaScript. `make notebooks` calls this.
"""

import base64
import os
import sys
from pathlib import Path

import nbformat
import plotly.graph_objects as go
import plotly.io as pio
from nbclient import NotebookClient

from encgraph import exporting

VIEW = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"
WIDTH = 760


def main(names: list[str]) -> None:
    """Refresh the notebooks named, one after another, with one browser for all pictures."""
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    lacking = exporting.missing()
    if lacking:
        print(f"no pictures: {lacking}", file=sys.stderr)
    with exporting.browser(lacking is None):
        for name in names:
            changed = refresh(Path(name), pictures=lacking is None)
            print(name, "changed" if changed else "unchanged")


def refresh(path: Path, *, pictures: bool) -> bool:
    """Run one notebook and store its outputs; says whether the file changed."""
    before = path.read_bytes()
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
        skip_cells_with_tag="nbval-skip",
    )
    client.execute()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        kept = {key: value for key, value in cell.metadata.items() if key == "tags"}
        cell.metadata = nbformat.from_dict(kept)
        for output in cell.get("outputs", []):
            clean(output.get("data", {}), pictures=pictures)
            if output.output_type == "error":
                output.traceback = [f"{output.ename}: {output.evalue}"]
    nbformat.write(notebook, path)
    return path.read_bytes() != before


def clean(data: dict, *, pictures: bool) -> None:
    """Drop widget views that have text beside them; give plotly figures a picture."""
    if data.keys() - {VIEW}:
        data.pop(VIEW, None)
    if pictures and PLOTLY in data:
        figure = go.Figure(data=data[PLOTLY]["data"], layout=data[PLOTLY]["layout"])
        png = pio.to_image(figure, format="png", width=WIDTH)
        data["image/png"] = base64.b64encode(png).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
