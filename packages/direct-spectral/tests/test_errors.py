# ruff: noqa: E501 -- a row is a call, an error, and what it says
"""Bad input: every row says what, where, got, expected, hint; and what is allowed does no harm."""

import math
import re
import warnings

import numpy as np
import pytest
import torch
from direct_spectral import (
    FFNODSE,
    FNODSE,
    SFNODSE,
    UFNODSE,
    DirectSpectralConv,
    Domain,
    FourierBasis,
    GeoFNO,
    GridSpectralConv,
    InterpFNO,
    LatticeBasis,
    PointMLP,
    SphericalBasis,
    evaluate,
    fit_bounds,
    inudft,
    latlon_weights,
    nudft,
    real_sph_harm,
    relative_l1,
    rollout,
    train_operator,
)
from direct_spectral.baselines import Deformation
from direct_spectral.data import Batches, collate_point_clouds, contracting_expanding, random_subset
from direct_spectral.layers import FactorizedSpectralConv, SphericalSpectralConv, mix
from offprints.seeding import rng

BOX = ((0.0, 1.0), (0.0, 1.0))
NAN, INF = float("nan"), float("inf")


def cloud(n=20, d=2, seed=0):
    return torch.rand(n, d, generator=rng(seed, "cpu"))


def model(**options):
    return FNODSE(2, 1, 1, 4, (2, 2), 2, **({"bounds": BOX} | options))


def at(x, place, value):
    x = x.clone()
    x[place] = value
    return x


POINTS, U = cloud(), torch.randn(2, 20, 1, generator=rng(1, "cpu"))
BASIS = FourierBasis(POINTS, (2, 2), BOX)
SPHERE = torch.nn.functional.normalize(torch.randn(20, 3, generator=rng(2, "cpu")), dim=1)

ROWS = [
    # NaN and inf
    (lambda: FourierBasis(at(POINTS, (3, 1), NAN), 2, BOX), ValueError, "points must be finite, got 1 NaN or inf of 40"),
    (lambda: FourierBasis(at(POINTS, 3, INF), 2, BOX), ValueError, "got 2 NaN or inf of 40 entries, the first at .3, 0."),
    (lambda: model()(at(U, (1, 2), NAN), POINTS), ValueError, "u must be finite, got 1 NaN or inf of 40"),
    (lambda: model()(U, at(POINTS, 0, NAN)), ValueError, "points must be finite"),
    (lambda: SphericalBasis(at(SPHERE, 0, NAN), 2, coordinates="xyz"), ValueError, "points must be finite"),
    (lambda: LatticeBasis([at(POINTS[:, 0], 0, NAN)], 2, [(0, 1)]), ValueError, "axes.0. must be finite"),
    (lambda: nudft(at(U[..., 0], (0, 0), NAN), POINTS[:, 0], torch.arange(2)), ValueError, "u must be finite"),
    (lambda: inudft(torch.full((2,), NAN), POINTS[:, 0], torch.arange(2)), ValueError, "c must be finite"),
    (lambda: nudft(U[..., 0], at(POINTS[:, 0], 0, INF), torch.arange(2)), ValueError, "points must be finite"),
    (lambda: fit_bounds(at(POINTS, 0, NAN)), ValueError, "clouds.0. must be finite"),
    # outside the bounds
    (lambda: FourierBasis(POINTS + 0.5, 2, BOX, periodic=(True, False)), ValueError,
     r"axis 1 of points must be between 0 and 1, got \d+ of 20 points outside, from 1\.\d+ to 1\.\d+. Fit the bounds"),
    (lambda: model()(U, POINTS - 1), ValueError, "2 problems(.|\n)*axis 0 of points(.|\n)*axis 1 of points"),
    (lambda: model(query_head=True)(U, POINTS, POINTS + 1), ValueError, "points do not fit the domain"),
    (lambda: LatticeBasis([POINTS[:, 0] + 1], 2, [(0, 1)], periodic=False), ValueError, "axes.0. do not fit"),
    (lambda: GeoFNO(2, 1, 1, 4, 2, 8, bounds=BOX)(U, POINTS + 1), ValueError, "points do not fit the domain"),
    # no range
    (lambda: FourierBasis(at(POINTS, (slice(None), 1), 0.5), 2), ValueError, "axis 1 of the points must be of some range, got 0.5 at"),
    (lambda: fit_bounds([POINTS[:0]]), ValueError, "clouds must be at least one point, got none"),
    (lambda: fit_bounds([POINTS, POINTS[:, :1]]), ValueError, "clouds.1. must be points of 2 coordinates, got 1"),
    (lambda: Domain.of([(0, 0), (2, 1)], False), ValueError, r"2 problems(.|\n)*bounds.0..1.(.|\n)*bounds.1..1."),
    (lambda: Domain.of([(0, 1, 2)], False), ValueError, "bounds.0. must be a pair"),
    (lambda: Domain.of(BOX, (True,)), ValueError, "periodic must be one bool, or 2"),
    (lambda: Domain.of(BOX, 1), ValueError, "periodic.0. must be of type bool"),
    (lambda: Domain.of(BOX, False, gap=1.5), ValueError, "gap must be greater than 0.0 and at most 1.0, got 1.5"),
    # modes
    (lambda: FourierBasis(POINTS, 0, BOX), ValueError, "n_modes.0. must be an integer at least 1, got 0"),
    (lambda: FourierBasis(POINTS, (2, 2, 2), BOX), ValueError, "n_modes must be one integer, or 2 .an axis each., got 3"),
    (lambda: FourierBasis(POINTS, 2.5, BOX), TypeError, "n_modes.0. must be an integer"),
    # least squares
    (lambda: FourierBasis(POINTS, (4, 4), BOX, quadrature="lstsq"), ValueError, "points must be at least 64 .twice"),
    (lambda: FourierBasis(at(POINTS, 1, POINTS[0]), 1, BOX, quadrature="lstsq"), ValueError, "got 1 duplicates in cloud 0"),
    (lambda: FourierBasis(POINTS, 1, BOX, quadrature="lstsq").along(0, 2), ValueError, "quadrature must be a weight"),
    (lambda: SphericalBasis(SPHERE, 5, "lstsq", coordinates="xyz"), ValueError, "points must be at least 25"),
    # quadrature
    (lambda: FourierBasis(POINTS, 2, BOX, quadrature="simpson"), ValueError, "quadrature must be one of 'mean'"),
    (lambda: FourierBasis(POINTS, 2, BOX, quadrature=torch.ones(20)), ValueError, "weights of sum 1, none negative, got sums from 20"),
    (lambda: FourierBasis(POINTS, 2, BOX, quadrature=torch.ones(7) / 7), ValueError, "quadrature must be weights of shape .20,., got .7,."),
    (lambda: FourierBasis(POINTS, 2, BOX, quadrature=at(torch.ones(20) / 20, 0, NAN)), ValueError, "quadrature must be finite"),
    (lambda: FourierBasis(cloud(60, 4), 1, [(0, 1)] * 4, quadrature="voronoi"), ValueError, "at most 3 coordinates"),
    (lambda: SphericalBasis(SPHERE[:3], 1, "voronoi", coordinates="xyz"), ValueError, "at least 4 distinct ones"),
    # angles
    (lambda: SphericalBasis(cloud() * 90 + 7, 2, coordinates="lonlat"), ValueError, "angles of at most 2π, got .*units='degrees'"),
    (lambda: SphericalBasis(torch.tensor([[1.0, 100.0]]), 2, coordinates="lonlat", units="degrees"), ValueError, "latitudes between"),
    (lambda: SphericalBasis(torch.tensor([[3.5, 1.0]]), 2), ValueError, "colatitudes between 0 and π, got 1 outside. Is the order right"),
    (lambda: SphericalBasis(torch.zeros(4, 3), 1, coordinates="xyz"), ValueError, "vectors that are not zero, got 4 zeros"),
    (lambda: SphericalBasis(SPHERE, 2), ValueError, "points must be of 2 coordinates .thetaphi., got 3"),
    (lambda: SphericalBasis(SPHERE, 2, coordinates="polar"), ValueError, "coordinates must be one of"),
    (lambda: SphericalBasis(SPHERE, 0, coordinates="xyz"), ValueError, "lmax must be an integer at least 1, got 0"),
    (lambda: SphericalBasis(SPHERE[0], 2, coordinates="xyz"), ValueError, "points must be of shape .N, c."),
    (lambda: SphericalBasis(SPHERE, 2, coordinates="xyz", mask=torch.ones(20)), ValueError, "mask must be bool"),
    (lambda: real_sph_harm(2, SPHERE[:, 0], SPHERE[:3, 0]), ValueError, "phi must be of shape"),
    (lambda: latlon_weights(torch.tensor([0.0, 10.0, 5.0]), 4), ValueError, "lat must be monotone"),
    # kinds
    (lambda: FourierBasis(POINTS.long(), 2, BOX), TypeError, "points must be of a floating-point dtype, got torch.int64"),
    (lambda: FourierBasis(POINTS.numpy(), 2, BOX), TypeError, "points must be of type Tensor, got ndarray"),
    (lambda: model()(U.long(), POINTS), TypeError, "u must be of a floating-point or complex dtype, got torch.int64"),
    (lambda: model()(U, POINTS.long()), TypeError, "points must be of a floating-point dtype"),
    (lambda: model()(U.double(), POINTS), TypeError, "u must be of torch.float32, as the parameters, got torch.float64"),
    (lambda: model(query_head=True)(U, POINTS, POINTS.int()), TypeError, "out_points must be of a floating-point dtype"),
    (lambda: BASIS.forward(U.double().transpose(1, 2)), TypeError, "basis must be of float64 for values of float64"),
    (lambda: BASIS.analyse(U.transpose(1, 2).long()), TypeError, "values must be of a floating-point dtype"),
    (lambda: model().precompute("basis"), TypeError, "basis must be a basis, such as FourierBasis"),
    (lambda: GeoFNO(2, 1, 1, 4, 2, 8, bounds=BOX)(U, BASIS), TypeError, "points must be a tensor: the deformation"),
    (lambda: InterpFNO(2, 1, 1, 4, 2, 8, bounds=BOX, inner="grid")(U, LatticeBasis([POINTS[:, 0], POINTS[:, 1]], 1, BOX)), TypeError, "points must be a tensor"),
    # shapes
    (lambda: FourierBasis(POINTS[0], 2, [(0, 1)]), ValueError, "points must be of shape .N, d. or .B, N, d., got .2,."),
    (lambda: FourierBasis(POINTS, 2, [(0, 1)]), ValueError, "points must be of 1 coordinates .as bounds., got 2"),
    (lambda: BASIS.forward(U), ValueError, "values must be of shape .B, C, 20., got .2, 20, 1."),
    (lambda: BASIS.inverse(torch.ones(1, 1, 3) + 0j), ValueError, "coefficients must be of shape .B, C, 16., got .1, 1, 6."),
    (lambda: BASIS.inverse("c"), TypeError, "coefficients must be of type Tensor"),
    (lambda: FourierBasis(cloud().expand(3, -1, -1), 2, BOX).forward(U.transpose(1, 2)), ValueError, "values must be a batch of 3, as the basis, got 2"),
    (lambda: model()(U[0], POINTS), ValueError, "u must be of shape .B, N, 1., got .20, 1."),
    (lambda: model()(U[:, :7], POINTS), ValueError, "u must be of shape .B, 20, 1., got .2, 7, 1."),
    (lambda: model()(U + 0j, POINTS), ValueError, "Real and imaginary parts count as two channels"),
    (lambda: model()(U, POINTS.expand(5, -1, -1)), ValueError, "points must be a batch of 2 .as u., or of 1, got 5"),
    (lambda: model(query_head=True)(U, POINTS, POINTS.expand(5, -1, -1)), ValueError, "out_points must be a batch of 2, as u, got 5"),
    (lambda: model()(U), ValueError, "points must be given, or a basis precomputed, got neither"),
    (lambda: model()(U, POINTS, mask=torch.ones(2, 19, dtype=torch.bool)), ValueError, "mask must be of shape .2, 20. and dtype bool"),
    (lambda: model()(U, POINTS, out_mask=torch.ones(2, 20, dtype=torch.bool)), ValueError, "out_mask must be given with out_points only"),
    (lambda: model(periodic=True).precompute(BASIS)(U, mask=torch.ones(2, 20, dtype=torch.bool)), ValueError, "mask must be given to the basis"),
    (lambda: FourierBasis(POINTS, 2, BOX, mask=torch.ones(20)), TypeError, "mask must be of dtype bool"),
    (lambda: FourierBasis(POINTS, 2, BOX, mask=torch.ones(19, dtype=torch.bool)), ValueError, "mask must be of shape .20,., got .19,."),
    (lambda: FourierBasis(cloud().expand(3, -1, -1), 2, BOX, mask=torch.ones(2, 20, dtype=torch.bool)), ValueError, "mask must be of shape .3, 20."),
    (lambda: model().precompute(FourierBasis(POINTS, (3, 2), BOX, periodic=False)), ValueError, "basis must be of modes .2, 2., as the operator, got .3, 2."),
    (lambda: model().precompute(FourierBasis(POINTS, (2, 2), ((0, 2), (0, 1)), periodic=False)), ValueError, "basis must be on Domain"),
    (lambda: SFNODSE(1, 1, 4, 3).precompute(BASIS), ValueError, "basis must be a SphericalBasis of 3 degrees, got FourierBasis"),
    (lambda: FFNODSE(2, 1, 1, 4, 2, bounds=BOX).precompute(FourierBasis(POINTS, 2, ((0, 2), (0, 1)))), ValueError, "basis must be of modes|basis must be on"),
    (lambda: LatticeBasis([POINTS], 2, [(0, 1)]), ValueError, "axes.0. must be of shape .N_i,."),
    (lambda: LatticeBasis([POINTS[:, 0]], 2, BOX), ValueError, "axes must be 2 .as bounds., got 1"),
    (lambda: LatticeBasis([POINTS[:, 0]], 2, [(0, 1)]).forward(U), ValueError, "values must be of shape .B, C, 20."),
    (lambda: LatticeBasis([POINTS[:, 0]], 2, [(0, 1)]).inverse(torch.ones(1, 1, 3) + 0j), ValueError, "coefficients must be of shape .B, C, 4."),
    (lambda: nudft(U[..., 0], cloud(7), torch.ones(3, 2)), ValueError, "u must be of shape ..., 7., a value for each point|u must be of shape"),
    (lambda: nudft(U[..., 0], POINTS, torch.arange(3)), ValueError, "modes must be of 2 components"),
    (lambda: inudft(torch.ones(3), POINTS, torch.ones(4, 2)), ValueError, "c must be of shape"),
    (lambda: relative_l1(U, U[:1]), ValueError, "target must be of shape .2, 20, 1."),
    (lambda: mix(torch.ones(1, 2, 6), torch.ones(4, 2, 2, 2)), ValueError, "coefficients must be of shape .B, 2, 8."),
    (lambda: DirectSpectralConv(1, 1, (3, 2))(U.transpose(1, 2), BASIS), ValueError, "coefficients must be of shape"),
    (lambda: FactorizedSpectralConv(1, 1, (2, 2))(U.transpose(1, 2), [BASIS]), ValueError, "axes must be 2 bases"),
    (lambda: SphericalSpectralConv(1, 1, 3)(U.transpose(1, 2), SphericalBasis(SPHERE, 2, coordinates="xyz")), ValueError, "basis must be of 3 degrees, got 2"),
    (lambda: SphericalBasis(SPHERE, 2, coordinates="xyz").inverse(torch.ones(1, 1, 3)), ValueError, "coefficients must be of shape .B, C, 4."),
    (lambda: GridSpectralConv(1, 1, (3, 3))(torch.ones(1, 1, 5, 8)), ValueError, "axis 0 of the grid must be at least 6 points for 3 modes, got 5"),
    (lambda: GridSpectralConv(1, 1, (3, 3))(torch.ones(1, 1, 8)), ValueError, "the grid must be of 2 axes, got 1"),
    # arguments of operators
    (lambda: model(bounds=((0.0, 1.0),)), ValueError, "bounds must be of 2 axes .dim., got 1"),
    (lambda: FNODSE(2, 0, 1, bounds=BOX, append_positions=False), ValueError, "in_channels must be an integer at least 1, got 0"),
    (lambda: FNODSE(2, 1, 1, 0, bounds=BOX), ValueError, "width must be an integer at least 1, got 0"),
    (lambda: FNODSE(2, 1, 0, bounds=BOX), ValueError, "out_channels must be an integer at least 1, got 0"),
    (lambda: model(init="xavier"), ValueError, "init must be one of 'uniform', 'normal'"),
    (lambda: model(norm="unitary"), ValueError, "norm must be one of"),
    (lambda: model(backend="gpu"), ValueError, "backend must be one of"),
    (lambda: UFNODSE(2, 1, 1, 4, 2, 12, bounds=BOX), ValueError, "grid.0. must be a multiple of 8"),
    (lambda: UFNODSE(2, 1, 1, 4, 5, 8, bounds=BOX), ValueError, "axis 0 of the grid must be at least 10 points"),
    (lambda: model(quadrature="simpson"), ValueError, "quadrature must be one of 'mean', 'voronoi', 'lstsq'"),
    (lambda: FFNODSE(2, 1, 1, 4, 2, bounds=BOX, quadrature="lstsq"), ValueError, "one of 'mean', 'voronoi', got 'lstsq'. Least squares"),
    (lambda: SFNODSE(1, 1, 4, 3, units="deg"), ValueError, "units must be one of 'radians', 'degrees'"),
    (lambda: SFNODSE(1, 1, 4, 3, quadrature="simpson"), ValueError, "quadrature must be one of 'mean'"),
    (lambda: SFNODSE(1, 1, weight="order"), ValueError, "weight must be one of 'full', 'degree'"),
    (lambda: InterpFNO(2, 1, 1, bounds=BOX, inner="unet"), ValueError, "inner must be one of"),
    (lambda: Deformation(2)(torch.ones(3, 5)), RuntimeError, "mat1"),
    (lambda: PointMLP(2, 1, 1, bounds=BOX)(U, POINTS, POINTS[:3]), ValueError, "out_points must be None"),
    (lambda: FourierBasis(POINTS, 2, BOX, backend="fft"), ValueError, "points must be an equispaced periodic grid"),
    (lambda: FourierBasis(POINTS, 2, BOX, max_basis_bytes=0), ValueError, "max_basis_bytes must be at least 1"),
    (lambda: BASIS.derivative(torch.ones(1, 1, 8), 2), ValueError, "axis must be an integer between 0 and 1, got 2"),
    (lambda: model().fit_scales(U, torch.ones(2, 20, 3)), ValueError, "outputs must be of 1 channels"),
    (lambda: model().fit_scales(U[:0], U[:0]), ValueError, "inputs must be of 1 channels, not empty"),
    (lambda: UFNODSE(4, 1, 1, 4, 2, 8, bounds=[(0, 1)] * 4), ValueError, "dim must be an integer between 1 and 3, got 4"),
    (lambda: GeoFNO(4, 1, 1, 4, 2, 8, bounds=[(0, 1)] * 4), ValueError, "dim must be an integer between 1 and 3, got 4"),
    (lambda: InterpFNO(0, 1, 1, bounds=[]), ValueError, "dim must be an integer between 1 and 3, got 0"),
    # training
    (lambda: train_operator(model(), [], epochs=1), ValueError, "train_loader must be at least one batch, got none"),
    (lambda: train_operator(model(), [], lr=0.0), ValueError, "lr must be greater than 0"),
    (lambda: train_operator(model(), [], loss="huber"), ValueError, "loss must be one of 'l1'"),
    (lambda: train_operator(model(), [], schedule="cosine"), ValueError, "schedule must be one of"),
    (lambda: train_operator(model(), [{"u": U, "points": POINTS, "y": U * INF}], epochs=1), ValueError, "the loss must be finite, got (nan|inf) in epoch 0. Lower lr"),
    (lambda: evaluate(model(), []), ValueError, "loader must be at least one batch, got none"),
    (lambda: rollout(model(), U, POINTS, 0), ValueError, "steps must be an integer at least 1, got 0"),
    (lambda: rollout(FNODSE(2, 1, 2, 4, 2, bounds=BOX), U, POINTS, 1), ValueError, "keep must be such that 2 channels move"),
    (lambda: rollout(model().fit_scales(U, U * 1e30), U, POINTS, 9), ValueError, "the state must be finite|u must be finite"),
    # clouds
    (lambda: collate_point_clouds([]), ValueError, "samples must be at least one, got none"),
    (lambda: collate_point_clouds([{"points": POINTS, "u": POINTS[:3]}]), ValueError, "samples.0...u.. must be of 20 rows"),
    (lambda: collate_point_clouds([{"points": POINTS}, {"points": POINTS, "u": POINTS}]), ValueError, "samples.1. must be with points"),
    (lambda: Batches({"u": U, "points": cloud().expand(3, -1, -1)}), ValueError, "data must be of one length"),
    (lambda: contracting_expanding(100, 10, 50, 2.0), ValueError, "uniform must be small enough around 10"),
    (lambda: contracting_expanding(100, 50, 10, 0.5), ValueError, "growth must be at least 1.0, got 0.5"),
    (lambda: random_subset(10, 11, 0), ValueError, "count must be an integer between 1 and 10"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    ROWS,
    ids=[f"{i}-{re.sub(r'[^A-Za-z0-9]+', ' ', row[2])[:40]}" for i, row in enumerate(ROWS)],
)
def test_a_bad_call_says_what_is_wrong(act, kind, text):
    with pytest.raises(kind, match=text):
        act()


def test_the_checks_can_be_switched_off():
    assert FourierBasis(at(POINTS, 0, NAN), 2, BOX, validate=False).forward(U.transpose(1, 2)).isnan().any()
    y = model(validate=False)(at(U, (0, 0), INF), POINTS)
    assert y[0].isnan().any()
    assert y[1].isfinite().all()
    assert model(validate=False)(U, POINTS + 0.5).isfinite().all()


def test_rounding_at_the_edge_is_no_error():
    edge = at(at(POINTS.double(), (0, 0), 1 + 9e-7), (1, 0), -9e-7)
    assert model()(U, edge).isfinite().all()
    for value in (1 + 1.1e-6, -1.1e-6):
        with pytest.raises(ValueError, match="got 1 of 20 points outside"):
            model()(U, at(POINTS.double(), (0, 0), value))


def test_aliasing_is_said_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            model()(U[:, :5], POINTS[:5])
    assert len(caught) == 1
    assert "5 points for 8 modes" in str(caught[0].message)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: FourierBasis(POINTS[:7], 2, BOX), "7 points for 8 modes"),
        (lambda: FourierBasis(POINTS[:7], 1, BOX).along(1, 8), "7 points for 8 modes"),
        (lambda: FFNODSE(2, 1, 1, 4, (3, 8), bounds=BOX)(U[:, :7], POINTS[:7]), "7 points for 8 modes"),
        (lambda: GeoFNO(2, 1, 1, 4, 2, 8, bounds=BOX)(U[:, :7], POINTS[:7]), "7 points for 8 modes"),
        (lambda: SphericalBasis(SPHERE[:8], 3, coordinates="xyz"), "8 points for 9 modes"),
        (lambda: LatticeBasis([POINTS[:3, 0], POINTS[:3, 1]], 2, BOX), "3 positions along axis 0 for 2 modes"),
        (lambda: LatticeBasis([POINTS[:4, 0], POINTS[:2, 1]], 2, BOX), "2 positions along axis 1 for 2 modes"),
    ],
)
def test_too_few_points_are_said_to_alias(act, text):
    with pytest.warns(UserWarning, match=text) as caught:
        act()
    assert {str(warning.message).split(":")[0] for warning in caught} == {text}


def test_as_many_points_as_modes_are_enough():
    FourierBasis(POINTS[:8], 2, BOX).at(POINTS[:1])
    FourierBasis(POINTS[:8], 1, BOX).along(1, 8)
    SphericalBasis(SPHERE[:9], 3, coordinates="xyz").at(SPHERE[:1])
    LatticeBasis([POINTS[:4, 0], POINTS[:3, 1]], 2, BOX)


def test_queries_without_a_query_head_are_said_once():
    one = model()
    with pytest.warns(UserWarning, match="query_head=True"):
        one(U, POINTS, POINTS[:3])
    one(U, POINTS, POINTS[:3])
    assert one(U, POINTS, POINTS).shape == (2, 20, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: model(),
        lambda: model(quadrature="voronoi"),
        lambda: FFNODSE(2, 1, 1, 4, 2, bounds=BOX),
        lambda: UFNODSE(2, 1, 1, 4, 2, 8, bounds=BOX).eval(),
        lambda: GeoFNO(2, 1, 1, 4, 2, 8, bounds=BOX),
        lambda: InterpFNO(2, 1, 1, 4, 2, 8, bounds=BOX, inner="grid"),
        lambda: PointMLP(2, 1, 1, 4, bounds=BOX),
    ],
)
def test_what_is_masked_changes_nothing(make):
    points = torch.stack([cloud(20), cloud(20, seed=5)])
    mask = torch.arange(20) < torch.tensor([[20], [12]])
    one = make()
    wanted = one(U, points, mask=mask)
    for value in (NAN, INF, 1e30, -7.0):
        other = one(at(U, (1, slice(12, None)), value), at(points, (1, slice(12, None)), value), mask=mask)
        torch.testing.assert_close(other, wanted, rtol=0, atol=0)
    assert (wanted[1, 12:] == 0).all()
    alone = one(U[1:, :12], points[1:, :12])
    torch.testing.assert_close(wanted[1:, :12], alone, rtol=1e-5, atol=1e-6)
    nothing = one(U, points, mask=torch.zeros_like(mask)) if not isinstance(one, InterpFNO) else wanted * 0
    assert (nothing == 0).all()


def test_what_is_masked_changes_nothing_on_the_sphere():
    one = SFNODSE(1, 1, 4, 3, 2, coordinates="xyz")
    mask = torch.arange(20) < torch.tensor([[20], [12]])
    points = SPHERE.expand(2, -1, -1)
    for rule in ("mean", "voronoi", "lstsq"):
        one = SFNODSE(1, 1, 4, 3, 2, coordinates="xyz", quadrature=rule)
        wanted = one(U, points, mask=mask)
        other = one(at(U, (1, slice(12, None)), NAN), at(points, (1, slice(12, None)), NAN), mask=mask)
        torch.testing.assert_close(other, wanted, rtol=0, atol=0)
        torch.testing.assert_close(wanted[1:, :12], one(U[1:, :12], points[1:, :12]), rtol=1e-4, atol=1e-5)


def test_least_squares_sees_only_what_counts():
    mask = torch.arange(20) < torch.tensor([[20], [12]])
    points = torch.stack([cloud(20), cloud(20, seed=5)])
    basis = FourierBasis(points, (1, 2), BOX, mask=mask, quadrature="lstsq")
    alone = FourierBasis(points[1:, :12], (1, 2), BOX, quadrature="lstsq")
    v = U.transpose(1, 2)
    torch.testing.assert_close(
        basis.forward(at(v, (1, slice(None), slice(12, None)), NAN))[1:], alone.forward(v[1:, :, :12])
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_sum_in_thirty_two(dtype):
    one = model(init="normal")
    low = model(init="normal", dtype=dtype)
    low.load_state_dict(one.state_dict())
    y = low(U.to(dtype), POINTS)
    assert y.dtype == dtype
    assert (y.float() - one(U, POINTS)).abs().max() < 0.05 * one(U, POINTS).abs().max() + 0.02
    many = FourierBasis(cloud(5000), 2, BOX).forward(torch.ones(1, 1, 5000, dtype=dtype))
    assert many.dtype == torch.complex64
    assert abs(float(many[0, 0, 0].real) - 1) < 1e-5


def test_complex_fields_are_two_channels():
    one = FNODSE(2, 2, 2, 4, (2, 2), 2, bounds=BOX)
    z = torch.complex(U, U.flip(1))
    y = one(z, POINTS)
    assert y.dtype == torch.complex64
    torch.testing.assert_close(torch.view_as_real(y).flatten(-2), one(torch.cat([U, U.flip(1)], -1), POINTS))
    parts = BASIS.forward(z.transpose(1, 2))
    torch.testing.assert_close(parts[1], BASIS.forward(U.flip(1).transpose(1, 2)))


def test_empty_batches_and_clouds():
    assert model()(U[:0], POINTS).shape == (0, 20, 1)
    assert model()(U[:0], POINTS.expand(0, -1, -1)).shape == (0, 20, 1)
    assert model(query_head=True)(U, POINTS, POINTS[:0]).shape == (2, 0, 1)
    assert FourierBasis(POINTS, 2, BOX, backend="finufft").forward(U[:0].transpose(1, 2)).shape == (0, 1, 8)
    assert InterpFNO(2, 1, 1, 4, 2, 8, bounds=BOX, inner="grid")(U[:0], POINTS).shape == (0, 20, 1)
    assert GridSpectralConv(1, 2, (2, 2))(torch.ones(0, 1, 4, 4)).shape == (0, 2, 4, 4)
    assert LatticeBasis([POINTS[:, 0]], 2, [(0, 1)]).forward(U[:0].transpose(1, 2)).shape == (0, 1, 2)
    assert relative_l1(U[:0], U[:0]).shape == (0,)


def test_a_basis_elsewhere_moves_or_says_so():
    one = model().precompute(FourierBasis(POINTS, (2, 2), BOX, periodic=False))
    moved = FourierBasis(POINTS, (2, 2), BOX).to("meta")
    assert moved.table.is_meta
    with pytest.raises(ValueError, match="basis must be on cpu, where the values are, got meta. Move it: basis.to"):
        moved.analyse(U.transpose(1, 2))
    assert one.to("meta")(U.to("meta")).is_meta
    assert one._basis.device.type == "meta"  # it went along, once
    sphere = SphericalBasis(SPHERE, 2, "voronoi", coordinates="xyz").to("meta")
    assert sphere.table.is_meta
    assert sphere.weights.is_meta
    lattice = LatticeBasis([POINTS[:, 0], POINTS[:, 1]], 2, BOX, quadrature="voronoi").to("meta")
    assert lattice.analyse(torch.ones(1, 1, 400, device="meta")).is_meta
    assert lattice.along(0, 2).to("meta").n_points == 400


def test_a_precomputed_basis_serves_wider_values_too():
    one = model().precompute(FourierBasis(POINTS, (2, 2), BOX, periodic=False)).double()
    torch.testing.assert_close(one(U.double()), one(U.double(), POINTS), rtol=1e-5, atol=1e-6)
    assert one._basis.dtype == torch.float64


def test_points_of_any_layout_are_read_and_left_alone():
    table = np.asfortranarray(POINTS.numpy())
    table.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of read-only memory
        points = torch.from_numpy(table)
    kept = points.clone()
    torch.testing.assert_close(model(init="normal").eval()(U, points).isfinite().all(), torch.tensor(True))
    assert torch.equal(points, kept)
    far = FourierBasis(POINTS + 1e6, 2, ((1e6, 1e6 + 1), (1e6, 1e6 + 1)))
    assert (far.forward(U.transpose(1, 2)) - BASIS.forward(U.transpose(1, 2))).abs().max() < 0.3 * math.pi


def test_values_out_of_scale_are_finite():
    one = model().fit_scales(1e30 * U, 1e-30 * U)
    assert one(1e30 * U, POINTS).isfinite().all()
