"""Duels: exact labels with their certificate, against the solvers that a user would take."""

import cvxpy as cp
import numpy as np
import scs
from private_sbm.general import certified, proposals
from private_sbm.margins import margin
from private_sbm.models import asymmetric_sbm, general_sbm
from private_sbm.penalty import tau_penalty
from scipy import sparse
from sklearn.cluster import SpectralClustering


def rounded(y):
    """Labels from the leading eigenvector of a solution."""
    leading = np.linalg.eigh(y)[1][:, -1]
    return (np.sign(leading) != np.sign(leading[0])).astype(np.int64)


def same_labels(a, b):
    return np.array_equal(a, b)


# ---- the elliptope program


def elliptope(n):
    graph, _ = asymmetric_sbm(n, 0.5, 8, 1, 0, as_sparse=True)
    return graph, tau_penalty(n, 8, 1)


def ours(data):
    graph, lam = data
    return margin(graph, lam)[1]


def by_cvxpy(solver, **options):
    def run(data):
        graph, lam = data
        y = cp.Variable(graph.shape, PSD=True)
        problem = cp.Problem(cp.Maximize(cp.trace((graph.toarray() - lam) @ y)), [cp.diag(y) == 1])
        problem.solve(solver=solver, **options)
        return rounded(y.value)

    return run


def by_scs(data):
    """SCS itself, the cone in its own form: the lower triangle, off-diagonal entries times sqrt 2."""
    graph, lam = data
    n = graph.shape[0]
    rows, columns = np.tril_indices(n)
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    size = len(rows)
    scale = np.where(rows == columns, 1.0, np.sqrt(2))
    cost = -(graph.toarray() - lam)[rows, columns] * scale
    diagonal = np.flatnonzero(rows == columns)
    equal = sparse.csc_matrix((np.ones(n), (np.arange(n), diagonal)), shape=(n, size))
    program = {
        "A": sparse.vstack([equal, -sparse.identity(size)]).tocsc(), "b": np.concatenate([np.ones(n), np.zeros(size)]),
        "c": cost,
    }  # fmt: skip
    solver = scs.SCS(program, {"z": n, "s": [n]}, verbose=False, eps_abs=1e-4, eps_rel=1e-4)
    y = np.zeros((n, n))
    y[rows, columns] = solver.solve()["x"] / scale
    return rounded(y + np.tril(y, -1).T)


def test_elliptope(duel):
    duel(
        sizes=[40, 60, 100],
        make=elliptope,
        ours=ours,
        peers={
            "cvxpy + SCS": {"eps 1e-4": by_cvxpy(cp.SCS), "eps 1e-3": by_cvxpy(cp.SCS, eps=1e-3)},
            "SCS": by_scs,
        },
        same=same_labels,
        target={"cvxpy + SCS": 30.0, "SCS": 10.0},
    )


def test_elliptope_interior_point(duel):
    """An interior-point solver, which takes half a minute at 100 vertices."""
    duel(
        sizes=[40, 50],
        make=elliptope,
        ours=ours,
        peers={"cvxpy + Clarabel": by_cvxpy(cp.CLARABEL)},
        same=same_labels,
        target={"cvxpy + Clarabel": 10.0},
    )


# ---- large sparse graphs


def sparse_graph(n):
    graph, _ = asymmetric_sbm(n, 0.5, 20, 2, 0, as_sparse=True)
    return graph, tau_penalty(n, 20, 2)


def dense_certificate(data):
    """Spectral signs, and the certificate from all eigenvalues of the dense matrix."""
    graph, lam = data
    a = graph.toarray()
    leading = np.linalg.eigh(a - lam)[1][:, -1]
    s = np.where(leading >= 0, 1.0, -1.0)
    d = s * (a @ s) - lam * s * s.sum()
    values = np.linalg.eigvalsh(np.diag(d) - a + lam)
    assert values[1] > 0
    return (s != s[0]).astype(np.int64)


def spectral_clustering(data):
    """Labels alone, without a certificate."""
    graph, _ = data
    found = SpectralClustering(2, affinity="precomputed", random_state=0, assign_labels="cluster_qr")
    matrix = sparse.csr_matrix(graph)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    labels = found.fit_predict(matrix)
    return (labels != labels[0]).astype(np.int64)


def test_sparse_graphs(duel):
    duel(
        sizes=[500, 1000, 2000],
        make=sparse_graph,
        ours=ours,
        peers={"numpy, dense": dense_certificate, "scikit-learn SpectralClustering": spectral_clustering},
        same=same_labels,
        target={"numpy, dense": 20.0, "scikit-learn SpectralClustering": 0.5},
        growth="n log n",
    )


# ---- the general program


def clusters(n):
    graph, _ = general_sbm(n, [n // 2, n - n // 2], 7, 0.4, 0, as_sparse=True)
    return graph, tau_penalty(n, 7, 0.4)


def ours_general(data):
    graph, lam = data
    return certified(graph, lam, None, proposals(graph, lam, None)).labels


def general_by_cvxpy(solver):
    def run(data):
        graph, lam = data
        z = cp.Variable(graph.shape, PSD=True)
        goal = cp.Maximize(cp.trace((graph.toarray() - lam) @ z))
        cp.Problem(goal, [cp.diag(z) == 1, z >= 0]).solve(solver=solver)
        return (z.value[0] < 0.5).astype(np.int64)

    return run


def test_general(duel):
    duel(
        sizes=[24, 40],
        make=clusters,
        ours=ours_general,
        peers={"cvxpy + SCS": general_by_cvxpy(cp.SCS), "cvxpy + Clarabel": general_by_cvxpy(cp.CLARABEL)},
        same=same_labels,
        target={"cvxpy + SCS": 2.0, "cvxpy + Clarabel": 2.0},
    )
