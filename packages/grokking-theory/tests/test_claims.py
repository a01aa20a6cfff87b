"""The path of every claim and figure, at smoke scale."""

import numpy as np
import pytest
from grokking_theory.claims import METHOD
from grokking_theory.claims_training import _crossing
from offprints.claims import Runs, Scale
from offprints.testing import run_smoke


@pytest.fixture(scope="module")
def outputs():
    found = {}
    for claim in METHOD.claims.values():
        metrics, series = claim.measure(0, claim.smoke, "cpu")
        found[claim.id] = {"metrics": metrics, "series": series}
    return found


@pytest.mark.parametrize("claim", METHOD.claims)
def test_smoke(claim, outputs):
    assert outputs[claim]["metrics"]


def test_theorems_hold_at_smoke_scale_too():
    found = run_smoke(METHOD, "construction")
    assert found["error"] < 1e-10
    found = run_smoke(METHOD, "kernel-classification")
    assert found["loss_ntk_20"] >= found["bound_20"] > 0
    assert found["accuracy_rbf_50"] < 1 / 5


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    drawn = declared.draw(runs)
    drawn.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


TINY = {
    "grokking": {"p": 11, "width": 44, "steps": 2, "every": 1},
    "transformer": {"p": 11, "dim": 16, "steps": 2, "every": 1, "points": 8},
    "rich-regime": {"ps": (5, 7, 11), "steps": 2},
    "sample-complexity": {"ps": (11, 17, 23), "cells": 2, "steps": 2},
    "regression-sample-size": {"p": 5, "steps": 2},
}


@pytest.mark.parametrize("claim", [claim for claim in METHOD.claims.values() if claim.full], ids=lambda claim: claim.id)
def test_the_full_scale_recipe_takes_a_step(claim):
    sizes = claim.full.sizes | TINY[claim.id]
    assert claim.full.needs
    metrics, _ = claim.measure(0, Scale(seeds=1, **sizes), "cpu")
    assert all(np.isfinite(value) for value in metrics.values())


def test_crossing_is_linear_in_log_n():
    n = np.array([100.0, 200.0, 400.0])
    assert _crossing(n, np.array([0.0, 0.25, 0.75]), 0.5, 999.0) == pytest.approx(200 * 2**0.5)
    assert _crossing(n, np.array([0.6, 0.7, 0.8]), 0.5, 999.0) == 100
    assert _crossing(n, np.array([0.0, 0.1, 0.2]), 0.5, 999.0) == 999
