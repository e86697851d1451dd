"""What goes wrong with a model runner is refused by name or falls back with a reason."""

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import TINY
from helpers_model_runner import (
    answers,
    batch_of_three,
    generated,
    images,
    runner,
    tiny_model,
)
from torch import nn

from encgraph.encoders.qwen_vl import QwenVL
from encgraph.errors import StaleBufferError
from encgraph.measure import Recorder
from encgraph.model_runner import prompts, scatter
from encgraph.model_runner.gates import Gates
from encgraph.model_runner.prompts import Prompt
from encgraph.records import FallbackReason, Modality, Route


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


class Uncapturable(QwenVL):
    """An encoder whose captured forward runs out of memory from some budget on; eager works."""

    above = 0

    def forward(self, buffers: Any, capacity: Any) -> Any:
        if capacity.tokens > self.above:
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(buffers, capacity)


class Narrow(nn.Linear):
    """A head that runs out of memory above two rows."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if len(hidden) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(hidden)


def narrow(model: Any) -> Any:
    head = Narrow(96, 512, bias=False).requires_grad_(False).eval()
    head.weight.copy_(model.lm_head.weight)
    model.lm_head = head
    return model


def test_images_that_do_not_match_the_placeholders_are_refused(model: Any) -> None:
    [image] = images((4, 6))
    whole = prompts.compose([1, image, 2], model.config)
    without = Prompt(token_ids=whole.token_ids)
    short = tuple(t for i, t in enumerate(whole.token_ids) if i != 2)
    with runner(model) as made:
        with pytest.raises(ValueError, match=r"prompt 0 must have one run .* 1 runs for 0 images"):
            made.generate([without], new_tokens=1)
        with pytest.raises(ValueError, match="0 runs for 1 images"):
            made.generate([Prompt(token_ids=(1, 2), items=(image,))], new_tokens=1)
        with pytest.raises(
            ValueError, match=r"item 0 of prompt 1 has runs of 6 tokens, .* 5 placeholders"
        ):
            made.generate([whole, Prompt(token_ids=short, items=(image,))], new_tokens=1)
        with pytest.raises(ValueError, match="at least one token"):
            made.generate([Prompt(token_ids=())], new_tokens=1)
        with pytest.raises(ValueError, match="2 keys for 1 items"):
            made.generate([replace(whole, keys=("a", "b"))], new_tokens=1)


def test_a_prompt_longer_than_the_cache_is_refused_and_one_that_just_fits_is_not(
    model: Any,
) -> None:
    prompt = Prompt(token_ids=tuple(range(1, 61)))
    with runner(model) as made:
        with pytest.raises(ValueError, match=r"prompt 0 needs 65 tokens of cache .* raise"):
            made.generate([prompt], new_tokens=6)
        assert answers(made, [prompt], 5) == [generated(model, prompt, 5)]
        with pytest.raises(ValueError, match="1 to 4 prompts, got 5"):
            made.generate([prompt] * 5, new_tokens=1)


@pytest.mark.parametrize(
    ("token_ids", "said"),
    [
        ((1, 512), "token 1 of prompt 1 must be a whole number of 0 to 511, got 512; tokenize"),
        ((-1,), "token 0 of prompt 1 must be a whole number of 0 to 511, got -1"),
        ((1, 1.5), "token 1 of prompt 1 must be a whole number of 0 to 511, got 1.5"),
        ((1, 2, "three"), "token 2 of prompt 1 must be a whole number of 0 to 511, got 'three'"),
        ("hello", "token_ids of prompt 1 must be a sequence of whole numbers, got str; tokenize"),
        (torch.tensor([1, 2]), "must be a sequence of whole numbers, got Tensor; .* tolist"),
    ],
)
def test_token_ids_that_there_are_not_are_named_before_anything_runs(
    model: Any, token_ids: Any, said: str
) -> None:
    recorder = Recorder(torch.device("cpu"))
    [image] = images((4, 6))
    first = prompts.compose([511, image, 0], model.config)
    with runner(model, observe=recorder) as made:
        made.capture()
        captures = len(recorder.steps)
        with pytest.raises(ValueError, match=said):
            made.generate([first, Prompt(token_ids=token_ids)], new_tokens=2)
        assert len(recorder.steps) == captures
        assert answers(made, [first], 2) == [generated(model, first, 2)]


def test_a_forgotten_capture_is_told_once(model: Any) -> None:
    prompts = batch_of_three(model)
    with runner(model) as made:
        with pytest.warns(UserWarning, match=r"nothing is captured: .* call capture\(\)"):
            made.generate(prompts, new_tokens=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.generate(prompts, new_tokens=1)


@pytest.mark.parametrize("gates", [Gates(), Gates(encoder_graphs=False, decoder_graphs=False)])
def test_who_captured_or_switched_graphs_off_is_not_warned(model: Any, gates: Gates) -> None:
    with runner(model, gates=gates) as made, warnings.catch_warnings():
        warnings.simplefilter("error")
        if gates.encoder_graphs:
            made.capture()
        made.generate(batch_of_three(model), new_tokens=1)


def test_an_image_over_every_budget_falls_back_and_says_so(model: Any) -> None:
    recorder = Recorder(torch.device("cpu"))
    [small, huge] = images((4, 6), (12, 14))
    batch = [prompts.compose([1, huge, 2, small], model.config)]
    with runner(model, observe=recorder) as made:
        made.capture()
        assert answers(made, batch, 4) == [generated(model, batch[0], 4)]
    steps = [t.step for t in recorder.steps if t.step.modality == Modality.IMAGE]
    assert [(s.route, s.reason) for s in steps][2:] == [
        (Route.REPLAY, None),
        (Route.FALLBACK, FallbackReason.OVER_TOKENS),
    ]


def test_a_failed_encoder_capture_leaves_decode_graphs_usable(model: Any) -> None:
    encoder = Uncapturable(model.model.visual, TINY)
    with runner(model, encoder=encoder) as made:
        with pytest.warns(UserWarning, match="encoder_graphs=True, but its capture failed"):
            report = made.capture()
        assert (report.encoder.graphs, report.decoder.graphs) == (0, 3)
        assert "out of memory" in report.encoder.failures[0]
        batch = batch_of_three(model)
        assert answers(made, batch, 4) == [generated(model, p, 4) for p in batch]


def test_a_failed_decoder_capture_leaves_encoder_graphs_usable() -> None:
    model = narrow(tiny_model())
    with runner(model) as made:
        with pytest.warns(UserWarning, match="decoder_graphs=True, but its capture failed"):
            report = made.capture(batch_sizes=(3, 4))
        assert (report.encoder.graphs, report.decoder.graphs) == (2, 0)
        batch = batch_of_three(model)[:2]
        assert answers(made, batch, 4) == [generated(model, p, 4) for p in batch]


def test_graphs_that_failed_leave_the_rest_of_both_parts_usable() -> None:
    model = narrow(tiny_model())
    encoder = Uncapturable(model.model.visual, TINY)
    encoder.above = 8
    with runner(model, encoder=encoder) as made:
        report = made.capture()
        assert made.decoder.batch_sizes == (1, 2)
        assert made.encoders.graphs.captured_plan.token_budgets == (8,)
        assert (len(report.encoder.failures), len(report.decoder.failures)) == (1, 1)


def test_when_both_captures_fail_one_warning_names_both() -> None:
    model = narrow(tiny_model())
    encoder = Uncapturable(model.model.visual, TINY)
    with runner(model, encoder=encoder) as made, pytest.warns(UserWarning) as caught:
        made.capture(batch_sizes=(4,))
    [said] = [str(warning.message) for warning in caught]
    assert said.startswith("no graphs are captured")
    assert said.count("its capture failed") == 2


def test_a_forward_hook_on_the_language_model_is_not_captured_away(model: Any) -> None:
    hook = model.model.language_model.norm.register_forward_hook(lambda *_: None)
    try:
        with runner(model) as made, pytest.warns(UserWarning, match="'norm' has forward hooks"):
            assert made.capture().decoder.graphs == 0
    finally:
        hook.remove()


def test_weights_reloaded_in_place_are_seen_and_the_cache_forgets() -> None:
    model, other = tiny_model(), tiny_model(seed=3)
    batch = batch_of_three(model)
    with runner(model) as made:
        made.capture()
        before = answers(made, batch)
        model.load_state_dict(other.state_dict())
        after = answers(made, batch)
    assert after == [generated(other, p, 3) for p in batch] != before


@pytest.mark.parametrize(
    "name",
    [
        "model.visual.blocks.1.mlp.linear_fc1",
        "model.language_model.layers.1.mlp.up_proj",
        "lm_head",
    ],
)
def test_weights_bound_anew_are_refused_by_name(name: str) -> None:
    model = tiny_model()
    with runner(model) as made:
        made.capture()
        answers(made, batch_of_three(model))
        layer = model.get_submodule(name)
        layer.weight = nn.Parameter(layer.weight.clone(), requires_grad=False)
        within = name.removeprefix("model.visual.").removeprefix("model.language_model.")
        with pytest.raises(StaleBufferError, match=f"weight '{within}.weight' was rebound"):
            made.generate(batch_of_three(model), new_tokens=2)
        made.capture()
        assert len(answers(made, batch_of_three(model))) == 3


def test_an_output_with_rows_that_are_not_its_placeholders_is_refused(model: Any) -> None:
    [image] = images((4, 6))
    with runner(model) as made:
        [output] = made.encode([image])
    widths = (TINY.out,) * 3
    scatter.check([output], [image], widths)
    with pytest.raises(RuntimeError, match="item 0: outputs must have shapes"):
        scatter.check([output], images((4, 4)), widths)
    with pytest.raises(RuntimeError, match="must return 2 outputs, got 1"):
        scatter.check([output], [image] * 2, widths)
    with pytest.raises(RuntimeError, match="must return EncoderOutput"):
        scatter.check([output.main], [image], widths)


def test_an_observer_of_the_decoder_that_returns_nothing_is_named() -> None:
    model = tiny_model()
    with runner(model) as made:
        made.decoder.observe = lambda step: None
        with pytest.raises(TypeError, match="observe must return a context manager"):
            made.decoder.capture((1,))
        with pytest.raises(TypeError, match="observe must return a context manager"):
            made.generate(batch_of_three(model), new_tokens=2)


def test_what_was_captured_in_inference_mode_and_autocast_generates_outside() -> None:
    model = tiny_model()
    batch = batch_of_three(model)
    with runner(model) as made:
        made.capture()
        right = answers(made, batch)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        made = runner(model)
        made.capture()
        answers(made, batch)
    with made:
        assert answers(made, batch) == right
