"""Kernel regression and the linearised network."""

import grokking_theory as gt
import numpy as np
import pytest
import torch
from grokking_theory.linearized import Linearization
from offprints.seeding import isolated, rng
from sklearn.kernel_ridge import KernelRidge
from torch.testing import assert_close


def data(n=30, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, 3)), generator.normal(size=(n, 2))


def test_ridge_regression_is_scikit_learns():
    (X, y), (X_test, _) = data(), data(7, 1)
    theirs = KernelRidge(alpha=0.3, kernel="rbf", gamma=1 / 3).fit(X, y).predict(X_test)
    np.testing.assert_allclose(gt.KernelRegressor(ridge=0.3).fit(X, y).predict(X_test), theirs, rtol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "onehot_rbf", "expected_ntk"])
def test_without_ridge_it_interpolates(kernel):
    task = gt.ModularAddition(5, "regression", 60)
    X, y = (part.numpy() for part in task.train)
    fitted = gt.KernelRegressor(kernel).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X), y, atol=1e-6)
    np.testing.assert_allclose(fitted.predict(X.astype(float)), fitted.predict(X))


def test_a_singular_kernel_gives_the_least_norm_solution():
    X, y = data()
    linear = lambda a, b: a @ b.T  # noqa: E731
    fitted = gt.KernelRegressor(linear).fit(X, y)
    weights = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(fitted.predict(X), X @ weights, atol=1e-10)
    np.testing.assert_allclose(fitted.dual_coef_, np.linalg.pinv(X @ X.T) @ y, atol=1e-10)
    nothing = gt.KernelRegressor(lambda a, b: np.zeros((len(a), len(b)))).fit(X, y)
    np.testing.assert_array_equal(nothing.predict(X), 0)


def test_a_torch_kernel_may_be_passed():
    task = gt.ModularAddition(5, n_train=15)
    X = task.train[0].numpy()
    y = np.eye(5)[task.train[1].numpy()]
    ours = gt.KernelRegressor(lambda a, b: gt.onehot_rbf(torch.as_tensor(a), torch.as_tensor(b))).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), gt.KernelRegressor("onehot_rbf").fit(X, y).predict(X))
    assert ours.predict(X).shape == (15, 5)


def test_equal_inputs_with_equal_targets_are_no_contradiction():
    fitted = gt.KernelRegressor().fit([[0.0], [1.0], [0.0]], [1.0, 2.0, 1.0])
    np.testing.assert_allclose(fitted.predict([[0.0], [1.0]]), [1, 2], atol=1e-8)


# ---- the linearised network


def line():
    with isolated(0):
        return torch.nn.Linear(4, 3, dtype=torch.float64)


def test_a_linear_model_is_its_own_linearisation():
    model, generator = line(), rng(0, "cpu")
    x, x_test = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (4, 6))
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    for mode in ("full", "per_output"):
        early = gt.linearized_predictions(model, x, y, x_test, time=0.37, mode=mode)
        trained = line()
        for _ in range(20_000 if mode == "full" else 0):  # Euler steps of the gradient flow
            with torch.no_grad():
                gap = trained(x) - y
                trained.weight.sub_(gap.t() @ x, alpha=0.37 / 20_000)
                trained.bias.sub_(gap.sum(0), alpha=0.37 / 20_000)
        if mode == "full":
            flow = trained(x_test).detach()
        assert_close(early, flow, atol=1e-4, rtol=1e-4)
        assert_close(gt.linearized_predictions(model, x, y, x_test, time=0.0, mode=mode), model(x_test).detach())
        assert_close(gt.linearized_predictions(model, x, y, x, mode=mode), y)
        assert_close(
            gt.linearized_predictions(model, x, y, x_test, time=1e9, mode=mode),
            gt.linearized_predictions(model, x, y, x_test, mode=mode),
        )


def test_both_sides_of_the_curve():
    model, generator = line(), rng(0, "cpu")
    x, y = torch.randn(3, 4, generator=generator, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    train, test = Linearization(model, x, y, x).at(0.8)
    assert_close(train, test)


def test_the_quadratic_network_linearised_by_its_closed_form():
    task = gt.ModularAddition(5, "regression", 40)
    network = gt.QuadraticNetwork(5, 60, "uniform")
    (x, y), (x_test, y_test) = task.train, task.test
    start, before = network.forward_triples(x).detach(), network.forward_triples(x_test).detach()
    square, cross = gt.quadratic_ntk(network.W, network.V, x), gt.quadratic_ntk(network.W, network.V, x_test, x)
    wanted = before + cross @ torch.linalg.solve(square, y - start)
    found = gt.linearized_predictions(
        network, x, y, x_test, forward_fn=lambda model, triples: model.forward_triples(triples)
    )
    assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    curve = gt.linearized_curve(network, task, times=[0.0, 1e6])
    assert curve.test_loss[1] == pytest.approx((wanted - y_test).square().mean().item(), rel=1e-6)
    assert curve.train_loss[0] == pytest.approx((start - y).square().mean().item())
    assert curve.train_loss[1] < 1e-12
    assert curve.train_acc[1] == 1
    assert curve.test_acc[1] == pytest.approx(((wanted - y_test).abs() < 2.5).double().mean().item())


def test_the_curve_of_a_classifier():
    task, network = gt.ModularAddition(5, n_train=12), gt.QuadraticNetwork(5, 40, "uniform")
    curve = gt.linearized_curve(network, task, times=[0.0, 1e9])
    outputs = network(task.test[0]).detach()
    one_hot = torch.eye(5, dtype=torch.float64)[task.test[1]]
    assert curve.test_loss[0] == pytest.approx((outputs - one_hot).square().sum(1).mean().item())
    assert curve.test_acc[0] == pytest.approx((outputs.argmax(1) == task.test[1]).double().mean().item())
    assert curve.train_acc[1] == 1
    assert curve.times.tolist() == [0.0, 1e9]
