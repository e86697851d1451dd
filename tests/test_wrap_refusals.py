"""What `wrap.fixed` cannot make an encoder of is refused in a sentence; compiled modules are taken."""

import pytest
import torch
from torch import nn

from encgraph.encoders import wrap
from encgraph.structure import Structure


class Tower(nn.Module):
    """Two layers and a buffer, with one thing done to the rows."""

    def __init__(self, then=None):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 6)
        self.register_buffer("seen", torch.zeros(()))
        self.then = then or (lambda module, rows: rows)

    def forward(self, x):
        return self.then(self, self.second(self.first(x)))


def refused(module, example=None, **options):
    with pytest.raises(ValueError) as caught:
        wrap.fixed(module.eval(), torch.rand(8) if example is None else example, **options)
    return str(caught.value)


def counting(module, rows):
    module.seen += 1
    return rows


def rebinding(module, rows):
    module.seen = module.seen * 1.0
    return rows


def building_once(module, rows):
    if module.seen == 0:
        module.seen.fill_(1)
    return rows


def long(module, rows):
    return rows.nan_to_num().clamp(-9, 9).long()


OTHER_DTYPES = {
    "float32": lambda module, rows: rows.float(),
    "int64": long,
    "bool": lambda module, rows: rows > 0,
    "complex64": lambda module, rows: torch.complex(rows.float(), rows.float()),
}


@pytest.mark.parametrize("dtype", OTHER_DTYPES)
def test_outputs_of_another_dtype_than_the_weights_are_refused(dtype):
    said = refused(Tower(OTHER_DTYPES[dtype]).to(torch.bfloat16))
    assert f"weights' dtype torch.bfloat16, got torch.{dtype}; cast them in `run`" in said


def test_outputs_that_are_cast_as_the_refusal_says_are_taken():
    module = Tower(OTHER_DTYPES["float32"]).to(torch.bfloat16).eval()
    encoder = wrap.fixed(module, torch.rand(8), run=lambda module, x: module(x).to(x.dtype))
    [made] = encoder.eager([encoder.input(torch.rand(8))])
    assert made.main.dtype == encoder.spec.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (counting, "every run changes 'seen' in place; freeze it"),
        (rebinding, "every run changes 'seen' for another tensor; keep one"),
    ],
)
def test_a_buffer_that_every_run_changes_is_refused_though_rows_agree(then, said):
    assert refused(Tower(then)).endswith(said)


def test_a_buffer_that_the_first_run_alone_fills_is_taken():
    assert wrap.fixed(Tower(building_once).eval(), torch.rand(8)).module.seen == 1


@pytest.mark.parametrize(
    ("example", "dtype"),
    [
        (torch.zeros(8, dtype=torch.uint8), "torch.uint8"),
        (torch.arange(8), "torch.int64"),
        (torch.zeros(8, dtype=torch.complex64), "torch.complex64"),
    ],
)
def test_an_example_of_no_floats_is_refused(example, dtype):
    assert refused(Tower(), example).startswith(f"example must be of a float dtype, got {dtype};")


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_a_module_of_a_dtype_that_no_plan_has_is_refused(dtype):
    said = refused(nn.Linear(8, 6, dtype=dtype))
    assert said.startswith("the module's dtype must be one of ('bfloat16', 'float16', 'float32')")


def test_a_module_without_values_is_refused():
    assert "must have values, got weights on 'meta'" in refused(nn.Linear(8, 6, device="meta"))


@pytest.mark.parametrize(
    ("then", "what"),
    [
        (lambda module, rows: {"last_hidden_state": None}, "NoneType"),
        (lambda module, rows: {"last_hidden_state": [rows, None]}, "NoneType"),
        (lambda module, rows: {"last_hidden_state": ()}, "none"),
    ],
)
def test_an_output_that_is_nothing_is_refused(then, what):
    assert f"outputs must be tensors, got {what}; choose them by `run`" in refused(Tower(then))


def test_rows_as_many_as_the_batch_are_refused_as_mixed():
    said = refused(Tower(lambda module, rows: rows[:, None].expand(-1, len(rows), -1)))
    assert "must not depend on the others in its batch, but beside copies of itself" in said


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.rand(1, 8))])
def test_modules_of_torch_jit_are_refused_by_name(make):
    made = make(nn.Linear(8, 6).eval())
    assert "module 'encoder' must be a module of Python, got a " in refused(made)
    said = refused(nn.Sequential(made, nn.Linear(6, 6)))
    assert said.startswith("module '0' must be a module of Python, got a ")
    assert said.endswith("of torch.jit; give the module that it was made from")


def whole(module):
    return torch.compile(module, backend="eager")


def child(module):
    module.first = torch.compile(module.first, backend="eager")
    return module


def in_place(module):
    module.compile(backend="eager")
    return module


@pytest.mark.parametrize("compiled", [whole, child, in_place])
def test_what_torch_compile_made_is_wrapped_and_answers_as_the_module_does(compiled):
    module, pixels = Tower().eval(), torch.rand(8)
    expected = module(pixels[None])
    encoder = wrap.fixed(compiled(module), pixels)
    [made] = encoder.eager([encoder.input(pixels)])
    torch.testing.assert_close(made.main, expected)
    assert encoder.name == "tower"


def test_what_changes_inside_a_compiled_module_is_named():
    module = Tower().eval()
    structure = Structure.of(torch.compile(module, backend="eager"))
    assert structure.changed() is None
    module.train()
    assert structure.changed() == "module '_orig_mod' changed its training mode"
    module.eval()
    module.second = nn.Linear(8, 6)
    assert structure.changed() == "submodule '_orig_mod.second' was swapped"
