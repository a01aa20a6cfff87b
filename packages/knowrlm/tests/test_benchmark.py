"""Methods at equal measurements, the strategies one by one, and the command line."""

import knowrlm as kr
import numpy as np
import pandas as pd
import pytest
from knowrlm.benchmark import STRATEGIES, WALKS
from knowrlm.cli import main, read_parent
from knowrlm.sampling import rows_in
from knowrlm.search import cross, mutate, propose_adalead, propose_tree
from knowrlm.strategies import Known, propose_best, propose_recombination, propose_single_mutants, zero_shot_scores
from offprints.seeding import rng

CHEAP = kr.EnsemblePredictor(["ridge"], top=1)
QUICK = kr.WalkSettings(plm="none", steps=100, walks=5)


def additive(missing=0.0, seed=0):
    space = kr.VariantSpace("ACDEF", [1, 3, 5])
    weights = rng(seed).normal(size=(3, 20))
    codes = space.codes(np.arange(space.size))
    truth = weights[np.arange(3), codes.astype(int)].sum(axis=1)
    keep = rng(seed + 1).random(space.size) >= missing
    return kr.Landscape(space, codes[keep], truth[keep] - truth.min())


LANDSCAPE = additive()


def known(n=40, landscape=LANDSCAPE):
    codes = np.unique(landscape.space.sample(n, rng(5)), axis=0)
    surrogate = kr.Surrogate(kr.FeatureMap(landscape.space), CHEAP)
    graph = kr.AminoAcidGraph.default()
    fitness = landscape.measure(codes)
    return Known(landscape.space, graph, surrogate, rng(6), codes, fitness, codes[:0])


@pytest.mark.parametrize("method", kr.METHODS)
def test_every_method_spends_the_same(method):
    run = kr.run_campaign(method, LANDSCAPE, rounds=2, batch=20, seed=1, walk=QUICK, predictor=CHEAP)
    assert run.measured.tolist() == [20, 40, 60, 80]
    assert (np.diff(run.best) >= 0).all()
    assert (np.diff(run.top) >= 0).all()
    assert run.scores.maximum == run.best[-1] <= LANDSCAPE.maximum
    assert 0 < run.scores.ndcg <= 1
    assert bool(len(run.reward)) == (method in WALKS)
    again = kr.run_campaign(method, LANDSCAPE, rounds=2, batch=20, seed=1, walk=QUICK, predictor=CHEAP)
    assert again.scores == run.scores


def test_model_guided_methods_beat_random_on_an_additive_landscape():
    found = {
        method: np.mean(
            [kr.run_campaign(method, LANDSCAPE, rounds=2, batch=30, seed=s, walk=QUICK, predictor=CHEAP).scores.top
             for s in range(3)]
        )
        for method in ("random", "active", "adalead", "mlde", "genetic", "knowrlm")
    }  # fmt: skip
    for method in ("active", "adalead", "mlde", "genetic", "knowrlm"):
        assert found[method] > found["random"]
    assert found["active"] > found["mlde"] > found["genetic"]


def test_methods_that_start_from_clusters_share_their_first_plate():
    runs = [
        kr.run_campaign(method, LANDSCAPE, rounds=1, batch=20, seed=2, walk=QUICK, predictor=CHEAP)
        for method in ("knowrlm", "active", "genetic", "no_graph")
    ]
    assert len({run.top[0] for run in runs}) == 1


def test_variants_without_a_measurement_cost_nothing():
    holes = additive(missing=0.4)
    for method in ("knowrlm", "random", "active", "clade"):
        run = kr.run_campaign(method, holes, rounds=1, batch=20, walk=QUICK, predictor=CHEAP)
        assert run.measured.tolist() == [20, 40, 60]


def test_a_space_smaller_than_its_budget():
    space = kr.VariantSpace("AC", [1], allowed="ACDEFGHIKL")
    small = kr.Landscape(space, space.codes(np.arange(10)), np.arange(10.0))
    run = kr.run_campaign("random", small, rounds=2, batch=6, predictor=CHEAP)
    assert run.measured.tolist() == [6, 10, 10, 10]
    assert run.scores.maximum == 9


def test_a_table_too_sparse_for_equal_budgets():
    sparse = additive(missing=0.97)
    with pytest.warns(kr.MeasurementWarning, match="of 60 variants of a plate were found"):
        kr.run_campaign("random", sparse, rounds=0, batch=60, predictor=CHEAP)
    two = kr.Landscape(sparse.space, sparse.codes[:1], sparse.fitness[:1])
    with pytest.raises(ValueError, match="must be measured in the landscape, got none of .*observed"):
        kr.run_campaign("random", two, rounds=0, batch=2, predictor=CHEAP)


def test_ten_proposals_may_fill_a_plate(monkeypatch):
    proposed = []

    def propose(state, n):
        proposed.append(n)
        return LANDSCAPE.space.codes(10 * len(proposed) + np.arange(2))

    measured = kr.Landscape(LANDSCAPE.space, LANDSCAPE.space.codes(10 * np.arange(1, 11)), np.arange(10.0))
    monkeypatch.setitem(STRATEGIES, "random", (propose,) * 3)
    run = kr.run_campaign("random", measured, rounds=0, batch=5, predictor=CHEAP)
    assert run.measured.tolist() == [5, 10]
    assert proposed == [5, 4, 3, 2, 1] * 2
    proposed.clear()
    measured = kr.Landscape(LANDSCAPE.space, LANDSCAPE.space.codes([10, 7999]), np.arange(2.0))
    with pytest.warns(kr.MeasurementWarning, match="[01] of 5 variants of a plate"):
        kr.run_campaign("random", measured, rounds=0, batch=5, predictor=CHEAP)
    assert proposed == [5, *[4] * 9, *[5] * 10]


def test_evaluation_and_summary():
    found = kr.evaluate(["random", "active"], LANDSCAPE, rounds=1, seeds=2, batch=15, predictor=CHEAP)
    assert found.table.shape == (4, 10)
    assert found.table["labels"].eq(45).all()
    np.testing.assert_allclose(found.table["top_rel"], found.table["top"] / LANDSCAPE.maximum)
    assert found.curves.groupby(["method", "seed"]).size().eq(3).all()
    summary = found.summary()
    assert summary.index[0] == "active"
    assert summary.loc["random", ("top_rel", "mean")] == pytest.approx(
        found.table.loc[found.table["method"] == "random", "top_rel"].mean()
    )
    only = kr.evaluate(["random"], LANDSCAPE, rounds=0, seeds=[7], batch=15, predictor=CHEAP)
    assert only.table["seed"].tolist() == [7]


# ---- strategies


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("lazy", [False, True], ids=["listed", "lazy"])
def test_strategies_propose_new_variants(name, lazy):
    if lazy:
        function = kr.Ehrlich(9, 2, 3, seed=1)
        codes = np.unique(mutate(function.space, np.repeat(function.space.wild_type[None], 60, 0), 0.2, rng(0)), axis=0)
        surrogate = kr.Surrogate(kr.FeatureMap(function.space), CHEAP)
        graph = kr.AminoAcidGraph.default()
        fitness = function.measure(codes) + 1e-3 * np.arange(len(codes))
        state = Known(function.space, graph, surrogate, rng(6), codes, fitness, codes[:0])
    else:
        state = known()
    for strategy in {part for part in STRATEGIES[name] if part is not None}:
        plate = strategy(state, 25)
        assert plate.shape == (25, state.space.k)
        assert len(np.unique(plate, axis=0)) == 25
        assert not rows_in(plate, state.codes).any()
        assert state.space.contains(plate).all()


def test_searches_on_the_model_keep_to_their_predictions(monkeypatch):
    state, asked = known(), []
    predict = kr.Surrogate.predict
    monkeypatch.setattr(kr.Surrogate, "predict", lambda self, codes: asked.append(len(codes)) or predict(self, codes))
    state.queries = 300
    propose_tree(state, 20)
    assert asked[:-1] == [10] * 30  # ten leaves at a time; at last the pool once more
    asked.clear()
    propose_adalead(state, 20)
    assert 300 <= sum(asked[:-1]) <= 1500  # roots too, and children that have stopped, which count no more
    few = len(asked)
    asked.clear()
    state.queries = 3000
    propose_adalead(state, 20)
    assert len(asked) > 5 * few


def test_searches_get_the_predictions_that_walks_get(monkeypatch):
    given = []
    monkeypatch.setitem(STRATEGIES, "random", (propose_best_of(given),) * 3)
    for steps, batch in ((100, 20), (900, 20)):
        walk = kr.WalkSettings(plm="none", steps=steps)
        kr.run_campaign("random", LANDSCAPE, rounds=0, batch=batch, walk=walk, predictor=CHEAP)
    assert given == [400, 400, 900, 900]


def propose_best_of(given):
    def propose(state, n):
        given.append(state.queries)
        return state.fresh(state.space.neighbours(state.space.wild_type), n)

    return propose


def test_a_short_proposal_is_filled_up_at_random():
    state = known()
    plate = state.fresh(state.codes[:5], 30)
    assert len(np.unique(plate, axis=0)) == 30
    assert not rows_in(plate, state.codes).any()
    first = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 0], [2, 2, 2]])
    state.codes, state.failed = state.codes[:0], np.array([[1, 1, 1]], dtype=np.int8)
    assert state.fresh(first, 2).tolist() == [[0, 0, 0], [2, 2, 2]]
    space = kr.VariantSpace("AC", [1], allowed="ACD")
    small = Known(space, state.graph, state.surrogate, rng(0), space.codes(np.arange(1)), np.ones(1), space.codes([2]))
    assert small.fresh(space.codes(np.arange(0)), 5).tolist() == [[1]]


def test_single_mutants_are_one_step_from_the_best():
    state = known()
    plate = propose_single_mutants(state, 20)
    best = state.codes[state.fitness.argmax()]
    assert ((plate != best).sum(axis=1) == 1).all()


def test_recombination_joins_the_best_residues():
    state = known()
    wild = LANDSCAPE.space.wild_type
    state.codes = LANDSCAPE.space.neighbours(wild)
    state.fitness = LANDSCAPE.measure(state.codes)
    plate = propose_recombination(state, 20)
    assert ((plate != wild).sum(axis=1) >= 2).mean() > 0.8
    assert LANDSCAPE.measure(plate).mean() > state.fitness.mean() + state.fitness.std()
    first = known()
    first.codes, first.fitness = first.codes[:0], first.fitness[:0]
    assert ((propose_recombination(first, 20) != wild).sum(axis=1) == 1).all()


def test_the_best_predictions_are_the_best_on_an_additive_landscape():
    plate = propose_best(known(300), 5)
    threshold = np.sort(LANDSCAPE.fitness)[-300]
    assert (LANDSCAPE.measure(plate) >= threshold).all()


def test_zero_shot_scores():
    state = known()
    codes = LANDSCAPE.space.codes(np.arange(50))
    wild = LANDSCAPE.space.wild_type[None]
    assert zero_shot_scores(state, wild) == 0
    away = state.graph.distances[wild[0].astype(int), codes.astype(int)].sum(axis=1)
    np.testing.assert_allclose(zero_shot_scores(state, codes), -away)
    run = kr.run_campaign(
        "ftmlde", LANDSCAPE, rounds=1, batch=20, predictor=CHEAP, zero_shot=lambda codes: LANDSCAPE.measure(codes)
    )
    plain = kr.run_campaign("ftmlde", LANDSCAPE, rounds=1, batch=20, predictor=CHEAP)
    assert run.top[0] > plain.top[0]


def test_mutation_and_crossover():
    space, gen = LANDSCAPE.space, rng(0)
    codes = space.sample(2000, gen)
    changed = mutate(space, codes, 0.3, gen) != codes
    assert changed.mean() == pytest.approx(0.3 * 0.95, abs=0.03)
    assert (mutate(space, codes, 0.0, gen) == codes).all()
    children = cross(codes, gen, 0.25)
    assert (children != codes).mean() == pytest.approx(0.25 * 0.95, abs=0.03)
    for site in range(3):
        assert set(children[:, site]) <= set(codes[:, site])


# ---- the command line

PARENT = "MKVTDYGW"


def test_plate_on_the_command_line(tmp_path, capsys):
    (tmp_path / "parent.fasta").write_text(f">one\n{PARENT}\n")
    words = ["plate", "--parent", str(tmp_path / "parent.fasta"), "--sites", "V3,T4,5", "--batch", "6", "--steps", "50"]
    words += ["--models", "ridge,knn"]
    assert main([*words, "--plm", "none"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "plate.csv").write_text(text)
    plate = pd.read_csv(tmp_path / "plate.csv")
    assert len(plate) == 6
    measured = tmp_path / "measured.csv"
    plate[["variant"]].assign(fitness=np.arange(6.0)).to_csv(measured, index=False)
    out = tmp_path / "second.csv"
    unused = sorted(set(kr.RESIDUES) - set("".join(plate["variant"])) - {"V", "T", "D"})[0]
    more = ["--measured", str(measured), "--forbid", unused, "--codons", "NNK", "--max-mutations", "2"]
    assert main([*words, "--plm", "none", *more, "--out", str(out)]) == 0
    second = pd.read_csv(out)
    assert len(second) == 6
    assert second["predicted"].notna().all()
    assert not set(second["variant"]) & set(plate["variant"])
    assert not second["variant"].str.contains(unused).any()
    assert main([*words, "--measured", str(measured), "--last"]) == 0
    assert "best predictions" in capsys.readouterr().out
    assert main([*words, "--batch", "30", "--allowed", "3:VA,4:T,5:DKR"]) == 0
    variants = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert sorted(variants) == sorted(f"{a}T{b}" for a in "VA" for b in "DKR")


def test_simulate_on_the_command_line(tmp_path, capsys):
    frame = pd.DataFrame({"variant": LANDSCAPE.space.decode(LANDSCAPE.codes), "fitness": LANDSCAPE.fitness})
    path, out = tmp_path / "three.csv", tmp_path / "runs.csv"
    frame.to_csv(path, index=False)
    words = ["simulate", str(path), "--methods", "random,knowrlm", "--rounds", "1", "--seeds", "1", "--batch", "12"]
    words += ["--models", "ridge,knn"]
    assert main([*words, "--steps", "50", "--plm", "none", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "8000 of 8000 variants" in text
    assert "top_rel" in text
    assert len(pd.read_csv(out)) == 2


def test_errors_on_the_command_line(tmp_path, capsys):
    assert main(["plate", "--parent", "MKV", "--sites", "W2"]) == 2
    assert "residue at site 2 must be 'W', got 'K'" in capsys.readouterr().err
    for lacking in (["plate", "--sites", "3"], ["plate", "--parent", "MKV"], ["simulate"], []):
        with pytest.raises(SystemExit) as stopped:
            main(lacking)
        assert stopped.value.code == 2
        assert "required" in capsys.readouterr().err
    for wrong in ("V3:AC", "3"):
        assert main(["plate", "--parent", "MKV", "--sites", "3", "--allowed", wrong]) == 2
        assert "--allowed must be <site>:<residues>" in capsys.readouterr().err
    (tmp_path / "few.csv").write_text("variant,fitness\nAC,1\nAD,2\nCC,3\nCD,4\n")
    words = ["simulate", str(tmp_path / "few.csv"), "--methods", "active", "--rounds", "0", "--batch", "2"]
    assert main([*words, "--models", "lasso"]) == 2
    assert "got 'lasso'" in capsys.readouterr().err
    assert main(["simulate", str(tmp_path / "none.csv")]) == 2
    assert "no file" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="no file"):
        read_parent(str(tmp_path / "none.fasta"))
    (tmp_path / "two.fa").write_text(">a\nMK\n>b\nMV\n")
    with pytest.raises(ValueError, match="must hold one sequence, got 2"):
        read_parent(str(tmp_path / "two.fa"))
    assert read_parent("MKV") == "MKV"
