"""How near to float32 an encoder in bfloat16 comes: the untouched module, and the forward that graphs capture.

    python benchmarks/near_float32.py idefics3-8b smolvlm2-2.2b --out data/measurements/cpu

On the CPU, one smallest item with random weights. Appends to OUT/near-float32.jsonl, so that runs under several
releases of transformers stand in one file.
"""

import argparse
from pathlib import Path

import torch

from encgraph import meters, store
from encgraph.checks import parity
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import registry
from encgraph.results import Measurement

NAME = "near-float32"
DTYPE = torch.bfloat16


def measured(name: str) -> Measurement:
    """Relative distances from the float32 copy."""
    encoder = registry.named(name, device="cpu", dtype=DTYPE)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    batch = subject.batch(subject.low)
    [true] = encoder.oracle().eager(batch)
    found = {"untouched": encoder.stock().eager(batch), "ours": encoder.eager(batch)}
    return Measurement(
        experiment=NAME,
        encoder=name,
        environment=meters.environment(DTYPE, "cpu"),
        numbers={f"{who}_error_ratio": parity.distance(one[0], true) for who, one in found.items()},
    )


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    file = given.out / f"{NAME}.jsonl"
    for name in given.encoders:
        line = measured(name)
        store.write(file, [*(store.read(file) if file.is_file() else ()), line])
        print(name, line.environment.transformers, dict(line.numbers))


if __name__ == "__main__":
    main()
