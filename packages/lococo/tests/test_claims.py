"""The path of every claim and figure, at smoke scale."""

import numpy as np
import pytest
import torch
from lococo.claims import METHOD
from lococo.experiments_recall import associative_recall
from offprints.claims import Runs, Scale
from offprints.seeding import rng


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


def test_what_must_hold_holds_at_smoke_scale_too(outputs):
    found = outputs["fixed-size"]["metrics"]
    assert found["slots_excess"] == found["bytes_spread"] == 0
    assert found["times_smaller"] > 10
    assert found["bytes_full_4096"] > found["bytes_full_256"]
    found = outputs["drop-in"]["metrics"]
    assert (found["changed"], found["heads_moved"]) == (0, 1)
    found = outputs["text"]["metrics"]
    assert abs(found["lococo_32"] - found["full"]) < 0.2
    assert 0 <= outputs["recall"]["metrics"]["full"] <= 1


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000


TINY = {
    "drop-in": {"model": "tiny", "mem": 16, "context": 64, "chunk": 16},
    "fixed-size": {"lengths": (64, 70, 76, 82, 88), "mem": 16, "hidden": 32, "layers": 1, "steps": 1},
    "recall": {"mems": (8, 12, 16), "base_steps": 1, "base_batch": 4, "steps": 1, "batch": 2, "tests": 2},
    "text": {"model": "tiny", "context": 128, "chunk": 24, "steps": 1, "train": 4, "documents": 2},
    "extension": {"short": 32, "target": 128, "mem": 16, "base_steps": 1, "steps": 1, "batch": 1, "tests": 1},
}


@pytest.mark.parametrize("claim", METHOD.claims.values(), ids=lambda claim: claim.id)
def test_the_full_scale_recipe_takes_a_step(claim):
    assert claim.full.needs
    assert claim.measure(0, Scale(seeds=1, **(claim.full.sizes | TINY[claim.id])), "cpu")[0]


def test_recall_sequences_have_right_answers():
    ids, places = associative_recall(20, rng(0))
    again, _ = associative_recall(20, rng(0))
    assert torch.equal(ids, again)
    assert ids.shape == (20, 48 + 18)
    assert places.tolist() == [50, 53, 56, 59, 62, 65]
    for row in ids.numpy():
        prefix, asked = row[:48], row[48:].reshape(6, 3)
        held = {int(prefix[i]): int(prefix[i + 1]) for i in range(0, 48, 2) if 9 <= prefix[i] < 17}
        assert len(held) == 3
        assert (asked[:, 0] == 0).all()
        assert sorted(asked[:, 1]) == sorted(2 * list(held))
        assert all(held[int(key)] == value for _, key, value in asked)
        assert np.isin(prefix[1::2][prefix[::2] < 9], np.arange(1, 9)).all()
        assert 17 <= min(held.values()) <= max(held.values()) < 25
