"""Nothing private leaves but through `labels_`: repr, pickles, files, warnings, errors, logs, standard output."""

import inspect
import io
import json
import logging
import pickle  # noqa: TID251 (what a pickle holds is what is tested)
import re
import warnings
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy

import networkx as nx
import numpy as np
import pytest
from private_sbm import PrivacyLedger, PrivateSBM, RandomizedResponseSBM, Release, SpectralLaplaceSBM, asymmetric_sbm
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

OPTIONS = {"a": 12, "b": 1, "delta": 1e-3, "noise": "laplace"}
EMPTY = nx.empty_graph(60)


@pytest.fixture(scope="module", autouse=True)
def drawn():
    """Drawn here and not at import: a fault of the sampler fails tests, not their collection."""
    global CERTIFIED
    CERTIFIED = asymmetric_sbm(60, 0.5, 12, 1, 0)[0]


def refused(graph, **options):
    """A fit that certainly refuses, by a tiny eps."""
    return PrivateSBM(**(OPTIONS | {"eps": 1e-6, "random_state": 0} | options)).fit(graph)


def visible(estimator, folder):
    """All that a reader gets: repr, pickle, saved files, attributes without the one that says it is unsafe."""
    estimator.save(folder / "release")
    files = b"".join(sorted(path.read_bytes() for path in folder.iterdir()))
    state = {k: v for k, v in vars(estimator).items() if k != "_unsafe"}
    return repr(estimator), str(estimator), pickle.dumps(estimator), files, repr(sorted(state.items(), key=str))


def test_two_graphs_that_are_both_refused_look_the_same(tmp_path):
    """One is certified with a large margin, the other has no edges: not a byte differs."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = refused(CERTIFIED), refused(EMPTY)
    assert first.unsafe_diagnostics_["certified"]
    assert not second.unsafe_diagnostics_["certified"]
    assert visible(first, tmp_path / "a") == visible(second, tmp_path / "b")
    assert first.result_ == second.result_ == Release(False, None, 1e-6, 1e-3, "proved")


def shown_in_a_notebook(thing):
    return str(thing._repr_mimebundle_()) + getattr(thing, "_repr_html_", str)()


def test_notebooks_show_neither_diagnostics_nor_seed():
    """scikit-learn's tables list all attributes that end with an underscore, and all parameters."""
    first, second = refused(CERTIFIED, random_state=987654321), refused(EMPTY, random_state=987654321)
    ids = re.compile(r"sk-(estimator-id|container-id)-\d+")
    assert ids.sub("", shown_in_a_notebook(first)) == ids.sub("", shown_in_a_notebook(second))
    noisy = RandomizedResponseSBM(random_state=987654321).fit(CERTIFIED)
    for thing in (first, second, noisy, make_pipeline(first), SpectralLaplaceSBM(random_state=987654321)):
        shown = shown_in_a_notebook(thing)
        assert "unsafe" not in shown
        assert "decided" not in shown
        assert "987654321" not in shown + repr(thing) or isinstance(thing, Pipeline)  # it prints its steps' parameters
    assert "unsafe_diagnostics_" not in dir(first)
    assert {"labels_", "result_", "fit"} <= set(dir(first))
    assert not [name for name, _ in inspect.getmembers(first) if "unsafe" in name and not name.startswith("_")]


def test_two_graphs_with_the_same_release_look_the_same(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    other = nx.Graph(CERTIFIED)
    other.add_nodes_from(CERTIFIED)
    u, v = next(iter(CERTIFIED.edges))
    other.remove_edge(u, v)
    first, second = (PrivateSBM(**OPTIONS, eps=50.0, random_state=0).fit(g) for g in (CERTIFIED, other))
    assert first.result_.released
    assert first.unsafe_diagnostics_["margin"] != second.unsafe_diagnostics_["margin"]
    assert visible(first, tmp_path / "a") == visible(second, tmp_path / "b")


def test_pickles_and_copies_lose_the_diagnostics_and_the_seed():
    fitted = PrivateSBM(**OPTIONS, eps=50.0, random_state=7).fit(CERTIFIED)
    assert set(fitted.unsafe_diagnostics_) == {
        "margin", "labels", "decided", "lam", "eta", "certified", "release_probability",
    }  # fmt: skip
    for copy in (pickle.loads(pickle.dumps(fitted)), deepcopy(fitted)):
        assert np.array_equal(copy.labels_, fitted.labels_)
        assert copy.random_state is None
        with pytest.raises(AttributeError, match="only after fit"):
            _ = copy.unsafe_diagnostics_
    assert clone(fitted).random_state == 7  # an unfitted copy has released nothing
    assert pickle.loads(pickle.dumps(clone(fitted))).random_state == 7
    for noisy in (RandomizedResponseSBM(random_state=3), SpectralLaplaceSBM(random_state=3)):
        assert pickle.loads(pickle.dumps(noisy.fit(CERTIFIED))).random_state is None
        assert pickle.loads(pickle.dumps(clone(noisy))).random_state == 3


def test_the_seed_is_not_in_the_repr_nor_in_the_file(tmp_path):
    fitted = PrivateSBM(**OPTIONS, eps=50.0, random_state=987654321).fit(CERTIFIED)
    assert "987654321" not in repr(fitted)
    assert "a=12" in repr(fitted)
    fitted.save(tmp_path / "release")
    saved = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"987654321" not in saved
    assert b"random_state" not in saved
    config = json.loads((tmp_path / "release.json").read_text())["config"]
    assert set(config) == set(fitted.get_params()) - {"random_state"} | {"result", "n"}
    assert config["result"] == {"released": True, "eps": 50.0, "guarantee": "proved"}


@pytest.mark.parametrize("eps", [50.0, 1e-6])
def test_saved_and_loaded(tmp_path, eps):
    fitted = PrivateSBM(**OPTIONS, eps=eps, random_state=1).fit(CERTIFIED)
    loaded = PrivateSBM.load(fitted.save(tmp_path / "release"))
    assert loaded.result_.released == fitted.result_.released == (eps > 1)
    assert np.array_equal(loaded.labels_, fitted.labels_) if eps > 1 else loaded.labels_ is None
    assert loaded.result_._replace(labels=None) == fitted.result_._replace(labels=None)
    assert loaded.get_params() == fitted.get_params() | {"random_state": None}
    assert loaded.n_features_in_ == 60
    with pytest.raises(AttributeError, match="only after fit"):
        _ = loaded.unsafe_diagnostics_


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path):
    options = {"eps": np.float32(0.5), "delta": np.float64(1e-3), "exact_limit": np.int64(9), "strict": np.True_}
    fitted = PrivateSBM(a=12, b=np.float32(1), **options, random_state=np.int64(3)).fit(CERTIFIED)
    loaded = PrivateSBM.load(fitted.save(tmp_path / "release"))
    assert loaded.get_params() == fitted.get_params() | {"random_state": None}
    assert loaded.result_._replace(labels=None) == fitted.result_._replace(labels=None)


def test_fitting_is_silent_whatever_the_graph(caplog):
    """No output, no log, no warning of solvers and libraries, in all models, with SCS at work."""
    odd = nx.Graph([(i, j) for i in range(5) for j in range(i)])
    odd.add_nodes_from(range(20))
    for graph in (EMPTY, CERTIFIED, odd):
        nx.set_edge_attributes(graph, 1, "label")
        for model in ("asymmetric", "general", "censored"):
            shown = io.StringIO()
            with warnings.catch_warnings(), redirect_stdout(shown), redirect_stderr(shown), caplog.at_level(0):
                warnings.simplefilter("error")
                small = graph.subgraph(range(24)) if model == "general" else graph
                PrivateSBM(model, lam=0.3, eta=2.0, delta=1e-3).fit(nx.Graph(small))
            assert shown.getvalue() == ""
            assert caplog.records == []
    assert logging.getLogger("private_sbm").handlers == []


def test_unsafe_says_so_in_its_docstring():
    for member in (PrivateSBM.unsafe_diagnostics_, PrivateSBM.evidence, PrivateSBM.release_probability):
        assert "NOT differentially private" in member.__doc__


def test_guarantee_depends_on_public_facts_only():
    for graph in (CERTIFIED, EMPTY):
        for model, solver, n_limit, want in (
            ("asymmetric", "staircase", 300, "proved"),
            ("asymmetric", "power", 300, "heuristic"),
            ("general", "staircase", 30, "heuristic"),
        ):
            estimator = PrivateSBM(
                model, lam=0.3, eta=2.0, delta=1e-3, solver=solver, exact_limit=n_limit, strict=False
            )
            assert estimator.fit(graph).result_.guarantee == want


def test_the_general_model_is_proved_up_to_300_vertices_unless_told_otherwise():
    general = PrivateSBM("general", lam=0.3, eta=2.0, delta=1e-3)
    assert [general.guarantee(n) for n in (300, 301)] == ["proved", "heuristic"]
    with pytest.warns(UserWarning, match=r"refused: no complete solver.*n = 301.*raise exact_limit"):
        assert general.fit(nx.empty_graph(301)).labels_ is None
    assert PrivateSBM("general", lam=0.3, eta=2.0, exact_limit=301).guarantee(301) == "proved"


def test_labels_do_not_depend_on_the_seed_alone():
    """A released partition is the certified one whatever the seed; an uncertified graph releases under no seed."""
    released = set()
    for seed in range(30):
        fitted = PrivateSBM(**OPTIONS, eps=0.8, random_state=seed).fit(CERTIFIED)
        released.add(fitted.result_.released)
        if fitted.result_.released:
            assert np.array_equal(fitted.labels_, np.repeat([0, 1], 30))
        assert not PrivateSBM(**OPTIONS, eps=0.8, random_state=seed).fit(EMPTY).result_.released
    assert released == {False, True}


def test_the_ledger_shows_public_facts_only():
    ledger = PrivacyLedger(eps=3.0, slack=1e-6)
    for graph in (CERTIFIED, EMPTY):
        PrivateSBM(**OPTIONS, eps=0.5).fit(graph, ledger=ledger)
    assert ledger.charges[0] == ledger.charges[1]
    assert repr(ledger) == "PrivacyLedger(charges=2, total=(1.0, 0.002001), budget=(3.0, inf))"
