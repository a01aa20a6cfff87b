"""Training recipes, evaluation, rollouts, and the command line."""

import argparse
import json
import math

import pytest
import torch
from direct_spectral import FNODSE, GeoFNO, evaluate, relative_l1, relative_l2, rollout, train_operator
from direct_spectral.cli import build, main
from direct_spectral.data import Batches, collate_point_clouds
from direct_spectral.train import LOSSES
from offprints.seeding import isolated, rng

BOX = ((0.0, 1.0), (0.0, 1.0))


def smooth(n=12, points=40, shared=False):
    """A field and its shifted copy at random points: something a spectral layer can learn."""
    gen = rng(0, "cpu")
    x = torch.rand(1 if shared else n, points, 2, generator=gen)
    a = torch.randn(n, 1, generator=gen)
    phase = 2 * math.pi * x[..., 0]
    return {"u": (a * torch.sin(phase)).unsqueeze(-1), "y": (a * torch.cos(phase)).unsqueeze(-1) + 3, "points": x}


def model(**options):
    with isolated(0):
        return FNODSE(2, 1, 1, 8, (3, 2), 2, **({"bounds": BOX, "periodic": True, "init": "normal"} | options))


@pytest.mark.parametrize("shared", [True, False])
def test_it_learns_in_units_of_the_target(shared):
    data, one = smooth(shared=shared), model()
    one.fit_scales(data["u"], data["y"])
    loader = Batches(data, 4, shuffle=True)
    before = evaluate(one, loader)["mean"]
    history = train_operator(one, loader, loader, epochs=12, lr=1e-2, every=5)
    assert history.loss[-1] < history.loss[0] / 2
    assert history.error[-1] < before / 2
    assert len(history.loss) == len(history.seconds) == 12
    assert len(history.error) == 3  # after 5, 10 and the last
    assert history.seconds == sorted(history.seconds)
    assert one.training
    assert (one._basis is not None) == shared  # points that all share: one basis for all epochs
    found = evaluate(one, loader)
    assert found["mean"] == pytest.approx(history.error[-1])
    each = torch.cat([relative_l1(one(b["u"], b["points"]), b["y"]) for b in Batches(data, 4)])
    assert found["median"] == pytest.approx(float(each.detach().median()), rel=1e-4)


@pytest.mark.parametrize("schedule", ["step", "onecycle", "plateau", "constant"])
def test_schedules_move_the_rate(schedule):
    seen, rates = [], []

    def make(params):
        seen.append(torch.optim.SGD(params, lr=1e-3))
        return seen[0]

    def note(one, batch):
        rates.append(seen[0].param_groups[0]["lr"])
        return torch.zeros(())

    data = smooth()
    train_operator(
        model(), Batches(data, 6), epochs=8, lr=1e-3, schedule=schedule, step=2, gamma=0.5, optimizer=make, penalty=note
    )
    assert len(rates) == 16
    if schedule == "step":
        assert rates[::2] == pytest.approx([1e-3 * 0.5 ** (i // 2) for i in range(8)])
    elif schedule == "onecycle":
        assert max(rates) > 3 * rates[0]
        assert rates[-1] < rates[0]
    else:
        assert rates[0] == rates[-1] == 1e-3


def test_weight_decay_is_added_to_the_gradient():
    """Adam with L2 in the gradient, as in the recipes: against torch's own."""
    data = smooth(4)
    one, two = model(), model()
    train_operator(one, Batches(data, 4), epochs=2, lr=1e-2, weight_decay=0.1, schedule="constant")
    optimizer = torch.optim.Adam(two.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (two(data["u"], data["points"]) - data["y"]).abs().mean().backward()
        optimizer.step()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_losses():
    y, z = torch.tensor([[[1.0], [3.0]], [[2.0], [0.0]]]), torch.tensor([[[2.0], [3.0]], [[2.0], [2.0]]])
    mask = torch.tensor([[True, True], [True, False]])
    assert float(LOSSES["l1"](z, y, None)) == pytest.approx(3 / 4)
    assert float(LOSSES["l1"](z, y, mask)) == pytest.approx(1 / 3)
    assert float(LOSSES["l2"](z, y, None)) == pytest.approx(5 / 4)
    assert float(LOSSES["l2"](z, y, mask)) == pytest.approx(1 / 3)
    assert float(LOSSES["relative_l1"](z, y, None)) == pytest.approx((1 / 4 + 1) / 2)
    assert relative_l1(z, y).tolist() == pytest.approx([25, 100])
    assert relative_l2(z, y).tolist() == pytest.approx([100 / 10**0.5, 100])
    assert relative_l1(z, y, mask).tolist() == pytest.approx([25, 0])
    assert float(LOSSES["relative_l2"](z, y, mask)) == pytest.approx(0.5 / 10**0.5)
    assert relative_l1(1j * y, 2j * y).tolist() == pytest.approx([50, 50])


def test_ragged_clouds_train():
    gen = rng(0, "cpu")
    samples = [
        {name: torch.rand(n, c, generator=gen) for name, c in (("points", 2), ("u", 1), ("y", 1))} for n in (20, 12)
    ]
    history = train_operator(model(), [collate_point_clouds(samples)], epochs=2, loss=LOSSES["l1"])
    assert len(history.loss) == 2
    generator = (collate_point_clouds(samples) for _ in range(2))
    assert len(train_operator(model(), generator, epochs=1, schedule="onecycle").loss) == 1


def test_a_penalty_reaches_the_deformation():
    one = GeoFNO(2, 1, 1, 4, 2, 8, bounds=BOX)
    data = smooth(4)
    before = float(one.deformation_penalty(data["points"]).detach())
    penalty = lambda model, batch: 100 * model.deformation_penalty(batch["points"])  # noqa: E731
    train_operator(one, Batches(data, 4), epochs=30, lr=1e-3, penalty=penalty)
    assert float(one.deformation_penalty(data["points"]).detach()) < before / 2


def test_rollouts_feed_outputs_back():
    one, data = model(), smooth(2)
    states = rollout(one, data["u"], data["points"], 3)
    with torch.no_grad():
        first = one(data["u"], data["points"])
        torch.testing.assert_close(states[0], first)
        torch.testing.assert_close(states[1], one(first, data["points"]))
    assert states.shape == (3, 2, 40, 1)
    with isolated(0):
        forced = FNODSE(2, 3, 2, 8, (3, 2), 2, bounds=BOX)
    u = torch.cat([data["u"], 5 + 0 * data["u"], data["u"]], -1)
    states = rollout(forced, u, data["points"], 2, keep=[1])
    with torch.no_grad():
        first = forced(u, data["points"])
        again = forced(torch.stack([first[..., 0], u[..., 1], first[..., 1]], -1), data["points"])
    torch.testing.assert_close(states[1], again)
    assert u[0, 0, 1] == 5


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        ("burgers", "fno-dse"), ("elasticity", "geo-fno"), ("airfoil", "ufno-dse"), ("shear-layer", "ffno-dse"),
        ("humidity", "fno-dse"), ("shallow-water", "sfno-dse"), ("elasticity", "point-mlp"),
    ],
)  # fmt: skip
def test_the_command_line_trains_and_evaluates(problem, name, tmp_path, capsys):
    sizes = ["--train", "4", "--test", "2", "--device", "cpu", "--out", str(tmp_path / "run")]
    more = {"shear-layer": ["--size", "32"], "humidity": ["--size", "24"], "shallow-water": ["--size", "60"]}.get(
        problem, []
    )
    common = ["--problem", problem, *sizes, *more]
    assert main(["train", *common, "--model", name, "--epochs", "1", "--modes", "3", "--width", "4"]) == 0
    trained = capsys.readouterr().out
    assert f"{name}, " in trained
    assert main(["evaluate", *common]) == 0
    mean = capsys.readouterr().out.split("mean ")[1].split(" %")[0]
    assert f"test samples: {mean} %" in trained
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    assert f"{history['error'][-1]:.4g}" == mean


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--problem", "burgers", "--data", "nowhere"], "no file at nowhere."),
        (["--problem", "burgers", "--model", "sfno-dse"], "sfno-dse is for --problem shallow-water"),
        (["--problem", "shallow-water", "--data", "nowhere"], "--data is not read for shallow-water"),
        (["--problem", "shear-layer", "--data", "nowhere"], "no netCDF files in nowhere"),
    ],
)
def test_the_command_line_says_what_is_wrong(words, text, tmp_path, capsys):
    sizes = ["--train", "2", "--test", "1", "--device", "cpu", "--out", str(tmp_path)]
    assert main(["train", *words, *sizes]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(("name", "modes", "width"), [("fno-dse", 12, 32), ("ffno-dse", 15, 64), ("geo-fno", 12, 32)])
def test_the_sizes_of_the_recipes(name, modes, width):
    options = argparse.Namespace(problem="elasticity", model=name, modes=None, width=None, quadrature="mean")
    points = torch.rand(2, 9, 2, generator=rng(0, "cpu"))
    one = build(options, {"u": points[..., :0], "y": points[..., :1], "points": points})
    assert (one.n_modes, one.lift.out_features) == ((modes, modes), width)
    options.modes, options.width = 3, 4
    assert build(options, {"u": points[..., :0], "y": points[..., :1], "points": points}).n_modes == (3, 3)
