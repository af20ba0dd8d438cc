"""Every registered attention keeps the contract; a new one is covered the moment it exists."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from polaformer.attention import build_attention, list_attentions

GRIDS = [(1, 1), (7, 7), (6, 10), (1, 9), (13, 5)]
NAMES = list_attentions()


def make(name, dim=64, heads=4, grid=(7, 7), **extra):
    torch.manual_seed(0)
    module = build_attention(name, dim=dim, num_heads=heads, grid_size=grid, **extra)
    for parameter in module.parameters():
        if parameter.dim() == 1 or parameter.abs().max() == 0:
            torch.nn.init.normal_(parameter, std=0.1)
    return module


@pytest.mark.parametrize("hw", GRIDS)
@pytest.mark.parametrize("name", NAMES)
def test_any_grid_and_gradients(name, hw):
    module = make(name)
    x = torch.randn(2, hw[0] * hw[1], 64, requires_grad=True)
    out = module(x, hw)
    assert out.shape == x.shape
    out.square().sum().backward()
    assert torch.isfinite(x.grad).all()
    for key, parameter in module.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


@pytest.mark.parametrize(
    "name, extra", [("pola", {}), ("softmax", {"relative_position_bias": True})]
)
def test_grid_matters_not_only_the_token_count(name, extra):
    """Attentions with local or positional terms must tell 4 x 9 from 6 x 6."""
    module = make(name, grid=(6, 6), **extra)
    x = torch.randn(1, 36, 64)
    assert (module(x, (4, 9)) - module(x, (6, 6))).abs().max() > 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_context_of_another_grid(name):
    module = make(name, grid=(3, 4)).double()
    x = torch.randn(2, 35, 64, dtype=torch.float64)
    context = torch.randn(2, 12, 64, dtype=torch.float64)
    out = module(x, (5, 7), context, (3, 4))
    assert out.shape == x.shape
    moved = context.clone()
    moved[0, 0] += 1
    changed = module(x, (5, 7), moved, (3, 4))
    assert (changed[0] - out[0]).abs().max() > 1e-6
    assert (changed[1] - out[1]).abs().max() == 0


@pytest.mark.parametrize("name", NAMES)
def test_samples_do_not_meet(name):
    module = make(name).eval()
    x = torch.randn(2, 49, 64)
    both = module(x, (7, 7))
    assert torch.allclose(both[:1], module(x[:1], (7, 7)), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "dtype, bound", [(torch.float16, 2e-2), (torch.bfloat16, 5e-2), (None, 1e-4)]
)
@pytest.mark.parametrize("amplitude", [0.0, 1.0, 8.0])
def test_half_precision(name, dtype, bound, amplitude):
    """Exponent 4.9998, inputs up to N(0, 8^2): finite everywhere and close to float64."""
    module = build_attention(name, dim=64, num_heads=4, grid_size=(7, 7))
    if hasattr(module, "power"):
        torch.nn.init.constant_(module.power, 10.0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 49, 64, generator=generator) * amplitude
    reference = copy.deepcopy(module).double()
    expected = reference(x.double(), (7, 7))
    x.requires_grad_()
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        out = module(x, (7, 7))
        loss = out.float().square().sum()
    loss.backward()
    assert torch.isfinite(out).all()
    for key, parameter in module.named_parameters():
        assert torch.isfinite(parameter.grad).all(), key
    assert torch.isfinite(x.grad).all()
    error = (out.double() - expected).norm() / expected.norm().clamp(min=1e-30)
    assert error <= bound or expected.norm() == out.double().norm() == 0


@pytest.mark.parametrize("name", NAMES)
def test_compiles_without_a_graph_break(name):
    module = make(name).eval()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=False)
    for hw in ((7, 7), (6, 10)):
        x = torch.randn(1, hw[0] * hw[1], 64)
        assert torch.allclose(compiled(x, hw), module(x, hw), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_pickles(name):
    module = make(name).eval()
    x = torch.randn(1, 60, 64)
    with torch.no_grad():
        out = module(x, (6, 10))
        for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert torch.equal(twin(x, (6, 10)), out)


@pytest.mark.parametrize("name", NAMES)
def test_eval_returns_the_module_and_stays_silent(name, capsys):
    assert make(name).eval() is not None
    assert make(name).train().training
    assert capsys.readouterr().out == ""


def test_gradients_have_the_layout_of_their_parameters():
    """Otherwise distributed training copies them and warns at every start."""
    module = make("pola")
    module(torch.randn(2, 49, 64), (7, 7)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.stride() == parameter.stride(), name
