"""Fourier neural operators on arbitrary point sets by direct spectral evaluation.

From "Beyond Regular Grids: Fourier-Based Neural Operators on Arbitrary Domains" (ICML 2024): the few modes that a layer
keeps are evaluated directly, as real matrix products, on clouds, product lattices and the sphere.
"""

from direct_spectral._version import VERSION as __version__
from direct_spectral.baselines import GeoFNO, PointMLP
from direct_spectral.basis import FourierBasis
from direct_spectral.contract import Basis
from direct_spectral.domain import Domain, fit_bounds
from direct_spectral.functional import inudft, nudft, relative_l1, relative_l2
from direct_spectral.interpolation import GridFNO, InterpFNO, neuralop_fno
from direct_spectral.lattice import LatticeBasis
from direct_spectral.layers import (
    DirectSpectralConv,
    FactorizedSpectralConv,
    GridSpectralConv,
    SphericalSpectralConv,
    parameter_count,
)
from direct_spectral.models import FFNODSE, FNODSE
from direct_spectral.operator import PointOperator
from direct_spectral.sphere import SphericalBasis, gauss_legendre_grid, latlon_weights, real_sph_harm
from direct_spectral.spherical import SFNODSE
from direct_spectral.train import History, evaluate, rollout, train_operator
from direct_spectral.unet import UFNODSE

__all__ = [
    "FFNODSE",
    "FNODSE",
    "SFNODSE",
    "UFNODSE",
    "Basis",
    "DirectSpectralConv",
    "Domain",
    "FactorizedSpectralConv",
    "FourierBasis",
    "GeoFNO",
    "GridFNO",
    "GridSpectralConv",
    "History",
    "InterpFNO",
    "LatticeBasis",
    "PointMLP",
    "PointOperator",
    "SphericalBasis",
    "SphericalSpectralConv",
    "__version__",
    "evaluate",
    "fit_bounds",
    "gauss_legendre_grid",
    "inudft",
    "latlon_weights",
    "neuralop_fno",
    "nudft",
    "parameter_count",
    "real_sph_harm",
    "relative_l1",
    "relative_l2",
    "rollout",
    "train_operator",
]
