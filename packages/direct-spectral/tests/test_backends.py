"""Other ways to the same sums, tables built in pieces, quadratures, and what a basis remembers."""

import builtins
import math
import pickle  # noqa: TID251 -- users pickle modules into worker processes
from copy import deepcopy

import pytest
import torch
from direct_spectral import FFNODSE, FNODSE, UFNODSE, FourierBasis, LatticeBasis, SphericalBasis
from direct_spectral.backends import CROSSOVER, CROSSOVER_POINTS
from direct_spectral.domain import Domain, fit_bounds
from direct_spectral.memo import Memo
from direct_spectral.quadrature import cell_areas
from offprints.seeding import rng

DOUBLE = torch.float64
BOX = ((0.0, 1.0), (0.0, 1.0))


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=rng(seed, "cpu"), dtype=DOUBLE)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed, "cpu"), dtype=DOUBLE)


def grid(*sizes):
    return torch.cartesian_prod(*[torch.arange(n, dtype=DOUBLE) / n for n in sizes]).reshape(-1, len(sizes))


def close(a, b, tol=1e-11):
    torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=tol * max(1.0, float(b.detach().abs().max())))


def both_ways(a, b, n, tol=1e-11):
    u, m = noise(2, 3, n), len(a.modes)
    c = noise(2, 3, m) + 1j * noise(2, 3, m, seed=1)
    close(a.forward(u), b.forward(u), tol)
    close(a.inverse(c), b.inverse(c), tol)


@pytest.mark.parametrize("modes", [(5,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize(("quadrature", "clouds"), [("mean", 1), ("voronoi", 2)])
def test_finufft_is_the_direct_sum(modes, quadrature, clouds):
    dim = len(modes)
    points = 5 * uniform(clouds, 50, dim) - 2
    options = {"bounds": [(0.0, 1.5)] * dim, "quadrature": quadrature}
    basis = FourierBasis(points, modes, backend="finufft", **options)
    assert basis.backend == "finufft"
    u = noise(2, 3, 50)
    close(basis.forward(u), FourierBasis(points, modes, **options).forward(u))
    both_ways(basis, FourierBasis(points, modes, **options), 50)
    low = FourierBasis(points.float(), modes, backend="finufft", **options)
    both_ways_low = low.forward(u.float())
    close(both_ways_low.to(torch.complex128), basis.forward(u), 1e-4)
    if clouds == 1:
        both_ways(basis.at(points[0, :20]), FourierBasis(points, modes, **options).at(points[0, :20]), 20)


def test_finufft_has_gradients():
    points = uniform(20, 2).requires_grad_()
    u = noise(1, 1, 20).requires_grad_()
    grads = []
    for backend in ("direct", "finufft"):
        basis = FourierBasis(points, (2, 3), BOX, backend=backend)
        value = (basis.synthesise(basis.analyse(u)) ** 2).sum()
        grads.append(torch.autograd.grad(value, (points, u)))
    for a, b in zip(*grads, strict=True):
        close(a, b, 1e-9)


@pytest.mark.parametrize(("modes", "sizes"), [((5,), (12,)), ((3, 4), (8, 10)), ((2, 3, 2), (6, 8, 5))])
def test_auto_takes_the_fft_on_grids(modes, sizes):
    for start in (0.0, 0.123):
        basis = FourierBasis(grid(*sizes) + start, modes, [(0, 1)] * len(sizes), backend="auto")
        assert basis.backend == "fft"
        assert basis.table is None
        both_ways(basis, FourierBasis(grid(*sizes) + start, modes, [(0, 1)] * len(sizes)), math.prod(sizes))
    query = uniform(7, len(sizes))
    c = noise(1, 1, len(basis.modes)) + 0j
    close(basis.at(query).inverse(c), FourierBasis(grid(*sizes), modes, [(0, 1)] * len(sizes)).at(query).inverse(c))


@pytest.mark.parametrize(
    "points",
    [
        grid(8, 8) + 1e-6 * uniform(64, 2),  # not quite a grid
        grid(8, 8).flip(0),  # another order
        grid(8, 8)[:-1],  # a hole
        grid(4, 8),  # too coarse for the modes
        grid(8, 8).requires_grad_(),  # positions with a gradient
        grid(8, 8).expand(2, -1, -1),  # a cloud for each sample
    ],
)
def test_auto_takes_no_fft_elsewhere(points):
    assert FourierBasis(points, (4, 2), BOX, backend="auto").backend == "direct"


def test_auto_takes_no_fft_on_a_box_with_ends():
    assert FourierBasis(grid(8, 8), (4, 2), BOX, periodic=False, backend="auto").backend == "direct"


def test_auto_takes_finufft_past_the_crossover():
    n = CROSSOVER_POINTS + 1
    few, many = 4, math.ceil((CROSSOVER / 4) ** 0.5) + 1
    make = lambda n, m, **more: FourierBasis(uniform(n, 2), m, BOX, backend="auto", **more)  # noqa: E731
    assert make(n, many).backend == "finufft"
    assert make(n, few).backend == "direct"
    assert make(n - 1, many).backend == "direct"
    assert make(200, 3, quadrature="lstsq").backend == "direct"


def test_a_missing_library_is_named(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest, **more):
        if name.split(".")[0] in ("pytorch_finufft", "neuralop"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(
        ModuleNotFoundError, match=r'pytorch_finufft is missing: pip install "direct-spectral\[nufft\]"'
    ):
        FourierBasis(uniform(9, 2), 2, BOX, backend="finufft")
    from direct_spectral import neuralop_fno

    with pytest.raises(ModuleNotFoundError, match=r'neuralop is missing: pip install "direct-spectral\[grid\]"'):
        neuralop_fno((2, 2), 1, 1)


@pytest.mark.parametrize("batch", [1, 2])
def test_tables_in_pieces(batch):
    points, u = uniform(batch, 50, 2).requires_grad_(), noise(2, 3, 50).requires_grad_()
    results = []
    for size in (2**30, 5000):
        basis = FourierBasis(points, (3, 2), BOX, max_basis_bytes=size)
        assert (basis.table is None) == (size == 5000)
        value = basis.synthesise(basis.analyse(u) ** 2)
        results.append((value, *torch.autograd.grad((value**3).sum(), (points, u))))
        with torch.no_grad():
            close(basis.synthesise(basis.analyse(u) ** 2), value)
    for a, b in zip(*results, strict=True):
        close(a, b)
    assert len(basis._pieces()) > 1


def test_areas_of_known_cells():
    for periodic in (True, False):
        domain = Domain.of(BOX, periodic)
        centres = (grid(4, 5) * torch.tensor([4, 5]) + 0.5) / torch.tensor([4, 5])
        close(cell_areas(centres, domain), torch.full((20,), 1 / 20, dtype=DOUBLE), 1e-9)
    line = torch.tensor([[0.1], [0.2], [0.6]], dtype=DOUBLE)
    close(cell_areas(line, Domain.of([(0, 1)], False)), torch.tensor([0.15, 0.25, 0.6], dtype=DOUBLE))
    close(cell_areas(line, Domain.of([(0, 1)], True)), torch.tensor([0.3, 0.25, 0.45], dtype=DOUBLE))
    close(
        cell_areas(2 * line[[2, 0, 1, 1]], Domain.of([(0, 2)], True)),
        torch.tensor([0.45, 0.3, 0.125, 0.125], dtype=DOUBLE),
    )
    corner = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]], dtype=DOUBLE)
    close(cell_areas(corner, Domain.of(BOX, False)), torch.tensor([0.125] * 4 + [0.5], dtype=DOUBLE), 1e-5)
    wide = Domain.of([(0.0, 4.0), (0.0, 1.0)], False)
    pair = torch.tensor([[1.0, 0.5], [3.0, 0.25]], dtype=DOUBLE)
    with_y = cell_areas(pair, wide)
    assert float(with_y[0]) == pytest.approx(0.5, abs=0.02)
    for dim in (1, 2, 3):
        for periodic in (True, False):
            areas = cell_areas(uniform(2, 40, dim), Domain.of([(0.0, 1.0)] * dim, periodic))
            close(areas.sum(-1), torch.ones(2, dtype=DOUBLE), 1e-6)
            assert (areas > 0).all()


def test_volumes_against_sampling():
    points = uniform(12, 3)
    sample = uniform(40_000, 3, seed=1)
    near = torch.cdist(sample, points).argmin(1).bincount(minlength=12) / 40_000
    close(cell_areas(points, Domain.of([(0.0, 1.0)] * 3, False)), near.double(), 0.01)


def test_user_weights_of_one_cloud_or_each():
    points, u = uniform(2, 9, 2), noise(2, 1, 9)
    weights = uniform(9)
    weights = weights / weights.sum()
    one = FourierBasis(points, 2, BOX, quadrature=weights).forward(u)
    close(one, FourierBasis(points, 2, BOX, quadrature=weights.expand(2, -1)).forward(u))
    close(one[1:], FourierBasis(points[1], 2, BOX, quadrature=weights).forward(u[1:]))


def test_a_precomputed_basis_is_recognised_and_forgotten():
    model = FNODSE(2, 1, 1, 4, (2, 2), bounds=BOX, init="normal", dtype=DOUBLE)
    points, u = uniform(20, 2), noise(2, 20, 1)
    basis = FourierBasis(points, (2, 2), BOX, periodic=False)
    wanted = model(u, points)
    assert model.precompute(basis) is model
    close(model(u), wanted)
    close(model(u, points), wanted)
    close(model(u, basis), wanted)
    assert basis.matches(points)
    assert not basis.matches(points.clone())
    other = points.clone()
    points.mul_(0.5)  # written to: the basis is another's now
    assert not basis.matches(points)
    close(model(u, points), FNODSE_at(model, u, points))
    close(model(u), wanted)
    for copy in (deepcopy(model), pickle.loads(pickle.dumps(model))):
        close(copy(u, other), wanted)
    assert not any("basis" in name for name in model.state_dict())
    model.precompute(None)
    with pytest.raises(ValueError, match="points must be given"):
        model(u)
    with torch.inference_mode():
        inside = uniform(20, 2)
        assert not FourierBasis(inside, (2, 2), BOX).matches(inside)


def FNODSE_at(model, u, points):
    return deepcopy(model).precompute(None)(u, points)


@pytest.mark.parametrize("make", [FNODSE, FFNODSE])
def test_models_on_lattices(make):
    axes = [uniform(5), uniform(4, seed=1)]
    model = make(2, 1, 1, 4, (2, 2), bounds=BOX, init="normal", query_head=True, dtype=DOUBLE)
    lattice = LatticeBasis(axes, (2, 2), BOX, periodic=False)
    u = noise(2, 20, 1)
    y = model.precompute(lattice)(u)
    assert y.shape == (2, 20, 1)
    if make is FNODSE:  # a factorised transform of a lattice runs along each line, of a cloud over all points
        close(y, model.precompute(None)(u, lattice.points()))
        query = uniform(3, 2)
        close(model(u, lattice, query), model(u, lattice.points(), query))


def test_a_query_head_is_one_function():
    for make in (FNODSE, FFNODSE):
        model = make(2, 1, 1, 4, (2, 2), bounds=BOX, init="normal", query_head=True, dtype=DOUBLE)
        points, u = uniform(2, 20, 2), noise(2, 20, 1)
        close(model(u, points, points[:, :5]), model(u, points)[:, :5])
        mask = torch.ones(2, 5, dtype=torch.bool)
        mask[1, 2:] = False
        part = model(u, points, points[:, :5], out_mask=mask)
        close(part[0], model(u, points)[0, :5])
        assert (part[1, 2:] == 0).all()


def test_positions_have_gradients_through_a_model():
    model = FNODSE(2, 1, 1, 4, (2, 2), 2, bounds=BOX, init="normal", query_head=True, dtype=DOUBLE)
    points, u, query = uniform(10, 2), noise(1, 10, 1), uniform(3, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda query: model(u, points, query), (query,))


def test_fit_scales_and_a_saved_model(tmp_path):
    model = UFNODSE(2, 1, 2, 4, (2, 2), 8, bounds=BOX, dtype=DOUBLE)
    u, y = 5 + 3 * noise(4, 20, 1), torch.cat([1e6 * noise(4, 20, 1, seed=1), 7 + 0 * noise(4, 20, 1)], -1)
    model.fit_scales(u, y)
    close(model.in_mean, u.mean((0, 1)))
    close(model.out_std, torch.stack([y[..., 0].std(correction=0), torch.ones(()).double()]))
    mask = torch.arange(20) < torch.tensor([[20], [5], [5], [5]])
    assert not torch.equal(deepcopy(model).fit_scales(u, y, mask).in_mean, model.in_mean)
    points = uniform(20, 2)
    model.eval()
    model.save_pretrained(tmp_path / "kept")
    again = UFNODSE.from_pretrained(tmp_path / "kept")
    assert not again.training
    close(again(u, points), model(u, points), 0.0)
    assert {x.name for x in (tmp_path / "kept").iterdir()} == {"model.safetensors", "model.json"}
    with pytest.raises(ValueError, match="must be a checkpoint of FNODSE, got UFNODSE. Use UFNODSE.from_pretrained"):
        FNODSE.from_pretrained(tmp_path / "kept")
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        FNODSE.from_pretrained(tmp_path / "none")
    low = FNODSE(2, 1, 1, 4, 2, bounds=BOX, dtype=torch.bfloat16)
    low.save_pretrained(tmp_path / "low")
    assert next(FNODSE.from_pretrained(tmp_path / "low").parameters()).dtype == torch.bfloat16


def test_bounds_of_a_training_set():
    clouds = [torch.tensor([[0.0, 5.0], [2.0, 6.0]]), torch.tensor([[-1.0, 5.5]])]
    assert fit_bounds(clouds) == ((-1.0, 2.0), (5.0, 6.0))
    assert fit_bounds(clouds[0][None], margin=0.5) == ((-1.0, 3.0), (4.5, 6.5))
    assert Domain.of(((0, 2),), True).to_config() == {"bounds": [[0.0, 2.0]], "periodic": [True], "gap": 0.9}
    close(
        Domain.of(((1, 3),), False, 0.5).angles(torch.tensor([[1.0], [3.0]], dtype=DOUBLE)),
        torch.tensor([[0.0], [math.pi]], dtype=DOUBLE),
    )


def test_sphere_tables_are_remembered():
    points = torch.nn.functional.normalize(noise(3, 20, 3), dim=-1)
    first = SphericalBasis(points, 4, coordinates="xyz").table
    close(SphericalBasis(points, 4, coordinates="xyz").table, first, 0.0)
    close(SphericalBasis(points[1], 4, coordinates="xyz").table, first[1], 0.0)


def test_a_memo_lets_go_of_the_oldest():
    memo = Memo(100)
    rows = [torch.arange(5.0).numpy() + i for i in range(4)]  # 20 bytes each
    keys = [memo.key(row) for row in rows]
    assert len(set(keys)) == 4
    assert memo.key(rows[0].reshape(1, 5)) != keys[0]
    for key, row in zip(keys[:2], rows, strict=False):
        memo.put(key, row, row)
    assert memo.get(keys[0]) is not None
    memo.put(keys[2], rows[2], rows[2])  # 120 bytes: the one not used since goes
    assert memo.get(keys[1]) is None
    assert memo.get(keys[0]) is not None
    assert memo.held == 80
