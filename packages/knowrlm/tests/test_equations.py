"""The numbers that can be checked by hand: ranks, Grantham, window, policy gradient, metrics, space."""

import itertools

import knowrlm as kr
import numpy as np
import pytest
import torch
from knowrlm import _reference as ref
from knowrlm.policy import entropy_of, site_log_prob
from offprints.seeding import isolated, rng
from scipy.stats import spearmanr

GRAPH = kr.AminoAcidGraph.default()
COLUMNS = {  # nearest first, given the current residue
    "A": "TSLVMGQEHICFKNRDYWP",
    "D": "NEQSKTRHPGAYCVMWFIL",
    "I": "VLFMWYCATHQSRNKEGPD",
    "K": "QREDNHSTAYPMGLFVWCI",
    "W": "FYMIHL",
    "C": "VMFTIY",
    "G": "STNAPD",
    "P": "SNTDGQ",
}


# ---- 1 the graph


@pytest.mark.parametrize("residue", COLUMNS)
def test_ranks_given_the_current_residue(residue):
    nearest = "".join(GRAPH.neighbors(residue, window=(1, 19)))
    assert nearest.startswith(COLUMNS[residue])
    assert [GRAPH.rank(b, residue) for b in COLUMNS[residue]] == list(range(1, len(COLUMNS[residue]) + 1))


def test_every_column_is_a_permutation_and_self_is_20():
    assert (np.sort(GRAPH.ranks, axis=1) == np.arange(1, 21)).all()
    assert (np.diagonal(GRAPH.ranks) == 20).all()
    assert GRAPH.ranks.tolist() == ref.ranks(GRAPH.distances.tolist())


def test_ranks_are_not_symmetric():
    assert GRAPH.rank("S", given="A") == 2
    assert GRAPH.rank("A", given="S") != 2


def test_the_shipped_distances_are_those_of_the_586_scales():
    scales = kr.load_scales()
    assert scales.values.shape == (20, 586)
    assert scales.table["category"].value_counts().to_dict() == {
        "Conformation": 224, "Polarity": 111, "ASA/Volume": 64, "Composition": 58, "Shape": 45, "Energy": 36,
        "Structure-Activity": 31, "Others": 17,
    }  # fmt: skip
    assert scales.table["subcategory"].nunique() == 74
    built = kr.AminoAcidGraph.from_scales()
    assert np.abs(built.distances - GRAPH.distances).max() < 1e-3
    assert (built.ranks == GRAPH.ranks).all()
    rows = scales.values
    assert ref.distance(rows[0], rows[1]) == pytest.approx(GRAPH.distances[0, 1], abs=1e-3)


def agreement(graph):
    off = ~np.eye(20, dtype=bool)
    return np.mean([spearmanr(GRAPH.ranks[a][off[a]], graph.ranks[a][off[a]]).statistic for a in range(20)])


def test_other_distances_rank_otherwise():
    assert agreement(kr.AminoAcidGraph.from_matrix("BLOSUM62")) == pytest.approx(0.75, abs=0.01)
    assert agreement(kr.AminoAcidGraph.grantham()) == pytest.approx(0.69, abs=0.01)
    assert agreement(kr.AminoAcidGraph.from_scales(metric="euclidean")) == pytest.approx(0.986, abs=0.001)
    assert agreement(kr.AminoAcidGraph.from_scales(["Polarity"])) < 0.9


def test_euclidean_is_the_root_of_squares():
    scales = kr.load_scales()
    graph = kr.AminoAcidGraph.from_scales({"Shape": 2.0}, metric="euclidean")
    shape = scales.values[:, (scales.table["category"] == "Shape").to_numpy()]
    assert graph.distances[3, 7] == pytest.approx(np.sqrt(2 * ((shape[3] - shape[7]) ** 2).sum()))
    linear = kr.AminoAcidGraph.from_scales({"Shape": 2.0, "Others": 0.0})
    assert linear.distances[3, 7] == pytest.approx(2 * np.abs(shape[3] - shape[7]).sum())


def test_coordinates_keep_distances():
    # all 19 coordinates reproduce the distances as far as they are Euclidean
    points = GRAPH.coordinates(19)
    away = np.sqrt(((points[:, None] - points) ** 2).sum(2))
    off = ~np.eye(20, dtype=bool)
    assert spearmanr(away[off], GRAPH.distances[off]).statistic > 0.97
    assert GRAPH.coordinates(2).shape == (20, 2)
    assert points[:, 0].std() == pytest.approx(1)
    assert points[:, 0].std() > points[:, 5].std() > points[:, 15].std()


# ---- 2 Grantham


@pytest.mark.parametrize(
    ("pair", "published", "value"), [("LI", 5, 4.86), ("CW", 215, 214.4), ("SR", 110, 109.2), ("DE", 45, None)]
)
def test_grantham_is_within_one_of_the_published(pair, published, value):
    a, b = (kr.RESIDUES.index(letter) for letter in pair)
    found = kr.grantham_distances()[a, b]
    assert abs(found - published) <= 1
    if value is not None:
        assert found == pytest.approx(value, abs=0.05)


def test_grantham_is_the_formula():
    assert ref.grantham(0.0, 4.9 - 5.2, 0.0) == pytest.approx(kr.grantham_distances()[7, 9], abs=1e-9)


# ---- 3 the window


def ends(rewards, mode="dynamic"):
    window = kr.SlidingWindow(1, mode)
    found = []
    for reward in rewards:
        window.update(np.array([reward]))
        found.append((int(window.low[0]), int(window.high[0])))
        assert window.low.dtype == window.high.dtype == np.int64
    return found


def test_the_window_slides_as_printed():
    rewards = [0.1, 0.2, 0.3, 0.2, 0.1, 0.1, 0.5]
    assert ends(rewards) == [(0, 6), (0, 6), (0, 6), (0, 6), (1, 7), (2, 8), (1, 7)]


def test_the_window_keeps_within_its_floor_and_cap():
    assert ends([1.0] * 40)[-1] == (14, 20)
    assert ends(np.linspace(0, 1, 10).tolist())[-1] == (0, 6)
    assert ends([3, 2, 1], mode=(0, 20)) == [(0, 20)] * 3


@pytest.mark.parametrize("seed", range(20))
def test_windows_of_many_walks_are_the_reference(seed):
    gen = rng(seed)
    rewards = np.round(gen.normal(size=(30, 3)), 1)
    window = kr.SlidingWindow(3)
    for t, row in enumerate(rewards):
        window.update(row)
        for walk in range(3):
            low, high = ref.window(rewards[: t + 1, walk].tolist())[-1]
            assert (window.low[walk], window.high[walk]) == (low, high)
    window.reset(np.array([True, False, False]))
    assert window.low[0] == 0
    assert window.high[0] == 6
    window.update(np.full(3, -9.0))
    assert window.low[0] == 0  # the first reward of a walk is compared with nothing


def test_self_is_never_a_candidate():
    for low, high in [(14, 20), (0, 6), (0, 20)]:
        every = np.arange(20)
        mask = GRAPH.candidates(every, np.full(20, low), np.full(20, high))
        assert not np.diagonal(mask).any()
        assert (mask.sum(axis=1) == min(high, 19) - max(low, 1) + 1).all()
    assert GRAPH.neighbors("A", (14, 20)) == list("NRDYWP")
    assert GRAPH.neighbors("A") == list("TSLVMG")


# ---- 4 the policy gradient


class Table(torch.nn.Module):
    """An encoder of twelve free numbers a residue and place: everything about the policy depends on them."""

    width = 3

    def __init__(self):
        super().__init__()
        with isolated(5):
            self.table = torch.nn.Parameter(torch.randn(2, 21, 3, dtype=torch.float64))

    def forward(self, tokens):
        return torch.stack([self.table[place][tokens[:, place]] for place in range(2)], dim=1)


def toy():
    space = kr.VariantSpace("AC", [1, 2], allowed="ACDE")
    encoder = Table()
    with isolated(1):
        policy = kr.KnowledgePolicy(space, encoder, finetune=True, temperature=0.5, dtype=torch.float64)
    actions = [(site, residue) for site in range(2) for residue in range(4) if residue != site]
    tokens = torch.zeros(len(actions), 2, dtype=torch.long) + torch.tensor([0, 1])
    site = torch.tensor([a[0] for a in actions])
    residue = torch.tensor([a[1] for a in actions])
    allowed = torch.zeros(len(actions), 20, dtype=torch.bool)
    allowed[:, :4] = True
    allowed[torch.arange(len(actions)), tokens[torch.arange(len(actions)), site]] = False
    reward = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, -1.0], dtype=torch.float64)
    return policy, (tokens, site, residue, allowed), reward


def gradient(value, policy):
    found = torch.autograd.grad(value, [policy.encoder.table, policy.site_head.weight], retain_graph=True)
    return torch.cat([part.flatten() for part in found])


def test_the_joint_log_probability_gives_the_gradient_of_the_expected_reward():
    policy, action, reward = toy()
    joint, _, _ = policy.log_prob(*action)
    assert float(joint.detach().exp().sum()) == pytest.approx(1)
    exact = gradient((joint.exp() * reward).sum(), policy)  # enumerated: E[r] over all six actions
    estimate = gradient((joint.exp().detach() * joint * reward).sum(), policy)
    torch.testing.assert_close(estimate, exact)
    site_only, _, _ = policy.log_prob(*action, joint=False)
    biased = gradient((joint.exp().detach() * site_only * reward).sum(), policy)
    assert (biased - exact).norm() > 0.1 * exact.norm()


def test_the_sampled_estimator_agrees_within_three_standard_errors():
    policy, action, reward = toy()
    joint, _, _ = policy.log_prob(*action)
    exact = gradient((joint.exp() * reward).sum(), policy)
    rows = torch.stack([gradient(joint[i] * reward[i], policy) for i in range(6)])
    drawn = torch.multinomial(joint.exp().detach(), 20_000, replacement=True, generator=rng(0, "cpu"))
    sample = rows[drawn]
    error = sample.std(0) / len(sample) ** 0.5
    assert ((sample.mean(0) - exact).abs() <= 4 * error + 1e-12).all()
    assert ((sample.mean(0) - exact).abs() <= 3 * error + 1e-12).float().mean() > 0.95


# ---- 5 the temperature


def test_temperature_between_arg_max_and_uniform():
    space = kr.VariantSpace("ACDE", [2])
    gen = rng(0, "cpu")
    own, others = torch.randn(3, 6, generator=gen), torch.randn(3, 20, 6, generator=gen)
    allowed = torch.rand(3, 20, generator=gen) < 0.4
    allowed[:, 0] = True
    cosine = torch.nn.functional.cosine_similarity(own[:, None], others, dim=2)
    best = torch.where(allowed, cosine, -torch.inf).argmax(1)
    for temperature in (0.0, 1e-4):
        sharp = kr.KnowledgePolicy(space, temperature=temperature).residue_logits(own, others, allowed).exp()
        assert (sharp.argmax(1) == best).all()
        assert sharp.max(1).values.min() > 0.999
    flat = kr.KnowledgePolicy(space, temperature=1e6).residue_logits(own, others, allowed).exp()
    torch.testing.assert_close(flat, allowed / allowed.sum(1, keepdim=True), rtol=1e-4, atol=1e-6)
    uniform = kr.KnowledgePolicy(space, knowledge=False).residue_logits(own, others, allowed).exp()
    torch.testing.assert_close(uniform, allowed / allowed.sum(1, keepdim=True))


def test_the_preference_is_the_reference():
    space = kr.VariantSpace("ACDE", [2])
    gen = rng(1, "cpu")
    own, others = torch.randn(1, 6, generator=gen).double(), torch.randn(1, 20, 6, generator=gen).double()
    allowed = torch.zeros(1, 20, dtype=torch.bool)
    allowed[0, [2, 5, 9]] = True
    found = kr.KnowledgePolicy(space, temperature=0.1).residue_logits(own, others, allowed).exp()[0, [2, 5, 9]]
    wanted = ref.preference(own[0].numpy(), [others[0, b].numpy() for b in (2, 5, 9)], 0.1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9)


def test_entropy_and_log_probability_of_the_site():
    logits = torch.tensor([[0.0, 0.0, 5.0]], dtype=torch.float64)
    chosen, entropy = site_log_prob(logits, torch.tensor([1]), torch.tensor([True, True, False]))
    assert float(chosen) == pytest.approx(np.log(0.5))
    assert float(entropy) == pytest.approx(np.log(2))
    assert float(entropy_of(torch.log_softmax(torch.tensor([[0.0, -torch.inf]]), 1))) == 0


# ---- PPO


def test_advantages_are_the_reference():
    gen = rng(3)
    reward, value, following = (gen.normal(size=(9, 2)) for _ in range(3))
    ended = gen.random((9, 2)) < 0.3
    found, target = kr.advantages(*(torch.tensor(x) for x in (reward, value, following, ended)), 0.9, 0.8)
    for walk in range(2):
        columns = (x[:, walk].tolist() for x in (reward, value, following, ended))
        np.testing.assert_allclose(found[:, walk].numpy(), ref.advantages(*columns, 0.9, 0.8))
    np.testing.assert_allclose(target.numpy(), found.numpy() + value)


# ---- 8, 9, 10: predictor, NDCG, space


def test_an_additive_landscape_is_solved_in_two_rounds():
    space = kr.VariantSpace("ACDEF", [1, 3, 5])
    gen = rng(4)
    weights = gen.normal(size=(3, 20))
    codes = space.codes(np.arange(space.size))
    truth = weights[np.arange(3), codes.astype(int)].sum(axis=1)
    landscape = kr.Landscape(space, codes, truth - truth.min())
    run = kr.run_campaign("active", landscape, rounds=1, seed=0, predictor=kr.EnsemblePredictor(["ridge"], top=1))
    assert run.best[-1] == landscape.maximum
    assert run.measured.tolist() == [96, 192, 288]


def test_ndcg():
    gen = rng(0)
    truth, predicted = gen.random(50), gen.random(50)
    assert kr.ndcg(truth, truth) == pytest.approx(1)
    assert kr.ndcg(truth, np.exp(truth)) == pytest.approx(1)
    assert kr.ndcg(truth, predicted) == pytest.approx(ref.ndcg(truth.tolist(), predicted.tolist()))
    assert kr.ndcg(truth, -truth) < 0.95
    assert kr.ndcg(truth - 2, truth) == pytest.approx(1)
    assert kr.ndcg(np.zeros(3), np.arange(3.0)) == 1


def test_the_bijection_of_variants():
    space = kr.VariantSpace("MQYKL", ["M1", 3, 5], allowed={3: "YWF"})
    assert space.size == 20 * 3 * 20
    index = np.arange(space.size)
    assert (space.index(space.codes(index)) == index).all()
    assert space.decode(space.codes(index[:3])) == ["AFA", "AFC", "AFD"]
    wanted = ["".join(letters) for letters in itertools.product(*space.allowed)]
    assert space.decode(np.concatenate(list(space.chunks(70)))) == wanted


def test_a_linear_model_by_look_up_is_the_reference():
    space = kr.VariantSpace("MQYKL", [1, 3, 5], allowed={3: "YWF"})
    weights = rng(0).normal(size=(3, 20))
    found = kr.additive_prediction(space, weights, 0.7)
    codes = space.codes(np.arange(space.size))
    for row in (0, 17, 599, 1199):
        assert found[row] == pytest.approx(ref.linear(weights, 0.7, tuple(codes[row].tolist())))


def test_metrics_of_a_campaign():
    found = kr.scores(np.array([1.0, 5.0, 3.0]), np.array([4.0, 0.0]), ndcg=0.5, plate=2)
    assert (found.maximum, found.top, found.final, found.ndcg) == (5.0, 4.5, 2.0, 0.5)
    relative = found.normalized(10.0)
    assert (relative.maximum, relative.top, relative.final, relative.ndcg) == (0.5, 0.45, 0.2, 0.5)


# ---- explanations


def test_substitutions_in_words():
    step = GRAPH.explain("D", "E")
    assert step.rank == 2
    assert str(step) == "D→E: charge kept, volume +27 Å³, hydropathy +0.0 (rank 2)"
    assert "negative to positive" in str(GRAPH.explain("D", "K"))
    assert "aromatic ring gained" in str(kr.substitution("A", "F"))
    assert "aromatic ring lost" in str(kr.substitution("Y", "S"))
    assert "proline kink gained" in str(kr.substitution("A", "P"))
    assert "proline kink lost" in str(kr.substitution("P", "A"))
    assert kr.substitution("R", "D").charge == -2
    assert kr.substitution("G", "W").volume == pytest.approx(227.8 - 60.1)
    assert kr.substitution("I", "K").hydropathy == pytest.approx(-8.4)
