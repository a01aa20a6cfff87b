"""Methods composed as a user would compose them, each against the uncomposed run."""

import numpy as np
import pytest
import torch

# --- a loss of grokking-theory, minimised through inexact-oracle -------------------------------------------------


@pytest.fixture
def head():
    """The second layer of the paper's network on modular addition: a ridge regression, so its minimum is known."""
    from grokking_theory import ModularAddition, QuadraticNetwork

    network = QuadraticNetwork(p=3, width=4, seed=1)
    network.W.requires_grad_(False)
    inputs, labels = ModularAddition(p=3, n_train=9, seed=0).train
    wanted = torch.nn.functional.one_hot(labels, 3).double()

    def loss(ridge=0.1):
        return 0.5 * (network(inputs) - wanted).square().sum(1).mean() + 0.5 * ridge * network.V.square().sum()

    left, right = network.W.T.split(3)
    features = (left[inputs[:, 0]] + right[inputs[:, 1]]).square().detach()
    normal = features.T @ features / len(inputs) + 0.1 * torch.eye(4, dtype=torch.float64)
    best = torch.linalg.solve(normal, features.T @ wanted / len(inputs)).T
    with torch.no_grad():
        start = network.V.clone()
        network.V.copy_(best)
        least = loss().item()
        network.V.copy_(start)
    return network, loss, least, float(torch.linalg.eigvalsh(normal)[-1])


def minimise(network, closure):
    optimizer = torch.optim.LBFGS([network.V], lr=1.0, max_iter=60, tolerance_grad=1e-10, line_search_fn="strong_wolfe")
    optimizer.step(closure)
    return network.V.detach().numpy().ravel().copy()


def test_without_noise_the_composed_run_ends_where_the_uncomposed_one_does(head):
    from inexact_oracle.torch import wrap_closure

    network, loss, least, smoothness = head
    start = network.V.detach().clone()

    def plain():
        network.V.grad = None
        value = loss()
        value.backward()
        return value

    control = minimise(network, plain)
    assert loss().item() == pytest.approx(least, abs=1e-9)
    with torch.no_grad():
        network.V.copy_(start)
    composed = minimise(network, wrap_closure(loss, [network.V], eta_f=0.0, eta_g=0.0, smoothness=smoothness))
    assert loss().item() == pytest.approx(least, abs=1e-9)
    np.testing.assert_allclose(composed, control, atol=1e-4)


def test_with_noise_the_certificate_covers_the_true_gap(head):
    from inexact_oracle.torch import wrap_closure

    network, loss, least, smoothness = head
    reach, size = 4.0, 1e-3  # of the weights from the origin, and of the gradient's error
    generator = torch.Generator().manual_seed(0)

    def noisy():
        tilt = torch.randn(network.V.shape, generator=generator, dtype=torch.float64)
        return loss() + (size * tilt / tilt.norm() * network.V).sum()

    before = loss().item()
    errors = {"eta_f": size * reach, "eta_g": size}
    closure = wrap_closure(noisy, [network.V], **errors, smoothness=smoothness, diameter=2 * reach)
    end = minimise(network, closure)
    proved = closure.oracle.certificate(end)
    gap = loss().item() - least
    assert np.linalg.norm(end) < reach
    assert proved.valid
    assert 0 <= gap <= proved.bound
    assert proved.lower <= least <= proved.value_upper
    assert gap < 0.01 * (before - least)


# --- a gradient oracle that is differentially private, so noisy by design, wrapped by inexact-oracle -------------

PEOPLE_EPSILON, PEOPLE_DELTA, QUERIES, REACH = 5.0, 1e-6, 60, 0.5


@pytest.fixture(scope="module")
def private_loss():
    """A logistic loss of 569 patients by the Gaussian mechanism: zCDP of PEOPLE_EPSILON over QUERIES answers."""
    from inexact_oracle.data import breast_cancer

    loss = breast_cancer()
    loss = loss._replace(rows=loss.rows / np.maximum(1.0, np.linalg.norm(loss.rows, axis=1, keepdims=True)))
    people, dim = loss.rows.shape
    log = np.log(1.0 / PEOPLE_DELTA)
    each = (np.sqrt(log + PEOPLE_EPSILON) - np.sqrt(log)) ** 2 / QUERIES / 2.0  # rho; half for values, half for slopes
    steepest = np.log1p(np.exp(REACH * np.sqrt(dim)))  # no patient's loss is above, inside the box
    scales = steepest / people / np.sqrt(2.0 * each), 2.0 / people / np.sqrt(2.0 * each)
    tail = np.sqrt(2.0 * np.log(2.0 * QUERIES / 1e-3))
    return loss, dim, scales, (scales[0] * tail, scales[1] * (np.sqrt(dim) + tail))


def test_a_private_oracle_is_certified_and_ends_nearer_than_without_the_wrapper(private_loss):
    from inexact_oracle import SmoothOracle
    from scipy.optimize import minimize

    loss, dim, (value_scale, slope_scale), (eta_f, eta_g) = private_loss

    def run(oracle):
        box = [(-REACH, REACH)] * dim
        found = minimize(
            oracle, np.zeros(dim), jac=True, method="L-BFGS-B", bounds=box, options={"maxfun": QUERIES - 25}
        )
        assert found.nfev <= QUERIES
        return found.x

    least = loss(run(loss))[0]
    naive, wrapped = [], []
    for seed in range(8):
        gen = np.random.default_rng(seed)

        def private(x, gen=gen):
            value, slope = loss(x)
            return value + value_scale * gen.standard_normal(), slope + slope_scale * gen.standard_normal(dim)

        naive.append(loss(run(private))[0] - least)
        oracle = SmoothOracle(private, dim, eta_f, eta_g, loss.smoothness, diameter=2 * REACH * np.sqrt(dim))
        end = run(oracle.fun_and_grad)
        proved = oracle.certificate(end, bounds=(-REACH, REACH))
        wrapped.append(loss(end)[0] - least)
        assert proved.valid
        assert wrapped[-1] <= proved.bound
        assert proved.lower <= least
    assert np.mean(wrapped) < np.mean(naive)
    assert np.mean(wrapped) < 0.25 * (loss(np.zeros(dim))[0] - least)
