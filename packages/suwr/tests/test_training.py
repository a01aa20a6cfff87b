"""Training: the best weights are kept, early stopping stops, and the baselines' losses are those of their papers."""

import numpy as np
import pytest
import suwr
import torch
from offprints.seeding import isolated, rng
from suwr.fitting import Plan, Rows, deployed_cost, train
from suwr.inputs import Scaling, split_rows
from suwr.policy import losses
from torch.nn import functional as F

GEN = np.random.default_rng(0)
X = GEN.normal(size=(200, 4))
Y = (X[:, 0] > 0).astype(int)


def rows(part):
    return Rows(torch.as_tensor(X[part], dtype=torch.float32), torch.as_tensor(Y[part]))


def trained(validation, **options):
    with isolated(0):
        net = suwr.SequentialPolicy(4, 2, hidden=8)
        space = suwr.Space.single(4)
        plan = Plan("log", 2, 0.1, lr=0.02, batch_size=50, **({"max_epochs": 30, "explore_epochs": 5} | options))
        history = train(net, rows(slice(0, 150)), validation, space, plan, rng(0, "cpu"))
    return net, history, space, plan


def test_the_best_weights_on_the_validation_rows_are_kept():
    held = rows(slice(150, 200))
    net, history, space, plan = trained(held)
    cost, units = deployed_cost(net, held, space, plan)
    place = history.epoch.index(history.best)
    assert cost == pytest.approx(min(history.cost), rel=1e-5)
    assert history.cost[place] == pytest.approx(cost, rel=1e-5)
    assert history.n_units[place] == pytest.approx(units)
    assert history.updates == 30 * 3
    assert not net.training


def test_deployed_cost_is_loss_and_price():
    held = rows(slice(150, 200))
    net, _, space, plan = trained(held)
    seen = suwr.unmask(net, held.x, 2)
    count = (seen.order >= 0).sum(dim=1).double()
    literal = 10 * F.cross_entropy(seen.output.double(), held.y, reduction="none") + 0.1 * count
    assert deployed_cost(net, held, space, plan)[0] == pytest.approx(float(literal.mean()), rel=1e-5)


def test_without_validation_the_last_weights_stay():
    _, history, _, _ = trained(None)
    assert history.best == 29
    assert len(history.cost) == 30
    assert all(0 <= count <= 2 for count in history.n_units)


def test_patience_counts_from_the_end_of_the_warm_up():
    held = rows(slice(150, 200))
    wrong = Rows(held.x, 1 - held.y)  # it only gets worse
    _, history, _, _ = trained(wrong, patience=3)
    assert history.epoch[-1] == max(history.best, 24) + 3  # full price from four fifths of the epochs on
    _, history, _, _ = trained(wrong, patience=None)
    assert history.epoch[-1] == 29


def test_losses():
    output, y = torch.tensor([[1.0, 2.0]]), torch.tensor([1])
    assert float(losses(output, y, "log")) == pytest.approx(np.log(1 + np.exp(-1)))
    assert float(losses(output, torch.tensor([[0.25, 0.75]]), "log")) == pytest.approx(np.log(1 + np.exp(-1)) + 0.25)
    assert float(losses(torch.tensor([[3.0]]), torch.tensor([1.0]), "squared")) == 4.0


def test_standardisation():
    wild = np.column_stack([X[:, 0] * 5 + 3, np.full(200, 2.0), np.where(np.arange(200) < 5, np.nan, X[:, 1])])
    found = Scaling.of(wild, ["a", "b", "c"])
    scaled = found.apply(wild)
    assert scaled[:, 0].mean() == pytest.approx(0, abs=1e-12)
    assert scaled[:, 0].std() == pytest.approx(1)
    assert found.constant.tolist() == [False, True, False]
    assert (scaled[:, 1] == 0).all()
    assert (scaled[:5, 2] == 0).all()
    assert np.nanstd(scaled[5:, 2]) == pytest.approx(1)
    assert found.apply(np.array([[1e300, 2.0, -1e300]])).tolist() == [[1e6, 0.0, -1e6]]


def test_split():
    kept, held = split_rows(100, np.arange(100) % 2, 0.2, 0)
    assert (len(kept), len(held)) == (80, 20)
    assert sorted([*kept, *held]) == list(range(100))
    assert (held % 2).sum() == 10
    kept, held = split_rows(100, None, 0.0, 0)
    assert (len(kept), len(held)) == (100, 0)
    rare = np.zeros(50, dtype=int)
    rare[0] = 1
    assert len(split_rows(50, rare, 0.2, 0)[1]) == 10


# ---- the baselines' losses, literally


def fitted(kind, **options):
    model = kind(max_epochs=1, hidden=6, random_state=0, device="cpu", **options).fit(X, Y)
    x = torch.randn(30, 4, generator=rng(0, "cpu"))
    return model, x, torch.randint(0, 2, (30,), generator=rng(1, "cpu"))


def test_l2x_draws_k_relaxed_features():
    model, x, y = fitted(suwr.L2X, k=2, tau=0.5)
    with isolated(3):
        ours = model._update("joint", x, y)
    with isolated(3):
        gumbel = -torch.log(torch.empty(30, 2, 4).exponential_())
    soft = torch.softmax((torch.log_softmax(model._nets["select"](x), 1)[:, None] + gumbel) / 0.5, dim=2).max(dim=1)[0]
    assert float(ours) == pytest.approx(float(F.cross_entropy(model._nets["predict"](x * soft), y)), rel=1e-5)
    logits = model._nets["select"](x)
    assert (model._mask(x).sum(dim=1) == 2).all()
    assert (logits[model._mask(x) > 0].reshape(30, 2).min(dim=1)[0] >= logits.median(dim=1)[0]).all()


def test_invase_actor():
    model, x, y = fitted(suwr.INVASE, sparsity=0.3)
    with isolated(3):
        ours = model._update("joint", x, y)
    with isolated(3):
        u = torch.rand(30, 4)
    pi = torch.sigmoid(model._nets["select"](x))
    m = (u < pi).float()
    shown = F.cross_entropy(model._nets["predict"](x * m), y, reduction="none")
    full = F.cross_entropy(model._nets["baseline"](x), y, reduction="none")
    log_m = (m * pi.log() + (1 - m) * (1 - pi).log()).sum(dim=1)
    literal = shown.mean() + full.mean() + ((shown - full) * log_m).mean() + 0.3 * pi.sum(dim=1).mean()
    assert float(ours) == pytest.approx(float(literal), rel=1e-5)
    assert torch.equal(model._mask(x), (pi >= 0.5).float())
    assert float(model._price(model._mask(x))) == pytest.approx(0.3 * float(model._mask(x).sum(1).mean()))


def test_realx_learns_its_predictor_from_random_masks_alone():
    model, x, y = fitted(suwr.REALX, sparsity=0.3, tau=0.7)
    for stage in ("predict", "evaluate"):
        with isolated(3):
            ours = model._update(stage, x, y)
        with isolated(3):
            m = (torch.rand(30, 4) < 0.5).float()
        assert float(ours) == pytest.approx(float(F.cross_entropy(model._nets[stage](x * m), y)), rel=1e-5)
    with isolated(3):
        ours = model._update("select", x, y)
    with isolated(3):
        u = torch.rand(30, 4)
    logits = model._nets["select"](x)
    hard = (logits + torch.log(u / (1 - u)) > 0).float()
    literal = F.cross_entropy(model._nets["predict"](x * hard), y) + 0.3 * torch.sigmoid(logits).sum(dim=1).mean()
    assert float(ours) == pytest.approx(float(literal), rel=1e-4)
    assert [stage for _, stage in model._stages()] == ["predict", "evaluate", "select"]
    before = {name: value.clone() for name, value in model._nets["predict"].state_dict().items()}
    refit = suwr.REALX(max_epochs=1, hidden=6, random_state=0, device="cpu", sparsity=5.0).fit(X, Y)
    for name, value in refit._nets["predict"].state_dict().items():  # the price is the selector's alone
        assert torch.equal(value, before[name])


def test_baselines_check_their_parameters():
    for kind, given in (
        (suwr.L2X, {"k": 0}), (suwr.L2X, {"tau": 0}), (suwr.L2X, {"lr": 0}), (suwr.INVASE, {"sparsity": -1}),
        (suwr.REALX, {"tau": -1}), (suwr.REALX, {"sparsity": -1}), (suwr.REALX, {"patience": -1}),
        (suwr.INVASE, {"max_epochs": 0}), (suwr.L2X, {"validation_fraction": 1.0}), (suwr.L2X, {"weight_decay": -1}),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(given))):
            kind(**given).fit(X, Y)
    with pytest.raises(ValueError, match="two classes"):
        suwr.L2X().fit(X, np.zeros(200, int))
    short = suwr.L2X(max_epochs=50, patience=2, lr=0.05, hidden=4, random_state=0, device="cpu").fit(X, 1 - Y)
    assert short.n_updates_ <= 50
    assert np.isfinite(short.validation_loss_)
    assert np.isnan(suwr.L2X(max_epochs=1, validation_fraction=0.0, random_state=0).fit(X, Y).validation_loss_)
