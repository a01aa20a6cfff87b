"""Duels: direct transforms against the complex formulation, finufft, FFT layers; training steps against Geo-FNO."""

import math

import finufft
import numpy as np
import torch
from direct_spectral import (
    FNODSE,
    DirectSpectralConv,
    FourierBasis,
    GeoFNO,
    GridSpectralConv,
    InterpFNO,
    LatticeBasis,
    neuralop_fno,
    relative_l1,
)
from direct_spectral.data import elasticity
from offprints.seeding import isolated, rng

BOX = ((0.0, 1.0), (0.0, 1.0))


def close(a, b):
    """Equal to rounding in float32: 1e-4 of the largest entry."""
    torch.testing.assert_close(a, b, rtol=0, atol=1e-4 * float(b.abs().max()))


class Clouds:
    """20 samples of 32 channels on clouds of n points each, 12 modes; what every side prepares beforehand."""

    def __init__(self, n, m=12, batch=20, channels=32):
        gen = rng(0, "cpu")
        self.m, self.points = m, torch.rand(batch, n, 2, generator=gen)
        self.u = torch.randn(batch, channels, n, generator=gen)
        self.basis = FourierBasis(self.points, m, BOX)
        self.plans = [planned(cloud, m, channels) for cloud in self.points]


def planned(cloud, m, channels):
    """Plans of finufft for one cloud: there and back, all channels at once, single precision."""
    x, y = (
        np.ascontiguousarray((2 * math.pi * cloud[:, i].numpy() + math.pi) % (2 * math.pi) - math.pi) for i in (0, 1)
    )
    plans = []
    for kind, sign in ((1, -1), (2, 1)):
        plan = finufft.Plan(kind, (2 * m, 2 * m), channels, 1e-6, sign, dtype="complex64", nthreads=1, modeord=1)
        plan.setpts(x.astype(np.float32), y.astype(np.float32))
        plans.append(plan)
    return plans


def direct(clouds):
    return clouds.basis.synthesise(clouds.basis.analyse(clouds.u))


def nufft(clouds):
    """Type 1, the kept half doubled, type 2."""
    out, m = [], clouds.m
    for values, (first, second) in zip(clouds.u, clouds.plans, strict=True):
        c = first.execute(values.numpy().astype(np.complex64)) / values.shape[-1]
        c[..., m:] = 0
        c[..., 1:m] *= 2
        out.append(torch.from_numpy(second.execute(c).real))
    return torch.stack(out)


def test_transform(duel):
    duel(
        sizes=[486, 972],
        make=Clouds,
        ours=direct,
        peers={"finufft, planned": nufft},
        same=close,
        target={"finufft, planned": 1.0},
        growth="n",
    )


class Half(Clouds):
    """The complex formulation of exactly our waves: k in the kept block, and -k as conjugates."""

    def __init__(self, n):
        super().__init__(n)
        k = self.basis.modes.float()
        both = torch.cat([k, -k])
        phase = torch.einsum("md,bnd->bmn", both, 2 * math.pi * self.points)
        self.matrix = torch.exp(-1j * phase)
        weight = torch.where(k[:, 1] == 0, 0.5, 1.0)
        self.h = torch.cat([weight, weight])


def complex_product(clouds):
    c = torch.bmm(clouds.u.to(torch.complex64), clouds.matrix.transpose(1, 2)) * (clouds.h / clouds.u.shape[-1])
    return torch.bmm(c, clouds.matrix.conj()).real


def test_complex_formulation(duel):
    duel(
        sizes=[486, 972],
        make=Half,
        ours=direct,
        peers={"complex matrix, k and -k": complex_product},
        same=close,
        target={"complex matrix, k and -k": 3.0},
        growth="n",
    )


def test_build(duel):
    def same(ours, both):
        m, theirs = 12, both[0]
        half = theirs.unflatten(1, (2 * m - 1, 2 * m))[:, m - 1 :].transpose(1, 2).flatten(1, 2)
        cos, sin = ours.chunk(2, 1)
        torch.testing.assert_close(cos, half.real.contiguous(), rtol=0, atol=2e-4)
        torch.testing.assert_close(sin, -half.imag, rtol=0, atol=2e-4)

    duel(  # tables of more than 32 MB at all sizes: below, the allocator hands out pages that were touched before
        sizes=[972, 1296, 1944],
        make=lambda n: torch.rand(20, n, 2, generator=rng(0, "cpu")),
        ours=lambda points: FourierBasis(points, 12, BOX).table,
        peers={"complex exponentials": lambda points: full_spectrum(points, 12)},
        same=same,
        target={"complex exponentials": {972: 20.0, 1944: 20.0}},
        growth="n",
    )


def full_spectrum(points, m):
    """The released formulation's order of rows: the last axis slow, and both directions of the transform."""
    theta = 2 * math.pi * points
    k = torch.cat([torch.arange(m), torch.arange(-m, 0)]).float()
    last = torch.arange(-m + 1, m).float()
    x = k[:, None] * theta[:, None, :, 0]
    y = last[:, None] * theta[:, None, :, 1]
    forward = torch.exp(-1j * (y[:, :, None] + x[:, None])).flatten(1, 2)
    inverse = torch.exp(1j * (y[:, :, None] + x[:, None])).flatten(1, 2)
    return forward, inverse


class Large:
    """One cloud of 20000 points, 32 channels, m modes along each axis."""

    def __init__(self, m):
        gen = rng(0, "cpu")
        self.m, self.points = m, torch.rand(20000, 2, generator=gen)
        self.u = torch.randn(1, 32, 20000, generator=gen)
        self.basis = FourierBasis(self.points, m, BOX, max_basis_bytes=2**31)
        self.auto = FourierBasis(self.points, m, BOX, backend="auto", max_basis_bytes=2**31)
        self.plans = [planned(self.points, m, 32)]


def test_crossover(duel):
    """Where the ratio passes 1 is the crossover against the NUFFT: 2M = 4 m² real modes."""
    duel(
        sizes=[8, 16, 24, 32],
        make=Large,
        ours=direct,
        peers={"finufft, planned": nufft},
        same=close,
        target={"finufft, planned": {16: 1.0}},
        growth="n^2",
    )


def test_automatic(duel):
    duel(
        sizes=[8, 32],
        make=Large,
        ours=lambda large: large.auto.synthesise(large.auto.analyse(large.u)),
        peers={"direct": direct, "finufft, planned": nufft},
        same=close,
        target={"direct": {8: 0.9, 32: 1.2}, "finufft, planned": {8: 1.2, 32: 0.7}},
    )


class Lattice:
    def __init__(self, n):
        gen = rng(0, "cpu")
        axes = [torch.rand(n, generator=gen) for _ in range(2)]
        self.lattice, self.m = LatticeBasis(axes, 16, BOX), 16
        self.cloud = FourierBasis(self.lattice.points(), 16, BOX)
        self.u = torch.randn(8, 32, n * n, generator=gen)
        self.plans = [planned(self.lattice.points(), 16, 8 * 32)]


def lattice_nufft(lattice):
    """One plan for all rows of the batch: they share their points."""
    (first, second), m = lattice.plans[0], 16
    c = first.execute(lattice.u.flatten(0, 1).numpy().astype(np.complex64)) / lattice.u.shape[-1]
    c[..., m:] = 0
    c[..., 1:m] *= 2
    return torch.from_numpy(second.execute(c).real).reshape(lattice.u.shape)


def test_lattice(duel):
    duel(
        sizes=[40, 64],
        make=Lattice,
        ours=lambda data: data.lattice.synthesise(data.lattice.analyse(data.u)),
        peers={
            "cloud of the same points": lambda data: data.cloud.synthesise(data.cloud.analyse(data.u)),
            "finufft, planned": lattice_nufft,
        },
        same=close,
        target={"cloud of the same points": 5.0, "finufft, planned": 1.0},
        growth="n^2",
    )


class Grid:
    """The FFT layer of this package, the direct layer on its fft backend, and neuraloperator's, of equal weights."""

    def __init__(self, n):
        gen, m, c = rng(0, "cpu"), 12, 32
        with isolated(0):
            self.theirs = neuralop_fno((m, m), 1, 1, c, n_layers=1).fno_blocks.convs[0]
        self.own, self.direct = GridSpectralConv(c, c, (m, m)), DirectSpectralConv(c, c, (m, m))
        with torch.no_grad():
            self.theirs.bias.zero_()
            weight = torch.fft.ifftshift(self.theirs.weight.tensor, dim=2).permute(2, 3, 0, 1).flatten(0, 1)
            for layer in (self.own, self.direct):
                layer.weight.copy_(torch.view_as_real(weight.resolve_conj().contiguous()))
        self.v = torch.randn(8, c, n, n, generator=gen)
        line = torch.arange(n) / n
        self.basis = FourierBasis(
            torch.cartesian_prod(line, line).double(), m, BOX, dtype=torch.float32, backend="auto"
        )
        assert self.basis.backend == "fft"


@torch.no_grad()
def on_grid(data):
    return data.own(data.v)


@torch.no_grad()
def on_points_of_a_grid(data):
    return data.direct(data.v.flatten(2), data.basis).reshape(data.v.shape)


@torch.no_grad()
def library(data):
    return data.theirs(data.v)


def test_grid_layer(duel):
    duel(
        sizes=[64, 128],
        make=Grid,
        ours=on_grid,
        peers={"neuraloperator SpectralConv": library},
        same=close,
        target={"neuraloperator SpectralConv": 1.0},
        growth="n^2 log n",
    )


def test_grid_points(duel):
    duel(
        sizes=[128],
        make=Grid,
        ours=on_points_of_a_grid,
        peers={"neuraloperator SpectralConv": library},
        same=close,
        target={"neuraloperator SpectralConv": 0.8},
    )


class Training:
    """Batches of 20 meshes of 512 nodes; each model and its optimizer go on where they are."""

    def __init__(self, n):
        self.data, self.sides = elasticity(n, seed=0), {}
        library = {"use_channel_mlp": False, "lifting_channel_ratio": 0, "projection_channel_ratio": 8}
        with isolated(0):
            models = {
                "ours": FNODSE(2, 0, 1, 16, 6, bounds=BOX),
                "geo": GeoFNO(2, 0, 1, 12, 6, 40, bounds=BOX),
                "interp": InterpFNO(2, 0, 1, 16, 6, 32, bounds=BOX, inner_options=library),
            }
        for name, model in models.items():
            model.fit_scales(self.data["u"], self.data["y"])
            self.sides[name] = model, torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(self, name):
        model, optimizer = self.sides[name]
        optimizer.zero_grad()
        pred = model(self.data["u"], self.data["points"])
        (pred - self.data["y"]).abs().mean().backward()
        optimizer.step()
        return pred.detach()


def test_training_step(duel):
    """Forward, backward, optimizer, and the basis of 20 new meshes; parameters agree within 10 %."""
    duel(
        sizes=[20],
        make=Training,
        ours=lambda training: training.step("ours"),
        peers={
            "Geo-FNO": lambda training: training.step("geo"),
            "interpolation and neuraloperator FNO (cached triangulation)": lambda training: training.step("interp"),
        },
        quality=(lambda data, pred: float(relative_l1(pred, data.data["y"]).mean()), lambda a, b: max(a, b) < 100),
        target={"Geo-FNO": 2.0},
    )
