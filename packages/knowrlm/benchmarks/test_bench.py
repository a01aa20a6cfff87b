"""Duels: scoring the candidates of a step, predicting a whole space, one-hot ridge by look-up."""

import knowrlm as kr
import numpy as np
import torch
from knowrlm.predictor import linear_weights, predict_space
from knowrlm.walk import Walks
from offprints.seeding import rng
from sklearn.linear_model import Ridge
from torch.nn import functional as F

GRAPH = kr.AminoAcidGraph.default()
GB1 = "MQYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"
SPACE = kr.VariantSpace(GB1, ["V39", "D40", "G41", "V54"])
POLICY = kr.KnowledgePolicy(SPACE, kr.scales_encoder(GRAPH, length=len(GB1)))


# ---- the hot path: successive steps of walks on the small ESM, six or so candidates each


def rollout(walks, steps=8):
    """Where the walks of a rollout stand, the sites they choose and the windows they draw from."""
    gen = rng(walks)
    weights = rng(0).normal(size=(SPACE.k, 20))
    library = kr.Library(SPACE.sample(96, gen), np.full(96, np.inf))
    walk = Walks(
        SPACE, library, lambda codes: weights[np.arange(4), codes.astype(int)].sum(axis=1), GRAPH, gen, n=walks
    )
    seen = []
    for _ in range(steps):
        site = gen.integers(SPACE.k, size=walks)
        allowed = walk.allowed(site)
        seen.append((walk.codes.copy(), site, allowed))
        walk.step(site, np.array([gen.choice(np.flatnonzero(row)) for row in allowed]))
    return seen


def picked(logits, allowed):
    return logits.exp()[torch.from_numpy(allowed)]


def batched(data):
    """One call a step, states remembered over the rollout."""
    bank = kr.StateBank(POLICY, SPACE)
    return torch.cat([picked(kr.preferences(bank, *step), step[2]) for step in data])


@torch.no_grad()
def one_by_one(data):
    """A call of the model for every candidate, and one for the state."""
    return torch.cat(
        [picked(torch.stack([one_row(*row) for row in zip(*step, strict=True)]), step[2]) for step in data]
    )


def one_row(code, site, window):
    place = POLICY.places[site]
    tokens = torch.from_numpy(SPACE.tokens(code[None]).astype(np.int64))
    own = POLICY.encoder(tokens)[0, place]
    row = torch.full((20,), -torch.inf)
    for residue in np.flatnonzero(window):
        changed = tokens.clone()
        changed[0, place] = int(residue)
        row[residue] = F.cosine_similarity(own, POLICY.encoder(changed)[0, place], dim=0) / POLICY.temperature
    return torch.log_softmax(row, dim=0)


@torch.no_grad()
def walk_by_walk(data):
    """A call of the model for every walk, its candidates in one batch: what a user of transformers would write."""
    found = []
    for step in data:
        rows = []
        for code, site, window in zip(*step, strict=True):
            place = POLICY.places[site]
            residues = torch.from_numpy(np.flatnonzero(window))
            batch = torch.from_numpy(SPACE.tokens(code[None]).astype(np.int64)).repeat(1 + len(residues), 1)
            batch[1:, place] = residues
            states = POLICY.encoder(batch)[:, place]
            row = torch.full((20,), -torch.inf)
            row[residues] = F.cosine_similarity(states[:1], states[1:], dim=1) / POLICY.temperature
            rows.append(torch.log_softmax(row, dim=0))
        found.append(picked(torch.stack(rows), step[2]))
    return torch.cat(found)


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_candidate_scoring(duel):
    duel(
        sizes=[2, 5, 10],
        make=rollout,
        ours=batched,
        peers={"a call a candidate": one_by_one, "a call a walk": walk_by_walk},
        same=close,
        target={"a call a candidate": 5.0, "a call a walk": 1.5},
    )


# ---- a whole space


def space_of(size):
    k = round(np.log(size) / np.log(20))
    return kr.VariantSpace("ACDE"[:k], list(range(1, k + 1)))


def fitted(size):
    space = space_of(size)
    codes = np.unique(space.sample(384, rng(0)), axis=0)
    features = kr.FeatureMap(space)
    parts = rng(1).normal(size=(space.k, 20))[np.arange(space.k), codes.astype(int)]
    return features, codes, np.exp(parts.sum(axis=1) / 2) * (parts[:, 0] > 0) + 0.1 * rng(2).normal(size=len(codes))


def ridge(size):
    features, codes, target = fitted(size)
    model = Ridge(alpha=1.0).fit(features(codes).astype(np.float64), target)
    every = features.space.codes(np.arange(features.space.size))
    return (
        features,
        model,
        features(every).astype(np.float64),
        np.empty(features.space.size),
        np.empty(features.space.size),
    )


def same_numbers(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def by_table(data):
    features, model, _, out, _ = data
    return kr.additive_prediction(features.space, *linear_weights(model, features), out=out)


def by_product(data):
    _, model, matrix, _, out = data
    np.dot(matrix, model.coef_, out=out)
    out += model.intercept_
    return out


def test_one_hot_ridge(duel):
    """The peer's matrix is made beforehand: only its product is timed. Both write to memory that is there."""
    duel(
        sizes=[400, 8_000, 160_000],
        make=ridge,
        ours=by_table,
        peers={"numpy dense product": by_product, "scikit-learn predict": lambda data: data[1].predict(data[2])},
        same=same_numbers,
        target={"numpy dense product": 50.0, "scikit-learn predict": 50.0},
        growth="n",
    )  # fmt: skip


def ensemble(size):
    features, codes, target = fitted(size)
    return features, kr.EnsemblePredictor(["ridge", "svr", "extra_trees"], random_state=0).fit(features(codes), target)


def by_scikit_learn(data):
    features, predictor = data
    space = features.space
    return predictor.predict_each(features(space.codes(np.arange(space.size)))).astype(np.float32)


def close_tables(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


def test_whole_space(duel):
    """Ridge, SVR and extra trees on every variant; the peer predicts by the same models from one whole matrix."""
    duel(
        sizes=[400, 8_000, 160_000],
        make=ensemble,
        ours=lambda data: predict_space(data[1], data[0]),
        peers={"scikit-learn predict": by_scikit_learn},
        same=close_tables,
        target={"scikit-learn predict": 1.0},
        growth="n",
    )
