"""The exact checks: identities of the paper and of its proofs, on the fast path and on the literal reference."""

import itertools
import math
from dataclasses import dataclass

import grokking_theory as gt
import numpy as np
import pytest
import torch
from grokking_theory import _reference as reference
from grokking_theory import bounds
from hypothesis import given, settings
from hypothesis import strategies as st
from offprints.seeding import rng
from torch.testing import assert_close


def random_network(p=5, width=7, seed=0, **options):
    return gt.QuadraticNetwork(p, width, "uniform", seed=seed, **options)


def arrays(network):
    return network.W.detach().numpy(), network.V.detach().numpy()


def random_triples(p, n, seed=0):
    return torch.randint(0, p, (n, 3), generator=rng(seed, "cpu"))


# ---- the network


def test_network_equals_the_written_out_sum():
    network = random_network()
    W, V = arrays(network)
    table = torch.from_numpy(reference.table(W, V))
    a, b, c = torch.cartesian_prod(*[torch.arange(5)] * 3).t()
    assert_close(network.population_table(), table)
    assert_close(network(torch.stack([a, b], 1))[torch.arange(125), c], table[a, b, c])
    assert_close(network.forward_triples(torch.stack([a, b, c], 1)), table[a, b, c])


@given(t=st.floats(-2, 2), seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_homogeneity_of_degree_three(t, seed):
    network = random_network(seed=seed)
    before = network.population_table()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(t)
    assert_close(network.population_table(), t**3 * before)


def test_initial_weights_have_the_stated_law():
    p, width = 40, 4000
    for init, for_w, for_v in [
        ("torch", (2 * p) ** -0.5 / math.sqrt(3), width**-0.5 / math.sqrt(3)),
        ("he", math.sqrt(2 / (2 * p)), math.sqrt(2 / width)),
        ("uniform", 0.7 / math.sqrt(3), 0.7 / math.sqrt(3)),
    ]:
        network = gt.QuadraticNetwork(p, width, init, alpha=3.0, scale=0.7)
        assert network.W.std().item() == pytest.approx(3 * for_w, rel=0.01)
        assert network.V.std().item() == pytest.approx(3 * for_v, rel=0.01)
    assert float(gt.QuadraticNetwork(p, width, "uniform", scale=0.7).linf()) <= 0.7


def test_population_loss_and_accuracy_of_any_operation():
    op = gt.table("quadratic", 5)
    network = random_network()
    table = network.population_table().detach()
    target = gt.operation_target(op)
    assert network.population_loss(op) == pytest.approx(float((table - target).square().mean()))
    assert network.population_accuracy(op) == float((table.argmax(2) == op).double().mean())
    assert network.population_loss() == pytest.approx(
        float((table - torch.from_numpy(reference.target(5))).square().mean())
    )


def test_linf_is_the_largest_entry():
    network = random_network()
    assert network.linf() == reference.linf(*arrays(network))
    with torch.no_grad():
        network.V[2, 3] = -9.0
    assert network.linf() == 9.0


# ---- the construction


@pytest.mark.parametrize("p", range(2, 31))
def test_construction_is_exact(p):
    for compact, balanced, copies in itertools.product([False, True], [False, True], [1, 3]):
        W, V = gt.fourier_construction(p, compact, balanced, copies)
        assert gt.verify_construction(W, V, p) < 1e-10
        width = (4 * p - 3 if p % 2 else 4 * p - 5) if compact else 8 * p
        assert W.shape == (copies * width, 2 * p)
        largest = (2 ** (-1 / 3) if compact and p > 2 else 4 ** (-1 / 3)) if balanced else 1.0
        assert max(W.abs().max(), V.abs().max()).item() == pytest.approx(largest * copies ** (-1 / 3), rel=1e-12)


@pytest.mark.parametrize("p", [2, 3, 6, 7])
def test_construction_equals_the_papers_eight_neurons(p):
    W, V = gt.fourier_construction(p)
    want_W, want_V = reference.fourier_network(p)
    np.testing.assert_allclose(W.numpy(), want_W, atol=1e-12)
    np.testing.assert_allclose(V.numpy(), want_V, atol=1e-12)
    np.testing.assert_allclose(reference.table(want_W, want_V), reference.target(p), atol=1e-10)


def test_verify_construction_measures_the_error():
    W, V = gt.fourier_construction(5)
    V[3, :] = 0
    assert gt.verify_construction(W, V, 5) == pytest.approx(5.0)


def test_copies_keep_predictions():
    network = gt.QuadraticNetwork(7, 56).load_weights(*gt.fourier_construction(7))
    twice = gt.QuadraticNetwork(7, 112).load_weights(*gt.fourier_construction(7, copies=2))
    assert_close(twice.population_table(), network.population_table(), atol=1e-12, rtol=1e-12)
    assert twice.linf() == pytest.approx(network.linf() * 2 ** (-1 / 3))


@pytest.mark.parametrize("p", [5, 6, 23])
def test_balanced_construction_has_normalised_margin_4p(p):
    network = gt.QuadraticNetwork(p, 8 * p).load_weights(*gt.fourier_construction(p, balanced=True))
    data = gt.ModularAddition(p, n_train=1.0).train
    assert gt.normalized_margin(network, data) == pytest.approx(4 * p)
    assert gt.margin_loss(network, data, 0.99 * p) == 0
    assert gt.margin_loss(network, data, 1.01 * p) == 1


# ---- kernels


@pytest.mark.parametrize("second", [None, 6])
def test_closed_form_ntk_equals_gradients(second):
    network = random_network()
    x, x2 = random_triples(5, 9), None if second is None else random_triples(5, second, seed=1)
    closed = gt.quadratic_ntk(network.W, network.V, x, x2)
    generic = gt.empirical_ntk(network, x, x2, forward_fn=lambda model, triples: model.forward_triples(triples))
    literal = reference.ntk(*arrays(network), x.tolist(), (x if x2 is None else x2).tolist())
    assert_close(closed, generic, rtol=1e-8, atol=0)
    assert_close(closed, torch.from_numpy(literal), rtol=1e-8, atol=1e-12)
    assert not closed.requires_grad


def test_one_output_is_the_closed_form_with_c_fixed():
    network = random_network()
    pairs = random_triples(5, 8)[:, :2]
    for output in ("first", 3):
        c = torch.full((8, 1), 0 if output == "first" else output)
        closed = gt.quadratic_ntk(network.W, network.V, torch.cat([pairs, c], 1))
        assert_close(gt.empirical_ntk(network, pairs, output=output), closed, rtol=1e-8, atol=1e-12)


def test_all_outputs_and_their_average():
    network = random_network()
    pairs, others = random_triples(5, 6)[:, :2], random_triples(5, 4, seed=2)[:, :2]
    full = gt.empirical_ntk(network, pairs, others, output="full", chunk=4)
    assert full.shape == (6, 4, 5, 5)
    for c, d in itertools.product(range(5), repeat=2):
        left = [[a, b, c] for a, b in pairs.tolist()]
        right = [[a, b, d] for a, b in others.tolist()]
        assert_close(full[:, :, c, d], torch.from_numpy(reference.ntk(*arrays(network), left, right)))


def test_trace_sample_is_the_kernel_of_one_random_direction():
    network, pairs = random_network(), random_triples(5, 6)[:, :2]
    full = gt.empirical_ntk(network, pairs, output="full")
    directions = []
    for seed in (0, 1):
        u = torch.randn(5, generator=rng(seed, "cpu"), dtype=torch.float64)
        u = u / u.norm()
        sampled = gt.empirical_ntk(network, pairs, output="trace_sample", seed=seed)
        assert_close(sampled, torch.einsum("ijcd,c,d->ij", full, u, u))
        directions.append(sampled)
    assert not torch.allclose(*directions)


@pytest.mark.parametrize("chunk", [1, 2, 3, 64])
@pytest.mark.parametrize("output", ["first", "full"])
def test_blocks_do_not_change_the_kernel(chunk, output):
    network = random_network()
    pairs = random_triples(5, 7)[:, :2]
    kernel = gt.empirical_ntk(network, pairs, output=output, chunk=chunk)
    assert_close(kernel, gt.empirical_ntk(network, pairs, pairs, output=output))
    assert_close(kernel, gt.empirical_ntk(network, pairs, output=output, chunk=chunk, vectorize=False))
    mirrored = kernel.transpose(0, 1) if output == "first" else kernel.transpose(0, 1).transpose(2, 3)
    assert torch.equal(kernel, mirrored)
    layers = gt.empirical_ntk(network, pairs, output=output, chunk=chunk, per_layer=True)
    assert set(layers) == {"W", "V"}
    assert_close(layers["W"] + layers["V"], kernel)


@pytest.mark.parametrize(("kappa", "init", "scale"), [(9 / 5, "uniform", 1.0), (3.0, "he", 1.0)])
def test_expected_ntk_is_the_mean_over_initial_weights(kappa, init, scale):
    p, width = 3, 60_000
    x = torch.cartesian_prod(*[torch.arange(p)] * 3)[:18]
    network = gt.QuadraticNetwork(p, width, init, scale=scale, seed=3)
    sigma = {"uniform": 1 / math.sqrt(3), "he": math.sqrt(2 / (2 * p))}[init]
    sigma_v = {"uniform": 1 / math.sqrt(3), "he": math.sqrt(2 / width)}[init]
    want = gt.expected_ntk(x, None, kappa, sigma, sigma_v)
    got = gt.quadratic_ntk(network.W, network.V, x) / width
    assert_close(got, want, rtol=0.06, atol=0.06 * float(want.max()))


def test_expected_ntk_equals_the_four_cases():
    x, x2 = random_triples(3, 12), random_triples(3, 9, seed=5)
    for kappa, sigma, sigma_v in [(1.8, 0.6, 0.0), (3.0, 1.3, 0.7)]:
        want = [
            [reference.expected_ntk(tuple(s), tuple(t), kappa, sigma, sigma_v) for t in x2.tolist()] for s in x.tolist()
        ]
        assert_close(gt.expected_ntk(x, x2, kappa, sigma, sigma_v), torch.tensor(want, dtype=torch.float64))
    all_points = torch.cartesian_prod(*[torch.arange(4)] * 3)
    smallest = float(torch.linalg.eigvalsh(gt.expected_ntk(all_points))[0])
    assert smallest == pytest.approx(4 * (1 / 3) ** 2)  # 4 sigma^4


def test_pairs_drop_the_factor_of_c():
    pairs = random_triples(4, 10)[:, :2]
    triples = torch.cat([pairs, torch.zeros(10, 1, dtype=torch.long)], 1)
    assert_close(gt.expected_ntk(pairs), gt.expected_ntk(triples))


def test_onehot_rbf_is_the_rbf_of_one_hot_vectors():
    x = random_triples(4, 8)
    dense = torch.nn.functional.one_hot(x, 4).flatten(1).double()
    assert_close(gt.onehot_rbf(x, gamma=0.3), torch.exp(-0.3 * torch.cdist(dense, dense).square()))


def test_equivariance_holds_for_expected_kernels_only():
    assert gt.check_equivariance(gt.expected_ntk, 5)
    assert gt.check_equivariance(gt.onehot_rbf, 7, m=4)
    assert gt.check_equivariance(lambda x, y: gt.match_kernel(x, y, weights={(0,): 1.0, (): 2.0}), 2, m=2)
    network = random_network()
    assert not gt.check_equivariance(lambda x, y: gt.quadratic_ntk(network.W, network.V, x, y), 5)
    one_column = torch.arange(5.0, dtype=torch.float64)  # invariant under permutations of two columns, not of the third
    assert not gt.check_equivariance(lambda x, y: one_column[x[:, 2, None]] * one_column[y[:, 2]], 5)


# ---- lower bounds


def random_equivariant_kernel(seed, m):
    generator = np.random.default_rng(seed)
    subsets = [S for size in range(m + 1) for S in itertools.combinations(range(m), size)]
    weights = {S: float(w) for S, w in zip(subsets, generator.exponential(size=len(subsets)), strict=True)}
    return lambda x, y: gt.match_kernel(torch.as_tensor(x), torch.as_tensor(y), weights=weights).numpy()


def test_lower_bound_never_exceeds_the_loss_of_100_equivariant_kernels():
    p = 5
    everything, targets = gt.ModularAddition(p, "regression").population()
    for seed in range(100):
        share = (0.1, 0.25, 0.4)[seed % 3]
        losses = []
        for split in range(3):
            task = gt.ModularAddition(p, "regression", share, seed=3 * seed + split)
            regressor = gt.KernelRegressor(random_equivariant_kernel(seed, 3)).fit(
                *(part.numpy() for part in task.train)
            )
            losses.append(float(np.mean((regressor.predict(everything.numpy()) - targets.numpy()) ** 2)))
        assert np.mean(losses) >= gt.kernel_lower_bound(p, task.n_train)["loss_lb"]


@pytest.mark.parametrize("m", [2, 3, 4])
def test_lower_bound_has_its_constant(m):
    p = 5
    for n in (0, 1, 7, (p - 1) ** m - 1, (p - 1) ** m, 10**6):
        found = gt.kernel_lower_bound(p, n, m=m)
        assert found["loss_lb"] == pytest.approx(reference.lower_bound(p, n, m))
        assert found["informative"] == (n < (p - 1) ** m)
        assert (found["trivial_zero"], found["trivial_const"]) == (p, p - 1)
    if m == 2:
        assert gt.kernel_lower_bound(p, 7, m=2)["loss_lb"] == (p - 1) * (1 - 7 / (p - 1) ** 2)


@given(p=st.integers(2, 60))
@settings(max_examples=25, deadline=None)
def test_half_of_the_zero_loss_up_to_an_explicit_sample_size(p):
    last = (p - 1) ** 2 * (p - 2) // 2
    assert gt.kernel_lower_bound(p, last)["loss_lb"] >= p / 2 - 1e-12
    assert gt.kernel_lower_bound(p, last + 1)["loss_lb"] < p / 2


def test_classification_bound_counts_p_or_p_minus_1_dimensions_a_point():
    p, n = 7, 10
    assert gt.kernel_lower_bound(p, n, "classification")["loss_lb"] == pytest.approx((1 - 1 / p) * (1 - n / 36))
    loose = gt.kernel_lower_bound(p, n, "classification", kernel="any")
    assert loose["loss_lb"] == pytest.approx((1 - 1 / p) * (1 - n * p / 6**3))
    assert gt.kernel_lower_bound(p, n, kernel="any") == gt.kernel_lower_bound(p, n)


@given(p=st.integers(3, 40), share=st.floats(0, 1.2), kind=st.sampled_from(["regression", "classification"]))
@settings(max_examples=60, deadline=None)
def test_min_samples_is_the_first_n_that_the_bound_allows(p, share, kind):
    target = share * bounds.trivial_losses(p, kind)["constant"]
    n = gt.min_samples_kernel(p, kind, target)
    assert gt.kernel_lower_bound(p, n, kind)["loss_lb"] <= target
    assert n == 0 or gt.kernel_lower_bound(p, n - 1, kind)["loss_lb"] > target


@pytest.mark.parametrize("shape", [(3, 3), (4, 3, 2), (2, 2, 2)])
def test_table_bound_equals_inclusion_exclusion_and_its_definition(shape):
    f = np.random.default_rng(1).normal(size=shape)
    found = gt.table_lower_bound(f, 4)
    for axes, part in reference.projections(f).items():
        norm, dim = found.components[axes]
        assert norm == pytest.approx(float((part**2).mean()), abs=1e-12)
        assert dim == math.prod(shape[i] - 1 for i in axes)
    assert found.separate == pytest.approx(sum(norm * max(0, 1 - 4 / dim) for norm, dim in found.components.values()))
    assert found.loss_lb >= found.separate - 1e-12
    assert gt.table_lower_bound(f, 0).loss_lb == pytest.approx(float((f**2).mean()))
    assert gt.table_lower_bound(f, math.prod(shape)).loss_lb == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n", [0, 1, 3, 5, 8])
def test_table_bound_equals_the_orbit_of_all_permutations(n):
    for f in (np.random.default_rng(2).normal(size=(3, 3)), np.random.default_rng(3).normal(size=(2, 3, 2))):
        orbit = gt.orbit_lower_bound(f, n, gt.symmetric_generators(f.shape))
        assert orbit == pytest.approx(gt.table_lower_bound(f, n).loss_lb, abs=1e-10)


def test_modular_addition_is_the_two_component_table():
    p, n = 5, 9
    target = gt.operation_target(gt.table("add", p))
    np.testing.assert_array_equal(target.numpy(), reference.target(p))
    found = gt.table_lower_bound(target, n)
    assert found.separate == pytest.approx(gt.kernel_lower_bound(p, n)["loss_lb"])
    assert found.loss_lb == pytest.approx(gt.kernel_lower_bound(p, n - 1)["loss_lb"])
    assert gt.operation_lower_bound(gt.table("add", p), n) == pytest.approx(found.loss_lb)


def test_a_smaller_group_gives_a_smaller_bound():
    f = reference.target(4, m=2)
    shift = [[[1, 2, 3, 0], [0, 1, 2, 3]]]
    for n in range(1, 8):
        assert gt.orbit_lower_bound(f, n, shift) <= gt.table_lower_bound(f, n).loss_lb + 1e-12
    assert gt.orbit_lower_bound(f, 2, []) == pytest.approx(0, abs=1e-12)  # the identity alone: one function spans it


def test_trivial_predictors():
    for p in (2, 5, 11):
        assert gt.ConstantPredictor(p).population_loss() == p
        assert gt.ConstantPredictor(p, 1.0).population_loss() == p - 1
        zero = gt.QuadraticNetwork(p, 3)
        zero.load_weights(torch.zeros_like(zero.W), torch.zeros_like(zero.V))
        assert zero.population_loss() == p
        inputs, targets = gt.ModularAddition(p, "regression").population()
        guess = gt.ConstantPredictor(p, 1.0).forward_triples(inputs)
        assert float((guess - targets).square().mean()) == pytest.approx(p - 1)
        assert gt.ConstantPredictor(p, 2.0)(inputs[:, :2]).shape == (p**3, p)


# ---- upper bounds


def test_misclassification_is_at_most_twice_the_loss_over_p():
    generator = np.random.default_rng(0)
    for p in (2, 3, 7):
        target = reference.target(p)
        answers = target.argmax(2)
        for scale in (0.1, 1.0, 3.0):
            f = target + scale * generator.normal(size=target.shape)
            loss = float(((f - target) ** 2).mean())
            wrong = float((f.argmax(2) != answers).mean())
            assert wrong <= gt.bounds.misclassification_bound(loss, p)
    f = reference.target(3)
    f[0, 0] = [1.49, 1.51, 0]  # the cheapest error: both at p/2
    loss = float(((f - reference.target(3)) ** 2).mean())
    assert pytest.approx(gt.bounds.misclassification_bound(loss, 3), rel=0.02) == 1 / 9


def test_rademacher_bound_covers_the_exact_complexity():
    """All corners and all signs for p = 2, h = 1: sup over the weights of the mean of sign · g."""
    p, n, R = 2, 4, 0.8
    x = random_triples(p, n, seed=4).tolist()
    values = np.array(
        [
            [reference.output(np.array([row[:4]]), np.array([[row[4]], [row[5]]]), *point) for point in x]
            for row in itertools.product([-R, 0.0, R], [-R, 0.0, R], [-R, 0.0, R], [-R, 0.0, R], [-R, R], [-R, R])
        ]
    )
    signs = np.array(list(itertools.product([-1, 1], repeat=n)))
    exact = (signs @ values.T / n).max(1).mean()
    assert exact <= gt.bounds.rademacher_linf(p, 1, R, n)
    assert gt.bounds.rademacher_linf(p, 1, R, n) == pytest.approx(
        (4 + 2 * 6**0.5) * R**3 * math.sqrt(2 * math.log(2) / 4)
    )


def test_certificate_adds_its_three_parts():
    found = gt.certificate(5, 40, 0.1, 1000, delta=0.1, empirical=0.25)
    complexity = (4 + 2 * math.sqrt(6)) * 40 * 0.1**3 * math.sqrt(5 * math.log(2) / 1000)
    assert found["rademacher"] == pytest.approx(complexity)
    assert found["value"] == pytest.approx(0.25 + 2 / 5 * complexity + math.sqrt(math.log(10) / 2000))
    assert not found["vacuous"]
    assert gt.certificate(5, 40, 5.0, 1000)["vacuous"]


def test_rates_are_the_papers_formulas():
    assert gt.bounds.rich_upper_rate(5, 40, 0.5, 100, 0.1, constant=2.0) == pytest.approx(
        2 * 0.5**6 * 1600 / 100 * (5 * math.log(100) ** 3 + math.log(10))
    )
    found = gt.bounds.pac_bayes_rate(5, 40, 100, margin=4.0, linf=0.5, empirical=0.1, constant=3.0)
    assert found["value"] == pytest.approx(0.1 + 3 * math.sqrt(0.05) * (1600 / 32) ** (1 / 3))
    assert found["applicable"]
    assert not gt.bounds.pac_bayes_rate(5, 40, 100, margin=0.1, linf=0.5)["applicable"]  # γ/r³ < √h
    assert not gt.bounds.pac_bayes_rate(5, 10, 100, margin=4.0, linf=0.5, delta=0.05)["applicable"]  # h too small
    assert gt.bounds.max_margin_rate(8, 64, constant=2.0) == pytest.approx(2 * math.sqrt(32 / 64))
    assert gt.bounds.min_linf(5, 40) == 1
    assert gt.bounds.min_linf(5, 85) == pytest.approx(2 ** (-1 / 3))
    assert gt.bounds.min_linf(5, 39) == math.inf


def test_interpolation_width():
    assert gt.bounds.interpolation_width(100, 20, 0.05) == math.floor(36 * 20 * math.log(2000)) + 1
    assert gt.bounds.interpolation_width(100, 20, 0.05, init=(1.0, 1 / math.sqrt(3))) == pytest.approx(5473, abs=1)
    assert gt.bounds.interpolation_width(100, 20, 0.05, init=(2.0, 1.0)) == math.floor(64 * 20 * math.log(2000)) + 1
    assert gt.bounds.singular_width(5, 100) == 6
    assert gt.bounds.singular_width(5, 90) == 5  # h < 6
    assert gt.bounds.singular_width(5, 3) == 0


def test_rank_of_the_ntk_at_most_three_p_h():
    p = 3
    x = torch.cartesian_prod(*[torch.arange(p)] * 3)
    for width in (1, 2):
        network = random_network(p, width)
        kernel = gt.quadratic_ntk(network.W, network.V, x)
        assert int(torch.linalg.matrix_rank(kernel, hermitian=True)) <= 3 * p * width < 27


# ---- margins and the penalty


def test_margins_equal_the_definition_and_count_ties_as_errors():
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 0.0, -1.0], [5.0, 4.0, 9.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    assert gt.output_margin(logits, labels).tolist() == [1.0, 0.0, -5.0]
    np.testing.assert_array_equal(
        gt.output_margin(logits, labels).numpy(), reference.margins(logits.numpy(), labels.numpy())
    )
    model = torch.nn.Linear(3, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))
    assert gt.margin_loss(model, (logits, labels)) == pytest.approx(2 / 3)
    assert gt.margin_loss(model, (logits, labels), 1.0) == 1.0
    assert gt.normalized_margin(model, (logits, labels)) == -5.0
    with torch.no_grad():
        model.weight.mul_(2)
    assert gt.normalized_margin(model, (logits, labels)) == pytest.approx(-10 / 8)


def test_linf_subgradient_equals_finite_differences():
    network = random_network()
    penalty = gt.LinfRegularizer(network.parameters(), strength=0.3)
    penalty().backward()
    for parameter in network.parameters():
        numeric = torch.zeros_like(parameter)
        for index in np.ndindex(*parameter.shape):
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter[index] += sign * 1e-7
                    values.append(penalty().item())
                    parameter[index] -= sign * 1e-7
            numeric[index] = (values[0] - values[1]) / 2e-7
        assert_close(parameter.grad, numeric, atol=1e-6, rtol=1e-6)
    assert penalty.norm().item() == network.linf()


def test_linf_splits_ties_evenly():
    left, right = torch.nn.Parameter(torch.tensor([2.0, -2.0, 1.0])), torch.nn.Parameter(torch.tensor([0.0, 2.0]))
    gt.LinfRegularizer([left, right, left])().backward()
    assert left.grad.tolist() == [0.25, -0.25, 0.0]
    assert right.grad.tolist() == [0.0, 0.5]


# ---- training


@dataclass
class Given:
    """A task that is nothing but its data."""

    p: int
    kind: str
    train: tuple
    test: tuple


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_training_commutes_with_permutations(kind):
    """Theorem 3.3 and proposition 4.2: permuted data and permuted initial weights give permuted predictions."""
    p, width = 5, 12
    task = gt.ModularAddition(p, kind, 0.5)
    left, right, out = (torch.randperm(p, generator=rng(s, "cpu")) for s in (1, 2, 3))

    def move(inputs, targets):
        columns = [left[inputs[:, 0]], right[inputs[:, 1]]] + ([out[inputs[:, 2]]] if kind == "regression" else [])
        return torch.stack(columns, 1), out[targets] if kind == "classification" else targets

    moved_task = Given(p, kind, move(*task.train), move(*task.test))
    network = gt.QuadraticNetwork(p, width, seed=1)
    moved = gt.QuadraticNetwork(p, width)
    with torch.no_grad():  # weights of a go to left[a]
        moved.W[:, left], moved.W[:, p + right], moved.V[out] = network.W[:, :p], network.W[:, p:], network.V
    for optimizer in ("gd", "ngd", "adamw"):
        for model, data in ((network, task), (moved, moved_task)):
            gt.fit(model, data, optimizer, steps=50, lr=1e-2, linf=1e-3)
        table = moved.population_table()[left][:, right][:, :, out]
        assert_close(table, network.population_table(), atol=1e-8, rtol=1e-8)


def test_gradient_descent_steps_are_the_literal_ones():
    task = gt.ModularAddition(3, "regression", 0.5)
    for optimizer, eps in (("gd", 0.0), ("ngd", 0.0), ("ngd", 0.5)):
        network = random_network(3, 4)
        W, V = (value.copy() for value in arrays(network))
        inputs, targets = task.train[0].tolist(), task.train[1].tolist()
        for _ in range(3):
            slope = np.zeros(W.size + V.size)
            for point, y in zip(inputs, targets, strict=True):
                slope += 2 / len(inputs) * (reference.output(W, V, *point) - y) * reference.gradient(W, V, *point)
            entries = np.concatenate([W.ravel(), V.ravel()])
            slope[np.abs(entries).argmax()] += 0.1 * np.sign(entries[np.abs(entries).argmax()])
            slope = slope / (np.linalg.norm(slope) + eps) if optimizer == "ngd" else slope
            entries = entries - 0.01 * slope
            W, V = entries[: W.size].reshape(W.shape), entries[W.size :].reshape(V.shape)
        gt.fit(network, task, optimizer, steps=3, lr=0.01, linf=0.1, eps=eps)
        np.testing.assert_allclose(network.W.detach().numpy(), W, atol=1e-12)
        np.testing.assert_allclose(network.V.detach().numpy(), V, atol=1e-12)


def test_adamw_is_torchs():
    task = gt.ModularAddition(5, n_train=0.6)
    ours, theirs = gt.QuadraticNetwork(5, 9), gt.QuadraticNetwork(5, 9)
    gt.fit(ours, task, "adamw", steps=5, lr=0.02, weight_decay=0.5)
    gt.fit(theirs, task, torch.optim.AdamW(theirs.parameters(), lr=0.02, weight_decay=0.5), steps=5)
    assert torch.equal(ours.W, theirs.W)
    assert not torch.equal(ours.W, gt.QuadraticNetwork(5, 9).W)
