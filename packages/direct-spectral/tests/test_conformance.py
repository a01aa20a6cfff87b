import sys
from typing import ClassVar

import direct_spectral as ds
import torch
from direct_spectral import _reference
from offprints.testing import Conformance, assert_all_covered

BOX = ((-3.0, 3.0), (-3.0, 3.0))


class Cloud(Conformance):
    """Operators on clouds of 24 points, another one for each sample."""

    channels = 2

    def inputs(self, gen, **factory):
        u = torch.randn(3, 24, self.channels, generator=gen, **factory)
        return u, 4 * torch.rand(3, 24, 2, generator=gen, **factory) - 2


class TestFNODSE(Cloud):
    kind = "module"

    def make(self, **factory):
        return ds.FNODSE(2, 2, 1, 4, (2, 2), 2, bounds=BOX, init="normal", **factory)

    def reference(self, model, u, points):
        """The layers one by one, with sums written out."""
        rows = []
        for one, x in zip(u, points, strict=True):
            wide = torch.float64 if one.dtype == torch.float64 else torch.float32
            theta = _reference.angles(x.to(wide), BOX, [False, False])
            v = model.lift(torch.cat([one, x / 3], -1)).t()
            for i, layer in enumerate(model.spectral):
                weight = torch.view_as_complex(layer.weight.detach().to(wide))
                s = _reference.spectral_layer(v.to(wide), theta, (2, 2), weight).to(one.dtype)
                v = s + model.pointwise[i].weight @ v + model.pointwise[i].bias[:, None]
                v = torch.nn.functional.gelu(v) if i == 0 else v
            rows.append(model.head(v[None])[0])
        return torch.stack(rows)


def fixed(u, n=24, dim=2):
    """Points that are no input, as what is made of them has no gradient in them."""
    steps = torch.arange(n * dim, device=u.device, dtype=torch.float64).reshape(n, dim)
    return (2 * torch.sin(37.0 * steps + 1)).to(u.dtype)


class TestAreas(Conformance):
    kind = "module"

    def make(self, **factory):
        return ds.FNODSE(2, 2, 1, 4, (2, 2), 1, bounds=BOX, quadrature="voronoi", init="normal", **factory)

    def inputs(self, gen, **factory):
        return (torch.randn(3, 24, 2, generator=gen, **factory),)

    def call(self, thing, u):
        return thing(u, fixed(u))


class TestComplexValues(Cloud):
    kind = "module"
    skip: ClassVar = {"bfloat16": "complex numbers have no 16-bit type in torch"}
    refusals: ClassVar = {"bfloat16": lambda: torch.complex(torch.ones(1).bfloat16(), torch.ones(1).bfloat16())}
    channels = 2

    def make(self, **factory):
        return ds.FNODSE(2, 2, 4, 4, (2, 2), 1, bounds=BOX, init="normal", **factory)

    def call(self, thing, u, points):
        return torch.view_as_real(thing(torch.view_as_complex(u.contiguous()).unsqueeze(-1), points))


class TestMasked(Cloud):
    kind = "module"

    def make(self, **factory):
        return ds.FNODSE(2, 2, 1, 4, (2, 2), 1, bounds=BOX, init="normal", **factory)

    def call(self, thing, u, points):
        kept = torch.arange(24, device=u.device) < 20
        return thing(u, points, mask=kept.expand(len(u), -1))


class TestFFNODSE(Cloud):
    kind = "module"

    def make(self, **factory):
        return ds.FFNODSE(2, 2, 1, 4, (3, 2), 2, bounds=BOX, init="normal", **factory)


class TestUFNODSE(Cloud):
    kind = "module"

    def make(self, **factory):
        return ds.UFNODSE(2, 2, 1, 4, (2, 2), 8, bounds=BOX, init="normal", **factory)


class TestSFNODSE(Conformance):
    kind = "module"
    covers = ("PointOperator",)

    def make(self, **factory):
        return ds.SFNODSE(2, 1, 4, 3, 2, coordinates="xyz", init="normal", append_positions=True, **factory)

    def inputs(self, gen, **factory):
        points = torch.randn(3, 24, 3, generator=gen, **factory)
        return torch.randn(3, 24, 2, generator=gen, **factory), points


class TestDegreeWeights(TestSFNODSE):
    def make(self, **factory):
        return ds.SFNODSE(2, 1, 4, 3, 1, weight="degree", coordinates="xyz", init="normal", **factory)


class TestGeoFNO(Cloud):
    kind = "module"

    def make(self, **factory):
        return ds.GeoFNO(2, 2, 1, 4, (2, 2), 8, bounds=BOX, init="normal", **factory)


class TestInterpFNO(TestAreas):
    def make(self, **factory):
        return ds.InterpFNO(2, 2, 1, 4, (2, 2), 8, bounds=BOX, inner="grid", **factory)


class TestPointMLP(Cloud):
    kind = "module"

    def make(self, **factory):
        return ds.PointMLP(2, 2, 1, 8, bounds=BOX, **factory)


class TestGridFNO(Conformance):
    kind = "module"
    covers = ("GridSpectralConv",)

    def make(self, **factory):
        return ds.GridFNO(2, 1, 4, (2, 3), 2, init="normal", **factory)

    def inputs(self, gen, **factory):
        return (torch.randn(3, 2, 6, 8, generator=gen, **factory),)


class TestComplexWeights(TestSFNODSE):
    def make(self, **factory):
        return ds.SFNODSE(2, 1, 4, 3, 1, weight="complex", coordinates="xyz", init="normal", **factory)


class TestDirectSpectralConv(Conformance):
    kind = "module"
    covers = ("Basis", "FourierBasis")

    def make(self, **factory):
        return ds.DirectSpectralConv(2, 3, (2, 2), init="normal", **factory)

    def inputs(self, gen, **factory):
        return torch.randn(3, 2, 24, generator=gen, **factory), torch.rand(24, 2, generator=gen, **factory)

    def call(self, thing, v, points):
        return thing(v, ds.FourierBasis(points, (2, 2), BOX, periodic=(True, False)))

    def rows(self, inputs, which):
        return inputs[0][which], inputs[1]

    def reference(self, layer, v, points):
        wide = torch.float64 if v.dtype == torch.float64 else torch.float32
        theta = _reference.angles(points.to(wide), BOX, [True, False])
        weight = torch.view_as_complex(layer.weight.detach().to(wide))
        rows = [_reference.spectral_layer(row.to(wide), theta, (2, 2), weight) for row in v]
        return torch.stack(rows).to(v.dtype)


class TestLatticeBasis(Conformance):
    kind = "module"

    def make(self, **factory):
        return ds.DirectSpectralConv(2, 3, (2, 2), init="normal", **factory)

    def inputs(self, gen, **factory):
        return (torch.randn(3, 2, 4, 6, generator=gen, **factory),)

    def call(self, thing, v):
        line = fixed(v, 10, 1).flatten()
        basis = ds.LatticeBasis([line[:4], line[4:]], (2, 2), BOX, periodic=(True, False))
        return thing(v, basis)


class TestFactorizedSpectralConv(Conformance):
    kind = "module"

    def make(self, **factory):
        return ds.FactorizedSpectralConv(2, 3, (3, 2), init="normal", **factory)

    def inputs(self, gen, **factory):
        return torch.randn(3, 2, 24, generator=gen, **factory), torch.rand(3, 24, 2, generator=gen, **factory)

    def call(self, thing, v, points):
        basis = ds.FourierBasis(points, 1, BOX)
        return thing(v, [basis.along(0, 3), basis.along(1, 2)])


class TestSphericalSpectralConv(Conformance):
    kind = "module"
    covers = ("SphericalBasis",)

    def make(self, **factory):
        return ds.SphericalSpectralConv(2, 3, 3, init="normal", **factory)

    def inputs(self, gen, **factory):
        points = torch.rand(3, 24, 2, generator=gen, **factory) * 2 + 0.5
        return torch.randn(3, 2, 24, generator=gen, **factory), points

    def call(self, thing, v, points):
        return thing(v, ds.SphericalBasis(points, 3))


class TestTransforms(Conformance):
    kind = "function"
    skip: ClassVar = {"bfloat16": "complex numbers have no 16-bit type in torch"}
    refusals: ClassVar = {"bfloat16": lambda: ds.nudft(*(torch.ones(3).bfloat16() for _ in range(2)), torch.arange(2))}

    def make(self):
        def there_and_back(u, points):
            modes = torch.arange(3, device=u.device)
            return torch.view_as_real(ds.inudft(ds.nudft(u, points, modes), points, modes))

        return there_and_back

    def inputs(self, gen, **factory):
        return torch.randn(3, 8, generator=gen, **factory), torch.rand(8, generator=gen, **factory)

    def rows(self, inputs, which):
        return inputs[0][which], inputs[1]


class TestRelativeError(Conformance):
    kind = "function"

    def make(self):
        return lambda a, b: (ds.relative_l1(a, b).to(a.dtype), ds.relative_l2(a, b).to(a.dtype))

    def inputs(self, gen, **factory):
        return torch.randn(3, 8, 2, generator=gen, **factory), torch.randn(3, 8, 2, generator=gen, **factory)


def test_every_public_class_is_covered():
    exempt = {
        "Domain": "plain data, no call to conform",
        "History": "plain data, no call to conform",
    }
    assert_all_covered(ds, sys.modules[__name__], exempt)
