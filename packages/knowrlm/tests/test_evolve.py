"""The loop of plates: what is proposed, when, why, and that it can be repeated, constrained and saved."""

import warnings

import knowrlm as kr
import numpy as np
import pandas as pd
import pytest
import torch
from knowrlm.predictor import MODELS
from knowrlm.sampling import rows_in, variant_pool
from offprints.seeding import rng

PARENT = "MKVTDYGW"
SITES = ["V3", "T4", "D5"]
QUICK = kr.WalkSettings(plm="none", steps=200, adapt=5, walks=5)
CHEAP = kr.EnsemblePredictor(["ridge", "knn"], top=2, folds=3)


def truth(space, codes):
    weights = rng(11).normal(size=(space.k, 20))
    return weights[np.arange(space.k), codes.astype(int)].sum(axis=1)


def campaign(**options):
    settings = {"batch": 12, "walk": QUICK, "predictor": CHEAP, "random_state": 3} | options
    return kr.DirectedEvolution(PARENT, SITES, **settings)


def advance(evolution, plates=1, n=None):
    for _ in range(plates):
        plate = evolution.ask(n)
        codes = evolution.space.encode(plate["variant"].tolist())
        evolution.tell(plate.assign(fitness=truth(evolution.space, codes)))
    return evolution


def test_plates_are_new_distinct_and_full():
    evolution = campaign()
    seen = set()
    for _ in range(4):
        plate = evolution.ask()
        assert list(plate.columns) == ["variant", "sequence", "mutations", "predicted", "spread", "why"]
        assert len(plate) == 12
        assert plate["variant"].is_unique
        assert not seen & set(plate["variant"])
        seen |= set(plate["variant"])
        codes = evolution.space.encode(plate["sequence"].tolist())
        assert evolution.space.decode(codes) == plate["variant"].tolist()
        assert (evolution.space.encode(plate["mutations"].tolist()) == codes).all()
        evolution.tell(plate.assign(fitness=truth(evolution.space, codes)))
    last = evolution.recommend(20)
    assert len(last) == 20
    assert not seen & set(last["variant"])
    assert last["predicted"].is_monotonic_decreasing


def test_the_first_plate_is_cluster_sampled_and_the_next_one_walked():
    evolution = campaign()
    first = evolution.ask()
    assert first["why"].str.contains("cluster sampling").all()
    assert first["predicted"].isna().all()
    second = advance(evolution).ask()
    assert second["predicted"].notna().all()
    walked = second["why"].str.contains("[walk from", regex=False)
    assert walked.mean() > 0.5
    assert second.loc[walked, "why"].str.contains("rank").all()
    assert second.loc[walked, "why"].str.contains("volume").all()
    assert evolution.policy is not None
    assert len(evolution.log.reward) == 40  # 200 steps of 5 walks


def test_the_path_in_words_ends_at_the_variant():
    evolution = advance(campaign())
    codes, _, _ = evolution.propose(12)
    for row in codes:
        visit = evolution.log.visited.get(row.tobytes())
        if visit is None:
            continue
        here = list(visit[1].start)
        assert any((evolution.codes == here).all(axis=1))
        for site, old, new in visit[1].steps:
            assert here[site] == old
            assert old != new
            here[site] = new
        assert here == row.tolist()


def test_asking_twice_gives_the_same_plate_and_seeds_decide():
    one, two, other = campaign(), campaign(), campaign(random_state=4)
    pd.testing.assert_frame_equal(one.ask(), one.ask())
    pd.testing.assert_frame_equal(one.ask(), two.ask())
    assert set(one.ask()["variant"]) != set(other.ask()["variant"])
    pd.testing.assert_frame_equal(advance(one, 2).ask(), advance(two, 2).ask())
    pd.testing.assert_frame_equal(one.recommend(), two.recommend())


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    advance(campaign(), 2).recommend()
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()


def test_no_model_of_the_ensemble_draws_from_the_global_generator():
    x, before = rng(0).normal(size=(12, 3)), np.random.get_state()
    kr.EnsemblePredictor(list(MODELS), folds=2).fit(x, x[:, 0])
    after = np.random.get_state()
    assert (after[1] == before[1]).all()
    assert after[2] == before[2]


def test_it_finds_more_than_chance():
    evolution = advance(campaign(batch=24), 3)
    space = evolution.space
    everything = truth(space, space.codes(np.arange(space.size)))
    found = evolution.report().history
    assert found["top"].is_monotonic_increasing
    assert found["best"].iloc[-1] > np.quantile(everything, 0.995)
    assert found["mean"].iloc[-1] > found["mean"].iloc[0] + everything.std()


def test_the_rest_of_a_small_space_is_proposed_and_then_nothing():
    evolution = kr.DirectedEvolution("ACD", [1], allowed="ACDEFGH", batch=5, walk=QUICK, predictor=CHEAP)
    advance(evolution)
    plate = evolution.ask()
    assert len(plate) == 2
    advance(evolution)
    with pytest.raises(ValueError, match=r"variants to propose must be at least one, got none \(7 of 7 are measured\)"):
        evolution.ask()
    with pytest.raises(ValueError, match="variants to propose"):
        evolution.recommend()


def test_equal_labels_fall_back_to_diversity():
    evolution = campaign()
    plate = evolution.ask()
    evolution.tell(plate.assign(fitness=1.0))
    with pytest.warns(kr.MeasurementWarning, match="the same fitness"):
        second = evolution.ask()
    assert second["why"].str.contains("diversity").all()
    assert len(second) == 12
    assert evolution.recommend()["predicted"].eq(1.0).all()


def test_fewer_labels_than_folds():
    evolution = campaign(batch=3, initial=1)
    advance(evolution)
    assert evolution.ask(4)["why"].str.contains("cluster").all()  # three are too few to learn from
    evolution.tell(pd.DataFrame({"variant": ["VTD", "VTE", "VTF"], "fitness": [0.1, 0.5, 0.4]}))
    assert evolution.ask(4)["predicted"].notna().all()


def test_initial_measurements_may_come_in_small_plates():
    evolution = campaign(batch=6, initial=18)
    for _ in range(3):
        assert evolution.ask()["why"].str.contains("cluster").all()
        advance(evolution)
    assert evolution.ask()["predicted"].notna().all()


def test_a_space_that_cannot_be_listed():
    evolution = kr.DirectedEvolution(
        "MKVTDYGWAC", list(range(1, 11)), batch=10, walk=QUICK, predictor=CHEAP, random_state=1
    )
    assert not evolution.space.enumerable
    advance(evolution, 2)
    plate = evolution.ask()
    assert len(plate) == 10
    assert plate["predicted"].notna().all()
    last = evolution.recommend(15)
    assert len(last) == 15
    assert not set(last["variant"]) & set(evolution.space.decode(evolution.codes))
    with pytest.raises(ValueError, match="at most 3200000 variants to be listed"):
        evolution.space.index(evolution.codes)
    with pytest.raises(ValueError, match="at most 3200000"):
        evolution.surrogate().best(3)


def test_constraints_of_the_laboratory():
    limits = kr.PlateConstraints(forbidden="CP", codons={4: "NDT"}, max_mutations=2, residues_per_site=4)
    evolution = campaign(constraints=limits)
    assert evolution.space.allowed[1] == "DFGHILNRSTVY"  # NDT without C, and the parent's T
    for _ in range(3):
        plate = evolution.ask()
        codes = evolution.space.encode(plate["variant"].tolist())
        assert not plate["variant"].str.contains("[CP]").any()
        assert ((codes != evolution.space.wild_type).sum(axis=1) <= 2).all()
        for j, own in enumerate(evolution.space.wild_type):
            assert len(set(codes[:, j].tolist()) - {int(own)}) <= 4
        evolution.tell(plate.assign(fitness=truth(evolution.space, codes)))
    last = evolution.space.encode(evolution.recommend()["variant"].tolist())
    assert ((last != evolution.space.wild_type).sum(axis=1) <= 2).all()
    assert kr.codon_residues("NNK") == kr.RESIDUES


@pytest.mark.parametrize(
    ("limits", "sites", "sizes"),
    [
        ({"max_mutations": 1}, 4, [24, 24, 24, 5]),  # 77 in all: the parent and 4 · 19
        ({"max_mutations": 1}, 8, [24, 24, 24, 24]),
        ({"residues_per_site": 2}, 4, [24, 24, 24, 24]),
        ({"residues_per_site": 2, "max_mutations": 5}, 8, [24, 24, 24, 24]),
    ],
)
def test_plates_are_full_under_narrow_constraints(limits, sites, sizes):
    constraints = kr.PlateConstraints(**limits)
    evolution = kr.DirectedEvolution(
        "MKVTDYGW", list(range(1, sites + 1)), batch=24, walk=QUICK, predictor=CHEAP, constraints=constraints
    )
    found = []
    for _ in range(3):
        advance(evolution)
        found.append(len(evolution.fitness) - sum(found))
    assert len(np.unique(evolution.codes, axis=0)) == 72
    last = evolution.space.encode(evolution.recommend()["variant"].tolist())
    assert [*found, len(last)] == sizes
    assert constraints.admits(evolution.space, np.concatenate([evolution.codes, last])).all()
    assert len(constraints.affordable(evolution.space, last, 24)) == len(last)


def test_features_of_a_language_model_are_those_the_predictor_learned_from():
    for options in ({"plm": "scales"}, {"plm": kr.OneHotEncoder()}, {"plm": "scales", "finetune": True}):
        walk = kr.WalkSettings(steps=20, walks=2, adapt=2, context=1, **options)
        evolution = advance(campaign(features="plm", walk=walk), 2)
        surrogate = evolution.surrogate()
        before = surrogate.features(evolution.codes).copy()
        evolution.ask()
        assert evolution.surrogate() is surrogate
        assert (surrogate.features(evolution.codes) == before).all()


def test_a_campaign_with_features_of_a_language_model_goes_on_after_loading(tmp_path):
    walk = kr.WalkSettings(steps=20, walks=2, adapt=2, context=1)
    evolution = advance(campaign(features="plm", walk=walk), 2)
    evolution.save(tmp_path / "plm")
    pd.testing.assert_frame_equal(kr.DirectedEvolution.load(tmp_path / "plm").ask(), evolution.ask())


@pytest.mark.filterwarnings("ignore::knowrlm.MeasurementWarning")
def test_a_mean_counts_every_measurement(tmp_path):
    evolution = campaign()
    for value in (1.0, 4.0, 4.0):
        evolution.tell(pd.DataFrame({"variant": ["VTD"], "fitness": [value]}))
    evolution.save(tmp_path / "run")
    again = kr.DirectedEvolution.load(tmp_path / "run")
    for kept in (evolution, again):
        assert kept.fitness.tolist() == [3.0]
        assert kept.tell(pd.DataFrame({"variant": ["VTD"], "fitness": [7.0]})).fitness.tolist() == [4.0]


def test_diverse_plates_lie_farther_apart():
    def spread(**options):
        evolution = advance(campaign(batch=24, **options))
        plate = evolution.space.encode(evolution.ask(8)["variant"].tolist()).astype(int)
        distances = evolution.graph.distances[plate[:, None], plate[None]].sum(axis=2)
        return distances.sum() / (8 * 7)

    assert spread(diverse=True) > spread()


def test_an_upper_bound_prefers_the_uncertain():
    evolution = advance(campaign(beta=50.0, batch=24))
    chosen, plain = evolution.recommend(10), advance(campaign(batch=24)).recommend(10)
    assert chosen["spread"].mean() > plain["spread"].mean()


@pytest.mark.parametrize("features", ["graph", "onehot+graph", "plm", "onehot+plm"])
def test_other_features(features):
    evolution = advance(campaign(features=features, walk=kr.WalkSettings(steps=50, adapt=2, walks=5, context=2)), 1)
    assert len(evolution.ask()) == 12


@pytest.mark.parametrize(
    "settings",
    [
        {"finetune": True, "plm": "scales", "adapt": 2, "steps": 100, "context": 1},
        {"window": (0, 6), "temperature": 0.0},
        {"reference": "ratio", "plm": "scales", "adapt": 2},
        {"knowledge": False, "learn": False},
        {"ppo": kr.PPOConfig(joint_logprob=False, rollout=5, epochs=2)},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_the_walk(settings):
    walk = kr.WalkSettings(**({"plm": "none", "steps": 100, "walks": 5, "max_steps": 4} | settings))
    evolution = advance(campaign(walk=walk))
    assert len(evolution.ask()) == 12
    assert bool(evolution.log.loss) == walk.learn
    assert all(np.isfinite(evolution.log.loss))


def test_save_and_load_go_on_with_the_same_plates(tmp_path):
    limits = kr.PlateConstraints(forbidden="C", max_mutations=3)
    evolution = advance(campaign(constraints=limits, predictor=kr.EnsemblePredictor("ridge")), 2)
    evolution.ask()
    written = evolution.save(tmp_path / "run")
    assert written.exists()
    again = kr.DirectedEvolution.load(tmp_path / "run")
    assert again.space.allowed == evolution.space.allowed
    pd.testing.assert_frame_equal(again.ask(), evolution.ask())
    pd.testing.assert_frame_equal(again.recommend(), evolution.recommend())
    library = pd.read_csv(tmp_path / "run.csv")
    assert library["fitness"].tolist() == pytest.approx(evolution.fitness.tolist())
    assert library["plate"].tolist() == [1] * 12 + [2] * 12
    pd.testing.assert_frame_equal(advance(again).ask(), advance(evolution).ask())


def test_save_with_a_fixed_window_and_an_encoder_of_ones_own(tmp_path):
    own = kr.OneHotEncoder()
    walk = kr.WalkSettings(plm=own, window=(0, 6), steps=50)
    evolution = advance(campaign(walk=walk))
    evolution.save(tmp_path / "own")
    with pytest.raises(ValueError, match="plm must be the encoder that the campaign was made with"):
        kr.DirectedEvolution.load(tmp_path / "own")
    again = kr.DirectedEvolution.load(tmp_path / "own", plm=own)
    assert again.walk.window == (0, 6)
    pd.testing.assert_frame_equal(again.ask(), evolution.ask())


def test_excluded_variants_are_never_proposed():
    evolution = campaign()
    gone = evolution.space.encode(evolution.ask()["variant"].tolist())
    evolution.exclude(gone)
    assert not rows_in(evolution.space.encode(evolution.ask()["variant"].tolist()), gone).any()


def test_another_scale_is_noticed():
    evolution = advance(campaign(), 2)
    values = np.abs(truth(evolution.space, evolution.codes)) + 1
    table = pd.DataFrame({"variant": evolution.space.decode(evolution.codes), "fitness": values})
    fresh = campaign().tell(table)
    plate = fresh.ask()
    with pytest.warns(kr.MeasurementWarning, match="another scale"):
        fresh.tell(plate.assign(fitness=1000.0 + np.arange(len(plate))))
    again = campaign().tell(table)
    with pytest.warns(kr.MeasurementWarning) as caught:
        again.tell(table.assign(fitness=5 * table["fitness"]))
    assert any("repeated variants changed 5 times" in str(warning.message) for warning in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        campaign().tell(table).tell(plate.assign(fitness=3.0 + np.arange(len(plate)) / 10))


def test_repeated_variants_are_averaged_and_keep_their_plate():
    evolution = campaign().tell(pd.DataFrame({"variant": ["VTD", "ATD"], "fitness": [1.0, 2.0]}))
    with pytest.warns(kr.MeasurementWarning, match="1 variants were measured more than once"):
        evolution.tell(pd.DataFrame({"variant": ["ATD", "GTD"], "fitness": [4.0, 5.0]}))
    assert evolution.space.decode(evolution.codes) == ["VTD", "ATD", "GTD"]
    assert evolution.fitness.tolist() == [1.0, 3.0, 5.0]
    assert evolution.plate_of.tolist() == [1, 1, 2]
    assert evolution.report().history["measured"].tolist() == [2, 3]


def test_report_and_plot(tmp_path):
    report = advance(campaign(), 2)
    report.ask()
    report = report.report()
    assert len(report.reward) == len(report.window) == 40
    report.plot().savefig(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 5000
    assert "measured" in str(report)
    empty = campaign().report()
    assert empty.history.empty


# ---- the parts


def test_cluster_sampling_covers_clusters_and_follows_fitness():
    space = kr.VariantSpace(PARENT, SITES)
    sampler = kr.ClusterSampler(space, clusters=8, pool=2000, seed=1)
    assert len(np.unique(sampler.labels)) == 8
    plate = sampler.propose(96, rng(0))
    assert len(np.unique(plate, axis=0)) == 96
    lookup = {row.tobytes(): label for row, label in zip(sampler.pool, sampler.labels, strict=True)}
    of = np.array([lookup[row.tobytes()] for row in plate])
    assert np.bincount(of, minlength=8).min() >= 3  # uniform over clusters, whatever their size
    fitness = np.where(of == 2, 1.0, 0.0)
    second = sampler.propose(96, rng(1), plate, fitness)
    assert not rows_in(second, plate).any()
    share = np.mean([lookup[row.tobytes()] == 2 for row in second])
    assert share > 0.6
    assert len(sampler.propose(5000, rng(2))) == len(sampler.pool)
    one = kr.ClusterSampler(kr.VariantSpace("ACD", [1], allowed="A"), clusters=3)
    assert len(one.propose(4, rng(0))) == 1


def test_farthest_first_is_the_greedy_choice():
    space = kr.VariantSpace(PARENT, SITES)
    codes = space.sample(40, rng(0))
    graph = kr.AminoAcidGraph.default()
    chosen = kr.farthest_first(codes, 6, graph)
    assert chosen[0] == 0
    for place in range(1, 6):
        away = graph.distances[codes[:, None].astype(int), codes[chosen[:place]][None].astype(int)].sum(2).min(1)
        assert away[chosen[place]] == away.max()
    kept = kr.farthest_first(codes, 1, graph, kept=codes[:1])
    away = graph.distances[codes.astype(int), codes[0].astype(int)].sum(1)
    assert kept[0] == away.argmax()
    assert len(kr.farthest_first(codes, 0, graph)) == 0


def test_pools():
    space = kr.VariantSpace(PARENT, SITES)
    assert len(variant_pool(space, 10_000, rng(0))) == 8000
    assert len(np.unique(variant_pool(space, 500, rng(0)), axis=0)) == 500
    wide = kr.VariantSpace(PARENT, list(range(1, 9)))
    pool = variant_pool(wide, 500, rng(0))
    assert ((pool != wide.wild_type).sum(axis=1) <= 3).all()


def test_the_table_of_a_surrogate_is_what_it_predicts():
    space = kr.VariantSpace(PARENT, SITES)
    gen = rng(0)
    codes = np.unique(space.sample(60, gen), axis=0)
    values = truth(space, codes)
    for kinds in ("onehot", "graph", "onehot+graph"):
        predictor = kr.EnsemblePredictor(["ridge", "bayesian_ridge", "knn", "extra_trees"], top=4)
        surrogate = kr.Surrogate(kr.FeatureMap(space, kinds), predictor).fit(codes, values)
        some = space.sample(50, gen)
        direct = surrogate.model.predict_each(surrogate.features(some))
        np.testing.assert_allclose(surrogate.each(some), direct, rtol=2e-4, atol=2e-4)
        best = surrogate.best(10)
        assert surrogate.predict(best)[0] == pytest.approx(surrogate.table.mean(axis=0).max())
    assert kr.Surrogate(kr.FeatureMap(space), predictor).constant
    with pytest.raises(ValueError, match="Call fit first"):
        _ = kr.Surrogate(kr.FeatureMap(space), predictor).table


def test_predictor_picks_the_models_that_predict_best():
    gen = rng(0)
    x = gen.normal(size=(80, 6))
    y = x @ gen.normal(size=6)
    model = kr.EnsemblePredictor(["knn", "ridge", "extra_trees"], top=1).fit(x, y)
    assert model.chosen_ == ["ridge"]
    assert model.errors_["ridge"] < 0.01 < model.errors_["knn"]
    each = kr.EnsemblePredictor(["knn", "ridge"], top=2).fit(x, y)
    np.testing.assert_allclose(each.predict(x), each.predict_each(x).mean(axis=0))
    assert each.fit(x[:2], y[:2]).chosen_ == ["knn", "ridge"]
    constant = each.fit(x[:5], np.full(5, 2.5))
    assert constant.predict(x[:3]).tolist() == [2.5] * 3
    assert kr.predict_space(constant, kr.FeatureMap(kr.VariantSpace("ACD", [1]))).shape == (1, 20)
