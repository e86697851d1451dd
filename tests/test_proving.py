"""What a comparison times is right, or is not timed."""

from dataclasses import replace

import pytest
import torch
from helpers import Breaks, reference, tiny

from encgraph import bench, proving, readings, sizes, strategies, traffic
from encgraph.bench import System
from encgraph.encoders import registry
from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import ParityError
from encgraph.records import Item

SIZE = sizes.named("qwen3-vl-tiny")
DRAWN = traffic.read("builtin:coco", SIZE, count=3, seed=3)
TOKENS = DRAWN.tokens_by_request
ANY = range(10**6)


def shifts(buffers):
    buffers["pixels"].add_(1)


def refuses(buffers):
    raise RuntimeError("no capture today")


@pytest.fixture
def broken(monkeypatch):
    """Encoders whose forward does something else for some budgets."""

    def break_(budgets, fail):
        family = registry.FAMILIES[SIZE.family]

        def build(size, **given):
            return Breaks(family.build(size, **given), budgets, fail)

        changed = {**registry.FAMILIES, SIZE.family: replace(family, build=build)}
        monkeypatch.setattr(registry, "FAMILIES", changed)

    return break_


def measured(*names, drawn=DRAWN, dtype=torch.float32, **options):
    chosen = [strategies.named(name) for name in names]
    return bench.run(drawn, chosen, reference(dtype=dtype), repeats=1, **options)


def other(execute, name="other", **fields):
    return System(name=name, execute=execute, attention="loop", compiled=False, **fields)


def never(values, about):
    raise AssertionError("something was timed")


def only(*indices):
    requests = tuple(DRAWN.requests[index] for index in indices)
    return replace(DRAWN, requests=requests, paths=(), arrivals_s=())


def test_in_half_precision_a_right_system_comes_as_near_the_limit_as_eager_does():
    right = registry.named(SIZE.name, device="cpu", dtype=torch.bfloat16)
    found = readings.summaries(
        measured("eager", "vllm", drawn=only(1), dtype=torch.bfloat16, others=[other(right.eager)])
    )
    assert set(found) == {"eager", "vllm", "other"}
    for name, line in found.items():
        assert line.numbers["proven_items_count"] == 1, name
        assert 0.5 < line.numbers["error_over_allowed_ratio"] <= 1, name


def test_a_strategy_that_gives_wrong_rows_is_named_before_anything_is_timed(broken):
    broken(ANY, shifts)
    wrong = r"strategy 'vllm', request \d: item 0 differs from eager, float32: relative error"
    with pytest.raises(ParityError, match=wrong):
        measured("eager_varlen", "vllm", progress=never)


def test_a_strategy_that_is_wrong_for_the_largest_request_alone_is_found_too(broken):
    broken({512}, shifts)
    assert TOKENS[1] <= 256 < TOKENS[2]
    with pytest.raises(ParityError, match="strategy 'vllm', request 1: "):
        measured("vllm", drawn=only(1, 2), progress=never)


def others():
    right = tiny()
    yield (
        "zeros",
        lambda batch: [
            EncoderOutput(
                main=torch.zeros_like(one.main), extra=tuple(map(torch.zeros_like, one.extra))
            )
            for one in right.eager(batch)
        ],
    )
    yield (
        "nan",
        lambda batch: [replace(one, main=one.main * float("nan")) for one in right.eager(batch)],
    )
    yield "a row too few", lambda batch: [one.rows(1, len(one.main)) for one in right.eager(batch)]
    yield "an item too few", lambda batch: right.eager(batch)[1:]
    yield "no outputs", lambda batch: [one.main for one in right.eager(batch)]


@pytest.mark.parametrize("execute", [pytest.param(one, id=what) for what, one in others()])
def test_another_engine_that_returns_what_is_wrong_is_refused_by_name(execute):
    with pytest.raises(ParityError, match=r"strategy 'theirs', request \d: "):
        measured("eager_varlen", others=[other(execute, name="theirs")], progress=never)


def test_another_engine_may_return_outputs_in_a_form_of_its_own():
    right = tiny()
    joined = other(
        lambda batch: [torch.cat(one.tensors, dim=1) for one in right.eager(batch)],
        read=lambda made: [
            EncoderOutput(main=main, extra=tuple(extra))
            for main, *extra in (one.split(right.spec.widths, dim=1) for one in made)
        ],
    )
    found = readings.summaries(measured("eager_varlen", drawn=only(1), others=[joined]))
    assert found["other"].numbers["error_over_allowed_ratio"] <= 1


def test_what_proves_a_system_is_not_counted_with_what_is_timed():
    right, counted = tiny(), {}

    def execute(batch):
        counted["replay_steps"] = counted.get("replay_steps", 0) + 1
        return right.eager(batch)

    measured("eager_varlen", others=[other(execute, counted=counted)])
    assert counted == {"replay_steps": len(DRAWN.requests) * 2}


def test_an_exact_graph_that_is_wrong_is_left_out_with_its_reason(broken):
    broken({TOKENS[2]}, shifts)
    with pytest.warns(UserWarning, match=r"exact graph of .*, request 1, is left out: .* differs"):
        found = measured("vllm", drawn=only(1, 2))
    numbers = readings.summaries(found)["vllm"].numbers
    assert (numbers["exact_left_out_count"], numbers["exact_sample_count"]) == (1, 1)
    timed = {m.request for m in found if m.request is not None and "exact_floor_ms" in m.numbers}
    assert timed == {0}


def test_no_exact_graph_that_fails_to_be_captured_is_replaced_by_eager(broken):
    broken({TOKENS[0]}, refuses)
    with pytest.warns(UserWarning, match="left out: RuntimeError: no capture today"):
        found = measured("vllm", drawn=only(0, 0))
    numbers = readings.summaries(found)["vllm"].numbers
    assert numbers["exact_left_out_count"] == 2
    assert "exact_floor_ms" not in numbers


def test_the_requests_that_tell_most_are_few_and_lightest_first():
    def request(*tokens):
        return [Item(tokens=n, patches=4 * n) for n in tokens]

    requests = [request(50), request(4), request(900), request(*[2] * 40), request(60), request(70)]
    assert proving.telling(requests) == [1, 5, 3, 2]
    assert proving.telling(requests[:1]) == [0]
    assert proving.telling([]) == []
