"""fit, History, grokking_report, change_point and the Fourier spectrum."""

import time

import grokking_theory as gt
import numpy as np
import pytest
import torch
from offprints import checkpoint
from torch.testing import assert_close


def rows_of(**columns):
    names = list(columns)
    return gt.History.from_rows([dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)])


def test_history_holds_what_the_model_did():
    task, model = gt.ModularAddition(5, n_train=0.6, seed=1), gt.QuadraticNetwork(5, 20)
    seen = []

    def watch(step, network):
        seen.append(step)
        return {"half": float(step) / 2} if step in (0, 7) else None

    history = gt.fit(model, task, "adamw", steps=25, lr=1e-2, every=10, callbacks=[watch])
    assert seen == list(range(26))
    assert history.step.tolist() == [0, 7, 10, 20, 25]
    assert history.stopped == "did all 25 steps"
    (x, y), (x_test, y_test) = task.train, task.test
    outputs, held_out = model(x).detach(), model(x_test).detach()
    assert history.train_loss[-1] == pytest.approx(torch.nn.functional.cross_entropy(outputs, y).item())
    assert history.test_loss[-1] == pytest.approx(torch.nn.functional.cross_entropy(held_out, y_test).item())
    assert history.train_acc[-1] == pytest.approx((outputs.argmax(1) == y).double().mean().item())
    assert history.test_acc[-1] == pytest.approx((held_out.argmax(1) == y_test).double().mean().item())
    assert history.linf[-1] == model.linf()
    assert history.margin[-1] == pytest.approx(gt.normalized_margin(model, (x, y)))
    steps, values = history.series("half")
    assert (steps.tolist(), values.tolist()) == ([0, 7], [0, 3.5])
    assert history.at("half", 3.5) == 1.75
    assert np.isnan(history.at("ntk_distance", 3.0))
    assert len(history) == 5


def test_regression_history():
    task, model = gt.ModularAddition(5, "regression", 0.5), gt.QuadraticNetwork(5, 40, "uniform", scale=0.1)
    history = gt.fit(model, task, steps=0)
    assert history.train_acc[0] == 0.5  # an output near 0 is right on all zeros, wrong on all p
    assert history.test_acc[0] == model.population_accuracy()
    model.load_weights(*gt.fourier_construction(5))
    history = gt.fit(model, task, steps=0)
    assert (history.train_acc[0], history.test_acc[0]) == (1, 1)
    assert history.test_loss[0] < 1e-20
    assert np.isnan(history.margin[0])


def test_transformers_learn_regression_by_their_outputs():
    task, model = gt.ModularAddition(3, "regression", 0.7), gt.TinyTransformer(3, dim=8, heads=2, mlp=8)
    (x, y), before = task.train, gt.fit(model, task, steps=0).train_loss[0]
    wanted = (model(x[:, :2])[torch.arange(len(x)), x[:, 2]] - y).square().mean().item()
    assert before == pytest.approx(wanted)
    assert gt.fit(model, task, steps=20, lr=1e-2).train_loss[-1] < before


def test_no_held_out_points_leave_nan():
    history = gt.fit(gt.QuadraticNetwork(3, 4), gt.ModularAddition(3, n_train=1.0), steps=2)
    assert np.isnan(history.test_loss).all()
    assert np.isnan(history.test_acc).all()


def test_reasons_to_stop():
    task = gt.ModularAddition(5, n_train=0.6)

    def run(**options):
        return gt.fit(gt.QuadraticNetwork(5, 40), task, lr=1e-2, **options)

    stopped = run(steps=500, every=10, stop=lambda row: row["train_acc"] == 1)
    assert "stop() at step" in stopped.stopped
    assert stopped.train_acc[-1] == 1
    assert stopped.step[-1] < 500
    fitted = run(steps=500, every=100, loss_tol=0.5)
    assert "below loss_tol" in fitted.stopped
    assert fitted.train_loss[-1] < 0.5
    assert fitted.step[-1] % 100
    begun = time.monotonic()
    limited = run(steps=10**6, every=10**5, time_limit=0.2)
    assert "time limit" in limited.stopped
    assert time.monotonic() - begun < 5


def test_the_penalty_holds_the_largest_weight_down():
    task = gt.ModularAddition(5, n_train=0.6)
    free, held = gt.QuadraticNetwork(5, 40), gt.QuadraticNetwork(5, 40)
    gt.fit(free, task, "gd", steps=300, lr=0.1)
    gt.fit(held, task, "gd", steps=300, lr=0.1, linf=0.3)
    assert held.linf() < free.linf()


def test_training_mode_is_kept():
    model = torch.nn.Sequential(gt.QuadraticNetwork(3, 4), torch.nn.Dropout(0.1), torch.nn.Dropout(0.1))
    model[2].eval()
    gt.fit(model, gt.ModularAddition(3, n_train=5), steps=1)
    assert [module.training for module in (model, *model)] == [True, True, True, False]


def test_history_on_disk(tmp_path):
    task, model = gt.ModularAddition(5), gt.QuadraticNetwork(5, 8)
    history = gt.fit(model, task, steps=4, every=2, callbacks=[lambda step, network: {"mine": 1.0}])
    file = history.save(tmp_path / "run")
    again = gt.History.load(tmp_path / "run")
    assert file.name == "run.safetensors"
    assert again.stopped == history.stopped
    for name, column in history.columns().items():
        np.testing.assert_array_equal(again.columns()[name], column)
    model.save(tmp_path / "network")
    copy = gt.QuadraticNetwork.load(tmp_path / "network")
    assert torch.equal(copy.W, model.W)
    assert torch.equal(copy.V, model.V)
    assert copy.W.dtype == torch.float64
    with pytest.raises(ValueError, match="training history"):
        gt.History.load(tmp_path / "network")
    with pytest.raises(ValueError, match="tensors W and V"):
        gt.QuadraticNetwork.load(tmp_path / "run")
    with pytest.raises(FileNotFoundError):
        gt.History.load(tmp_path / "none")


# ---- the report


STEPS = [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0]


def report(train, test, distance=None):
    distance = [0.0] * 8 if distance is None else distance
    history = rows_of(step=STEPS, train_acc=train, test_acc=test, test_loss=[1.0] * 8, ntk_distance=distance)
    return gt.grokking_report(history)


def test_grokking_is_late_generalisation():
    found = report([0, 1, 1, 1, 1, 1, 1, 1], [0, 0.2, 0.3, 0.5, 0.99, 0.98, 1, 1], [0, 1, 2, 3, 4, 5, 6, 7])
    assert (found.fit_step, found.grok_step, found.delay) == (100, 400, 300)
    assert found.test_acc_at_fit == 0.2
    assert (found.ntk_distance_at_fit, found.ntk_distance_at_grok) == (1, 4)
    assert np.isnan(found.ntk_change_at_fit)
    assert found.classification == "grokking"
    assert "grok step             400" in found.table()
    assert "ntk change at fit     -" in found.table()


def test_generalisation_must_last():
    found = report([0, 1, 1, 1, 1, 1, 1, 1], [0, 0.2, 0.99, 0.5, 0.9, 0.99, 1, 1])
    assert found.grok_step == 500


def test_the_other_classes():
    assert report([0, 1] + [1] * 6, [0, 0.9] + [1] * 6).classification == "no delay"  # delay 100 < 2 * 100
    assert report([0, 1] + [1] * 6, [0, 0.6, 0.7, 0.8, 1, 1, 1, 1]).classification == "no delay"  # above ½ at fit
    lost = report([0, 1] + [1] * 6, [0.1] * 8)
    assert lost.classification == "no generalisation"
    assert lost.grok_step is None
    assert np.isnan(lost.delay)
    assert report([0.5] * 8, [0.1] * 8).classification == "not fitted"
    assert report([0.5] * 8, [1.0] * 8).classification == "no delay"


def test_change_points():
    steps = np.arange(0, 2000, 50.0)
    x = np.log1p(steps)
    bent = np.where(steps > 600, x - np.log1p(600), 0.0)
    assert gt.change_point(steps, bent) == 600
    noisy = bent + 0.01 * np.random.default_rng(0).normal(size=len(x))
    assert 400 <= gt.change_point(steps, noisy) <= 800
    assert gt.change_point(steps, 3 - 0.5 * x) is None
    assert gt.change_point(steps, np.ones_like(x)) is None
    assert gt.change_point(steps[:4], bent[:4]) is None


def test_report_finds_both_onsets():
    x = np.log1p(STEPS)
    loss = np.exp(np.where(np.array(STEPS) > 300, -3 * (x - x[3]), 0.0))
    history = rows_of(
        step=STEPS, train_acc=[1.0] * 8, test_acc=[0.5] * 8, test_loss=loss, ntk_distance=np.maximum(x - x[4], 0)
    )
    found = gt.grokking_report(history)
    assert (found.loss_onset, found.kernel_onset) == (300, 400)


# ---- the circuit


@pytest.mark.parametrize("p", [2, 5, 6, 11])
def test_the_exact_network_is_a_complete_circuit(p):
    for compact in (False, True):
        W, V = gt.fourier_construction(p, compact)
        found = gt.fourier_spectrum(gt.QuadraticNetwork(p, len(W)).load_weights(W, V))
        assert found.completeness == pytest.approx(1)
        assert found.top_share == pytest.approx(1)
        weights = [1.0] + [2.0] * ((p - 1) // 2) + ([1.0] if p % 2 == 0 else [])
        assert_close(found.coefficients, torch.tensor(weights, dtype=torch.float64))


def test_half_a_circuit():
    p = 11
    W, V = gt.fourier_construction(p, compact=True)
    keep = torch.arange(len(W)) < 1 + 8 * 2  # the constant and two of five frequencies
    network = gt.QuadraticNetwork(p, int(keep.sum())).load_weights(W[keep], V[:, keep])
    found = gt.fourier_spectrum(network)
    assert found.completeness == pytest.approx(2 / 5)
    assert found.energy.argmax(1).tolist() == [0] + [1] * 8 + [2] * 8


def test_spectrum_of_random_weights_is_spread():
    network = gt.QuadraticNetwork(11, 200, "he")
    with torch.no_grad():
        network.W[3] = 0
    found = gt.fourier_spectrum(network)
    assert_close(found.energy.sum(1), torch.ones(200, dtype=torch.float64).index_fill(0, torch.tensor(3), 0.0))
    assert 0.2 < found.top_share < 0.6
    assert gt.fourier_spectrum(network, top=6).top_share == pytest.approx(1)
    assert abs(found.completeness) < 0.2
    power = (
        torch.fft.fft(network.W[0, :11].detach()).abs().square()
        + torch.fft.fft(network.W[0, 11:].detach()).abs().square()
    )
    assert found.energy[0, 2] == pytest.approx(((power[2] + power[9]) / power.sum()).item())


def test_the_spectrum_of_a_network_without_weights():
    network = gt.QuadraticNetwork(5, 4)
    with torch.no_grad():
        network.W.zero_()
    found = gt.fourier_spectrum(network)
    assert (found.top_share, found.completeness) == (0.0, 0.0)
    assert found.energy.eq(0).all()


def test_broken_checkpoints_are_refused(tmp_path):
    weights = {"W": np.zeros((4, 10)), "V": np.zeros((5, 4))}
    broken = {
        "flat": (weights | {"W": np.zeros(40)}, r"W in .*flat must be of shape \(width, 2p\), got \(40,\)"),
        "odd": (weights | {"W": np.zeros((4, 9))}, "W must be of shape"),
        "other": (weights | {"V": np.zeros((3, 4))}, "V must be of shape"),
    }
    for name, (tensors, message) in broken.items():
        checkpoint.save(tmp_path / name, tensors, method="grokking-theory", version="0", config={})
        with pytest.raises(ValueError, match=message):
            gt.QuadraticNetwork.load(tmp_path / name)
    some = {"step": np.zeros(2), "linf": np.zeros(2)}
    checkpoint.save(tmp_path / "part", some, method="grokking-theory", version="0", config={"kind": "history"})
    with pytest.raises(ValueError, match=r"got none of train_loss, test_loss"):
        gt.History.load(tmp_path / "part")


def test_a_test_loss_that_overflowed_does_not_hide_the_report():
    rows = [
        {"step": i, "train_acc": 1.0, "test_acc": 0.1 * i, "test_loss": np.inf if i == 3 else 2.0} for i in range(9)
    ]
    assert gt.grokking_report(gt.History.from_rows(rows)).classification == "no generalisation"


def test_the_model_keeps_what_a_partly_frozen_run_must_not_touch():
    task, network = gt.ModularAddition(5, n_train=0.6), gt.QuadraticNetwork(5, 8)
    network.W.requires_grad_(False)
    before = network.W.clone(), network.V.detach().clone()
    gt.fit(network, task, steps=3, linf=1e-3)
    assert torch.equal(network.W, before[0])
    assert not torch.equal(network.V, before[1])
