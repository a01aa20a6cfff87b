"""The solvers that make data: conservation, orders, exact solutions; point sets and batches."""

import math

import numpy as np
import pytest
import torch
from direct_spectral import FNODSE, LatticeBasis
from direct_spectral import data as ds
from direct_spectral.data.airfoil_solver import naca_section, potential_flow, ring_around
from direct_spectral.data.burgers_solver import sample_series
from direct_spectral.data.elasticity_solver import hole_radius
from direct_spectral.data.shallow_water_solver import RADIUS
from direct_spectral.data.shear_solver import shear_layer_start


def test_the_gaussian_field_has_the_papers_covariance():
    field = np.fft.rfft(ds.gaussian_field(4000, 64, 0)) / 64
    k = 2 * np.pi * np.arange(1, 8)
    wanted = 625 / (k**2 + 25) ** 2  # E|û_k|²: √2 cos and √2 sin, each of this variance, are û_k and its conjugate
    np.testing.assert_allclose((np.abs(field[:, 1:8]) ** 2).mean(0), wanted, rtol=0.1)
    assert np.var(field[:, 0].real) == pytest.approx(1, rel=0.1)


def test_burgers_against_cole_and_hopf():
    """u = -2ν φ_x / φ with φ a solution of the heat equation."""
    nu, t = 0.1, 0.5
    x = np.arange(128) / 128
    wave = lambda t: 0.5 * np.exp(-nu * (2 * np.pi) ** 2 * t)  # noqa: E731
    exact = lambda t: 4 * np.pi * nu * wave(t) * np.sin(2 * np.pi * x) / (1 + wave(t) * np.cos(2 * np.pi * x))  # noqa: E731
    got = ds.solve_burgers(exact(0.0)[None], nu, t, 100)
    np.testing.assert_allclose(got[0], exact(t), atol=1e-8)
    coarse, fine = (np.abs(ds.solve_burgers(exact(0.0)[None], nu, t, n)[0] - exact(t)).max() for n in (5, 10))
    assert coarse / fine > 10  # fourth order


def test_burgers_keeps_its_mean_and_samples_its_series():
    data = ds.burgers(3, torch.arange(64, dtype=torch.float64)[:, None] / 64, 0, n_grid=128)
    torch.testing.assert_close(data["y"].mean(1), data["u"].mean(1), rtol=0, atol=1e-5)
    assert data["points"].shape == (1, 64, 1)
    own = ds.burgers(3, torch.rand(3, 7, 1), 0, n_grid=128)
    assert own["u"].shape == own["y"].shape == own["points"].shape == (3, 7, 1)
    field = np.cos(2 * np.pi * 3 * np.arange(32) / 32)[None] + 0.5
    np.testing.assert_allclose(sample_series(field, np.array([0.123]))[0, 0], np.cos(6 * np.pi * 0.123) + 0.5)
    with pytest.raises(ValueError, match="points must be of shape"):
        ds.burgers(3, torch.rand(7, 2), 0)
    with pytest.raises(ValueError, match="steps must be enough for a stable solution"), np.errstate(all="ignore"):
        ds.solve_burgers(1e200 * field, 1e-6, 1.0, 1)


def test_burgers_without_a_constant_part_at_low_viscosity():
    """The solver's own steps and grid are fine enough at the viscosity of claim burgers-sharp."""
    with_mean, without = (ds.gaussian_field(3, 512, 0, constant) for constant in (True, False))
    np.testing.assert_allclose(without, with_mean - with_mean.mean(1, keepdims=True), atol=1e-12)
    assert abs(with_mean.mean(1)).min() > 0.05
    points = torch.arange(64, dtype=torch.float64)[:, None] / 64
    data = ds.burgers(3, points, 0, 0.01, constant=False)
    fine = np.fft.irfft(np.fft.rfft(without), n=1024) * 2
    exact = ds.solve_burgers(fine, 0.01, 1.0, 400)[:, ::16]
    np.testing.assert_allclose(data["y"][..., 0].numpy(), exact, atol=1e-6 * np.abs(exact).max())
    assert np.abs(exact).max() > 0.05


def square(n):
    line = np.linspace(0, 1, n)
    nodes = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    i, j = np.meshgrid(np.arange(n - 1), np.arange(n - 1), indexing="ij")
    a = (i * n + j).ravel()
    return nodes, np.concatenate([np.stack([a, a + n, a + 1], 1), np.stack([a + 1, a + n, a + n + 1], 1)])


def test_elasticity_of_a_plain_bar():
    """Without lateral strain (ν = 0) a pulled square is in uniform tension: u_y = σ y / E, von Mises = σ."""
    nodes, triangles = square(9)
    moved, mises = ds.solve_plane_stress(nodes, triangles, (0.0, 0.1), young=2.0, poisson=0.0)
    np.testing.assert_allclose(moved[:, 1], 0.05 * nodes[:, 1], atol=1e-12)
    np.testing.assert_allclose(moved[:, 0], 0, atol=1e-12)
    np.testing.assert_allclose(mises, 0.1, rtol=1e-10)
    _, sheared = ds.solve_plane_stress(nodes, triangles, (0.1, 0.0))
    assert sheared.max() > 0.17


def test_elasticity_against_scikit_fem():
    skfem = pytest.importorskip("skfem")
    from skfem.helpers import ddot, sym_grad, trace

    nodes, triangles = ds.ring_mesh(hole_radius(2 * np.pi * np.arange(16) / 16, np.ones(5), np.zeros(5)), 6)
    moved, _ = ds.solve_plane_stress(nodes, triangles)
    mesh = skfem.MeshTri(nodes.T, triangles.T)
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementTriP1()))
    lame = 0.3 / (1 - 0.3**2)

    @skfem.BilinearForm
    def stiffness(u, v, w):
        e = sym_grad(u)
        return ddot(e, sym_grad(v)) / 1.3 + lame * trace(e) * trace(sym_grad(v))

    top = mesh.facets_satisfying(lambda x: np.abs(x[1] - 1) < 1e-9)

    @skfem.LinearForm
    def load(v, w):
        return 0.1 * v[1]

    system, force = stiffness.assemble(basis), load.assemble(basis.boundary(top))
    fixed = basis.get_dofs(lambda x: np.abs(x[1]) < 1e-9)
    theirs = skfem.solve(*skfem.condense(system, force, D=fixed))
    np.testing.assert_allclose(moved.ravel(), theirs[basis.nodal_dofs.T.ravel()], atol=1e-12)


def test_meshes_with_holes():
    angle = 2 * np.pi * np.arange(32) / 32
    radius = hole_radius(angle, *np.random.default_rng(0).standard_normal((2, 5)))
    assert (radius > 0.2).all()
    assert (radius < 0.4).all()
    nodes, triangles = ds.ring_mesh(radius, 16)
    np.testing.assert_allclose(np.linalg.norm(nodes[::16] - 0.5, axis=1), radius)
    corners = nodes[triangles]
    a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) / 2
    assert (area > 0).all()
    hole = 0.5 * abs(
        np.dot(nodes[::16, 0], np.roll(nodes[::16, 1], 1)) - np.dot(nodes[::16, 1], np.roll(nodes[::16, 0], 1))
    )
    assert area.sum() == pytest.approx(1 - hole)
    with pytest.raises(ValueError, match="n_angle must be a multiple of 8"):
        ds.ring_mesh(radius[:10], 4)
    with pytest.raises(ValueError, match="triangles must be counter-clockwise, of some area, got 960 others"):
        ds.solve_plane_stress(nodes, triangles[:, ::-1])
    with pytest.raises(ValueError, match="nodes must be clamped ones at y = 0"):
        ds.solve_plane_stress(nodes + 1, triangles)
    data = ds.elasticity(2, 0)
    assert data["points"].shape == (2, 512, 2)
    assert data["u"].shape == (2, 512, 0)
    assert torch.equal(ds.elasticity(2, 0)["y"], data["y"])


def test_navier_stokes_against_taylor_and_green():
    x, y = np.meshgrid(*[np.arange(32) / 32] * 2, indexing="ij")
    a, b = 2 * np.pi * x, 2 * np.pi * y
    flow = np.stack([np.cos(a) * np.sin(b), -np.sin(a) * np.cos(b)])[None] + np.array([0.3, 0.0])[:, None, None]
    nu, t = 0.01, 0.4
    got = ds.solve_navier_stokes(flow, nu, t, 100)
    a = a - 2 * np.pi * 0.3 * t  # the mean flow carries it along
    wanted = np.exp(-2 * nu * 4 * np.pi**2 * t) * np.stack([np.cos(a) * np.sin(b), -np.sin(a) * np.cos(b)])
    np.testing.assert_allclose(got[0], wanted + np.array([0.3, 0.0])[:, None, None], atol=1e-7)


def test_shear_layers_are_divergence_free_and_packed():
    start = shear_layer_start(2, 32, 0)
    end = ds.solve_navier_stokes(start, 1e-3, 0.1, 20)
    k = np.fft.fftfreq(32, 1 / 32)
    hat = np.fft.fft2(end)
    assert np.abs(k[:, None] * hat[:, 0] + k * hat[:, 1]).max() < 1e-9
    np.testing.assert_allclose(end.mean((-2, -1)), start.mean((-2, -1)), atol=1e-12)
    assert (end**2).sum() < (start**2).sum()
    axes = (torch.tensor([0, 3, 9]), torch.tensor([1, 2, 30, 31]))
    data = ds.shear_layer(2, axes, 0, n_grid=32, time=0.1, steps=20)
    assert data["y"].dtype == torch.complex64
    np.testing.assert_allclose(data["y"][1, 1 * 4 + 2, 0].real, end[1, 0, 3, 30], atol=1e-6)
    np.testing.assert_allclose(data["u"][1, 1 * 4 + 2, 0].imag, start[1, 1, 3, 30], atol=1e-6)
    lattice = LatticeBasis([data["axes_x"], data["axes_y"]], (1, 2), ((0, 1), (0, 1)))
    model = FNODSE(2, 2, 2, 4, (1, 2), bounds=((0, 1), (0, 1)), periodic=True).precompute(lattice)
    assert model(data["u"]).shape == (2, 12, 1)
    with pytest.raises(ValueError, match="steps must be enough"), np.errstate(all="ignore"):
        ds.solve_navier_stokes(1e9 * start, 0.0, 1.0, 2)


def test_shallow_water_conserves_and_balances():
    solver = ds.ShallowWater(8, hyperviscosity=None)
    start = solver.start(2, 0)
    end = solver.run(start, 6.0, 600.0)
    np.testing.assert_allclose(solver.mass(end), solver.mass(start), rtol=1e-14)
    np.testing.assert_allclose(solver.energy(end), solver.energy(start), rtol=5e-6)
    coarse, fine = (np.abs(solver.run(start, 6.0, dt) - end).max() for dt in (2400.0, 1200.0))
    assert coarse / fine > 10
    u, v = solver.winds(start)
    assert np.sqrt((u**2 + v**2).mean()) == pytest.approx(10, rel=0.3)
    damped = ds.ShallowWater(8, hyperviscosity=3600.0).run(start, 6.0, 600.0)
    assert np.abs(damped[:, 0, -15:]).sum() < np.abs(end[:, 0, -15:]).sum()
    with pytest.raises(ValueError, match="dt must be short enough"), np.errstate(all="ignore"):
        solver.run(start * 1e3, 500.0, 1e5)


def test_shallow_water_at_rest_and_in_solid_rotation():
    """Rest stays; and u = u0 cos(lat) with the height of Williamson's second test is steady."""
    solver = ds.ShallowWater(8, hyperviscosity=None)
    rest = np.zeros((1, 3, 64))
    rest[:, 2, 0] = 1e4
    np.testing.assert_allclose(solver.run(rest, 5.0), rest, atol=1e-9)
    u0, sine = 20.0, np.cos(solver.places.numpy()[:, 0])
    depth = 9.80616 * 3000 - (RADIUS * 7.292e-5 * u0 + u0**2 / 2) * sine**2
    state = np.stack([solver.analyse(2 * u0 / RADIUS * sine[None]), 0 * rest[:, 0], solver.analyse(depth[None])], 1)
    east, north = solver.winds(state)
    np.testing.assert_allclose(east[0], u0 * np.sqrt(1 - sine**2), atol=1e-9)
    np.testing.assert_allclose(north, 0, atol=1e-9)
    rate = solver.tendency(state)
    size = np.abs(state).max((0, 2))
    assert (np.abs(rate).max((0, 2)) * 3600 < 1e-9 * np.array([size[0], size[0], size[2]])).all()


def test_shallow_water_samples():
    data = ds.shallow_water(2, 30, 0, lmax=8, hours=1.0)
    assert data["u"].shape == (2, 30, 4)
    assert data["y"].shape == (2, 30, 3)
    torch.testing.assert_close(data["points"].norm(dim=-1), torch.ones(2, 30))
    torch.testing.assert_close(data["u"][..., 3], 2 * 0.7292 * data["points"][..., 2])
    assert (data["u"][..., 1] == 0).all()  # no divergence at first


def test_a_tracer_is_conserved_and_diffuses():
    stream = np.zeros((1, 64))
    stream[0, 2] = -1e9  # a solid rotation about the axis
    still = ds.Tracer(0 * stream, 8, diffusivity=1e6)
    q = np.zeros((1, 64))
    q[0, 0], q[0, 12] = 1.0, 0.5
    end = still.run(q, 10.0)
    np.testing.assert_allclose(end[0, 12], 0.5 * np.exp(-1e6 * 12 / RADIUS**2 * 36000), rtol=1e-12)
    turned = ds.Tracer(stream, 8, diffusivity=0.0).run(q + np.eye(64)[3] * 0.3, 10.0)
    assert turned[0, 0] == pytest.approx(1.0, abs=1e-12)
    assert (turned[0, 1:4] ** 2).sum() == pytest.approx(0.09, abs=1e-8)  # turned in its degree, not stretched
    assert abs(turned[0, 1]) > 0.01
    with pytest.raises(ValueError, match="stream must be of shape"):
        ds.Tracer(stream[0], 8)
    with pytest.raises(ValueError, match="dt must be short enough"), np.errstate(all="ignore"):
        ds.Tracer(stream * 10, 8).run(q + np.eye(64)[3], 5000.0, 1e5)


def test_humidity_on_a_lattice():
    lat, lon = torch.tensor([-60.0, -10.0, 0.0, 45.0]), torch.arange(0, 360, 40.0)
    data = ds.humidity(2, lat, lon, 0, lmax=8, hours=6.0)
    assert data["u"].shape == (2, 36, 3)
    assert data["y"].shape == (2, 36, 1)
    assert (data["y"] - data["u"][..., :1]).abs().max() > 1e-3
    moist = data["u"][..., 0].reshape(2, 4, 9).mean((0, 2))
    assert moist[2] > moist[0]
    assert 2 < 10 * data["u"][..., 1:].pow(2).sum(-1).mean().sqrt() < 40  # m/s


def test_airfoils_lift_as_theory_says():
    section = naca_section(0.0, 0.4, 0.12, 120)
    nodes, triangles = ring_around(section, 48)
    lifts = []
    for degrees in (0.0, 5.0):
        speed = potential_flow(nodes, triangles, 48, math.radians(degrees)).reshape(120, 48)[:, 0]
        pressure = 1 - speed**2
        lifts.append(-((pressure + np.roll(pressure, -1)) / 2 * np.diff(np.append(section[:, 0], section[0, 0]))).sum())
    assert abs(lifts[0]) < 0.02
    assert lifts[1] == pytest.approx(2 * np.pi * math.radians(5) * (1 + 0.77 * 0.12), rel=0.06)
    far = potential_flow(nodes, triangles, 48, 0.0).reshape(120, 48)[:, -2]
    np.testing.assert_allclose(far, 1, atol=0.05)
    data = ds.airfoil(3, 0)
    assert data["points"].shape == (3, 352, 2)
    assert data["y"].shape == (3, 352, 1)
    assert 0.9 < float(data["y"].mean()) < 1.2
    with pytest.raises(ValueError, match="triangles must be of one orientation"):
        potential_flow(nodes, np.concatenate([triangles[:-1], triangles[-1:, ::-1]]), 48, 0.0)
    with pytest.raises(ValueError, match="n_around must be even"):
        naca_section(0.0, 0.4, 0.12, 121)


def test_contracting_expanding_axes():
    axis = ds.contracting_expanding(60, 30, 6, 2.0)
    assert set(range(27, 33)) <= set(axis.tolist())
    steps = axis.diff()
    assert (steps >= 1).all()
    assert axis.tolist() == sorted(
        {*range(27, 33), *(32 + i * i for i in (1, 2, 3, 4, 5)), *(27 - i * i for i in (1, 2, 3, 4, 5))}
        & set(range(60))
    )
    assert len(ds.contracting_expanding(8192, 4096, 100, 1.906)) == 256
    chosen = ds.random_subset(50, 20, 3)
    assert len(set(chosen.tolist())) == 20
    assert chosen.tolist() == sorted(chosen.tolist())


def test_ragged_clouds_and_batches():
    samples = [{"points": torch.rand(n, 2), "u": torch.rand(n, 1), "y": torch.rand(n, 1)} for n in (5, 3)]
    batch = ds.collate_point_clouds(samples)
    assert batch["mask"].tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert torch.equal(batch["u"][1, :3], samples[1]["u"])
    assert "mask" not in ds.collate_point_clouds(samples[:1])
    loader = torch.utils.data.DataLoader(samples, batch_size=2, collate_fn=ds.collate_point_clouds)
    assert next(iter(loader))["points"].shape == (2, 5, 2)
    shared = torch.rand(1, 5, 2)
    batches = ds.Batches({"u": torch.arange(7.0).reshape(7, 1, 1), "points": shared}, 3, shuffle=True, seed=1)
    assert len(batches) == 3
    passes = [torch.cat([b["u"].flatten() for b in batches]).tolist() for _ in range(2)]
    assert sorted(passes[0]) == sorted(passes[1]) == list(range(7))
    assert passes[0] != passes[1]
    assert all(b["points"] is shared for b in batches)


def test_names_are_found_on_first_use():
    assert set(ds.__all__) <= set(dir(ds))
    for name in ds.__all__:
        assert callable(getattr(ds, name))
    with pytest.raises(AttributeError, match="no attribute 'darcy'"):
        ds.darcy  # noqa: B018
