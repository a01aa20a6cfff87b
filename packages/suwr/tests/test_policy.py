"""The network, the rollout and the loss against the literal equations."""

import itertools

import numpy as np
import pytest
import torch
from offprints.seeding import isolated, rng
from suwr import SequentialPolicy, Space, _reference, exact_leakage, rollout, suwr_loss, unmask
from suwr.enumeration import mask_distribution, mask_probability
from suwr.unrolling import Rollout, explored
from torch.nn import functional as F


def policy(d=3, k=2, seed=0, **options):
    with isolated(seed), torch.no_grad():
        made = SequentialPolicy(d, k, hidden=8, dtype=torch.float64, **options)
        for p in made.parameters():
            torch.nn.init.normal_(p, std=0.7)
        made.prior.copy_(torch.linspace(-1, 1, k))
        at_start = made.eval()(torch.zeros(1, d, dtype=torch.float64), torch.zeros(1, d, dtype=torch.bool)).stop
        made.stop.bias.sub_(at_start + 0.5)  # so that it looks at something before it stops
    return made.eval()


def states(net, x):
    """stop(S) and select(S) of one row, for the literal equations."""

    def heads(S):
        mask = torch.zeros(1, len(x), dtype=torch.bool)
        mask[0, sorted(S)] = True
        return net(torch.as_tensor(x)[None], mask)

    def stop(S):
        return 1.0 if len(S) == len(x) else float(torch.sigmoid(heads(S).stop)[0].detach())

    def select(S):
        left = torch.ones(1, len(x), dtype=torch.bool)
        left[0, sorted(S)] = False
        return explored(heads(S).select, left, 0.0)[0].detach().tolist()

    return stop, select


# ---- equation 11


def test_stop_probabilities_are_those_of_the_paper():
    net, x = policy(4), torch.randn(5, 4, generator=rng(0, "cpu"), dtype=torch.float64)
    rolled = rollout(net, x, 3, generator=rng(1, "cpu"))
    assert rolled.stop_prob.sum(dim=1).tolist() == pytest.approx([1.0] * 5)
    for row in range(5):
        mask = torch.zeros(1, 4, dtype=torch.bool)
        sigmas = []
        for t in range(4):
            sigmas.append(float(torch.sigmoid(net(x[row : row + 1], mask).stop).detach()))
            if t < 3:
                mask[0, rolled.order[row, t]] = True
        assert rolled.stop_prob[row].tolist() == pytest.approx(_reference.stopping(sigmas))


def test_exploration_mixes_probabilities():
    net, x = policy(4), torch.randn(6, 4, generator=rng(0, "cpu"), dtype=torch.float64)
    plain = rollout(net, x, 2, generator=rng(3, "cpu"), greedy=True)
    mixed = rollout(net, x, 2, generator=rng(3, "cpu"), explore_stop=0.4)
    uniform = rollout(net, x, 2, generator=rng(3, "cpu"), explore=1.0, explore_stop=1.0)
    assert mixed.stop_prob[:, 0].tolist() == pytest.approx((0.6 * plain.stop_prob[:, 0] + 0.4 / 3).tolist())
    assert uniform.stop_prob.tolist() == pytest.approx(np.full((6, 3), 1 / 3))
    assert uniform.log_q[:, 0].tolist() == pytest.approx([-np.log(4)] * 6)
    assert uniform.log_q[:, 1].tolist() == pytest.approx([-np.log(3)] * 6)


def test_large_logits_do_not_overflow():
    left = torch.tensor([[True, True, False]])
    q = explored(torch.tensor([[1e4, -1e4, 3e4]]), left, 0.1)
    assert q[0].tolist() == pytest.approx([0.95, 0.05, 0.0])
    assert explored(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool), 0.5).tolist() == [[0, 0, 0]]


def test_draws_follow_the_selection_probabilities():
    net = policy(3)
    x = torch.tensor([[0.3, -1.0, 0.5]], dtype=torch.float64).repeat(20_000, 1)
    rolled = rollout(net, x, 1, generator=rng(0, "cpu"))
    share = np.bincount(rolled.order[:, 0].numpy(), minlength=3) / 20_000
    assert share == pytest.approx(states(net, x[0])[1](frozenset()), abs=0.015)


# ---- the distribution over masks


@pytest.mark.parametrize("budget", [0, 1, 2, 4])
def test_mask_distribution_sums_over_orders(budget):
    net, x = policy(4), torch.randn(3, 4, generator=rng(0, "cpu"), dtype=torch.float64)
    masks, proba = mask_distribution(net, x, budget)
    assert proba.sum(dim=1).tolist() == pytest.approx([1.0] * 3)
    for row in range(3):
        stop, select = states(net, x[row])
        for mask, p in zip(masks.tolist(), proba[row].tolist(), strict=True):
            S = [j for j in range(4) if mask[j]]
            assert p == pytest.approx(_reference.mask_probability(stop, select, S, budget), abs=1e-12)
    for k in range(len(masks)):
        single = mask_probability(net, x, masks[k].repeat(3, 1), budget)
        assert single.tolist() == pytest.approx(proba[:, k].tolist(), abs=1e-12)


def test_its_own_masks_leak_nothing_in_float32():
    X = np.array(list(itertools.product((0.0, 1.0), repeat=5)))
    net = policy(5).float()
    masks, proba = mask_distribution(net, torch.tensor(X, dtype=torch.float32), 5)
    table = proba.double().numpy()
    found = exact_leakage(
        X, np.ones(32), np.eye(2)[X[:, 0].astype(int)], table / table.sum(1, keepdims=True), masks.numpy()
    )
    assert found.feature <= 1e-6
    assert found.label <= 1e-6


def test_groups_and_missing_values_in_the_distribution():
    units = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)
    space = Space(units, torch.ones(3), torch.tensor([True, True, True]))
    net, x = policy(4, n_units=3), torch.randn(2, 4, generator=rng(0, "cpu"), dtype=torch.float64)
    observed = torch.tensor([[True, True, True, True], [True, False, True, False]])
    masks, proba = mask_distribution(net, x, 3, space, observed)
    assert proba.sum(dim=1).tolist() == pytest.approx([1.0, 1.0])
    assert (masks[proba[1] > 0] & ~observed[1]).sum() == 0
    for k in range(len(masks)):
        assert mask_probability(net, x, masks[k].repeat(2, 1), 3, space, observed).tolist() == pytest.approx(
            proba[:, k].tolist(), abs=1e-12
        )


# ---- equation 12


def rolled_by_hand(gen, n=3, steps=3, k=2):
    p = torch.softmax(torch.randn(n, steps + 1, generator=gen, dtype=torch.float64), dim=1)
    return Rollout(
        torch.randn(n, steps + 1, k, generator=gen, dtype=torch.float64), p,
        -torch.rand(n, steps, generator=gen, dtype=torch.float64), torch.zeros(n, steps, dtype=torch.long),
        torch.arange(steps + 1.0, dtype=torch.float64).repeat(n, 1), None, torch.ones(n, steps + 1, dtype=torch.bool),
    )  # fmt: skip


def test_loss_without_baseline_is_equation_12():
    rolled, y = rolled_by_hand(rng(0, "cpu")), torch.tensor([0, 1, 1])
    ours = suwr_loss(rolled, y, sparsity=0.3, loss_scale=10.0, baseline="none")
    parts = []
    for i in range(3):
        costs = [10 * float(F.cross_entropy(rolled.pred[i, t], y[i])) + 0.3 * t for t in range(4)]
        parts.append(_reference.loss_parts(rolled.stop_prob[i].numpy(), np.array(costs), rolled.log_q[i].numpy()))
    first, second = np.mean(parts, axis=0)
    assert float(ours.expected) == pytest.approx(first)
    assert float(ours.policy) == pytest.approx(second)
    assert float(ours.total) == pytest.approx(first + second)


def test_baselines_of_the_policy_gradient():
    rolled, y = rolled_by_hand(rng(0, "cpu"), n=4), torch.tensor([0.5, 1.0, -1.0, 2.0])
    rolled = rolled._replace(pred=rolled.pred[..., :1], value=torch.ones(4, 4, dtype=torch.float64))
    loss = (rolled.pred[..., 0] - y[:, None]) ** 2
    weighted = rolled.stop_prob * (2 * loss + 0.1 * rolled.cost)
    go = torch.stack([weighted[:, k:].sum(dim=1) for k in (1, 2, 3)], dim=1)
    call = lambda b: suwr_loss(rolled, y, kind="squared", sparsity=0.1, loss_scale=2.0, baseline=b)  # noqa: E731
    expect = {
        "none": go,
        "mean": go - go.mean(dim=0),
        "leave-one-out": torch.stack([go[i] - go[[j for j in range(4) if j != i]].mean(dim=0) for i in range(4)]),
        "value": go - 1.0,
    }
    for name, advantage in expect.items():
        assert float(call(name).policy) == pytest.approx(float((rolled.log_q * advantage).sum(1).mean())), name
    assert float(call("value").value) == pytest.approx(float(((1 - go) ** 2).mean()))
    assert float(call("value").total) == pytest.approx(float(sum(call("value")[1:])))
    with pytest.raises(ValueError, match="value head"):
        suwr_loss(rolled._replace(value=None), y, kind="squared", baseline="value")


def expected_cost(net, x, y, budget):
    """E over all orders of sum p_t c_t, differentiable."""
    total = torch.zeros((), dtype=torch.float64)
    for i in range(len(x)):
        for order in itertools.permutations(range(x.shape[1]), budget):
            q, p_left, mask = 1.0, 1.0, torch.zeros(1, x.shape[1], dtype=torch.bool)
            for t in range(budget + 1):
                heads = net(x[i : i + 1], mask)
                sigma = torch.sigmoid(heads.stop[0]) if t < budget else torch.ones((), dtype=torch.float64)
                cost = 10 * F.cross_entropy(heads.output, y[i : i + 1]) + 0.5 * t
                # every order shares its prefixes: weigh by the probability of the whole order
                total = total + _whole(net, x[i : i + 1], order) * p_left * sigma * cost
                p_left = p_left * (1 - sigma)
                if t < budget:
                    mask = mask.clone()
                    mask[0, order[t]] = True
            del q
    return total / len(x)


def _whole(net, x, order):
    q, mask = torch.ones((), dtype=torch.float64), torch.zeros(1, x.shape[1], dtype=torch.bool)
    for j in order:
        q = q * explored(net(x, mask).select, ~mask, 0.0)[0, j]
        mask = mask.clone()
        mask[0, j] = True
    return q


@pytest.mark.parametrize("baseline", ["none", "leave-one-out"])
def test_policy_gradient_equals_the_exact_gradient(baseline):
    """Mean over many rollouts of the gradient of J_1 + J_2, against enumeration of all orders at d = 3."""
    net = policy(3, seed=1)
    x, y = torch.tensor([[0.5, -1.0, 0.2], [1.0, 0.3, -0.4]], dtype=torch.float64), torch.tensor([0, 1])
    exact = torch.autograd.grad(expected_cost(net, x, y, 2), net.select.weight)[0]
    copies = 100_000
    many = x.repeat(copies, 1)
    rolled = rollout(net, many, 2, generator=rng(5, "cpu"))
    loss = suwr_loss(rolled, y.repeat(copies), sparsity=0.5, loss_scale=10.0, baseline=baseline).total
    found = torch.autograd.grad(loss, net.select.weight)[0]
    assert float((found - exact).norm() / exact.norm()) < 0.08
    assert float(F.cosine_similarity(found.flatten(), exact.flatten(), dim=0)) > 0.995


def test_gradcheck_of_the_enumerated_cost():
    net = policy(3, seed=2)
    x, y = torch.tensor([[0.5, -1.0, 0.2]], dtype=torch.float64), torch.tensor([1])
    wanted = [net.select.weight, net.stop.weight, net.predict.weight]
    assert torch.autograd.gradcheck(lambda *_: expected_cost(net, x, y, 2), wanted, fast_mode=True)


# ---- unmasking in blocks


@pytest.mark.parametrize("trunk", ["shared", "separate"])
@pytest.mark.parametrize("step_input", [False, True])
def test_unmask_equals_the_loop_over_rows(trunk, step_input):
    x = torch.randn(300, 5, generator=rng(0, "cpu"), dtype=torch.float64)
    for seed in range(30):  # a network that stops early in some rows and late in others
        net = policy(5, 3, seed=seed, trunk=trunk, step_input=step_input, layers=4)
        if len(unmask(net, x, 3).mask.sum(dim=1).unique()) > 2:
            break

    def heads(values, mask):
        said = net(torch.as_tensor(values)[None], torch.as_tensor(mask)[None])
        return said.select[0].detach().numpy(), said.output[0].detach().numpy(), float(said.stop.detach())

    masks, outputs = _reference.predict_rows(heads, x.numpy(), 3)
    found = unmask(net, x, 3, record=True)
    assert (found.mask.numpy() == masks).all()
    assert found.output.numpy() == pytest.approx(outputs, abs=1e-12)
    assert len(np.unique(masks.sum(axis=1))) > 2
    taken = masks.sum(axis=1)
    last = found.outputs[torch.arange(300), torch.as_tensor(taken)]
    assert last.numpy() == pytest.approx(outputs, abs=1e-12)
    assert ((found.order >= 0).sum(dim=1).numpy() == taken).all()
    assert (torch.isnan(found.stop_prob).sum(dim=1).numpy() == 3 - taken).all()


def test_rows_do_not_depend_on_other_rows_bit_for_bit():
    net = policy(7, 3).float()
    x = torch.randn(1000, 7, generator=rng(0, "cpu"))
    whole = unmask(net, x, 5, record=True)
    order = torch.randperm(1000, generator=rng(1, "cpu"))
    for index in (order, order[:1], order[:7], order[:257], order[300:]):
        part = unmask(net, x[index], 5, record=True)
        for a, b in zip(part, whole, strict=True):
            assert (
                torch.equal(a.nan_to_num(9), b[index].nan_to_num(9))
                if a.is_floating_point()
                else torch.equal(a, b[index])
            )


def test_what_is_hidden_is_never_read():
    net = policy(6).float()
    x = torch.randn(400, 6, generator=rng(0, "cpu"))
    found = unmask(net, x, 3, record=True)
    for other in (
        torch.randn(400, 6, generator=rng(1, "cpu")),
        torch.full_like(x, float("nan")),
        torch.full_like(x, 1e38),
    ):
        again = unmask(net, torch.where(found.mask, x, other), 3, record=True)
        assert torch.equal(again.mask, found.mask)
        assert torch.equal(again.output, found.output)
        assert torch.equal(again.order, found.order)
        heads = net(torch.where(found.mask, x, other), found.mask)
        assert torch.equal(heads.output, net(x, found.mask).output)


def test_sampled_masks_follow_their_distribution():
    net = policy(3, seed=4)
    x = torch.tensor([[0.3, -1.0, 0.5]], dtype=torch.float64).repeat(20_000, 1)
    draws = torch.rand(20_000, 3, 2, generator=rng(0, "cpu"), dtype=torch.float64)
    found = unmask(net, x, 3, stop="sample", uniforms=draws)
    masks, proba = mask_distribution(net, x[:1], 3)
    for mask, p in zip(masks, proba[0].tolist(), strict=True):
        assert float((found.mask == mask).all(dim=1).double().mean()) == pytest.approx(p, abs=0.015)
    with pytest.raises(TypeError, match="uniforms"):
        unmask(net, x, 3, stop="sample")


@pytest.mark.parametrize("step", [1, 2, 3])
def test_patches_steps_and_costs(step):
    units = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=torch.bool)
    space = Space(units, torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([True, True, True, False]), step)
    net, x = policy(5, n_units=4), torch.randn(200, 5, generator=rng(0, "cpu"), dtype=torch.float64)
    found = unmask(net, x, 3, space=space)
    for row in range(200):
        chosen = [u for u in found.order[row].tolist() if u >= 0]
        assert 3 not in chosen
        assert len(set(chosen)) == len(chosen)
        assert torch.equal(found.mask[row], units[chosen].any(dim=0) if chosen else torch.zeros(5, dtype=torch.bool))
    rolled = rollout(net, x, 3, space=space, generator=rng(0, "cpu"))
    assert rolled.order.shape == (200, step * -(-3 // step))
    price = (space.costs[rolled.order.clamp_min(0)] * (rolled.order >= 0)).sum(dim=1)
    assert rolled.cost[:, -1].tolist() == pytest.approx(price.tolist())
    greedy = rollout(net, x, 3, space=space, greedy=True)
    taken = (found.order >= 0).sum(dim=1)
    for row in range(200):
        assert greedy.order[row, : taken[row]].tolist() == found.order[row, : taken[row]].tolist()


def test_missing_values_are_never_revealed():
    net = policy(4)
    x = torch.randn(300, 4, generator=rng(0, "cpu"), dtype=torch.float64)
    observed = torch.rand(300, 4, generator=rng(1, "cpu")) < 0.5
    observed[0] = False
    x[~observed] = float("nan")
    found = unmask(net, x, 4, observed=observed)
    assert not (found.mask & ~observed).any()
    assert not found.mask[0].any()
    assert torch.equal(found.output[0], net.prior)
    rolled = rollout(net, x, 4, observed=observed, generator=rng(0, "cpu"))
    assert rolled.stop_prob.sum(dim=1).tolist() == pytest.approx([1.0] * 300)
    assert (rolled.order[0] == -1).all()
    assert rolled.stop_prob[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert torch.isfinite(suwr_loss(rolled, torch.zeros(300, dtype=torch.long)).total.detach())


def test_devices_and_types_are_followed():
    net = policy(3).float()
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        found = unmask(net, torch.randn(5, 3, generator=rng(0, "cpu")).to(dtype), 2, record=True)
        assert {found.output.dtype, found.stop_prob.dtype, found.select_prob.dtype, found.outputs.dtype} == {dtype}
    empty = unmask(net, torch.zeros(0, 3), 2, record=True)
    assert [tuple(part.shape) for part in empty] == [(0, 3), (0, 2), (0, 2), (0, 3), (0, 2), (0, 3, 2)]
    nothing = unmask(net, torch.zeros(4, 3), 0)
    assert torch.equal(nothing.output, net.prior.repeat(4, 1))
    assert nothing.order.shape == (4, 0)
