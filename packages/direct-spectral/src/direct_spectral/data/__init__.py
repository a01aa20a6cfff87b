"""Data of the experiments: generators, readers of the field's files, sets of points and batches of them."""

from direct_spectral.data.burgers import burgers, gaussian_field, solve_burgers
from direct_spectral.data.clouds import Batches, collate_point_clouds, contracting_expanding, random_subset
from direct_spectral.data.elasticity import elasticity, ring_mesh, solve_plane_stress
from direct_spectral.data.loaders import (
    load_airfoil,
    load_burgers,
    load_elasticity,
    load_hdf5,
    load_lattice_pairs,
    load_mat,
    load_mesh,
    load_netcdf,
    load_npy,
)
from direct_spectral.data.shallow_water import ShallowWater, shallow_water
from direct_spectral.data.shear import shear_layer, solve_navier_stokes
from direct_spectral.data.winds import Winds

__all__ = [
    "Batches",
    "ShallowWater",
    "Winds",
    "burgers",
    "collate_point_clouds",
    "contracting_expanding",
    "elasticity",
    "gaussian_field",
    "load_airfoil",
    "load_burgers",
    "load_elasticity",
    "load_hdf5",
    "load_lattice_pairs",
    "load_mat",
    "load_mesh",
    "load_netcdf",
    "load_npy",
    "random_subset",
    "ring_mesh",
    "shallow_water",
    "shear_layer",
    "solve_burgers",
    "solve_navier_stokes",
    "solve_plane_stress",
]
