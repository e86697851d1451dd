"""One proof for every family of the fixed, ragged and text layouts, on tiny sizes."""

import math
from contextlib import nullcontext

import pytest
import torch
from helpers_layouts import CASES, CPU, error, joined, plan, replayed, views
from helpers_paths import operators
from helpers_sync import SyncAuditor
from transformers.utils import import_utils

from encgraph.checks import parity
from encgraph.encoders import packed
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import StaleBufferError
from encgraph.records import FallbackReason, Route
from encgraph.runner import EncoderRunner

EVERY = pytest.mark.parametrize("name", CASES)
MIXES = [[1], [3, 1, 2], [2, 2], [4], [1, 1, 1, 1]]
LARGE = 5


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny products take longer to share among threads than to compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(name):
    case = CASES[name]
    encoder = case.build()
    capacity = case.capacity(encoder, LARGE)
    return case, encoder, capacity, encoder.buffers(capacity, CPU, torch.float32)


def live(encoder, buffers, inputs, capacity):
    """Real rows after a fill."""
    count = sum(encoder.spec.rows(value.item) for value in inputs)
    return replayed(encoder, buffers, inputs, capacity).main[:count]


@EVERY
def test_padded_forward_equals_the_stock_forward(name):
    case, encoder, capacity, buffers = made(name)
    for seed, mix in enumerate(MIXES):
        inputs = case.inputs(encoder, mix, seed)
        packed = replayed(encoder, buffers, inputs, capacity)
        stock = encoder.stock().eager(inputs)
        assert packed.main.shape == (encoder.spec.rows(capacity), *encoder.spec.widths)
        assert packed.main.isfinite().all()
        assert error(live(encoder, buffers, inputs, capacity), joined(stock)) < 1e-5
        rows = [encoder.spec.rows(value.item) for value in inputs]
        assert [len(output.main) for output in stock] == rows


@EVERY
def test_batched_eager_equals_each_item_alone(name):
    case, encoder, _, _ = made(name)
    inputs = case.inputs(encoder, [3, 1, 2, 5], 0)
    alone = [encoder.stock().eager([value])[0] for value in inputs]
    assert error(joined(encoder.eager(inputs)), joined(alone)) < 1e-5
    assert encoder.eager([]) == []


@EVERY
def test_small_after_large_on_shared_slabs_is_exact(name):
    case, encoder, capacity, buffers = made(name)
    small = case.capacity(encoder, 2)
    seen = views(buffers, encoder, small)
    for seed, (one, held, mix) in enumerate(
        [
            (capacity, buffers, [3, 3, 1]),
            (small, seen, [1]),
            (capacity, buffers, [2]),
            (small, seen, [1, 1]),
        ]
    ):
        inputs = case.inputs(encoder, mix, seed)
        assert error(live(encoder, held, inputs, one), joined(encoder.stock().eager(inputs))) < 1e-5


@EVERY
@pytest.mark.parametrize("poison", [math.nan, 1e30])
def test_poisoned_padding_changes_nothing(name, poison):
    case, encoder, capacity, buffers = made(name)
    inputs = case.inputs(encoder, [2, 1], 0)
    clean = live(encoder, buffers, inputs, capacity).clone()
    if "ids" in buffers:
        real = sum(len(value.pixels) for value in inputs)
        buffers["ids"][real:] = 10**9
    elif "shapes" in buffers:
        for slot, value in zip(buffers["pixels"], inputs, strict=False):
            slot[len(value.pixels) :] = poison
        buffers["pixels"][len(inputs) :] = poison
    else:
        buffers["pixels"][sum(value.item.segments for value in inputs) :] = poison
    dirty = encoder.forward(buffers, capacity).main[: len(clean)]
    assert torch.equal(clean, dirty)


@EVERY
def test_live_rows_do_not_depend_on_what_was_there_before(name):
    case, encoder, capacity, buffers = made(name)
    replayed(encoder, buffers, case.inputs(encoder, [3, 3, 3], 0), capacity)
    for inputs in (case.inputs(encoder, [1], 1), []):
        after = live(encoder, buffers, inputs, capacity)
        assert encoder.forward(buffers, capacity).main.isfinite().all()
        fresh = encoder.buffers(capacity, CPU, torch.float32)
        assert torch.equal(after, live(encoder, fresh, inputs, capacity))


@EVERY
def test_weights_edited_in_place_are_seen(name):
    case, encoder, capacity, buffers = made(name)
    inputs = case.inputs(encoder, [1, 2], 0)
    before = live(encoder, buffers, inputs, capacity).clone()
    with torch.no_grad():
        for parameter in encoder.module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    after = live(encoder, buffers, inputs, capacity)
    assert error(after, before) > 1e-3
    assert error(after, joined(encoder.stock().eager(inputs))) < 1e-5


@EVERY
def test_nothing_synchronizes_between_fill_and_output(name):
    case, encoder, capacity, buffers = made(name)
    inputs = case.inputs(encoder, [1, 2, 1], 0)
    with SyncAuditor() as auditor:
        replayed(encoder, buffers, inputs, capacity)
    assert auditor.found == []


@EVERY
def test_forward_takes_the_same_path_under_capture_as_in_warm_up(name, monkeypatch):
    _, encoder, capacity, buffers = made(name)
    warm = operators(lambda: encoder.forward(buffers, capacity))
    monkeypatch.setattr(import_utils, "is_cuda_stream_capturing", lambda: True)
    assert operators(lambda: encoder.forward(buffers, capacity)) == warm


@EVERY
def test_the_runner_replays_and_falls_back_to_the_same_answers(name):
    case = CASES[name]
    encoder = case.build()
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    inputs = case.inputs(encoder, [6, 1, 2, 3, 1, 1, 2], 7)
    with EncoderRunner(
        encoder=encoder,
        plan=plan(encoder, case, 1, 2),
        backend="reference",
        observe=observe,
    ) as runner:
        runner.capture()
        outputs = runner.execute(inputs)
        stock = encoder.stock().eager(inputs)
        for mine, true in zip(outputs, stock, strict=True):
            assert mine.main.shape == true.main.shape
            assert error(mine.main, true.main) < 1e-5
        replays = [step for step in steps if step.route is Route.REPLAY]
        assert len(replays) > 1
        largest = runner.plan.largest()
        over = inputs[0].item.patches > largest.patches
        reasons = [step.reason for step in steps if step.route is Route.FALLBACK]
        assert bool(reasons) == over
        assert set(reasons) <= {FallbackReason.OVER_TOKENS, FallbackReason.OVER_PATCHES}
        assert all(torch.isfinite(output.main).all() for output in outputs)


@EVERY
def test_a_rebound_weight_is_refused_by_name(name):
    case = CASES[name]
    encoder = case.build()
    inputs = case.inputs(encoder, [1], 0)
    with EncoderRunner(encoder=encoder, plan=plan(encoder, case, 1), backend="reference") as runner:
        runner.capture()
        path, parameter = next(iter(encoder.module.named_parameters()))
        owner, _, leaf = path.rpartition(".")
        fresh = torch.nn.Parameter(parameter.detach().clone(), requires_grad=False)
        setattr(encoder.module.get_submodule(owner), leaf, fresh)
        with pytest.raises(StaleBufferError, match="rebound"):
            runner.execute(inputs)


@EVERY
def test_the_module_itself_is_left_as_it_was(name):
    encoder = CASES[name].build()
    config = getattr(encoder.module, "config", None)
    assert config is None or "encgraph" not in str(config._attn_implementation)
    assert encoder.oracle().spec.dtype == torch.float32
    assert {id(p) for p in encoder.stock().module.parameters()} == {
        id(p) for p in encoder.module.parameters()
    }


@EVERY
def test_item_spec_is_what_the_input_says(name):
    case, encoder, _, _ = made(name)
    for value in case.inputs(encoder, [1, 3, 6], 0):
        assert encoder.item_spec(value) == value.item
        assert value.item.modality in encoder.spec.modalities


@EVERY
def test_an_input_with_sizes_of_another_is_refused(name):
    case, encoder, _, buffers = made(name)
    [one] = case.inputs(encoder, [1], 0)
    wrong = Input(
        item=type(one.item)(
            modality=one.item.modality, tokens=one.item.tokens + 1, patches=one.item.patches
        ),
        pixels=one.pixels,
        grid=one.grid,
    )
    with pytest.raises(ValueError, match="item 1 must be of"):
        encoder.fill(buffers, [one, wrong])


@EVERY
def test_training_mode_is_refused(name):
    case, encoder, _, _ = made(name)
    inputs = case.inputs(encoder, [1], 0)
    encoder.module.train()
    with pytest.raises(ValueError, match=r"eval mode; call .eval\(\)"):
        encoder.eager(inputs)


@EVERY
def test_too_many_items_are_refused(name):
    case, encoder, capacity, buffers = made(name)
    inputs = case.inputs(encoder, [1] * (capacity.items + 1), 0)
    with pytest.raises(ValueError, match="these buffers hold at most"):
        encoder.fill(buffers, inputs)


@EVERY
def test_half_precision_replay_is_as_close_to_float32_as_eager_is(name):
    case = CASES[name]
    if name == "wrapped":
        pytest.skip("built in float32 by its own test")
    encoder = case.build(torch.bfloat16)
    inputs = case.inputs(encoder, [3, 1, 2], 0)
    capacity = case.capacity(encoder, LARGE)
    mine = live(encoder, encoder.buffers(capacity, CPU, torch.bfloat16), inputs, capacity)
    assert mine.dtype == torch.bfloat16
    cut = packed.cut(EncoderOutput(main=mine), [encoder.spec.rows(v.item) for v in inputs])
    eager, oracle = encoder.stock().eager, encoder.oracle().eager
    parity.demand(parity.compare(lambda _: cut, [inputs], eager=eager, oracle=oracle))
