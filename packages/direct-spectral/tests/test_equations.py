"""Identities that hold to rounding, and numbers that one can work out by hand."""

import itertools
import math

import finufft
import numpy as np
import pytest
import sphericart
import torch
from direct_spectral import (
    FNODSE,
    SFNODSE,
    UFNODSE,
    DirectSpectralConv,
    FourierBasis,
    GridFNO,
    GridSpectralConv,
    LatticeBasis,
    SphericalBasis,
    SphericalSpectralConv,
    _reference,
    gauss_legendre_grid,
    inudft,
    latlon_weights,
    nudft,
    real_sph_harm,
)
from direct_spectral.layers import mix
from direct_spectral.sphere import to_thetaphi, to_xyz
from direct_spectral.waves import hermitian, partners, tables, wave_vectors
from offprints.seeding import rng

DOUBLE = torch.float64
CASES = [((5,), (16,)), ((3, 4), (8, 10)), ((2, 3, 2), (6, 8, 5))]


def noise(*shape, seed=0, dtype=DOUBLE):
    return torch.randn(*shape, generator=rng(seed, "cpu"), dtype=dtype)


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=rng(seed, "cpu"), dtype=DOUBLE)


def unit(dim):
    return [(0.0, 1.0)] * dim


def grid(sizes, start=0.0):
    lines = [torch.arange(n, dtype=DOUBLE) / n + start for n in sizes]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(sizes))


def close(a, b, tol=1e-12):
    a, b = a.detach(), b.detach()
    torch.testing.assert_close(a, b, rtol=0, atol=tol * max(1.0, float(b.abs().max())))


def test_waves_are_the_block_of_an_fno():
    assert wave_vectors((3,)).tolist() == [[0], [1], [2]]
    assert wave_vectors((2, 2)).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [-2, 0], [-2, 1], [-1, 0], [-1, 1]]
    assert hermitian((2, 2), None, DOUBLE).tolist() == [1, 2] * 4
    assert partners((2, 2)) == [0, -1, 6, -1, -1, -1, 2, -1]
    for modes, _ in CASES:
        assert [tuple(k) for k in wave_vectors(modes).tolist()] == _reference.wave_vectors(modes)


@pytest.mark.parametrize("m", range(1, 10))
def test_tables_by_powers_are_cosines_and_sines(m):
    theta = 7 * noise(9, 2)
    for modes in [(m, 3), (3, m)]:
        phase = torch.tensor(_reference.wave_vectors(modes), dtype=DOUBLE) @ theta.t()
        close(tables(theta, modes, DOUBLE), torch.cat([phase.cos(), phase.sin()]), 1e-13)


@pytest.mark.parametrize(("modes", "sizes"), CASES)
def test_1_equispaced_points_give_the_fft(modes, sizes):
    points, u = grid(sizes), noise(2, 3, math.prod(sizes))
    basis = FourierBasis(points, modes, unit(len(sizes)))
    axes = tuple(range(2, 2 + len(sizes)))
    whole = torch.fft.rfftn(u.reshape(2, 3, *sizes), dim=axes, norm="forward")
    places = [[k[i] % n for i, n in enumerate(sizes)] for k in _reference.wave_vectors(modes)]
    block = torch.stack([whole[(..., *place)] for place in places], -1)
    close(basis.forward(u), block)
    c = noise(2, 3, len(places)) + 1j * noise(2, 3, len(places), seed=1)  # the plane k_d = 0 is not Hermitian
    padded = torch.zeros_like(whole)
    for row, place in enumerate(places):
        padded[(..., *place)] = c[..., row]
    close(basis.inverse(c), torch.fft.irfftn(padded, s=sizes, dim=axes, norm="forward").flatten(2))


@pytest.mark.parametrize(("modes", "sizes"), CASES)
def test_2_the_direct_layer_is_the_fft_layer(modes, sizes):
    gen = {"dtype": DOUBLE}
    direct, ffts = DirectSpectralConv(3, 2, modes, **gen), GridSpectralConv(3, 2, modes, **gen)
    ffts.load_state_dict(direct.state_dict())
    v = noise(2, 3, *sizes)
    basis = FourierBasis(grid(sizes), modes, unit(len(sizes)))
    close(direct(v.flatten(2), basis), ffts(v).flatten(2))
    lattice = LatticeBasis([torch.arange(n, dtype=DOUBLE) / n for n in sizes], modes, unit(len(sizes)))
    close(direct(v.flatten(2), lattice), ffts(v).flatten(2))


def test_2_a_whole_fno_is_the_same_on_a_grid():
    sizes, modes = (8, 10), (3, 4)
    ours = FNODSE(2, 2, 1, 4, modes, bounds=unit(2), periodic=True, append_positions=False, dtype=DOUBLE)
    plain = GridFNO(2, 1, 4, modes, dtype=DOUBLE)
    state = {name: x for name, x in ours.state_dict().items() if not name.startswith(("in_", "out_"))}
    for name in state:
        if name == "lift.weight" or (name.startswith("pointwise") and name.endswith("weight")):
            state[name] = state[name][..., None, None]
    plain.load_state_dict(state)
    u = noise(3, 2, *sizes)
    close(ours(u.flatten(2).transpose(1, 2), grid(sizes)), plain(u).flatten(2).transpose(1, 2))


def test_2_neuraloperators_layer_with_our_weights():
    neuralop = pytest.importorskip("neuralop.layers.spectral_convolution")
    sizes, modes = (12, 10), (3, 4)
    theirs = neuralop.SpectralConv(3, 2, (6, 6), bias=False)
    ours = DirectSpectralConv(3, 2, modes)
    weight = torch.view_as_complex(ours.weight.detach()).reshape(6, 4, 3, 2).permute(2, 3, 0, 1)
    with torch.no_grad():
        tensor = theirs.weight.tensor if hasattr(theirs.weight, "tensor") else theirs.weight
        tensor.copy_(torch.fft.fftshift(weight, dim=2))
    v = noise(2, 3, *sizes, dtype=torch.float32)
    basis = FourierBasis(grid(sizes).float(), modes, unit(2))
    close(ours(v.flatten(2), basis), theirs(v).flatten(2), 2e-6)  # its coefficients are complex64


@pytest.mark.parametrize("modes", [(5,), (3, 4), (2, 3, 2)])
def test_3_finufft_agrees(modes):
    dim, n = len(modes), 60
    points, u = uniform(n, dim), noise(1, 1, n)
    basis = FourierBasis(points, modes, unit(dim))
    theta = [np.ascontiguousarray(x) for x in (basis.theta.numpy().T + np.pi) % (2 * np.pi) - np.pi]
    box, c = tuple(2 * m for m in modes), noise(len(basis.modes)) + 1j * noise(len(basis.modes), seed=1)
    first = getattr(finufft, f"nufft{dim}d1")(*theta, u[0, 0].numpy() + 0j, box, isign=-1, eps=1e-13, modeord=1)
    close(basis.forward(u)[0, 0], torch.from_numpy(first[..., : modes[-1]].reshape(-1)) / n, 1e-9)
    padded = np.zeros(box, dtype=complex)
    padded[..., : modes[-1]] = (c * hermitian(modes, None, DOUBLE)).reshape(*box[:-1], modes[-1]).numpy()
    second = getattr(finufft, f"nufft{dim}d2")(*theta, padded, isign=1, eps=1e-13, modeord=1)
    close(basis.inverse(c[None, None])[0, 0], torch.from_numpy(second.real), 1e-9)


@pytest.mark.parametrize("quadrature", ["mean", "voronoi"])
@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
def test_4_forward_and_inverse_are_adjoint(norm, quadrature):
    points, modes = uniform(40, 2), (3, 2)
    basis = FourierBasis(points, modes, unit(2), periodic=(True, False), norm=norm, quadrature=quadrature)
    u, c = noise(1, 1, 40), noise(1, 1, 12) + 1j * noise(1, 1, 12, seed=1)
    q = torch.full((40,), 1 / 40, dtype=DOUBLE)
    if quadrature == "voronoi":
        q = FourierBasis(points, modes, unit(2), periodic=(True, False), quadrature=quadrature).weights
    h = hermitian(modes, None, DOUBLE)
    left = (h * (basis.forward(u).conj() * c).real).sum() / {"forward": 1, "backward": 40, "ortho": 40**0.5}[norm]
    right = (q * u * basis.inverse(c)).sum() * {"forward": 1, "backward": 40, "ortho": 40**0.5}[norm]
    close(left, right)


def test_5_shifts_permutations_and_copies():
    points, u, shift = uniform(30, 2), noise(1, 2, 30), torch.tensor([0.3, -0.2], dtype=DOUBLE)
    basis = FourierBasis(points, (3, 4), unit(2))
    c = basis.forward(u)
    moved = FourierBasis(points + shift, (3, 4), unit(2)).forward(u)
    phase = torch.exp(-2j * math.pi * (basis.modes.double() @ shift))
    close(moved, c * phase)
    order = torch.randperm(30, generator=rng(1, "cpu"))
    layer = DirectSpectralConv(2, 2, (3, 4), dtype=DOUBLE)
    permuted = FourierBasis(points[order], (3, 4), unit(2))
    close(layer(u[..., order], permuted), layer(u, basis)[..., order])
    twice = FourierBasis(torch.cat([points, points]), (3, 4), unit(2))
    close(twice.forward(torch.cat([u, u], -1)), c)
    areas = FourierBasis(torch.cat([points, points]), (3, 4), unit(2), quadrature="voronoi")
    once = FourierBasis(points, (3, 4), unit(2), quadrature="voronoi")
    close(areas.forward(torch.cat([u, u], -1)), once.forward(u))


@pytest.mark.parametrize(("modes", "sizes"), CASES)
def test_6_the_identity_layer_is_a_projector_but_for_unpaired_waves(modes, sizes):
    basis = FourierBasis(grid(sizes), modes, unit(len(sizes)))
    project = lambda u: basis.inverse(basis.forward(u))  # noqa: E731
    u, alone = noise(1, 1, len(basis.theta)), torch.zeros(1, 1, len(basis.theta), dtype=DOUBLE)
    for place, (k, partner) in enumerate(zip(basis.modes.tolist(), partners(modes), strict=True)):
        if partner < 0 and k[-1] == 0:  # -m is kept, +m is not: irfft, too, gives half of such a wave
            c = torch.zeros(1, 1, len(basis.modes), dtype=torch.complex128)
            c[..., place] = basis.forward(u)[..., place]
            alone = alone + basis.inverse(c)
            nyquist = any(2 * abs(x) == n for x, n in zip(k[:-1], sizes, strict=False))
            if not nyquist:
                close(project(basis.inverse(c)), basis.inverse(c) / 2)
    paired = project(u) - alone
    close(project(paired), paired)
    assert (alone.abs().max() > 0) == (len(modes) > 1)


@pytest.mark.parametrize("modes", [(5,), (3, 4), (2, 2, 2)])
def test_7_least_squares_is_exact_on_band_limited_fields(modes):
    dim, m = len(modes), len(wave_vectors(modes))
    points, query = uniform(4 * m, dim), uniform(50, dim, seed=1)
    basis = FourierBasis(points, modes, unit(dim), quadrature="lstsq")
    c = noise(2, 3, m) + 1j * noise(2, 3, m, seed=1)
    u, wanted = basis.inverse(c), basis.at(query).inverse(c)
    close(basis.at(query).inverse(basis.forward(u)), wanted, 1e-10)
    close(basis.inverse(basis.forward(u)), u, 1e-10)


def test_7_quadrature_orders():
    """Relative errors of 13 real modes: Monte-Carlo for the mean, second order and better for areas."""
    found = {}
    for n, rule in itertools.product((200, 800, 3200), ("mean", "voronoi", "lstsq")):
        errors = []
        for seed in range(3):
            c = noise(1, 1, 7, seed=seed) + 1j * noise(1, 1, 7, seed=100 + seed)
            c = torch.cat([c[..., :1].real + 0j, c[..., 1:]], -1)
            basis = FourierBasis(uniform(n, 1, seed=seed), (7,), unit(1), quadrature=rule)
            errors.append(float((basis.forward(basis.inverse(c)) - c).norm() / c.norm()))
        found[n, rule] = np.mean(errors)
    assert found[3200, "mean"] < found[200, "mean"] < 1
    assert 0.02 < found[3200, "mean"] < 0.2
    assert found[3200, "voronoi"] < found[800, "voronoi"] / 10 < found[200, "voronoi"] / 100
    assert found[3200, "voronoi"] < 1e-4
    assert max(found[n, "lstsq"] for n in (200, 800, 3200)) < 1e-13


def test_8_gradients_of_fields_weights_and_positions():
    points, u = uniform(8, 2).requires_grad_(), noise(2, 2, 8).requires_grad_()
    weight = noise(8, 2, 3, 2).requires_grad_()

    def run(points, u, weight):
        basis = FourierBasis(points, (2, 2), unit(2), periodic=(True, False), validate=False)
        return basis.synthesise(mix(basis.analyse(u), weight))

    assert torch.autograd.gradcheck(run, (points, u, weight))
    curved = lambda x: FourierBasis(x, (2, 2), unit(2), validate=False).analyse(u.detach()).square()  # noqa: E731
    assert torch.autograd.gradgradcheck(curved, (points,))


def test_9_hand_values():
    u, x, k = torch.tensor([1.0, -1.0, 2.0]).double(), torch.tensor([0.0, 1.0, 2.0]).double(), torch.arange(3)
    wanted = torch.tensor([2, -0.372595979 - 0.9771238688j, 0.1088595948 + 2.4229024174j], dtype=torch.complex128)
    close(nudft(u, x, k), wanted, 1e-9)
    c = noise(3) + 1j * noise(3, seed=1)
    close((nudft(u, x, k).conj() * c).sum(), (u * inudft(c, x, k)).sum())
    basis = FourierBasis(x[:, None], 3, [(0.0, 2 * math.pi)])
    close(3 * basis.forward(u[None, None])[0, 0], wanted, 1e-9)


def test_10_harmonics():
    places, weights = gauss_legendre_grid(8, 16)
    basis = SphericalBasis(places, 6, weights)
    gram = basis.table * (4 * math.pi * weights) @ basis.table.t()
    close(gram, torch.eye(36, dtype=DOUBLE))
    theirs = sphericart.SphericalHarmonics(5).compute(to_xyz(places).numpy())
    close(basis.table.t(), torch.from_numpy(theirs))
    theta, phi = torch.tensor([0.7, 2.9], dtype=DOUBLE), torch.tensor([1.9, -0.4], dtype=DOUBLE)
    for row, (a, b) in enumerate(zip(theta.tolist(), phi.tolist(), strict=True)):
        wanted = [_reference.real_harmonic(l, m, a, b) for l in range(7) for m in range(-l, l + 1)]  # noqa: E741
        close(real_sph_harm(7, theta, phi)[row], torch.tensor(wanted, dtype=DOUBLE))
    assert float(real_sph_harm(1, theta, phi)[0, 0]) == pytest.approx(0.28209479, abs=1e-8)
    assert basis.degrees.tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2, *[3] * 7, *[4] * 9, *[5] * 11]
    a, b = theta.clone().requires_grad_(), phi.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: real_sph_harm(4, a, b), (a, b))


def rotation(seed):
    q, r = torch.linalg.qr(noise(3, 3, seed=seed))
    q = q * torch.diagonal(r).sign()
    return q * torch.linalg.det(q)


@pytest.mark.parametrize("quadrature", ["mean", "voronoi", "lstsq"])
def test_10_degree_weights_commute_with_rotations(quadrature):
    model = SFNODSE(
        2, 1, 6, 5, 3, weight="degree", quadrature=quadrature, coordinates="xyz", init="normal", dtype=DOUBLE
    )
    xyz, u = noise(60, 3), noise(2, 60, 2)
    xyz = xyz / xyz.norm(dim=-1, keepdim=True)
    y = model(u, xyz)
    close(model(u, xyz @ rotation(1).t()), y, 1e-10)
    full = SFNODSE(2, 1, 6, 5, 3, quadrature=quadrature, coordinates="xyz", init="normal", dtype=DOUBLE)
    assert (full(u, xyz @ rotation(1).t()) - full(u, xyz)).abs().max() > 1e-3


def test_10_a_layer_on_the_sphere_is_a_multiplier():
    places, weights = gauss_legendre_grid(8, 16)
    basis, layer = SphericalBasis(places, 4, weights), SphericalSpectralConv(1, 1, 4, "degree", dtype=DOUBLE)
    c = noise(1, 1, 16)
    wanted = c * layer.weight.flatten()[basis.degrees]
    close(basis.forward(layer(basis.inverse(c), basis)), wanted)
    for rule in ("voronoi", "lstsq"):
        scattered = SphericalBasis(noise(800, 3), 4, rule, coordinates="xyz")
        assert (scattered.forward(scattered.inverse(c)) - c).norm() / c.norm() < (0.05 if rule == "voronoi" else 1e-12)


def test_10_coordinates_and_areas():
    thetaphi = torch.tensor([[0.3, 1.0], [2.0, -2.0]], dtype=DOUBLE)
    lonlat = torch.stack([thetaphi[:, 1], math.pi / 2 - thetaphi[:, 0]], 1)
    close(to_thetaphi(lonlat, "lonlat"), thetaphi)
    close(to_thetaphi(torch.rad2deg(lonlat), "lonlat", "degrees"), thetaphi)
    close(to_thetaphi(3 * to_xyz(thetaphi), "xyz"), thetaphi)
    lat = torch.tensor([90.0, 30.0, -30.0, -90.0])
    bands = torch.deg2rad(torch.tensor([60.0, 0.0, -60.0, -90.0])).sin()
    wanted = torch.stack([1 - bands[0], bands[0] - bands[1], bands[1] - bands[2], bands[2] - bands[3]]) / 2 / 3
    close(latlon_weights(lat, 3)[::3], wanted.double(), 1e-6)
    close(latlon_weights(lat.flip(0), 3)[::3].flip(0), wanted.double(), 1e-6)


def test_11_samples_do_not_know_their_batch():
    model = FNODSE(2, 1, 1, 4, (2, 2), bounds=((-5.0, 9.0), (0.0, 8.0)), dtype=DOUBLE)
    points, u = 3 + 5 * uniform(4, 20, 2), noise(4, 20, 1)
    before = points.clone(), u.clone()
    whole = model(u, points)
    for i in range(4):
        close(model(u[i : i + 1], points[i : i + 1]), whole[i : i + 1])
        close(model(u[[i, 0]], points[[i, 0]])[:1], whole[i : i + 1])
    assert torch.equal(points, before[0])
    assert torch.equal(u, before[1])


@pytest.mark.parametrize("modes", [(5,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("periodic", [True, False])
def test_the_literal_sums(modes, periodic):
    dim = len(modes)
    bounds = [(-1.0, 3.0), (0.5, 2.5), (10.0, 11.0)][:dim]
    low, high = torch.tensor(bounds, dtype=DOUBLE).t()
    points, v = low + (high - low) * uniform(60, dim), noise(2, 3, 60)
    basis, theta = FourierBasis(points, modes, bounds, periodic), _reference.angles(points, bounds, [periodic] * dim)
    layer = DirectSpectralConv(3, 2, modes, init="normal", dtype=DOUBLE)
    weight = torch.view_as_complex(layer.weight.detach())
    c = _reference.forward(v, theta, modes)
    close(basis.forward(v), c)
    close(basis.inverse(c), _reference.inverse(c, theta, modes))
    wanted = torch.stack([_reference.spectral_layer(row, theta, modes, weight) for row in v])
    close(layer(v, basis), wanted)
    close(_reference.full_complex_layer(v, theta, modes, weight), wanted)


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
@pytest.mark.parametrize("quadrature", ["mean", "voronoi"])
@pytest.mark.parametrize(("modes", "sizes"), CASES)
def test_a_lattice_is_the_cloud_of_its_points(modes, sizes, quadrature, norm):
    dim = len(sizes)
    axes = [uniform(n, seed=i) for i, n in enumerate(sizes)]
    options = {"periodic": [i % 2 == 0 for i in range(dim)], "norm": norm}
    lattice = LatticeBasis(axes, modes, unit(dim), quadrature=quadrature, **options)
    weights = "mean"
    if quadrature == "voronoi":
        weights = lattice.weights[0]
        for more in lattice.weights[1:]:
            weights = (weights[:, None] * more).flatten()
    cloud = FourierBasis(lattice.points(), modes, unit(dim), quadrature=weights, **options)
    u, m = noise(2, 3, *sizes), len(cloud.modes)
    c = noise(2, 3, m) + 1j * noise(2, 3, m, seed=1)
    close(lattice.forward(u), cloud.forward(u.flatten(2)))
    close(lattice.inverse(c).flatten(2), cloud.inverse(c))
    query = uniform(7, dim, seed=9)
    close(lattice.at(query).inverse(c), cloud.at(query).inverse(c))


def test_resolution_does_not_rescale():
    """A smooth field has the same coefficients on ever finer clouds, up to the error of the quadrature."""
    field = lambda x: torch.exp(torch.sin(2 * math.pi * x[:, 0]))[None, None]  # noqa: E731
    exact = FourierBasis(grid((64,)), (4,), unit(1)).forward(field(grid((64,))))
    gaps = []
    for n in (50, 200, 800):
        x = uniform(n, 1, seed=n)
        gaps.append(float((FourierBasis(x, (4,), unit(1), quadrature="voronoi").forward(field(x)) - exact).abs().max()))
    assert gaps[2] < gaps[1] / 4 < gaps[0] / 16


def test_derivatives_by_multipliers():
    bounds = ((-1.0, 3.0), (0.0, 2.0))
    points = torch.stack([-1 + 4 * uniform(9), 2 * uniform(9, seed=1)], 1).requires_grad_()
    basis = FourierBasis(points, (2, 2), bounds, periodic=(True, False), validate=False, mask=None, quadrature="mean")
    c = noise(1, 1, 8) + 1j * noise(1, 1, 8, seed=1)
    u = basis.inverse(c)
    (slope,) = torch.autograd.grad(u.sum(), points)
    for axis in range(2):
        close(basis.inverse(basis.derivative(c, axis))[0, 0], slope[:, axis])
    twice = basis.derivative(basis.derivative(c, 0), 1)
    close(basis.derivative(basis.derivative(c, 1), 0), twice)
    close(basis.derivative(c, 0, 2), basis.derivative(basis.derivative(c, 0), 0))


def test_factorised_transforms_sum_over_the_cloud_or_each_line():
    points, u = uniform(30, 2), noise(1, 1, 30)
    theta = 2 * math.pi * points[:, 1]
    wanted = torch.stack([(u[0, 0] * torch.exp(-1j * k * theta)).mean() for k in range(4)])
    packed = FourierBasis(points, 1, unit(2)).along(1, 4).analyse(u)[0, 0]
    close(torch.complex(packed[:4], -packed[4:]), wanted)
    sizes = (5, 7)
    axes = [uniform(n, seed=i) for i, n in enumerate(sizes)]
    lattice, field = LatticeBasis(axes, (2, 2), unit(2)), noise(2, 3, 35)
    for axis in range(2):
        line = FourierBasis(axes[axis][:, None], 3, unit(1))
        moved = field.reshape(2, 3, *sizes).movedim(2 + axis, -1)
        wanted = line.inverse(line.forward(moved.reshape(-1, moved.shape[-2], sizes[axis])))
        wanted = wanted.reshape(moved.shape).movedim(-1, 2 + axis).flatten(2)
        fibres = lattice.along(axis, 3)
        close(fibres.synthesise(fibres.analyse(field)), wanted)


def test_u_fno_outputs_are_one_function():
    model = UFNODSE(2, 1, 1, 4, (3, 3), 8, bounds=unit(2), dtype=DOUBLE).eval()
    points, u = uniform(2, 40, 2), noise(2, 40, 1)
    close(model(u, points, out_points=points[:, :11]), model(u, points)[:, :11])


def test_10_complex_weights_differentiate_along_parallels():
    places, weights = gauss_legendre_grid(8, 16)
    basis, layer = SphericalBasis(places, 4, weights), SphericalSpectralConv(1, 1, 4, "complex", dtype=DOUBLE)
    with torch.no_grad():
        pairs = [(degree, m) for degree in range(4) for m in range(degree + 1)]
        layer.weight.copy_(torch.tensor([[0.0, m] for _, m in pairs], dtype=DOUBLE)[:, None, None, :])  # times i m
    c = noise(1, 1, 16)
    theta, phi = places[:, 0], places[:, 1].clone().requires_grad_()
    (slope,) = torch.autograd.grad((real_sph_harm(4, theta, phi) @ c[0, 0]).sum(), phi)
    close(layer(basis.inverse(c), basis)[0, 0], slope, 1e-10)
