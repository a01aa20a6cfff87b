"""Data of the experiments: generators, readers of the field's files, sets of points and batches of them."""

from collections.abc import Callable
from importlib import import_module

_HOMES = {
    "airfoil_solver": ("airfoil", "naca_section", "potential_flow"),
    "burgers_solver": ("burgers", "gaussian_field", "solve_burgers"),
    "clouds": ("Batches", "collate_point_clouds", "contracting_expanding", "random_subset"),
    "elasticity_solver": ("elasticity", "ring_mesh", "solve_plane_stress"),
    "loaders": (
        "load_airfoil", "load_burgers", "load_elasticity", "load_hdf5", "load_lattice_pairs", "load_mat", "load_mesh",
        "load_netcdf", "load_npy",
    ),
    "shallow_water_solver": ("ShallowWater", "shallow_water"),
    "shear_solver": ("shear_layer", "solve_navier_stokes"),
    "tracer_solver": ("Tracer", "humidity"),
    "winds": ("Winds",),
}  # fmt: skip
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Callable:
    """What is asked for, imported on first use: nobody needs all solvers."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
