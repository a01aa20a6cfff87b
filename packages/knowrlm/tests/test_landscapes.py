"""Landscapes from files in the field's formats and from generators; graphs in and out."""

import json
import os
from pathlib import Path

import knowrlm as kr
import networkx as nx
import numpy as np
import pandas as pd
import pytest
from knowrlm.exports import _single_steps
from offprints.seeding import rng

SITES = ["V39", "D40", "G41", "V54"]


def small_gb1(rows=300):
    space = kr.VariantSpace("MQYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE", SITES)
    codes = np.unique(np.concatenate([space.wild_type[None], space.sample(rows, rng(0))]), axis=0)
    return pd.DataFrame(
        {
            "Variants": space.decode(codes),
            "HD": (codes != space.wild_type).sum(axis=1),
            "Fitness": rng(1).random(len(codes)),
        }
    )


@pytest.mark.parametrize("kind", ["csv", "tsv", "xlsx"])
def test_the_public_table_of_gb1(tmp_path, kind):
    frame, path = small_gb1(), tmp_path / f"GB1_landscape.{kind}"
    if kind == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    reader = {"csv": kr.Landscape.from_csv, "tsv": kr.load_landscape, "xlsx": kr.Landscape.from_xlsx}[kind]
    landscape = reader(path)
    assert landscape.space.sites == (39, 40, 41, 54)
    assert len(landscape.space.parent) == 56
    assert len(landscape) == len(frame)
    codes = landscape.space.encode(frame["Variants"].tolist())
    np.testing.assert_allclose(landscape.measure(codes), frame["Fitness"])
    assert np.isnan(landscape.measure(landscape.space.codes(np.array([0, 1])))).any()  # not measured is not zero
    assert "GB1_landscape" in repr(landscape)


@pytest.mark.parametrize(("name", "size", "best", "maximum"), [
    ("GB1.xlsx", 149_361, "FWAA", 8.76), ("PhoQ.xlsx", 140_517, "TEMH", 133.594)
])  # fmt: skip
def test_the_measured_tables_where_they_are(name, size, best, maximum):
    """The public tables of GB1 and PhoQ, in the folder that KNOWRLM_LANDSCAPES names."""
    path = Path(os.environ.get("KNOWRLM_LANDSCAPES", ".")) / name
    if not path.exists():
        pytest.skip("measured tables of GB1 and PhoQ")
    landscape = kr.load_landscape(path)
    assert len(landscape) == size
    assert landscape.maximum == pytest.approx(maximum, rel=1e-3)
    assert landscape.space.decode(landscape.codes[[landscape.fitness.argmax()]]) == [best]


def test_the_public_table_of_phoq(tmp_path):
    """Only the residues at the sites, the parent AVST by its distance 0, and no fitness for some."""
    rows = {"Variants": ["TEMH", "AVST", "QHDG", "AVSA"], "HD": [4, 0, 4, 1], "Fitness": [133.594, 3.29, 110.386, 0.0]}
    pd.DataFrame(rows).to_excel(tmp_path / "PhoQ.xlsx", index=False)
    landscape = kr.load_landscape(tmp_path / "PhoQ.xlsx")
    assert (landscape.space.parent, landscape.space.k) == ("AVST", 4)
    assert landscape.maximum == 133.594
    assert landscape.measure(landscape.space.encode(["QHDG", "AVST"])).tolist() == [110.386, 3.29]
    assert np.isnan(landscape.measure(landscape.space.encode(["AAAA"]))).all()


def test_only_the_letters_at_the_sites():
    frame = small_gb1()
    landscape = kr.Landscape.from_frame(frame, name="four letters")
    assert landscape.space.parent == "VDGV"  # HD 0
    assert landscape.space.sites == (1, 2, 3, 4)
    first = kr.Landscape.from_frame(frame.drop(columns="HD"))
    assert first.space.parent == frame["Variants"].iloc[0]


def test_a_table_of_proteingym(tmp_path):
    parent = "MKVTDYGW"
    mutants = ["V3A", "V3A:D5E", "T4S", "D5K:T4W"]
    space = kr.VariantSpace(parent, [3, 4, 5])
    frame = pd.DataFrame(
        {
            "mutant": mutants,
            "mutated_sequence": space.sequences(space.encode(mutants)),
            "DMS_score": [-1.0, 0.5, 2.0, np.nan],
        }
    )
    with pytest.warns(kr.MeasurementWarning, match="no fitness"):
        landscape = kr.Landscape.from_frame(frame)
    assert landscape.space.parent == parent
    assert landscape.space.sites == (3, 4, 5)
    assert landscape.fitness.tolist() == [-1.0, 0.5, 2.0]
    with pytest.raises(ValueError, match="parent must be known where variants are mutations"):
        kr.Landscape.from_frame(frame.drop(columns="mutated_sequence"))


def test_whole_sequences():
    frame = pd.DataFrame({"sequence": ["MKVTDYGW", "MKVSDYGW", "MKVTDYGF"], "score": [0.0, 1.0, 2.0]})
    landscape = kr.Landscape.from_frame(frame)
    assert landscape.space.sites == (4, 8)
    assert landscape.space.decode(landscape.codes) == ["TW", "SW", "TF"]
    with pytest.raises(ValueError, match="variants must be all as long as the parent"):
        kr.Landscape.from_frame(pd.DataFrame({"variant": ["MKV", "MK"], "fitness": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="table must be of at least one row"):
        kr.Landscape.from_frame(pd.DataFrame({"variant": [], "fitness": []}))


def test_sites_are_worked_out_for_a_parent_that_is_given():
    frame = pd.DataFrame({"variant": ["T4S", "V3A;D5E"], "fitness": [1.0, 2.0]})
    landscape = kr.Landscape.from_frame(frame, parent="MKVTDYGW")
    assert landscape.space.sites == (3, 4, 5)
    assert landscape.space.decode(landscape.codes) == ["VSD", "ATE"]
    wide = kr.Landscape.from_frame(frame, parent="MKVTDYGW", sites=[2, 3, 4, 5])
    assert wide.space.decode(wide.codes) == ["KVSD", "KATE"]


def test_aav_from_a_file_of_its_format(tmp_path):
    gen = rng(0)
    parent = "MAADGYLPDW"
    table = {
        str(place): {
            letter: {"log2_packaging_v_wt": 0 if letter == own else -float(gen.random()) - 0.01}
            for letter in (*kr.RESIDUES, "*")
        }
        for place, own in enumerate(parent)
    }
    path = tmp_path / "AAV2_single_subs.json"
    path.write_text(json.dumps(table))
    landscape = kr.aav([2, 4, 7, 10], path=path)
    assert landscape.space.parent == parent
    assert landscape.maximum == 1
    both = landscape.space.encode(["A2C;D4E"])
    effect = table["1"]["C"]["log2_packaging_v_wt"] + table["3"]["E"]["log2_packaging_v_wt"]
    assert landscape.measure(both)[0] == pytest.approx(2**effect)
    table["3"]["D"]["log2_packaging_v_wt"] = -1.0
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError, match="position 3 must be a residue of effect 0"):
        kr.aav([1, 2, 3, 4], path=path)


def test_ehrlich_functions():
    function = kr.Ehrlich(16, 2, 4, seed=3)
    assert function.measure(function.optimum()[None]) == [1.0]
    assert function.measure(function.space.wild_type[None])[0] >= 0
    values = function.measure(function.space.sample(5000, rng(0)))
    assert set(np.unique(values)) <= {i * j / 16 for i in range(5) for j in range(5)}
    banned = np.argwhere(~function.feasible)[0]
    broken = function.optimum().copy()
    broken[-2:] = banned
    assert function.measure(broken[None]) == [0.0]
    coarse = kr.Ehrlich(16, 2, 4, quantization=2, seed=3)
    assert set(np.unique(coarse.measure(coarse.space.sample(5000, rng(0))))) <= {0.0, 0.25, 0.5, 1.0}
    assert function.feasible.sum() == 400 - 60
    assert np.diagonal(function.feasible).all()
    shifted = function.optimum()
    shifted[function.spacings[0][1]] = (shifted[function.spacings[0][1]] + 1) % 20
    assert function.measure(shifted[None])[0] < 1


def test_epistatic_landscapes():
    landscape = kr.make_epistatic(3, seed=1)
    assert landscape.maximum == 1
    assert (landscape.fitness == 0).mean() == pytest.approx(0.75, abs=0.01)
    assert kr.make_epistatic(3, seed=1).fitness.tolist() == landscape.fitness.tolist()
    assert kr.make_epistatic(3, seed=2).fitness.tolist() != landscape.fitness.tolist()


# ---- graphs


def test_graphs_for_networkx(tmp_path):
    graph = kr.AminoAcidGraph.default()
    directed = kr.rank_graph(graph)
    assert directed.number_of_edges() == 380
    assert directed["A"]["T"]["rank"] == 1
    assert kr.rank_graph(graph, 3).out_degree("W") == 3
    assert kr.distance_graph(graph).number_of_edges() == 190
    path = kr.write_graphml(graph, tmp_path / "graph.graphml", nearest=6)
    again = nx.read_graphml(path)
    assert again.number_of_edges() == 120
    assert again["A"]["T"]["rank"] == 1
    assert again["A"]["T"]["distance"] == pytest.approx(graph.distances[0, 16])


def test_the_typed_ontology():
    ontology = kr.ontology_graph()
    kinds = pd.Series(dict(ontology.nodes(data="kind"))).value_counts().to_dict()
    assert kinds["scale"] == 586
    assert kinds["amino_acid"] == 20
    assert kinds["category"] == 8
    assert ontology.out_degree("A") == 586
    scale = next(node for node, kind in ontology.nodes(data="kind") if kind == "scale")
    assert 0 <= ontology["A"][scale]["value"] <= 1
    (subcategory,) = ontology.successors(scale)
    assert ontology.nodes[subcategory]["kind"] == "subcategory"
    assert nx.is_directed_acyclic_graph(ontology)


def test_pairs_one_residue_apart_are_all_found():
    codes = np.unique(kr.VariantSpace("ACD", [1, 2, 3], allowed="ACDE").sample(40, rng(2)), axis=0)
    found = {(min(i, j), max(i, j), site) for i, j, site in _single_steps(codes).tolist()}
    differ = codes[:, None] != codes[None]
    wanted = {
        (i, j, int(differ[i, j].argmax()))
        for i in range(len(codes))
        for j in range(i + 1, len(codes))
        if differ[i, j].sum() == 1
    }
    assert found == wanted
    assert len(_single_steps(codes)) == len(wanted) > 20


def test_weights_of_categories_are_learned():
    scales = kr.load_scales()
    polarity = (scales.table["category"] == "Polarity").to_numpy()
    line = np.argsort(np.argsort(scales.values[:, polarity].mean(axis=1))) / 19.0
    space = kr.VariantSpace("AC", [1, 2])
    codes = space.codes(np.arange(400))
    fitness = scales.values[:, polarity].mean(axis=1)[codes.astype(int)].sum(axis=1)
    weights = kr.learn_weights(codes, fitness)
    assert max(weights, key=lambda name: weights[name]) == "Polarity"
    assert weights["Polarity"] == 1.0
    assert all(value >= 0 for value in weights.values())
    learned = kr.AminoAcidGraph.from_scales(weights)
    gap = np.abs(np.subtract.outer(line, line))
    off = ~np.eye(20, dtype=bool)
    default = kr.AminoAcidGraph.default()
    assert np.corrcoef(learned.distances[off], gap[off])[0, 1] > np.corrcoef(default.distances[off], gap[off])[0, 1]
