"""All wheels in one environment: they find each other, share no file, import in any order, and compose."""

import importlib.metadata
import subprocess
import sys
from collections import defaultdict
from itertools import permutations

import numpy as np
import pytest
import torch
from offprints.claims import load_method, methods

from tools import workspace

PACKAGES = workspace.discover()
METHODS = [dist for dist, package in PACKAGES.items() if not package.is_core]


def test_the_core_finds_every_package_by_its_entry_point():
    assert sorted(methods()) == sorted(METHODS)


@pytest.mark.parametrize("dist", METHODS)
def test_a_method_says_who_it_is_and_what_it_claims(dist):
    method = load_method(dist)
    assert method.dist == dist
    assert method.claims
    assert method.summary
    assert method.field


def test_no_two_distributions_own_one_file():
    owners = defaultdict(list)
    for dist in importlib.metadata.distributions():
        name = dist.name  # read from the metadata at every use
        for line in (dist.read_text("RECORD") or "").splitlines():
            owners[line.rsplit(",", 2)[0]].append(name)
    shared = {path: names for path, names in owners.items() if len(names) > 1 and set(names) & set(PACKAGES)}
    assert sum(map(len, owners.values())) > 1000
    assert not shared


def test_every_member_is_installed_at_the_version_of_its_folder():
    installed = {dist: importlib.metadata.version(dist) for dist in PACKAGES}
    assert installed == {dist: package.version for dist, package in PACKAGES.items()}


@pytest.mark.parametrize("order", list(permutations(PACKAGES[dist].module for dist in METHODS[:2])))
def test_packages_import_in_any_order_and_leave_the_other_alone(order):
    lines = [f"import {module}; before = set(dir({module}))" for module in order[:1]]
    lines += [f"import {module}" for module in order[1:]]
    lines += [f"assert set(dir({order[0]})) >= before, 'changed'"]
    subprocess.run([sys.executable, "-I", "-W", "error::UserWarning", "-c", "\n".join(lines)], check=True)


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
