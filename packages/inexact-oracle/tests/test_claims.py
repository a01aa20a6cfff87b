"""Each claim runs at smoke scale; the figures draw."""

import numpy as np
import pytest
from inexact_oracle import experiments, figures
from inexact_oracle.claims import METHOD
from offprints.claims import Runs
from offprints.testing import run_smoke


@pytest.mark.parametrize("claim", METHOD.claims)
def test_claim(claim):
    metrics = run_smoke(METHOD, claim)
    again = METHOD.claims[claim].measure(0, METHOD.claims[claim].smoke, "cpu")[0]
    assert metrics == pytest.approx(again, abs=1e-12)


def test_theorem_is_stated_with_its_constants():
    """(M + 2 eta_g) R / sqrt(T) + 4 eta, in units of eta."""
    from inexact_oracle.data import max_affine
    from offprints.seeding import spawn

    metrics = experiments.transfer(0, 3, 6, 25, 50)
    f = max_affine(3, 6, spawn(0, 2)[0])
    assert metrics["theorem"] == pytest.approx((f.lipschitz + 2 * 0.025) * 1.0 / 5.0 / 0.05 + 4)
    assert metrics["error"] <= metrics["theorem"]


def test_error_curve_follows_what_the_algorithm_holds():
    values = iter([3.0, 1.0, 2.0])

    def run(oracle):
        for t in (0.0, 1.0, 2.0):
            oracle(np.array([t]))

    noisy = lambda x: (next(values), x)  # noqa: E731
    truth = lambda x: (10.0 * float(x[0]) + 5.0, x)  # noqa: E731
    assert experiments.error_curve(run, noisy, truth, 5.0, 5, 0.5) == [0.0, 20.0, 20.0, 20.0, 20.0]


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figure(figure):
    pytest.importorskip("matplotlib")
    needs = METHOD.figures[figure].needs
    runs = {}
    for claim in needs:
        outputs = []
        for seed in (0, 1):
            metrics, series = METHOD.claims[claim].measure(seed, METHOD.claims[claim].smoke, "cpu")
            outputs.append({"metrics": metrics, "series": series})
        runs[claim] = Runs((0, 1), tuple(outputs))
    drawn = METHOD.figures[figure].draw(runs)
    assert len(drawn.axes) == {"errors": len(figures.PANELS), "bounds": 2, "picture": 1}[figure]
    for ax in drawn.axes:
        assert ax.lines
        assert ax.get_xlabel()
