"""A plan as vLLM's flags: named as the release names them, refused where vLLM cannot express it."""

import json
import shlex

import pytest

from encgraph import export, sizes
from encgraph.records import Capacity, Plan

RENAMED = "encoder_cudagraph_max_vision_items_per_batch"
FORMER = "encoder_cudagraph_max_images_per_batch"
FRAMES = "encoder_cudagraph_max_frames_per_batch"
ITEMS = "encoder_cudagraph_max_vision_items_per_batch"
OFF = Plan(graphs=(), encoder="qwen3-vl-8b")


def plan(*budgets: int, items: int = 8) -> Plan:
    graphs = tuple(sizes.capacity(b, sizes.QWEN3_VL_RULE, items=items) for b in budgets)
    return Plan(graphs=graphs, encoder="qwen3-vl-8b")


def test_a_plan_becomes_three_keys() -> None:
    assert export.vllm(plan(64, 300, 1024)).config == {
        "cudagraph_mm_encoder": True,
        "encoder_cudagraph_token_budgets": [64, 300, 1024],
        RENAMED: 8,
    }


@pytest.mark.parametrize(
    "version", ["0.20", "v0.20.0", "0.33", "0.33.1", "1.0", "0.21.0rc1.dev8+g4b7f5ea1a"]
)
def test_releases_from_0_20_have_the_new_name(version: str) -> None:
    config = export.vllm(plan(64), engine_version=version).config
    assert RENAMED in config
    assert FORMER not in config


@pytest.mark.parametrize("version", ["0.19", "0.19.1", "0.19.1+cu130"])
def test_release_0_19_has_the_former_name_and_no_frames(version: str) -> None:
    config = export.vllm(plan(64), engine_version=version, frames=16).config
    assert config[FORMER] == 8
    assert not {RENAMED, FRAMES} & set(config)


def test_a_release_without_encoder_graphs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"vLLM 0.18.1 has no encoder graphs; .* 0.19"):
        export.vllm(plan(64), engine_version="0.18.1")


@pytest.mark.parametrize("version", ["", "latest", "0", "0.x", "33", "0.33.1.2.3", "0.33; rm"])
def test_a_version_that_is_none_is_refused_with_an_example(version: str) -> None:
    with pytest.raises(ValueError, match=r"must look like '0.33' or '0.33.1', got") as error:
        export.vllm(OFF, engine_version=version)
    assert repr(version) in str(error.value)


@pytest.mark.parametrize("version", ["0.34", "9.9", "1.0"])
def test_a_release_newer_than_known_says_which_names_are_assumed(version: str) -> None:
    said = export.vllm(plan(64), engine_version=version).assumed
    assert said.startswith(f"vLLM {version} is newer than 0.33, the newest release known here")
    assert "encoder_cudagraph_token_budgets" in said
    assert RENAMED in said


@pytest.mark.parametrize("version", ["0.19", "0.33", "0.33.1"])
def test_a_known_release_has_nothing_assumed(version: str) -> None:
    assert export.vllm(plan(64), engine_version=version).assumed == ""


def test_default_budgets_are_graphs_on_and_nothing_else() -> None:
    assert export.vllm_defaults().config == {"cudagraph_mm_encoder": True}
    with pytest.raises(ValueError, match=r"vLLM 0.18 has no encoder graphs"):
        export.vllm_defaults(engine_version="0.18")


def test_the_command_line_survives_a_shell() -> None:
    flags = export.vllm(plan(64, 128))
    name, value = shlex.split(flags.command_line)
    assert name == "--compilation-config"
    assert json.loads(value) == flags.config
    assert tuple(shlex.split(flags.command_line)) == flags.arguments


def test_a_plan_without_graphs_turns_them_off() -> None:
    assert export.vllm(OFF, frames=4).config == {"cudagraph_mm_encoder": False}


def test_frames_are_the_worst_case_of_a_full_batch_or_left_to_the_engine() -> None:
    assert FRAMES not in export.vllm(plan(64)).config
    assert export.vllm(plan(64, items=4), frames=16).config[FRAMES] == 64
    with pytest.raises(ValueError, match="at least 1 a clip, got 0"):
        export.vllm(plan(64), frames=0)


def test_several_item_caps_are_refused_with_the_way_out() -> None:
    few, many = plan(64, items=2).graphs[0], plan(128, items=8).graphs[0]
    with pytest.raises(ValueError, match=r"one item cap .* has \[2, 8\]; plan with `--for vllm`"):
        export.vllm(Plan(graphs=(few, many), encoder="e"))


def test_slots_cap_the_items_of_a_budget_themselves() -> None:
    rule = sizes.named("internvl3-8b").rule
    graphs = [sizes.capacity(tokens, rule, items=1) for tokens in (256, 512, 1024)]
    assert [graph.items for graph in graphs] == [1, 2, 4]
    flags = export.vllm(Plan(graphs=tuple(graphs), encoder="internvl3-8b"))
    assert flags.config["encoder_cudagraph_token_budgets"] == [256, 512, 1024]
    assert flags.config[ITEMS] == 4


def test_two_graphs_of_one_budget_are_refused() -> None:
    def graph(longest: int) -> Capacity:
        return sizes.capacity(64, sizes.QWEN3_VL_RULE, items=2, longest_segment=longest)

    with pytest.raises(ValueError, match=r"one graph a budget, the plan has \[64, 64\]"):
        export.vllm(Plan(graphs=(graph(100), graph(256)), encoder="e"))


@pytest.mark.parametrize("items", [1, 8, 63, 64])
def test_what_is_exported_passes_the_engines_own_check(items: int) -> None:
    config = export.vllm(plan(64, 4096, items=items)).config
    budgets, cap = config["encoder_cudagraph_token_budgets"], config[RENAMED]
    assert isinstance(budgets, list)
    assert isinstance(cap, int)
    assert all(b > 0 for b in budgets)
    assert 0 < cap <= min(budgets)


def test_a_family_without_encoder_graphs_in_vllm_is_refused():
    capacity = sizes.capacity(257, sizes.named("clip-vit-l-14").rule, items=1)
    plan = Plan(graphs=(capacity,), encoder="clip-vit-l-14")
    with pytest.raises(
        ValueError, match=r"vLLM has no encoder graphs for 'clip-vit-l-14'.* gemma3, glm4v"
    ):
        export.vllm(plan)
