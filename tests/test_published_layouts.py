"""Published sizes of the fixed, ragged and text layouts: their totals, counted on the meta device."""

import pytest
import torch
from helpers_layouts import CASES, SIZES
from transformers import Siglip2VisionModel

from encgraph import sizes
from encgraph.encoders import (
    clip,
    dino,
    gemma3,
    idefics3,
    internvl,
    siglip,
    siglip2_naflex,
    text_families,
    whisper,
)
from encgraph.records import Modality

FAMILIES = {
    "siglip": siglip.FAMILY,
    "clip": clip.FAMILY,
    "dinov2": dino.DINOV2,
    "dinov2-registers": dino.DINOV2_REGISTERS,
    "dinov3": dino.DINOV3,
    "internvl": internvl.FAMILY,
    "idefics3": idefics3.IDEFICS3,
    "smolvlm": idefics3.SMOLVLM,
    "gemma3": gemma3.FAMILY,
    "whisper": whisper.FAMILY,
    "bert": text_families.BERT,
    "xlm-roberta": text_families.XLM_ROBERTA,
    "modernbert": text_families.MODERNBERT,
}
TOWER_MILLIONS = {
    "siglip-base-16-224": 92.9,
    "siglip-so400m-14-384": 428.2,
    "siglip2-so400m-16-384": 428.3,
    "siglip2-so400m-16-naflex": 427.9,
    "clip-vit-l-14": 303.2,
    "clip-vit-l-14-336": 303.5,
    "dinov2-large": 304.4,
    "dinov2-giant": 1136.5,
    "dinov3-vit-l-16": 303.1,
    "dinov3-vit-h-plus-16": 840.6,
    "whisper-large-v3": 637.0,
    "bert-base-uncased": 109.5,
    "bge-m3": 567.8,
    "modernbert-base": 149.0,
    "modernbert-large": 394.8,
}
"""Totals as their authors state them, in millions."""


def module_of(size):
    with torch.device("meta"):
        if size.family == "siglip2-naflex":
            return Siglip2VisionModel(siglip2_naflex.config_of(size))
        family = FAMILIES[size.family]
        return family.module_type(family.config_of(size))


@pytest.mark.parametrize("name", SIZES)
def test_parameters_are_those_of_the_module(name):
    size = SIZES[name]
    assert sum(p.numel() for p in module_of(size).parameters()) == size.parameters


@pytest.mark.parametrize("name", TOWER_MILLIONS)
def test_totals_are_the_published_ones(name):
    assert round(SIZES[name].parameters / 1e6, 1) == TOWER_MILLIONS[name]


def test_every_family_has_a_size_for_laptops():
    small = {size.family for size in SIZES.values() if size.parameters < 100_000}
    assert small == {size.family for size in SIZES.values()}


@pytest.mark.parametrize("name", [n for n, size in SIZES.items() if size.layout == "fixed"])
def test_the_rule_and_the_slot_agree(name):
    size = SIZES[name]
    slot = FAMILIES[size.family].slot_of(size)
    assert slot.rows == size.rule.slot_tokens == size.rule.min_tokens
    if size.rule.modality is Modality.IMAGE:
        assert slot.rows * slot.most == size.rule.max_tokens
    assert slot.patches == size.rule.patches(slot.grid)
    assert slot.modality == size.rule.modality


@pytest.mark.parametrize("name", [n for n in CASES if n in SIZES and SIZES[n].layout == "fixed"])
def test_planning_and_encoder_agree_on_capacities(name):
    size, encoder = SIZES[name], CASES[name].build()
    for tokens in (encoder.slot.rows, 5 * encoder.slot.rows + 1):
        if size.rule.resize != "length":
            assert sizes.capacity(tokens, size.rule, items=99) == encoder.capacity(tokens)
