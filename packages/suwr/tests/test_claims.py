"""Each claim runs at smoke scale; the figures draw."""

import gzip

import numpy as np
import pytest
from offprints.claims import MissingResource, Runs
from suwr import experiments
from suwr.claims import METHOD


@pytest.fixture(scope="module")
def outputs():
    found = {}
    for claim in METHOD.claims.values():
        metrics, series = claim.measure(0, claim.smoke, "cpu")
        found[claim.id] = {"metrics": metrics, "series": series}
    return found


@pytest.mark.parametrize("claim", METHOD.claims)
def test_smoke(claim, outputs):
    assert all(np.isfinite(value) for value in outputs[claim]["metrics"].values())


def test_what_must_hold_holds_at_smoke_scale_too(outputs):
    no_leak = outputs["no-leak"]["metrics"]
    assert [no_leak[f"violations_{name}"] for name in ("digits", "cancer", "syn4")] == [0, 0, 0]
    assert no_leak["feature_nats"] <= 1e-6
    coded = outputs["front"]["metrics"]
    assert coded["coded_loss"] == 0
    assert coded["honest_loss"] == pytest.approx(coded["ln2"])
    optimum = outputs["optimum"]["metrics"]
    for lam in experiments.AND_PRICES:
        assert optimum[f"objective_{lam:g}"] >= optimum[f"optimum_{lam:g}"] - 1e-6
    assert optimum["optimum_1"] == pytest.approx(2.671875)


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    drawn = declared.draw({need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs})
    drawn.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000


def test_the_full_scale_recipe_runs_on_files_of_that_format(tmp_path, monkeypatch):
    monkeypatch.setenv("SUWR_DATA", str(tmp_path))
    with pytest.raises(MissingResource, match="train-images"):
        experiments.mnist(0, 1, "cpu")
    gen = np.random.default_rng(0)
    for part, n in (("train", 40), ("t10k", 20)):
        y = np.arange(n, dtype=np.uint8) % 2
        X = (gen.integers(0, 100, (n, 5, 5)) + 150 * y[:, None, None]).astype(np.uint8)
        head = lambda kind, *shape: bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()  # noqa: E731
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(head(8, n, 5, 5) + X.tobytes())
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head(8, n) + y.tobytes()))
    found = experiments.mnist(0, 1, "cpu")
    assert 0 <= found["accuracy"] <= 1
    assert found["patches"] <= 25
