"""Modules that mix items only where a batch has many."""

import pytest
import torch
from torch import nn

from encgraph.encoders import apart, wrap

WIDTH = 16


class Experts(nn.Module):
    """Each expert takes so many items of a batch; those after them pass it by."""

    def __init__(self, most):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.most = most

    def forward(self, x):
        pick, out = self.gate(x).argmax(-1), x
        for index, expert in enumerate(self.experts):
            mine = pick == index
            place = mine.long().cumsum(0) - 1
            out = torch.where((mine & (place < self.most))[:, None], expert(x), out)
        return out


class Beyond(nn.Module):
    """A linear layer; what is done with its rows where a batch has more than three items."""

    def __init__(self, then):
        super().__init__()
        self.linear, self.then, self.sizes = nn.Linear(WIDTH, WIDTH), then, []

    def forward(self, x):
        self.sizes.append(len(x))
        return self.then(self.linear(x)) if len(x) > 3 else self.linear(x)


def shifts(y):
    return y + 1e-3 * y.mean(0, keepdim=True).tanh()


def refuses(y):
    raise MemoryError("no room")


@pytest.mark.parametrize("most", [3, 4, 8, 16])
def test_a_limit_on_items_of_a_batch_is_found(most):
    torch.manual_seed(1)
    example = torch.randn(WIDTH)
    with pytest.raises(ValueError, match="depend on the others in its batch, but beside 16 others"):
        wrap.fixed(Experts(most).eval(), example)
    assert wrap.fixed(Experts(apart.CROWD).eval(), example).spec.name == "experts"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_small_leak_of_a_larger_batch_is_found(dtype):
    example = torch.rand(WIDTH).to(dtype)
    with pytest.raises(ValueError, match="beside 16 others they do"):
        wrap.fixed(Beyond(lambda y: y + 0.1 * y.mean(0).tanh()).to(dtype).eval(), example)
    if dtype == torch.float32:
        with pytest.raises(ValueError, match="beside 16 others they do"):
            wrap.fixed(Beyond(shifts).eval(), example)


def test_a_module_that_refuses_a_larger_batch_is_taken():
    module = Beyond(refuses).eval()
    assert wrap.fixed(module, torch.rand(WIDTH)).spec.widths == (WIDTH,)
    assert apart.CROWD in module.sizes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (3, 8, 8)),
        (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (6, 16)),
        (lambda: nn.Sequential(*[nn.Linear(96, 96) for _ in range(60)]), (96,)),
    ],
)
def test_modules_that_keep_items_apart_are_taken(build, shape, dtype):
    for seed in range(4):
        torch.manual_seed(seed)
        assert wrap.fixed(build().to(dtype).eval(), torch.rand(shape)).spec.dtype == dtype
