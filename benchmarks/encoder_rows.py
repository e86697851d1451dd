"""Which size of each family is measured, and the file of its rows; see `encoder_table.py`."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from encgraph import costs, sizes, store
from encgraph.checks import subject as subjects
from encgraph.checks.subject import Subject
from encgraph.encoders import registry
from encgraph.records import Load
from encgraph.results import Environment, Measurement

EXPERIMENT = "encoders"


@dataclass(frozen=True, slots=True)
class Choice:
    """The size of a family that is measured, and the length of a typical item of it."""

    size: str
    length: int
    """Tokens of an item; where all items are equal, theirs whatever is said."""

    @property
    def flops(self) -> float:
        """Of one typical item."""
        size = sizes.named(self.size)
        length = min(self.length, size.rule.max_tokens)
        item = sizes.item(sizes.near_square_grid(length, size.rule), size.rule)
        return costs.flops(size, Load.of([item]))


CHOICES: Mapping[str, Choice] = {
    "qwen3-vl": Choice("qwen3-vl-8b", 256),
    "qwen2.5-vl": Choice("qwen2.5-vl-7b", 256),
    "qwen2-vl": Choice("qwen2-vl-7b", 256),
    "glm4v": Choice("glm4v-9b", 256),
    "pixtral": Choice("pixtral-12b", 1024),
    "siglip": Choice("siglip-so400m-14-384", 729),
    "siglip2-naflex": Choice("siglip2-so400m-16-naflex", 256),
    "clip": Choice("clip-vit-l-14-336", 577),
    "dinov2": Choice("dinov2-large", 257),
    "dinov2-registers": Choice("dinov2-registers-large", 261),
    "dinov3": Choice("dinov3-vit-l-16", 201),
    "internvl": Choice("internvl3-8b", 256),
    "idefics3": Choice("idefics3-8b", 169),
    "smolvlm": Choice("smolvlm2-2.2b", 81),
    "gemma3": Choice("gemma3-4b", 256),
    "whisper": Choice("whisper-large-v3", 1500),
    "bert": Choice("bert-base-uncased", 128),
    "xlm-roberta": Choice("bge-m3", 128),
    "modernbert": Choice("modernbert-base", 128),
}
TINY_LENGTH = 16
STAGES = ("checks", "speed")


@dataclass(frozen=True, kw_only=True)
class Table:
    """The file, what it holds, and what all its new rows share."""

    given: argparse.Namespace
    environment: Environment

    @property
    def file(self) -> Path:
        return self.given.out / store.slug(self.environment.gpu) / f"{EXPERIMENT}.jsonl"

    def choice(self, family: str) -> Choice:
        return Choice(tiny_of(family), TINY_LENGTH) if self.given.tiny else CHOICES[family]

    def missing(self) -> list[tuple[str, str]]:
        """(family, stage) asked for without a row of these versions, cheapest families first."""
        rows = store.read(self.file) if self.file.is_file() else ()
        here = {(row.encoder, stage_of(row)) for row in rows if self._same_versions(row)}
        wanted = self.given.only.split(",") if self.given.only else list(CHOICES)
        return [
            (family, stage)
            for family in sorted(wanted, key=lambda family: self.choice(family).flops)
            for stage in self.given.stages.split(",")
            if (self.choice(family).size, stage) not in here
        ]

    def _same_versions(self, row: Measurement) -> bool:
        fields = ("torch", "transformers", "encgraph", "dtype")
        return all(getattr(row.environment, f) == getattr(self.environment, f) for f in fields)

    def subject(self, family: str) -> Subject:
        name, device = self.choice(family).size, torch.device(self.given.device)
        encoder = registry.named(name, device=device, dtype=getattr(torch, self.given.dtype))
        return Subject(
            encoder=encoder,
            make_inputs=subjects.synthetic(encoder.spec),
            backend=self.given.backend,
            layout="masked" if sizes.named(name).layout == "ragged" else "packed",
        )

    def row(self, name: str, strategy: str, **fields: object) -> Measurement:
        return Measurement(
            experiment=EXPERIMENT,
            encoder=name,
            environment=self.environment,
            strategy=strategy,
            **fields,
        )

    def append(self, rows: Sequence[Measurement], problems: Sequence[str]) -> None:
        store.append(self.file, rows)
        with self.file.with_suffix(".txt").open("a", encoding="utf-8") as stream:
            versions = f"{self.environment.utc} transformers {self.environment.transformers}"
            stream.writelines(f"{versions} {line}\n" for line in problems)


def stage_of(row: Measurement) -> str:
    """Which stage a row is of."""
    return "checks" if row.strategy == "checks" else "speed"


def tiny_of(family: str) -> str:
    """The size of a family for machines without a card."""
    return next(n for n, s in sizes.SIZES.items() if s.family == family and n.endswith("-tiny"))
