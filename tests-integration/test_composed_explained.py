"""What other methods found, explained row by row without leakage."""

import networkx as nx
import numpy as np
import torch


def r_squared(found, wanted):
    return 1.0 - np.mean((found - wanted) ** 2) / np.var(wanted)


def test_private_communities_are_explained_by_the_embedding_of_the_directed_graph():
    """Labels of private-sbm, features of duplex-embed, read by suwr. Control: the same with labels shuffled."""
    import duplex_embed as dx
    import private_sbm as ps
    from suwr import SUWRClassifier, leakage_report

    directed = dx.datasets.directed_sbm(n=400, blocks=2, p=0.3, q=0.03, seed=0).to_networkx()
    private = ps.PrivateSBM(model="asymmetric", a=20, b=2, eps=3.0, delta=1e-6).fit(nx.Graph(directed.to_undirected()))
    assert private.released
    labels = np.asarray(private.labels_)
    embedding = dx.spectral_ham(directed, 4)
    features = torch.cat((embedding.amplitude, embedding.phase), 1).numpy()

    generator = np.random.default_rng(0)
    order = generator.permutation(len(labels))
    known, fresh = order[:300], order[300:]

    def explained(y):
        model = SUWRClassifier(max_features=3, sparsity=0.05, batch_size=100, max_epochs=150, random_state=0)
        return model.fit(features[known], y[known])

    composed, control = explained(labels), generator.permutation(labels)
    assert composed.score(features[fresh], labels[fresh]) >= 0.9
    assert explained(control).score(features[fresh], control[fresh]) <= 0.65
    assert composed.local_support(features[fresh]).sum(1).max() <= 3
    assert leakage_report(composed, features[fresh]).is_leak_free


def test_a_fitness_predictor_is_explained_by_four_sites_of_each_variant():
    """knowrlm's predictor distilled by suwr. Control: a linear model on the four sites that matter most overall."""
    from knowrlm import EnsemblePredictor, cr6261
    from sklearn.linear_model import LinearRegression
    from suwr import SUWRRegressor, distill, leakage_report

    laboratory = cr6261()
    mutated = (laboratory.codes != laboratory.space.wild_type).astype(float)
    order = np.random.default_rng(0).permutation(len(mutated))
    known, fresh = order[:600], order[600:]
    predictor = EnsemblePredictor(["ridge", "extra_trees"]).fit(mutated[known], np.asarray(laboratory.fitness)[known])
    assert np.corrcoef(predictor.predict(mutated[fresh]), np.asarray(laboratory.fitness)[fresh])[0, 1] > 0.8
    said = predictor.predict(mutated)

    def scaled(x):
        return (predictor.predict(np.asarray(x)) - said.mean()) / said.std()

    model = SUWRRegressor(max_features=4, sparsity=0.02, batch_size=100, max_epochs=100, random_state=0)
    model = distill(scaled, mutated[known], model)
    wanted = scaled(mutated[fresh])
    composed = r_squared(model.predict(mutated[fresh]), wanted)

    strength = [abs(np.corrcoef(site, scaled(mutated[known]))[0, 1]) for site in mutated[known].T]
    best = np.argsort(strength)[-4:]
    linear = LinearRegression().fit(mutated[known][:, best], scaled(mutated[known]))
    assert composed > r_squared(linear.predict(mutated[fresh][:, best]), wanted)
    assert model.local_support(mutated[fresh]).sum(1).max() <= 4
    assert leakage_report(model, mutated[fresh]).is_leak_free
