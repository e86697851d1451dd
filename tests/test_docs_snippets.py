"""The snippets of the pages about the model runner and about several cards run as they stand."""

import re
from pathlib import Path

from encgraph import sizes

DOCS = Path(__file__).parents[1] / "docs"


def run(page, **changes):
    """Names that a page's Python makes, on a machine without a card."""
    text = (DOCS / page).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    common = {
        '"cuda"': '"cpu"',
        "bfloat16": "float32",
        "Target(size=size)": 'Target(size=size, dtype="float32")',
    }
    for there, here in {**changes, **common}.items():
        assert there in code
        code = code.replace(there, here)
    made = {}
    exec(code, made)
    return made


def test_the_snippets_of_the_model_runner_run():
    made = run(
        "model_runner.md",
        **{
            "qwen3-vl-2b": "qwen3-vl-tiny",
            "length=4096": 'length=512, batch_sizes=(1,), backend="reference"',
        },
    )
    tokens = made["answer"].token_ids
    assert made["answer"].times.first_token_ms > 0
    assert len(tokens) == 64 or tokens[-1] == 7
    assert made["words"] == ("<0.2 seconds>", "<1.2 seconds>")
    assert made["prompt"].items == (made["video"],)
    assert made["report"].decoder.graphs == 1
    assert made["report"].encoder.graphs == len(made["plan"].graphs)


def test_the_snippet_of_several_cards_runs():
    made = run(
        "data_parallel.md",
        **{
            "price(size)": 'price(sizes.named("qwen3-vl-8b")).lent_to("qwen3-vl-tiny")',
            'size = sizes.named("qwen3-vl-8b")': 'size = sizes.named("qwen3-vl-tiny")',
            "packer=packer": 'packer=packer, backend="reference"',
        },
    )
    tokens = [sizes.item(grid, made["size"].rule).tokens for grid in made["grids"]]
    assert [len(output.main) for output in made["outputs"]] == tokens
