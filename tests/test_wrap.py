"""Modules of fixed input shape become encoders without an adapter."""

import pytest
import torch
from torch import nn

from encgraph.encoders import wrap
from encgraph.records import Modality, Plan
from encgraph.runner import EncoderRunner


class Pyramid(nn.Module):
    """Two outputs of equally many rows, and a record that is no tensor."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 4, stride=4)
        self.second = nn.Conv2d(3, 6, 4, stride=4)

    def forward(self, pixels):
        return {"fine": self.first(pixels), "coarse": self.second(pixels)}


class After(nn.Module):
    """A linear layer, and what is done with its rows and the items."""

    def __init__(self, then):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.then = then

    def forward(self, x):
        return self.then(self.linear(x), x)


def mean(x):
    return x.mean(0, keepdim=True)


MIXING = {
    "less the mean": lambda y, x: y - mean(x),
    "a 30th of the mean": lambda y, x: y + 0.03 * mean(y),
    "a millionth of the mean": lambda y, x: y + 1e-6 * mean(y),
    "a bounded thousandth": lambda y, x: y + 1e-3 * mean(y).tanh(),
    "over the largest": lambda y, x: y / x.abs().amax().clamp(min=1),
    "in steps of the largest": lambda y, x: (y / y.abs().amax() * 127).round() * y.abs().amax(),
    "batch statistics": lambda y, x: (y - mean(y)) / (1e-5 + mean((y - mean(y)) ** 2)).sqrt(),
    "what came before": lambda y, x: y.cumsum(0),
    "what comes after": lambda y, x: y.flip(0).cumsum(0).flip(0),
    "a neighbour's": lambda y, x: y.roll(1, 0),
    "the batch's size": lambda y, x: y * len(y),
    "the place in the batch": lambda y, x: y + torch.arange(len(y), device=y.device)[:, None],
}
APART = {
    "the rows": lambda y, x: y,
    "zeros": lambda y, x: y * 0,
    "normed": lambda y, x: nn.functional.layer_norm(y, (8,)),
    "of length one, zeros over zero": lambda y, x: y * nn.functional.normalize(x, eps=0.0),
    "weights over the values": lambda y, x: y.softmax(-1),
    "logarithms, of negatives NaN": lambda y, x: y + x.log(),
}
MODULES = {
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (3, 8, 8)),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)), (3, 8, 8)),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (6, 16)),
    "sixty layers": (
        lambda: nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(60))),
        (64,),
    ),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
EXAMPLES = {"zeros": lambda *shape: torch.zeros(shape), "drawn": lambda *shape: torch.rand(shape)}


def both(module, pixels):
    made = module(pixels)
    return made["fine"], made["coarse"]


def test_a_plain_module_runs_through_the_runner():
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Tanh()).eval()
    encoder = wrap.fixed(module, torch.zeros(3, 2, 2))
    inputs = [encoder.input(torch.rand(3, 2, 2)) for _ in range(5)]
    plan = Plan(graphs=tuple(encoder.capacity(n) for n in (1, 2)), encoder="sequential")
    with EncoderRunner(encoder=encoder, plan=plan, backend="reference") as runner:
        runner.capture()
        outputs = runner.execute(inputs)
    for value, output in zip(inputs, outputs, strict=True):
        torch.testing.assert_close(output.main, module(value.pixels[None]))


def test_items_of_one_dimension_are_no_pictures():
    torch.manual_seed(0)
    module = nn.Linear(3, 5).eval()
    encoder = wrap.fixed(module, torch.zeros(3))
    rows = torch.randn(4, 3)
    outputs = encoder.eager([encoder.input(row) for row in rows])
    torch.testing.assert_close(torch.cat([one.main for one in outputs]), module(rows))


def test_several_outputs_are_main_and_extra():
    encoder = wrap.fixed(Pyramid().eval(), torch.zeros(3, 8, 8), run=both, name="pyramid")
    assert (encoder.spec.name, encoder.spec.widths, encoder.slot.rows) == ("pyramid", (4, 6), 4)
    value = encoder.input(torch.rand(3, 8, 8))
    [output] = encoder.eager([value])
    fine, coarse = both(encoder.module, value.pixels[None])
    torch.testing.assert_close(output.main, fine.flatten(2)[0].T)
    torch.testing.assert_close(output.extra[0], coarse.flatten(2)[0].T)
    capacity = encoder.capacity(9)
    buffers = encoder.buffers(capacity, torch.device("cpu"), torch.float32)
    encoder.fill(buffers, [value])
    packed = encoder.forward(buffers, capacity)
    torch.testing.assert_close(packed.extra[0][:4], output.extra[0])


def test_an_output_that_is_no_tensor_must_be_chosen():
    with pytest.raises(ValueError, match=r"got \['coarse', 'fine'\]; choose one by `run`"):
        wrap.fixed(Pyramid().eval(), torch.zeros(3, 8, 8))


def test_outputs_of_unequal_rows_are_refused():
    with pytest.raises(ValueError, match=r"equally many rows an item, got \[1, 4\]"):
        wrap.fixed(
            Pyramid().eval(),
            torch.zeros(3, 8, 8),
            run=lambda m, x: (m(x)["fine"], m(x)["coarse"].mean((2, 3))),
        )


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("leak", MIXING)
def test_a_module_that_mixes_items_is_refused(leak, dtype, example):
    torch.manual_seed(0)
    module = After(MIXING[leak]).eval().to(dtype)
    with pytest.raises(ValueError, match="must not depend on the others"):
        wrap.fixed(module, EXAMPLES[example](8))


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("then", APART)
def test_a_module_that_keeps_items_apart_is_taken(then, dtype, example):
    torch.manual_seed(0)
    module = After(APART[then]).eval().to(dtype)
    assert wrap.fixed(module, EXAMPLES[example](8)).spec.widths == (8,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODULES)
def test_ordinary_layers_keep_items_apart(name, dtype):
    torch.manual_seed(0)
    make, shape = MODULES[name]
    encoder = wrap.fixed(make().eval().to(dtype), torch.rand(shape))
    assert encoder.spec.dtype == dtype


class Weighing(nn.Module):
    """A linear layer with a scale, and one thing done before it."""

    def __init__(self, first):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((), 2.0))
        self.runs, self.first = 0, first

    def forward(self, x):
        self.runs += 1
        return self.linear(x) * self.first(self, x)


IN_PLACE = {
    "weight": lambda module, x: module.linear.weight.data.mul_(1.01).sum() * 0 + 1,
    "buffer": lambda module, x: module.scale.add_(1),
}
CHANCE = {
    "noise": lambda module, x: 1 + 0.1 * torch.rand(()),
    "dropout": lambda module, x: nn.functional.dropout(torch.ones(8), training=True),
    "a count": lambda module, x: module.runs,
}
READING = {
    "item": lambda module, x: x.abs().max().item(),
    "branch": lambda module, x: 1 if x.sum() > 0 else 2,
    "float": lambda module, x: float(x.mean()),
    "list": lambda module, x: x.amax().tolist(),
    "NumPy": lambda module, x: 1 + float(x.numpy().max()),
}


def refused(first):
    torch.manual_seed(0)
    with pytest.raises(ValueError) as caught:
        wrap.fixed(Weighing(first).eval(), torch.rand(8))
    return str(caught.value)


@pytest.mark.parametrize(("fault", "name"), [("weight", "linear.weight"), ("buffer", "scale")])
def test_what_changes_its_weights_in_place_is_refused_for_that(fault, name):
    said = refused(IN_PLACE[fault])
    assert f"weights and buffers as they are, but every run changes '{name}' in place" in said


def test_what_changes_its_input_in_place_is_refused_for_that_and_the_example_stays():
    example = torch.rand(8)
    before = example.clone()
    module = Weighing(lambda module, x: 1)
    doubling = nn.Sequential(After(lambda y, x: x.mul_(2)), module).eval()
    with pytest.raises(ValueError, match="must leave its input as it is, but changes it in place"):
        wrap.fixed(doubling, example)
    assert torch.equal(example, before)


@pytest.mark.parametrize("fault", CHANCE)
def test_what_differs_from_run_to_run_is_refused_for_that(fault):
    said = refused(CHANCE[fault])
    assert "two runs on the same batch must give the same rows, but here they differ" in said


@pytest.mark.parametrize("fault", READING)
def test_what_reads_values_of_its_input_is_refused_for_that_with_the_line(fault):
    line = READING[fault].__code__.co_firstlineno
    said = refused(READING[fault])
    assert "must not read values that depend on its input" in said
    assert f"but does at test_wrap.py:{line}: " in said


def test_a_weight_that_is_read_is_no_reason_of_items_that_are_mixed():
    said = refused(lambda module, x: module.scale.item() * x.mean())
    assert said.startswith("an item's rows must not depend on the others in its batch")


def test_what_reads_values_of_its_weights_alone_is_taken():
    module = Weighing(lambda module, x: module.scale.item()).eval()
    assert wrap.fixed(module, torch.rand(8)).spec.widths == (8,)


@pytest.mark.parametrize(
    ("module", "example", "said"),
    [
        (None, torch.ones(3), "module must be a torch Module, got None"),
        (nn.Linear(3, 3).eval(), [1, 2], r"example must be a torch Tensor, got \[1, 2\]"),
    ],
)
def test_what_is_no_module_or_example_is_refused_by_name(module, example, said):
    with pytest.raises(TypeError, match=said):
        wrap.fixed(module, example)


def test_an_example_without_finite_rows_is_refused():
    with pytest.raises(ValueError, match="rows of an example must be finite"):
        wrap.fixed(After(lambda y, x: y / 0).eval(), torch.zeros(8))


def test_a_module_in_training_mode_is_refused():
    with pytest.raises(ValueError, match=r"call .eval\(\)"):
        wrap.fixed(nn.Linear(3, 3), torch.ones(3))


def test_a_module_without_parameters_is_refused():
    with pytest.raises(ValueError, match="must have parameters"):
        wrap.fixed(nn.ReLU().eval(), torch.ones(3))


def test_an_output_without_a_batch_is_refused():
    with pytest.raises(ValueError, match="with N = 1"):
        wrap.fixed(nn.Linear(3, 3).eval(), torch.ones(3), run=lambda m, x: m(x).sum())


def test_stacked_slots_are_one_item_where_that_is_allowed():
    encoder = wrap.fixed(
        nn.Linear(3, 2).eval(), torch.ones(3), most=4, modality=Modality.AUDIO, name="windows"
    )
    value = encoder.input(torch.rand(3, 3))
    assert (value.item.tokens, value.item.modality) == (3, Modality.AUDIO)
    torch.testing.assert_close(encoder.eager([value])[0].main, encoder.module(value.pixels))
    with pytest.raises(ValueError, match=r"shape \(3,\) or up to 4 of it stacked, got \(5, 3\)"):
        encoder.input(torch.rand(5, 3))


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (torch.zeros(8, 8, 3), r"shape \(3, 8, 8\), got \(8, 8, 3\)"),
        (torch.zeros(0, 3, 8, 8), r"got \(0, 3, 8, 8\)"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), "float dtype, got torch.uint8"),
        (torch.zeros(3, 8, 8, requires_grad=True), "without gradient"),
    ],
)
def test_pixels_that_do_not_fit_are_refused_by_their_place(pixels, message):
    encoder = wrap.fixed(Pyramid().eval(), torch.zeros(3, 8, 8), run=both)
    good = encoder.input(torch.zeros(3, 8, 8))
    bad = type(good)(item=good.item, pixels=pixels, grid=good.grid)
    with pytest.raises(ValueError, match=f"item 1 must have pixels .*{message}"):
        encoder.eager([good, bad])


def test_a_budget_too_small_for_a_slot_is_refused():
    encoder = wrap.fixed(Pyramid().eval(), torch.zeros(3, 8, 8), run=both)
    with pytest.raises(ValueError, match="must hold a slot of 4 tokens, got 3"):
        encoder.capacity(3)
