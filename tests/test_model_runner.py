"""The model runner's answers are eager generation's, whatever is graphed, cached or batched."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import BACKENDS, TINY, plan
from helpers_model_runner import (
    GATES,
    answers,
    batch_of_three,
    clip,
    generated,
    images,
    runner,
    tiny_model,
)
from helpers_sync import SyncAuditor

from encgraph.measure import Recorder
from encgraph.model_runner import models, prompts
from encgraph.model_runner.gates import Gates
from encgraph.records import FallbackReason, Modality, Route

NEW = 8


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


@pytest.fixture(scope="module")
def right(model: Any) -> list[tuple[int, ...]]:
    return [generated(model, prompt, NEW) for prompt in batch_of_three(model)]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    yield Recorder(torch.device("cpu"))


def routes(recorder: Recorder, modality: Modality) -> list[Route]:
    return [t.step.route for t in recorder.steps if t.step.modality == modality]


@pytest.mark.parametrize("encoder_graphs", [True, False])
@pytest.mark.parametrize("decoder_graphs", [True, False])
def test_answers_equal_transformers_greedy_generation(
    model: Any, right: list[tuple[int, ...]], encoder_graphs: bool, decoder_graphs: bool
) -> None:
    gates = replace(GATES, encoder_graphs=encoder_graphs, decoder_graphs=decoder_graphs)
    with runner(model, gates) as made:
        if encoder_graphs or decoder_graphs:
            made.capture()
        assert answers(made, batch_of_three(model), NEW) == right


def test_a_model_whose_tower_is_not_supported_is_answered_by_its_own_forward(
    model: Any, right: list[tuple[int, ...]]
) -> None:
    with runner(model, replace(GATES, encoder_supported=False)) as made:
        assert made.encoders is None
        assert answers(made, batch_of_three(model), NEW) == right


def test_answers_do_not_depend_on_who_shares_the_batch(
    model: Any, right: list[tuple[int, ...]]
) -> None:
    with runner(model) as made:
        made.capture()
        alone = [answers(made, [prompt], NEW)[0] for prompt in batch_of_three(model)]
        assert alone == right


def test_rows_of_an_earlier_larger_batch_leave_no_trace(
    model: Any, right: list[tuple[int, ...]]
) -> None:
    with runner(model) as made:
        made.capture()
        answers(made, [*batch_of_three(model, seed=5), *batch_of_three(model, seed=6)[:1]], 12)
        assert answers(made, batch_of_three(model), NEW) == right


def test_images_change_the_answer_so_that_the_tests_above_can_fail(
    model: Any, right: list[tuple[int, ...]]
) -> None:
    with runner(model) as made:
        made.capture()
        assert answers(made, batch_of_three(model, seed=1), NEW) != right


def test_deepstack_features_reach_the_first_layers(model: Any) -> None:
    prompt = batch_of_three(model)[0]
    with runner(model) as made:
        [whole] = made.generate([prompt], new_tokens=1, keep_logits=True)
        made.cache.clear()
        made.encoders.encoder = _WithoutDeepstack(made.encoders.encoder)
        [without] = made.generate([prompt], new_tokens=1, keep_logits=True)
    assert not torch.allclose(whole.logits, without.logits, atol=1e-2)


class _WithoutDeepstack:
    """An encoder whose deepstack features are zeros."""

    def __init__(self, encoder: Any) -> None:
        self.encoder, self.spec, self.item_spec = encoder, encoder.spec, encoder.item_spec
        self.module = encoder.module

    def eager(self, batch: Any) -> list[Any]:
        made = self.encoder.eager(batch)
        return [replace(o, extra=tuple(torch.zeros_like(e) for e in o.extra)) for o in made]


def test_steps_replay_the_smallest_graph_that_holds_the_batch(
    model: Any, recorder: Recorder
) -> None:
    with runner(model, observe=recorder) as made:
        made.capture()
        recorder.steps.clear()
        made.generate(batch_of_three(model), new_tokens=3)
    steps = [t.step for t in recorder.steps if t.step.modality == Modality.TEXT]
    assert [(s.route, s.items, s.token_budget) for s in steps] == [(Route.REPLAY, 3, 4)] * 2
    assert set(routes(recorder, Modality.IMAGE)) == {Route.REPLAY}


def test_the_encoder_is_captured_first_and_largest_graphs_first(
    model: Any, recorder: Recorder
) -> None:
    with runner(model, observe=recorder) as made:
        made.capture()
    told = [(t.step.modality, t.step.token_budget) for t in recorder.steps]
    image, text = Modality.IMAGE, Modality.TEXT
    assert told == [(image, 32), (image, 8), (text, 4), (text, 2), (text, 1)]


def test_a_batch_above_every_graph_decodes_eager_with_a_reason(
    model: Any, right: list[tuple[int, ...]], recorder: Recorder
) -> None:
    with runner(model, observe=recorder) as made:
        made.capture(batch_sizes=(1, 2))
        recorder.steps.clear()
        assert answers(made, batch_of_three(model), NEW) == right
    reasons = {t.step.reason for t in recorder.steps if t.step.modality == Modality.TEXT}
    assert reasons == {FallbackReason.OVER_ITEMS}


def test_an_answer_ends_at_its_stop_token_and_the_others_go_on(
    model: Any, right: list[tuple[int, ...]]
) -> None:
    stop = right[1][2]
    cut = [t[: t.index(stop) + 1] if stop in t else t for t in right]
    with runner(model) as made:
        made.capture()
        done = made.generate(batch_of_three(model), new_tokens=NEW, stop=[stop], keep_logits=True)
    assert [one.token_ids for one in done] == cut
    assert [len(one.logits) for one in done] == [len(tokens) for tokens in cut]


def test_a_decode_step_never_waits_for_the_device(model: Any) -> None:
    with runner(model) as made:
        made.capture()
        made.generate(batch_of_three(model), new_tokens=1)
        with SyncAuditor() as audit:
            made.decoder.step(3)
        assert audit.found == []
        with SyncAuditor() as audit:
            made.decoder.step(3).tolist()
        assert len(audit.found) > 0


def test_every_stage_of_a_request_is_timed(model: Any) -> None:
    with runner(model) as made:
        made.capture()
        done = made.generate(batch_of_three(model), new_tokens=4)
    times = done[0].times
    stages = (times.preprocessing_ms, times.encode_ms, times.scatter_ms, times.prefill_ms)
    assert min(stages) > 0
    assert sum(stages) <= times.first_token_ms
    assert len(times.decode_ms) == 3
    assert 0 < times.encode_share_ratio < 1
    assert {one.times for one in done} == {times}


def test_without_timing_there_are_no_times(model: Any) -> None:
    with runner(model, Gates()) as made:
        assert made.generate(batch_of_three(model), new_tokens=2)[0].times is None


def test_a_known_image_is_not_encoded_again(
    model: Any, right: list[tuple[int, ...]], recorder: Recorder
) -> None:
    with runner(model, observe=recorder) as made:
        made.capture()
        first = answers(made, batch_of_three(model), NEW)
        recorder.steps.clear()
        again = answers(made, batch_of_three(model), NEW)
        facts = made.cache.facts
    assert first == again == right
    assert routes(recorder, Modality.IMAGE) == []
    assert (facts.hits, facts.misses, facts.entries) == (3, 3, 3)


def test_equal_images_of_a_batch_are_encoded_once(model: Any, recorder: Recorder) -> None:
    [image] = images((4, 6))
    prompt = prompts.compose([1, image, 2, image], model.config)
    with runner(model, observe=recorder) as made:
        made.generate([prompt, prompt], new_tokens=1)
    assert [t.step.items for t in recorder.steps if t.step.modality == Modality.IMAGE] == [1]


def test_encoder_only_mode_encodes_and_has_no_decoder(model: Any) -> None:
    batch = images((4, 6), (6, 6))
    with runner(model, replace(GATES, encoder_only=True)) as made:
        report = made.capture()
        outputs = made.encode(batch)
        assert made.decoder is None
        assert report.decoder.graphs == 0
        assert report.key_value_bytes == 0
        with pytest.raises(ValueError, match="encoder-only mode has no decoder"):
            made.generate(batch_of_three(model), new_tokens=1)
    widths = [[t.shape[1] for t in output.tensors] for output in outputs]
    assert widths == [[TINY.out] * 3] * 2


def test_the_report_tells_encoder_and_decoder_apart(model: Any) -> None:
    with runner(model) as made:
        report = made.capture()
        slabs = made.encoders.memory.slabs_bytes
    assert (report.encoder.graphs, report.decoder.graphs) == (2, 3)
    assert report.encoder.memory.slabs_bytes == slabs > 0
    assert report.encoder.seconds > 0 < report.decoder.seconds
    assert report.total_bytes == slabs + report.decoder.memory.total_bytes
    layers, rows, heads, length, head = 4, 4, 2, 64, 24
    assert report.key_value_bytes == 2 * layers * rows * heads * length * head * 4


def test_weights_of_a_seed_are_the_same_and_the_tower_is_the_registrys(model: Any) -> None:
    again = tiny_model()
    pairs = zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    with pytest.raises(ValueError, match="model must be one of"):
        models.named("gpt-2", device="cpu", dtype=torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_graphs_are_as_close_to_fp32_as_eager_is(backend: str) -> None:
    made = tiny_model(backend)
    batch = batch_of_three(made)
    exact = tiny_model(backend).float()
    with runner(exact, Gates(eager_only=True), backend=backend, plan=plan()) as oracle:
        truth = [c.logits for c in oracle.generate(batch, new_tokens=1, keep_logits=True)]
    distances = []
    for gates in (Gates(eager_only=True), Gates()):
        with runner(made, gates, backend=backend) as one:
            if not gates.eager_only:
                one.capture()
            logits = [c.logits for c in one.generate(batch, new_tokens=1, keep_logits=True)]
        pairs = zip(logits, truth, strict=True)
        distances.append(sum(float((a.float() - b).norm()) for a, b in pairs))
    eager, graphed = distances
    assert graphed <= max(1.25 * eager, 1e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_decode_graphs_in_fp32_answer_as_transformers_does_on_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # transformers' patch embedding is a convolution, which cuDNN runs in TF32 unless told not to
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    made = models.named("qwen3-vl-tiny", device="cuda", dtype=torch.float32)
    gates = replace(GATES, encoder_graphs=False)
    batch = [*batch_of_three(made), prompts.compose([1, clip(2, 4, 6), 2], made.config)]
    with runner(made, gates, backend="cuda", options={"attention": "sdpa"}) as one:
        assert one.capture().decoder.graphs == 3
        assert answers(one, batch, NEW) == [generated(made, prompt, NEW) for prompt in batch]
