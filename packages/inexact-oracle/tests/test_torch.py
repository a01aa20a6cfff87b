"""The torch adapter: run where torch is installed (`--slow`); the package itself never needs it."""

import numpy as np
import pytest
from inexact_oracle import SmoothOracle
from inexact_oracle.torch import wrap_closure

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")


def least_squares(dtype=torch.float64, noise=0.0, seed=0):
    gen = torch.Generator().manual_seed(seed)
    a = torch.randn(40, 4, generator=gen, dtype=torch.float64).to(dtype)
    b = (a @ torch.tensor([[0.5], [-0.2], [0.1], [0.3]], dtype=dtype)).squeeze()
    model = torch.nn.Linear(4, 1, bias=False, dtype=dtype)
    with torch.no_grad():
        model.weight.zero_()

    def loss():
        clean = 0.5 * ((model(a).squeeze() - b) ** 2).mean()
        return clean + noise * torch.sin(1e3 * model.weight.detach().sum())

    smoothness = float(torch.linalg.matrix_norm(a.double(), 2) ** 2 / 40)
    return model, loss, smoothness


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_lbfgs_through_the_wrapper(dtype):
    model, loss, smoothness = least_squares(dtype, noise=1e-4)
    closure = wrap_closure(loss, model.parameters(), eta_f=1.1e-4, eta_g=1e-4, smoothness=smoothness)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=25, line_search_fn="strong_wolfe")
    optimiser.step(closure)
    assert isinstance(closure.oracle, SmoothOracle)
    assert closure.oracle.check_consistency() <= 1e-6
    assert model.weight.dtype == model.weight.grad.dtype == dtype
    assert model.weight.detach().double().numpy().ravel() == pytest.approx([0.5, -0.2, 0.1, 0.3], abs=0.02)
    value = closure()
    assert value.dtype == dtype
    assert float(value) == pytest.approx(closure.oracle.fun(closure.flat()), rel=1e-6)


def test_exact_closure_is_reproduced():
    model, loss, smoothness = least_squares()
    closure = wrap_closure(loss, model.parameters(), eta_f=0.0, eta_g=0.0, smoothness=smoothness)
    value = closure()
    (grad,) = torch.autograd.grad(loss(), model.parameters())
    assert float(value) == pytest.approx(float(loss().detach()))
    assert torch.allclose(model.weight.grad, grad)
    assert closure.oracle.n_queries == 1
    closure()
    assert closure.oracle.n_queries == 1


def test_arguments():
    model, loss, _ = least_squares()
    with pytest.raises(ValueError, match="smoothness or diameter"):
        wrap_closure(loss, model.parameters(), eta_f=0.1, eta_g=0.1)
    assert wrap_closure(loss, model.parameters(), eta_f=0.1, eta_g=0.1, diameter=2.0).oracle.dim == 4
    with pytest.raises(ValueError, match="number of parameters must be an integer between 1 and 2000"):
        wrap_closure(loss, torch.nn.Linear(50, 50).parameters(), eta_f=0.1, eta_g=0.1, diameter=2.0)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_go_in_and_come_out(kind):
    oracle = SmoothOracle(lambda x: (float(x @ x) / 2, x), 2, 0.0, 0.0, 1.0)
    x = torch.tensor([0.5, -0.25], dtype=kind, requires_grad=True)
    value, grad = oracle(x)
    assert value.dtype == grad.dtype == kind
    assert grad.tolist() == [0.5, -0.25]
    with pytest.raises(TypeError, match="floating-point tensor"):
        oracle(torch.tensor([1, 2]))
    answers = SmoothOracle(lambda x: (torch.tensor(0.5), torch.tensor([0.5, 0.0])), 2, 0.1, 0.1, 1.0)
    assert np.array_equal(answers(np.zeros(2))[1], [0.5, 0.0])
