"""The path of every claim and figure, at smoke scale."""

import json

import numpy as np
import pytest
from duplex_embed import claims_nodes, probe
from duplex_embed.claims import METHOD
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


def test_what_is_exact_is_so_at_smoke_scale_too():
    found = run_smoke(METHOD, "exact-embedding")
    assert found["error"] < 1e-12
    assert found["wrong_types"] == 0


def test_dual_embeddings_are_at_chance_where_a_role_is_missing(outputs):
    found = outputs["low-degree"]["metrics"]
    for graph in ("sympy", "networkx", "cited"):
        assert 0.3 < found[f"{graph}_svd_low"] < 0.75  # few pairs; at cpu scale it is 0.5 within a few hundredths
    assert {"networkx_digcn_ep", "networkx_magnet_ep"} <= set(outputs["magnet"]["metrics"])


def test_what_an_epoch_costs(capsys):
    probe.main('{"edges": 40000, "dim": 8, "seed": 0, "threads": 1}')
    found = json.loads(capsys.readouterr().out)
    assert 1 < found["mebibytes"] < 500
    assert 0 < found["seconds"] < 60
    with pytest.raises(RuntimeError, match="(?s)measuring 400 edges failed:.*dim must be"):
        probe.cost_in_fresh_process(400, 0, 0)


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    drawn = declared.draw(runs)
    drawn.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


TINY = {"nodes": 160, "epochs": 1, "label_epochs": 1, "edges": 200, "dim": 8}


@pytest.mark.parametrize("claim", [claim for claim in METHOD.claims.values() if claim.full], ids=lambda claim: claim.id)
def test_the_full_scale_recipe_takes_a_step(claim, monkeypatch):
    tiny = dict(TINY, nodes=400 if claim.id in ("unseen-nodes", "one-embedding") else 160)
    if claim.id == "exact-embedding":
        tiny["nodes"] = 20
    if claim.id == "scaling":  # its processes take a step in test_smoke
        monkeypatch.setattr(claims_nodes, "cost_in_fresh_process", lambda *sizes: probe.cost(*sizes, threads=1))
    assert claim.full.needs
    sizes = {name: tiny[name] for name in claim.full.sizes}
    metrics, _ = claim.measure(0, Scale(1, **sizes), "cpu")
    assert all(np.isfinite(value) for value in metrics.values())
