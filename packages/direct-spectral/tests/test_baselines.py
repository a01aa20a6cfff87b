"""Baselines and the U-Net branch against their formulas, written out."""

import math

import pytest
import torch
from direct_spectral import SFNODSE, UFNODSE, FourierBasis, GeoFNO, InterpFNO, PointMLP, train_operator
from direct_spectral.baselines import Deformation
from direct_spectral.layers import grid_analyse, grid_synthesise, mix
from direct_spectral.unet import UNet
from offprints.seeding import rng
from torch.nn.functional import gelu

DOUBLE = torch.float64
BOX = ((0.0, 1.0), (0.0, 1.0))


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=rng(seed, "cpu"), dtype=DOUBLE)


def close(a, b, tol=1e-10):
    torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=tol)


class Same(torch.nn.Module):
    """In place of the FNO on the grid: the first channel as it is."""

    def __init__(self):
        super().__init__()
        self.dtype_giver = torch.nn.Parameter(torch.zeros((), dtype=DOUBLE))

    def forward(self, u):
        return u[:, :1]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_interpolation_is_exact_on_linear_fields(dim):
    bounds = [(-1.0, 3.0), (0.0, 2.0), (5.0, 6.0)][:dim]
    low, high = torch.tensor(bounds, dtype=DOUBLE).t()
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=DOUBLE)] * dim).reshape(-1, dim)
    points = low + (high - low) * torch.cat([corners, uniform(30, dim)])
    slope = torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE)[:dim]
    u = (points @ slope + 0.3).reshape(1, -1, 1)
    model = InterpFNO(dim, 1, 1, 4, 2, tuple(range(8, 8 + dim)), bounds=bounds, inner="grid", dtype=DOUBLE)
    model.inner = Same()
    close(model(u, points), u)
    query = low + (high - low) * uniform(9, dim, seed=1)
    close(model(u, points, query)[0, :, 0], query @ slope + 0.3)
    order = torch.randperm(len(points), generator=rng(2, "cpu"))
    close(model(u[:, order], points[order]), u[:, order])


def test_outside_the_hull_the_nearest_value_counts():
    points = torch.tensor([[0.4, 0.4], [0.6, 0.4], [0.5, 0.6]], dtype=DOUBLE)
    model = InterpFNO(2, 1, 1, 4, 1, 3, bounds=BOX, inner="grid", dtype=DOUBLE)
    model.inner = Same()
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=DOUBLE)
    close(
        model(torch.tensor([[[1.0], [2.0], [3.0]]], dtype=DOUBLE), points, corners).flatten(),
        torch.tensor([1.0, 2.0]).double(),
    )


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_interpolation_goes_around_the_seam(dim):
    """Three points of a period: a tent between them, and nothing from the last one around to the first."""
    bounds, wraps = [(1.0, 3.0), (0.0, 1.0), (0.0, 1.0)][:dim], (True, False, False)[:dim]
    line = 1 + 2 * torch.tensor([0.25, 0.75, 0.5], dtype=DOUBLE)
    points = torch.cartesian_prod(line, *[torch.tensor([0.0, 1.0], dtype=DOUBLE)] * (dim - 1)).reshape(-1, dim)
    model = InterpFNO(dim, 1, 1, 4, 1, (8, 3, 3)[:dim], bounds=bounds, periodic=wraps, inner="grid", dtype=DOUBLE)
    model.inner = Same()
    query = torch.cat([1 + 2 * uniform(40, 1), uniform(40, dim - 1, seed=1)], 1)
    query[0, 0] = 3.0
    tent = lambda at: (1 - 4 * ((at[:, :1] - 1) / 2 % 1 - 0.5).abs()).clamp_min(0)  # noqa: E731
    u = 5 + tent(points).unsqueeze(0)
    close(model(u, points, query)[0], 5 + tent(query))
    period = torch.tensor([2.0, 0.0, 0.0], dtype=DOUBLE)[:dim]
    close(model(u, points - 2 * period, query + period)[0], 5 + tent(query))


def test_the_grid_sees_its_own_positions_and_how_far_the_cloud_is():
    model = InterpFNO(1, 0, 2, 4, 2, 5, bounds=((2.0, 4.0),), inner="grid", dtype=DOUBLE)
    model.inner = torch.nn.Sequential(torch.nn.Identity())
    model.dtype_giver = torch.nn.Parameter(torch.zeros((), dtype=DOUBLE))
    points = torch.tensor([[2.0], [2.5], [4.0]], dtype=DOUBLE)
    distance, where = model(points[None, :, :0], points)[0].t()
    close(where, torch.tensor([-1.0, -0.5, 1.0], dtype=DOUBLE))
    close(distance, torch.zeros(3, dtype=DOUBLE))
    distance = model(points[None, :, :0], points, torch.tensor([[3.0], [3.5]], dtype=DOUBLE))[0, :, 0]
    close(distance, torch.tensor([0.5, 0.5], dtype=DOUBLE))
    around = InterpFNO(1, 0, 2, 4, 2, 4, bounds=((2.0, 4.0),), periodic=True, inner="grid", dtype=DOUBLE)
    around.inner, around.dtype_giver = model.inner, model.dtype_giver
    query = torch.tensor([[2.0], [2.5], [3.0], [3.5]], dtype=DOUBLE)
    close(around(points[None, 1:2, :0], points[1:2], query)[0, :, 0], torch.tensor([0.5, 0.0, 0.5, 1.0], dtype=DOUBLE))


@pytest.mark.parametrize("dim", [2, 3])
def test_the_grid_sees_a_hole(dim):
    line = torch.linspace(0, 1, 9, dtype=DOUBLE)
    points = torch.cartesian_prod(*[line] * dim)
    radius = (points - 0.5).norm(dim=1)
    kept = points[radius > 0.3]
    model = InterpFNO(dim, 0, 1, 4, 2, 9, bounds=[(0.0, 1.0)] * dim, inner="grid", dtype=DOUBLE)
    model.inner = Same()
    distance = model(kept[None, :, :0], kept, points)[0, :, 0]
    close(distance[radius > 0.3], torch.zeros(len(kept), dtype=DOUBLE))
    centre = radius.argmin()
    close(distance[centre], 2 * radius[radius > 0.3].min())


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_deformation_of_geo_fno(dim):
    one, x = Deformation(dim, dtype=DOUBLE), uniform(6, dim)
    rows = []
    for point in x:
        r = float(((point - 0.5) ** 2).sum().sqrt())
        features = point.tolist()
        if dim == 2:
            features.append(math.atan2(float(point[1]) - 0.5, float(point[0]) - 0.5))
        features.append(r)
        raw = torch.tensor(features, dtype=DOUBLE)
        waves = [math.pi * 2**i * f for f in features for i in range(8)]
        sines, cosines = ([wave(w) for w in waves] for wave in (math.sin, math.cos))
        v = torch.cat([one.linear(raw), torch.tensor(sines + cosines, dtype=DOUBLE)])
        for layer in one.hidden:
            v = torch.tanh(layer(v))
        rows.append(point + point * one.out(v))
    assert len(one.hidden) == 3
    close(one(x), torch.stack(rows))


def test_geo_fno_layer_by_layer():
    model = GeoFNO(2, 1, 2, 3, (2, 2), 8, bounds=((0.0, 2.0), (0.0, 1.0)), init="normal", dtype=DOUBLE)
    scale = torch.tensor([2.0, 1.0], dtype=DOUBLE)
    points, u = scale * uniform(2, 20, 2), uniform(2, 20, 1, seed=1)
    moved = model.deformation(points / scale)
    basis = FourierBasis(moved, (2, 2), BOX, validate=False)
    v = model.lift(torch.cat([u, points / scale], -1)).transpose(1, 2)
    line = torch.linspace(0, 1, 8, dtype=DOUBLE)
    places = torch.stack(torch.meshgrid(line, line, indexing="ij"))[None]
    v = gelu(grid_synthesise(mix(basis.analyse(v), model.into.weight), (2, 2), (8, 8)) + model.places[0](places))
    for i in range(3):
        v = gelu(model.middle[i](v) + model.pointwise[i](v) + model.places[i + 1](places))
    s = basis.synthesise(mix(grid_analyse(v, (2, 2)), model.onto.weight))
    close(model(u, points), model.head(s + model.last_place(points / scale).transpose(1, 2)))
    assert float(model.deformation_penalty(points).detach()) == pytest.approx(
        float(((moved - points / scale) ** 2).sum(-1).mean().detach())
    )
    query = scale * uniform(2, 9, 2, seed=3)
    out = FourierBasis(model.deformation(query / scale), (2, 2), BOX, validate=False)
    s = out.synthesise(mix(grid_analyse(v, (2, 2)), model.onto.weight))
    close(model(u, points, query), model.head(s + model.last_place(query / scale).transpose(1, 2)))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_u_net(dim):
    net = UNet(2, dim, dtype=DOUBLE).eval()
    x = uniform(1, 2, *[8] * dim)
    a = net.down1(x)
    b = net.down2(a)
    c = net.down3(b)
    assert [y.shape[-1] for y in (a, b, c)] == [4, 2, 1]
    b = torch.cat([b, net.up2(c)], 1)
    a = torch.cat([a, net.up1(b)], 1)
    close(net(x), net.out(torch.cat([x, net.up0(a)], 1)))
    strides = [m.stride[0] for m in net.modules() if hasattr(m, "stride") and "Transpose" not in type(m).__name__]
    assert strides == [2, 2, 1, 2, 1, 1]


def test_u_fno_layer_by_layer():
    model = UFNODSE(2, 1, 2, 3, (2, 2), 8, bounds=BOX, periodic=True, init="normal", dtype=DOUBLE).eval()
    points, u = uniform(2, 20, 2), uniform(2, 20, 1, seed=1)
    basis = FourierBasis(points, (2, 2), BOX)
    v = model.lift(torch.cat([u, 2 * points - 1], -1)).transpose(1, 2)
    s = grid_synthesise(mix(basis.analyse(v), model.into.weight), (2, 2), (8, 8))
    v = gelu(s + model.ends[0](s))
    v = gelu(model.middle[0](v) + model.pointwise[0](v))
    v = gelu(model.middle[1](v) + model.pointwise[1](v) + model.unets[0](v))
    v = gelu(model.middle[2](v) + model.pointwise[2](v) + model.unets[1](v))
    s = basis.synthesise(mix(grid_analyse(v, (2, 2)), model.onto.weight))
    close(model(u, points), model.head(s + model.ends[1](s)))


def test_the_perceptron():
    model = PointMLP(2, 1, 1, 4, 2, bounds=BOX, dtype=DOUBLE)
    points, u = uniform(9, 2), uniform(2, 9, 1, seed=1)
    v = model.lift(torch.cat([u, (2 * points - 1).expand(2, -1, -1)], -1))
    for layer in model.hidden:
        v = v + gelu(layer(v))
    close(model(u, points), model.out(v))


def test_other_points_on_the_sphere():
    points, query = (torch.nn.functional.normalize(uniform(n, 3) - 0.5, dim=-1) for n in (30, 7))
    u = uniform(2, 30, 1, seed=1)
    model = SFNODSE(1, 1, 4, 3, 2, coordinates="xyz", query_head=True, dtype=DOUBLE)
    close(model(u, points, points[:7]), model(u, points)[:, :7])
    with_skip = SFNODSE(1, 1, 4, 3, 2, coordinates="xyz", dtype=DOUBLE)
    with pytest.warns(UserWarning, match="query_head=True"):
        assert with_skip(u, points, query).shape == (2, 7, 1)


def test_a_plateau_halves_the_rate():
    model = PointMLP(2, 1, 1, 4, 1, bounds=BOX, dtype=DOUBLE)
    seen = []

    def note(one, batch):
        seen.append(optimizers[0].param_groups[0]["lr"])
        return torch.ones((), dtype=DOUBLE)

    optimizers = []

    def make(params):
        optimizers.append(torch.optim.SGD(params, lr=0.1))
        return optimizers[0]

    still = {"u": uniform(1, 9, 1), "points": uniform(1, 9, 2), "y": uniform(1, 9, 1)}
    flat = lambda pred, target, mask: 0 * pred.sum()  # noqa: E731
    train_operator(model, [still], epochs=9, lr=0.1, loss=flat, schedule="plateau", optimizer=make, penalty=note)
    assert seen[:7] == [0.1] * 7
    assert seen[8] == pytest.approx(0.05)
