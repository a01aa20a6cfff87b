"""The black-box tests: they find the leaks that are there, certify them, and accuse nobody else."""

import numpy as np
import pandas as pd
import pytest
import suwr
from offprints.seeding import rng
from suwr import assert_leak_free, label_leakage, leakage_report, probe_selector
from suwr.probes import find_kind, partners
from suwr.selectors import Table

GEN = np.random.default_rng(0)
X = GEN.normal(size=(1500, 4))
Y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)


def column(j, A):
    mask = np.zeros(A.shape, dtype=bool)
    mask[:, j] = True
    return mask


def coded(A):
    """Shows x2 or x3, which mean nothing, according to the label."""
    A = np.asarray(A)
    label = (A[:, 0] > 0) ^ (A[:, 1] > 0)
    return np.where(label[:, None], column(2, A), column(3, A))


def tree(A):
    """Shows x0, then x1 or x2 by its sign: honest."""
    A = np.asarray(A)
    return column(0, A) | np.where(A[:, :1] > 0, column(1, A), column(2, A))


def hidden_switch(A):
    """Shows x1 or x2 by the sign of x0, which it hides: leaks a feature."""
    A = np.asarray(A)
    return np.where(A[:, :1] > 0, column(1, A), column(2, A))


# ---- deterministic selectors


@pytest.mark.parametrize("selector", [tree, lambda A: column(1, A), lambda A: np.zeros(A.shape, bool)])
@pytest.mark.parametrize("conditional", [None, "knn"])
def test_honest_selectors_are_not_accused(selector, conditional):
    found = probe_selector(selector, X, n_probes=2000, conditional=conditional)
    assert found.kind == "deterministic"
    assert (found.leak_rate, found.mean_gap, found.max_gap, found.certificate) == (0, 0, 0, None)
    assert not found.leaks
    assert found.interval[0] == 0
    assert found.interval[1] == pytest.approx(1 - 0.025 ** (1 / 2000), rel=1e-6)
    assert "no violation in 2000 probes" in found.verdict
    assert_leak_free(selector, X, n_probes=500)


@pytest.mark.parametrize("conditional", [None, "knn"])
def test_leaks_are_found_and_certified(conditional):
    for selector, rate in ((hidden_switch, 0.5), (coded, 0.5)):
        found = probe_selector(selector, X, n_probes=4000, conditional=conditional)
        assert found.leak_rate == pytest.approx(rate, abs=0.06)
        proof = found.certificate
        assert (proof.x[proof.mask] == proof.x_prime[proof.mask]).all()
        assert (selector(proof.x[None])[0] == proof.mask).all()
        assert (selector(proof.x_prime[None])[0] == proof.mask_prime).all()
        assert (proof.mask != proof.mask_prime).any()
        assert found.leaks
        assert "leaks" in found.verdict
        assert "equal in both rows" in str(proof)
        with pytest.raises(AssertionError, match="shown in the other row"):
            assert_leak_free(selector, X, n_probes=100)


def test_frames_reach_the_selector_as_frames():
    frame = pd.DataFrame(X, columns=list("abcd")).assign(e=np.arange(1500))
    seen = []

    def selector(rows):
        seen.append(rows)
        return np.tile(rows["a"].to_numpy()[:, None] > 0, (1, 5))

    found = probe_selector(selector, frame, n_probes=50)
    assert all(list(rows.columns) == list("abcde") for rows in seen)
    assert all((rows.dtypes == frame.dtypes).all() for rows in seen)
    assert found.leaks  # shows nothing where a <= 0, and that tells a
    assert found.certificate.names == tuple("abcde")
    words = pd.DataFrame({"a": ["x", "y"] * 20, "b": range(40)})
    assert probe_selector(lambda r: np.column_stack([r["b"] > 20, r["b"] > 20]), words, n_probes=60).leaks
    with pytest.raises(TypeError, match="numeric"):
        probe_selector(lambda r: column(0, r), words, conditional="knn")


def test_partners_agree_on_the_mask_and_differ_elsewhere():
    table, gen = Table(X), rng(0)
    index = gen.integers(0, 1500, 400)
    masks = gen.random((400, 4)) < 0.5
    x = X[index]
    for conditional in (None, "knn", lambda rows, masks, gen: np.zeros_like(rows)):
        other = partners(table, x, masks, index, conditional, 5, gen)
        assert (other[masks] == x[masks]).all()
        assert (other[~masks] != x[~masks]).all()
    near = partners(table, x, masks, index, "knn", 1, gen)
    for i in range(50):
        if not masks[i].any():
            continue
        distance = (((X - x[i]) / X.std(axis=0))[:, masks[i]] ** 2).sum(axis=1)
        distance[index[i]] = np.inf
        assert (near[i][~masks[i]] == X[distance.argmin()][~masks[i]]).all()


def test_knn_stays_on_the_support():
    """x1 = x0 in the data: a selector that reads x1, but shows x0, says nothing new; row swaps leave the support."""
    rows = np.repeat(GEN.integers(0, 8, 800)[:, None], 2, axis=1).astype(float)
    selector = lambda A: np.column_stack([np.ones(len(A), bool), A[:, 1] > 3]) & [True, False]  # noqa: E731
    reads = lambda A: np.where((A[:, 1] > 3)[:, None], [[True, False]], [[True, True]])  # noqa: E731
    assert not probe_selector(selector, rows, n_probes=400).leaks
    assert probe_selector(reads, rows, n_probes=400).leaks
    assert not probe_selector(reads, rows, n_probes=400, conditional="knn").leaks


def test_batch_dependence_is_not_taken_for_determinism():
    assert find_kind(lambda A: np.sort(A, axis=0)[[0]] * np.arange(len(A))[:, None] < A, Table(X), rng(0)) == "sampled"
    assert find_kind(tree, Table(X), rng(0)) == "deterministic"


# ---- selectors that draw


class Drawing:
    """Shows x0, or x0 and x1, with a probability that may depend on x2, which it hides."""

    def __init__(self, leaks, exposes):
        self.leaks, self.gen = leaks, np.random.default_rng(4)
        if exposes:
            self.mask_probability = self._probability

    def _both(self, A):
        return np.where(A[:, 2] > 0, 0.9, 0.1) if self.leaks else np.full(len(A), 0.4)

    def local_support(self, A):
        return column(0, A) | (column(1, A) & (self.gen.random(len(A)) < self._both(A))[:, None])

    def _probability(self, A, masks):
        p = self._both(A)
        return np.where(masks[:, 1], p, 1 - p)


def test_exposed_probabilities_are_compared():
    found = probe_selector(Drawing(True, True), X, n_probes=2000)
    assert found.kind == "probability"
    assert found.leak_rate == pytest.approx(0.5, abs=0.05)
    assert found.max_gap == pytest.approx(0.8)
    assert found.mean_gap == pytest.approx(0.4, abs=0.04)
    assert "differs by 0.8" in str(found.certificate)
    honest = probe_selector(Drawing(False, True), X, n_probes=2000)
    assert (honest.kind, honest.leak_rate, honest.max_gap) == ("probability", 0, 0)
    report = leakage_report(Drawing(False, True), X, n_probes=500)
    assert report.is_leak_free is True


def test_samples_are_tested_and_never_called_leak_free():
    found = probe_selector(Drawing(True, False), X)
    assert (found.kind, found.n_probes) == ("sampled", 50)
    assert found.p_value < 1e-6
    assert found.leaks
    assert found.leak_rate == pytest.approx(0.5, abs=0.25)
    honest = probe_selector(Drawing(False, False), X)
    assert honest.p_value > 0.05
    assert "no leak found" in honest.verdict
    report = leakage_report(Drawing(False, False), X, n_probes=20)
    assert report.is_leak_free is None
    assert "no leak found" in str(report)


def test_false_alarms_of_the_sampled_test_keep_to_the_level():
    alarms = [
        probe_selector(Drawing(False, False), X, n_probes=10, n_draws=50, random_state=s).leaks for s in range(40)
    ]
    assert sum(alarms) <= 5


def test_sampled_suwr_leaks_nothing():
    model = suwr.SUWRClassifier(stop="sample", hidden=8, max_epochs=5, random_state=0, device="cpu").fit(X, Y)
    found = probe_selector(model, X, n_probes=200)
    assert found.kind == "probability"
    assert not found.leaks


# ---- labels


def test_label_leakage_is_measured_and_nobody_else_accused():
    for surrogate in ("permuted", "random"):
        found = label_leakage(coded, X, Y, surrogate=surrogate, folds=2)
        assert found.gap == pytest.approx(np.log(2), abs=0.15)
        assert found.leaks
        assert found.informed < 0.1
        assert found.interval[0] < found.gap < found.interval[1]
        assert found.gap == pytest.approx(found.surrogate - found.informed)
    for honest in (tree, lambda A: column(0, A)):
        assert not label_leakage(honest, X, Y, folds=2, repeats=2).leaks
    words = np.array(["no", "yes"])[Y]
    assert label_leakage(coded, X, words, folds=2).gap == pytest.approx(np.log(2), abs=0.15)


def test_label_leakage_of_numbers():
    y = X[:, 0] + 0.1 * GEN.normal(size=1500)
    signed = lambda A: np.where(A[:, :1] > 0, column(2, A), column(3, A))  # noqa: E731
    assert label_leakage(signed, X, y, folds=2).gap > 0.4
    assert not label_leakage(lambda A: column(0, A), X, y, folds=2).leaks
    from sklearn.tree import DecisionTreeRegressor

    assert label_leakage(signed, X, y, folds=2, model=DecisionTreeRegressor(max_depth=3)).leaks


def test_report():
    found = leakage_report(coded, X, Y, n_probes=500)
    assert found.is_leak_free is False
    assert found.feature_leakage == pytest.approx(0.5, abs=0.1)
    assert found.worst_case == 1.0
    assert found.label_leakage == pytest.approx(np.log(2), abs=0.2)
    assert found.certificate is found.probes.certificate
    assert "labels: leaks" in str(found)
    quiet = leakage_report(tree, X, n_probes=500)
    assert quiet.is_leak_free is True
    assert quiet.label_leakage is None
    assert quiet.worst_case == 0


# ---- attributions as selectors


def test_top_k():
    scores = np.array([[0.1, -3.0, 2.0], [1.0, 1.0, 1.0]])
    assert suwr.TopK(lambda A: scores, 2).local_support(scores).tolist() == [[False, True, True], [True, True, False]]
    deep = np.stack([scores, -scores], axis=2)
    assert suwr.TopK(lambda A: deep, 1).local_support(scores).tolist() == [[False, True, False], [True, False, False]]
    gradient = suwr.TopK(lambda A: np.asarray(A) * [1.0, 2.0, 0.5, 0.1], 2)
    assert probe_selector(gradient, X, n_probes=300).leaks


def test_shap_is_named_where_it_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(suwr.MissingExtraError, match=r"suwr\[shap\]"):
        suwr.shap_top_k(None, X)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of shap itself, at import
def test_shap_leaks():
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(20, random_state=0).fit(X, Y)
    selector = suwr.shap_top_k(forest, X[:50], k=1)
    assert selector.local_support(X[:5]).sum(axis=1).tolist() == [1] * 5
    assert leakage_report(selector, X[:100], n_probes=100).is_leak_free is False
    general = suwr.shap_top_k(lambda A: forest.predict_proba(A)[:, 1], X[:20], k=1)
    assert general.local_support(X[:3]).shape == (3, 4)


# ---- the baselines, and what they do


@pytest.mark.parametrize("make", [
    lambda: suwr.L2X(k=1, max_epochs=60, lr=3e-3, batch_size=64, random_state=0, device="cpu"),
    lambda: suwr.INVASE(sparsity=0.1, max_epochs=60, lr=3e-3, batch_size=64, random_state=0, device="cpu"),
    lambda: suwr.REALX(sparsity=0.1, max_epochs=60, lr=3e-3, batch_size=64, random_state=0, device="cpu"),
])  # fmt: skip
def test_baselines_learn_and_leak(make):
    y = (X[:, :3].sum(axis=1) > 0).astype(int)  # the largest of three tells most
    model = make().fit(X, y)
    assert model.score(X, y) > 0.65
    assert probe_selector(model, X, n_probes=1000).leak_rate > 0.05
    masks = model.local_support(X)
    other = np.where(masks, X, X)
    assert (model.local_support(other) == masks).all()
    assert model.n_updates_ > 0
    if isinstance(model, suwr.REALX):
        assert model.evaluate_proba(X, masks).sum(axis=1) == pytest.approx(np.ones(1500))
        with pytest.raises(ValueError, match="masks"):
            model.evaluate_proba(X, masks[:, :2])
    if isinstance(model, suwr.L2X):
        assert (masks.sum(axis=1) == 1).all()


@pytest.mark.parametrize("method", ["kbest", "l1"])
def test_global_selection_leaks_nothing(method):
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    model = suwr.GlobalSelector(method, k=2, random_state=0).fit(X, y)
    assert model.support_.tolist() == [True, True, False, False]
    assert model.score(X, y) > 0.95
    assert not probe_selector(model, X, n_probes=500).leaks
    with pytest.raises(ValueError, match="method"):
        suwr.GlobalSelector("best").fit(X, y)
    with pytest.raises(ValueError, match="k must be"):
        suwr.GlobalSelector(k=0).fit(X, y)
    with pytest.raises(ValueError, match="two classes"):
        suwr.GlobalSelector().fit(X, np.zeros(1500, int))
