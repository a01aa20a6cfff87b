"""Readers of the field's files: MATLAB, NumPy, HDF5, netCDF, and meshes of every format that meshio knows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from offprints.checks import message


def _file(path: str | Path, *, folder: bool = False) -> Path:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no {'folder' if folder else 'file'} at {path}.")
    return path


def _missing(name: str, extra: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f'{name} is missing: pip install "direct-spectral[{extra}]"')


def load_mat(path: str | Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of a MATLAB file, version 7.3 (HDF5; read transposed, as MATLAB shows them) or older.

    Raises:
        FileNotFoundError: if it is not there.
        ModuleNotFoundError: if it is of version 7.3 and h5py is not installed.
        ValueError: if it is no such file, or a name is not in it.
    """
    from scipy.io import loadmat

    path = _file(path)
    try:
        found = {k: v for k, v in loadmat(path).items() if not k.startswith("__")}
    except NotImplementedError:  # version 7.3
        found = {name: values.T for name, values in load_hdf5(path).items()}
    except (ValueError, TypeError, OSError, IndexError) as error:
        raise ValueError(message(str(path), "a MATLAB file", f"an error: {error}")) from error
    return _named(path, found, names)


def load_hdf5(path: str | Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an HDF5 file (.h5, .hdf5), by their full name without the leading slash.

    Raises:
        FileNotFoundError: if it is not there.
        ModuleNotFoundError: if h5py is not installed.
        ValueError: if it is no such file, or a name is not in it.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise _missing("h5py", "mat") from error
    path, found = _file(path), {}
    try:
        with h5py.File(path, "r") as file:
            file.visititems(
                lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
            )
    except OSError as error:
        raise ValueError(message(str(path), "an HDF5 file", f"an error: {error}")) from error
    return _named(path, {name: x for name, x in found.items() if isinstance(x, np.ndarray)}, names)


def load_npy(path: str | Path) -> np.ndarray:
    """An array of numbers; files that would run code (pickles) are refused.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is no such file.
    """
    path = _file(path)
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(message(str(path), "a .npy file of numbers", f"an error: {error}")) from error


def load_netcdf(path: str | Path, var: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A variable of a netCDF file, and its coordinates by name.

    Raises:
        FileNotFoundError: if it is not there.
        ModuleNotFoundError: if xarray is not installed.
        ValueError: if there is no such variable, or the file is none.
    """
    try:
        import xarray
    except ModuleNotFoundError as error:
        raise _missing("xarray", "geo") from error
    path = _file(path)
    try:
        opened = xarray.open_dataset(path, decode_times=False)
    except (ValueError, OSError) as error:
        raise ValueError(message(str(path), "a netCDF file", f"an error: {error}")) from error
    with opened as data:
        if var not in data.data_vars:
            raise ValueError(message(f"variable of {path}", f"one of {', '.join(map(str, data.data_vars))}", repr(var)))
        field = data[var]
        return field.to_numpy(), {str(name): axis.to_numpy() for name, axis in field.coords.items() if axis.ndim == 1}


def load_mesh(path: str | Path, dim: int | None = None) -> dict[str, torch.Tensor]:
    """Nodes and fields of a mesh (.vtk, .vtu, .msh, .xdmf, …), float32.

    Args:
        path: of any format that meshio reads.
        dim: coordinates kept; by default those that vary (planar meshes are often stored in three dimensions).

    Returns:
        "points" (N, d), and each nodal field under its name, (N, C).

    Raises:
        FileNotFoundError: if it is not there.
        ModuleNotFoundError: if meshio is not installed.
        ValueError: if it cannot be read, has no nodes, or `dim` is more than it has.
    """
    try:
        import meshio
    except ModuleNotFoundError as error:
        raise _missing("meshio", "mesh") from error
    path = _file(path)
    try:
        mesh = meshio.read(path)
    except (meshio.ReadError, SystemExit, ValueError, KeyError) as error:
        raise ValueError(message(str(path), "a mesh that meshio reads", f"an error: {error}")) from error
    nodes = np.asarray(mesh.points, dtype=np.float64)
    if not len(nodes):
        raise ValueError(message(str(path), "a mesh with nodes", "none"))
    if dim is None:
        dim = max([axis + 1 for axis in range(nodes.shape[1]) if np.ptp(nodes[:, axis]) > 0], default=1)
    if dim > nodes.shape[1]:
        raise ValueError(message("dim", f"at most {nodes.shape[1]} (of {path})", dim))
    found = {"points": torch.from_numpy(nodes[:, :dim]).float()}
    for name, values in mesh.point_data.items():
        field = np.asarray(values, dtype=np.float64).reshape(len(nodes), -1)
        found[name] = torch.from_numpy(field).float()
    return found


def _named(path: Path, found: dict[str, np.ndarray], names: Sequence[str] | None) -> dict[str, np.ndarray]:
    if lacking := [name for name in names or () if name not in found]:
        raise ValueError(message(f"fields of {path}", f"among {', '.join(sorted(found))}", ", ".join(lacking)))
    return {name: found[name] for name in names} if names else found


def _floats(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def load_burgers(path: str | Path, indices: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """The Burgers file of the FNO paper: "a" (n, 8192) initial and "u" (n, 8192) final values on [0, 1).

    Args:
        path: .mat file.
        indices: of the points to keep, such as `contracting_expanding` gives.

    Raises:
        ValueError: if shapes differ, or indices lie outside.
    """
    found = load_mat(path, ["a", "u"])
    if found["a"].shape != found["u"].shape or found["a"].ndim != 2:
        raise ValueError(message(str(path), "a and u of one shape (n, N)", f"{found['a'].shape}, {found['u'].shape}"))
    n = found["a"].shape[1]
    chosen = torch.arange(n) if indices is None else indices
    if chosen.min() < 0 or chosen.max() >= n:
        raise ValueError(message("indices", f"between 0 and {n - 1}", f"{int(chosen.min())} to {int(chosen.max())}"))
    u, y = (_floats(found[name])[:, chosen].unsqueeze(-1) for name in ("a", "u"))
    return {"u": u, "y": y, "points": (chosen / n).float().reshape(1, -1, 1)}


def load_elasticity(folder: str | Path) -> dict[str, torch.Tensor]:
    """The Elasticity files of the Geo-FNO paper: positions (972, 2, n) and stresses (972, n) of meshes in a folder.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if shapes differ.
    """
    folder = _file(folder, folder=True)
    points = load_npy(folder / "Meshes" / "Random_UnitCell_XY_10.npy")
    stress = load_npy(folder / "Meshes" / "Random_UnitCell_sigma_10.npy")
    if points.ndim != 3 or points.shape[1] != 2 or stress.shape != (points.shape[0], points.shape[2]):
        wanted = "positions (N, 2, n) and stresses (N, n)"
        raise ValueError(message(str(folder), wanted, f"{points.shape} and {stress.shape}"))
    places = _floats(points.transpose(2, 0, 1))
    return {"points": places, "u": places[..., :0], "y": _floats(stress.T).unsqueeze(-1)}


def load_airfoil(folder: str | Path, around: int = 45, depth: int = 8) -> dict[str, torch.Tensor]:
    """The Airfoil files of the Geo-FNO paper: C-meshes (n, 221, 51) and Mach numbers, cropped around the airfoil.

    Args:
        folder: with NACA_Cylinder_X.npy, _Y.npy and _Q.npy.
        around: nodes kept along the airfoil, in the middle of the mesh.
        depth: layers kept away from it.

    Raises:
        FileNotFoundError: if a file is not there.
        ValueError: if shapes differ, or less is there than to be kept.
    """
    folder = _file(folder, folder=True)
    x, y, q = (load_npy(folder / f"NACA_Cylinder_{name}.npy") for name in "XYQ")
    if x.ndim != 3 or y.shape != x.shape or q.ndim != 4 or q.shape[0] != x.shape[0] or q.shape[2:] != x.shape[1:]:
        wanted = "X and Y of shape (n, a, b), Q of shape (n, c, a, b)"
        raise ValueError(message(str(folder), wanted, f"{x.shape}, {y.shape}, {q.shape}"))
    if around > x.shape[1] or depth > x.shape[2]:
        raise ValueError(message("around and depth", f"at most {x.shape[1:]}", f"{around} and {depth}"))
    first = (x.shape[1] - around) // 2
    window = (slice(None), slice(first, first + around), slice(depth))
    points = np.stack([x[window], y[window]], -1).reshape(len(x), -1, 2)
    mach = q[:, min(4, q.shape[1] - 1)][window].reshape(len(x), -1, 1)
    return {"points": _floats(points), "u": _floats(points)[..., :0], "y": _floats(mach)}


def load_lattice_pairs(
    files: Sequence[str | Path], names: Mapping[str, str | tuple[str, str]], axes: tuple[torch.Tensor, torch.Tensor],
    times: tuple[int, int] = (0, -1),
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Pairs of fields at two times on a product lattice, a netCDF file for each sample (shear layer, humidity).

    Args:
        files: one for each sample, variables of shape (time, n_1, n_2).
        names: {"field": "QV"}, or {"field": ("u", "v")}, packed as u + iv.
        axes: indices kept along both axes.
        times: indices of input and target.

    Raises:
        ValueError: if a file holds another shape.
    """
    wanted = names["field"]
    parts = [wanted] if isinstance(wanted, str) else list(wanted)
    inputs, targets = [], []
    for file in files:
        fields = [load_netcdf(file, name)[0] for name in parts]
        for place, into in zip(times, (inputs, targets), strict=True):
            if fields[0].ndim != 3:
                raise ValueError(message(str(file), "fields of shape (time, n_1, n_2)", fields[0].shape))
            kept = [field[place][np.ix_(axes[0].numpy(), axes[1].numpy())] for field in fields]
            into.append(kept[0] + 1j * kept[1] if len(kept) == 2 else kept[0])
    dtype = torch.complex64 if len(parts) == 2 else torch.float32
    u, y = (torch.from_numpy(np.stack(part)).to(dtype).flatten(1).unsqueeze(-1) for part in (inputs, targets))
    return {"u": u, "y": y, "axes_x": axes[0].float(), "axes_y": axes[1].float()}
