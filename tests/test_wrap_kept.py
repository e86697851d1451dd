"""What a wrapped module reads of its input, writes to it, or keeps of it is found in its first run."""

import ctypes
import threading

import numpy as np
import pytest
import torch
from torch import nn

from encgraph.encoders import wrap

EXAMPLES = {"zeros": torch.zeros(3, 4, 4), "drawn": torch.randn(3, 4, 4)}
EVERY_EXAMPLE = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
AT_CLASS = {}


class Cell(nn.Module):
    """A convolution, and one thing done before it; it may keep things in several places."""

    shared = AT_CLASS

    def __init__(self, first):
        super().__init__()
        torch.manual_seed(0)
        self.c = nn.Conv2d(3, 2, 2)
        self.kept, self.listed, self.named = None, [], {}
        self.register_buffer("buffered", None)
        self.register_buffer("filled", torch.zeros(()))
        self.first = first

    def forward(self, x):
        made = self.first(self, x)
        return self.c(x) if made is None else self.c(x) + made


def keeps_in_an_attribute(self, x):
    if self.kept is None:
        self.kept = self.c(x).mean()
    return self.kept


def keeps_whether_it_is_large(self, x):
    if self.kept is None:
        self.kept = (x.mean() > 1000).float()
    return self.kept


def keeps_in_a_list(self, x):
    self.listed.append(x.mean())


def keeps_in_a_dict(self, x):
    return self.named.setdefault("first", [x.mean()])[0]


def keeps_in_a_buffer(self, x):
    if self.buffered is None:
        self.buffered = x.mean()
    return self.buffered


def fills_a_buffer(self, x):
    self.filled.copy_(x.mean())


def registers_a_buffer(self, x):
    self.register_buffer("added", x.mean())


def rebinds_at_each_run(self, x):
    self.kept = x * 2


def keeps_on_its_class(self, x):
    return self.shared.setdefault("first", x.mean())


KEEPING = {
    "kept": [keeps_in_an_attribute, keeps_whether_it_is_large, rebinds_at_each_run],
    "listed": [keeps_in_a_list],
    "named": [keeps_in_a_dict],
    "buffered": [keeps_in_a_buffer],
    "filled": [fills_a_buffer],
    "added": [registers_a_buffer],
    "shared": [keeps_on_its_class],
}


def table(self, x):
    if self.kept is None:
        self.kept = torch.arange(3.0, device=x.device, dtype=x.dtype)
    return self.kept


def table_of_a_size(self, x):
    return self.named.setdefault(x.shape[2:], torch.ones_like(x[0, 0]).cumsum(0).to(x))[:3, :3]


def registered_table(self, x):
    if self.buffered is None:
        self.register_buffer("buffered", x.new_zeros(3), persistent=False)
    return self.buffered


def chooses_by_tensors(self, x):
    return torch.where(x.mean((1, 2, 3), keepdim=True) > 0, 1.0, 2.0)


def fills_by_a_mask(self, x):
    y = x.clone()
    y[y < 0] = 0
    y.mul_(2)


def one_hot(self, x):
    return nn.functional.one_hot(x.flatten(1).argmax(1), 48).sum(1)[:, None, None, None]


def asks_for_its_shape(self, x):
    return 1 if len(x.shape) == 4 and x.numel() and x.dtype.is_floating_point else None


def made_of_several(self, x):
    """Operators that reach a mode whole in inference mode."""
    if self.kept is None:
        self.kept = torch.arange(4).type_as(x)
    assert x.repeat_interleave(2, 1).shape[1] == 2 * self.kept.expand_as(x).shape[1]


HARMLESS = [
    made_of_several,
    table,
    table_of_a_size,
    registered_table,
    chooses_by_tensors,
    fills_by_a_mask,
    one_hot,
    asks_for_its_shape,
]
READING = {
    "sign of one value": lambda self, x: int(x[0, 0, 0, 0] > 0),
    "list": lambda self, x: x.tolist() and None,
    "nonzero": lambda self, x: x.nonzero().shape and None,
    "largest": lambda self, x: int(x.max()),
    "a branch that is never taken": lambda self, x: 2 if (x > 1000).any() else 1,
    "NumPy": lambda self, x: float(np.asarray(x).max()),
    "a mask": lambda self, x: x[x > 0].sum() * 0,
    "a tensor as an index": lambda self, x: x[x[0, 0, 0, 0].long() * 0] * 0 and None,
    "a count of repeats": lambda self, x: x.repeat_interleave((x[:, 0, 0, 0] * 0).long(), 0).sum(),
    "what is made in a tuple": lambda self, x: x.flatten(1).max(1)[1][0].item() * 0,
    "text": lambda self, x: f"{x.mean()}" and None,
}


def caught(first, x):
    """Reads inside what catches every error."""
    try:
        return float(x.mean())
    except ValueError:
        return 0.0


WRITING = {
    "by two": lambda self, x: x.mul_(2) and None,
    "by a view": lambda self, x: x[:, 0].zero_() and None,
    "by nothing": lambda self, x: x.clamp_(min=-1e9) * 0,
    "by its data": lambda self, x: x.data.add_(1) * 0,
    "an output": lambda self, x: torch.neg(x, out=x) * 0,
    "an index": lambda self, x: x.__setitem__((0, 0), 1.0),
}


def refused(first, example):
    AT_CLASS.clear()
    with pytest.raises(ValueError) as found:
        wrap.fixed(Cell(first).eval(), example)
    return str(found.value)


@EVERY_EXAMPLE
@pytest.mark.parametrize(
    ("name", "first"), [(name, first) for name, each in KEEPING.items() for first in each]
)
def test_what_keeps_a_tensor_made_of_its_input_is_refused_by_the_attribute(name, first, example):
    said = refused(first, example)
    assert "must not keep what it makes of its input" in said
    assert f"but a run leaves such a tensor on {name!r}" in said


def test_what_a_part_keeps_is_named_with_the_part():
    with pytest.raises(ValueError, match=r"leaves such a tensor on '0\.kept'"):
        wrap.fixed(nn.Sequential(Cell(keeps_in_an_attribute)).eval(), torch.zeros(3, 4, 4))


@EVERY_EXAMPLE
@pytest.mark.parametrize("first", HARMLESS)
def test_tables_and_choices_that_no_value_decides_are_taken(first, example):
    module = Cell(first).eval()
    encoder = wrap.fixed(module, example)
    value = torch.randn(3, 4, 4)
    [output] = encoder.eager([encoder.input(value)])
    torch.testing.assert_close(output.main, Cell(first).eval()(value[None]).flatten(2)[0].T)


@EVERY_EXAMPLE
@pytest.mark.parametrize("fault", READING)
def test_what_reads_its_input_is_refused_with_the_line_whatever_the_example(fault, example):
    line = READING[fault].__code__.co_firstlineno
    said = refused(READING[fault], example)
    assert "must not read values that depend on its input" in said
    assert f"a shape that contents decide), but does at test_wrap_kept.py:{line}: " in said


@pytest.mark.parametrize("first", HARMLESS)
def test_what_is_harmless_is_taken_in_inference_mode_too(first):
    with torch.inference_mode():
        wrap.fixed(Cell(first).eval(), torch.zeros(3, 4, 4))


@pytest.mark.parametrize("fault", READING)
def test_what_reads_its_input_is_refused_in_inference_mode_too(fault):
    with torch.inference_mode():
        assert "must not read values" in refused(READING[fault], torch.zeros(3, 4, 4))


def test_a_read_whose_refusal_the_module_catches_is_refused():
    assert "must not read values" in refused(caught, torch.zeros(3, 4, 4))


@EVERY_EXAMPLE
@pytest.mark.parametrize("fault", WRITING)
def test_what_writes_to_its_input_is_refused_with_the_line_whatever_the_example(fault, example):
    line, before = WRITING[fault].__code__.co_firstlineno, example.clone()
    said = refused(WRITING[fault], example)
    assert f"as it is, but changes it in place at test_wrap_kept.py:{line}; let it copy" in said
    assert torch.equal(example, before)


def by_no_operator(self, x):
    ctypes.memset(x.data_ptr(), 0, x.nbytes)


@EVERY_EXAMPLE
def test_what_writes_to_its_input_by_no_operator_is_refused_by_its_values(example):
    assert "as it is, but changes it in place; let it copy" in refused(by_no_operator, example)


def test_of_layers_of_torch_alone_the_layer_that_writes_is_named():
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)).eval()
    with pytest.raises(ValueError, match=r"changes it in place at activation\.py:\d+; let it copy"):
        wrap.fixed(module, torch.zeros(3, 4))


def test_a_module_that_cannot_be_copied_is_watched_and_taken_all_the_same():
    module = Cell(table).eval()
    module.lock = threading.Lock()
    assert wrap.fixed(module, torch.zeros(3, 4, 4)).spec.widths == (2,)
    module.first = keeps_in_a_list
    with pytest.raises(ValueError, match="leaves such a tensor on 'listed'"):
        wrap.fixed(module, torch.zeros(3, 4, 4))


@pytest.mark.parametrize(
    ("first", "said"),
    [(keeps_in_a_list, "leaves such a tensor on"), (READING["largest"], "must not read values")],
)
def test_what_is_compiled_is_watched_as_eager(first, said):
    module = torch.compile(Cell(first).eval(), backend="eager")
    with pytest.raises(ValueError, match=said):
        wrap.fixed(module, torch.zeros(3, 4, 4))


def by_numbers(self, x):
    """Keeps no tensor, but how many items its first batch had."""
    self.kept = self.kept or len(x)
    return self.kept


def by_chance(self, x):
    if self.kept is None:
        self.kept = torch.rand(())
    return self.kept


@pytest.mark.parametrize("first", [by_numbers, by_chance])
def test_what_answers_by_what_its_first_run_left_is_refused(first):
    assert "must answer as it would in its first run" in refused(first, torch.zeros(3, 4, 4))
