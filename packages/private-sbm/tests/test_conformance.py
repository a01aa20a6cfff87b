"""The shared contract, for every public class."""

import numpy as np
import private_sbm
import pytest
from offprints.testing import Conformance, assert_all_covered
from private_sbm import (
    ConcentrationSBM,
    MLEStability,
    PrivateSBM,
    RandomizedResponseSBM,
    SpectralLaplaceSBM,
    certificate,
    general_certificate,
    rate,
    release_probability,
)

LOOPS = pytest.mark.filterwarnings("ignore:graph has self-loops")  # documented


class Stability(Conformance):
    """What is invariant under other numbers of the vertices: released or not, the margin, one's community's size."""

    framework = "numpy"
    refits = True

    def call(self, thing, edges, nodes):
        found = thing.fit(np.hstack([edges, edges[::-1]]), num_nodes=nodes)
        margin = found.unsafe_diagnostics_["margin"] if nodes >= 3 else 0.0
        return np.column_stack([sizes(found.labels_, nodes), np.full(nodes, margin)])


def sizes(labels, nodes):
    """Each vertex's number of companions; 0 for all when refused."""
    return np.zeros(nodes) if labels is None else (labels[:, None] == labels).sum(axis=1).astype(float)


@LOOPS
class TestPrivateSBM(Stability):
    kind = "graph"

    def make(self):
        return PrivateSBM(lam=0.2, eps=8.0, delta=0.1, noise="laplace", random_state=0)


@LOOPS
class TestPrivateSBMGeneral(Stability):
    """One cluster with all vertices is certified."""

    kind = "graph"

    def make(self):
        return PrivateSBM("general", lam=0.05, outliers=False, eps=8.0, delta=0.1, noise="laplace", random_state=0)


@LOOPS
class TestConcentrationSBM(Stability):
    kind = "graph"

    def make(self):
        return ConcentrationSBM(a=2.5, b=0.5, eps=8.0, delta=0.1, noise="laplace", random_state=0)


@LOOPS
class TestMLEStability(Stability):
    kind = "graph"

    def make(self):
        return MLEStability(lam=0.05, eps=8.0, delta=0.1, noise="laplace", random_state=0)


class Noisy(Conformance):
    """At an eps where no entry is flipped, so that the noise knows no vertex."""

    framework = "numpy"
    refits = True

    def call(self, thing, edges, nodes):
        return sizes(thing.fit(edges, num_nodes=nodes).labels_, nodes)


@LOOPS
class TestRandomizedResponseSBM(Noisy):
    kind = "graph"

    def make(self):
        return RandomizedResponseSBM(eps=60.0, random_state=0)


@LOOPS
class TestSpectralLaplaceSBM(Noisy):
    kind = "graph"

    def make(self):
        return SpectralLaplaceSBM(eps=1e9, lam=0.05, random_state=0)


def ring():
    a = np.zeros((6, 6))
    for i in range(6):
        a[i, (i + 1) % 6] = a[(i + 1) % 6, i] = 1.0
    return a


class TestCertificate(Conformance):
    """The certificate of a signed vector: a function of s."""

    kind = "function"
    framework = "numpy"
    batched = False

    def make(self):
        return lambda s: certificate(ring(), 0.3, s).d.astype(s.dtype)

    def inputs(self, gen, dtype):
        return (np.sign(gen.standard_normal(6)).astype(dtype),)


class TestGeneralCertificate(Conformance):
    """The terms of the margin: a function of the adjacency."""

    kind = "function"
    framework = "numpy"
    batched = False

    def make(self):
        return lambda a: np.array(general_certificate(a, 0.05, np.zeros(6, dtype=int), None)[:1], dtype=a.dtype)

    def inputs(self, gen, dtype):
        return (ring().astype(dtype),)


class TestRate(Conformance):
    """The exponent, entry by entry."""

    kind = "function"
    framework = "numpy"

    def make(self):
        return np.vectorize(lambda x, y: rate(float(x), float(y), 0.0) + 0 * x, otypes=None)

    def call(self, thing, x, y):
        return thing(x, y).astype(x.dtype) if x.size else x.copy()

    def inputs(self, gen, dtype):
        return tuple((1 + gen.random(4)).astype(dtype) for _ in range(2))


class TestReleaseProbability(Conformance):
    """The release probability, entry by entry."""

    kind = "function"
    framework = "numpy"

    def make(self):
        return lambda m: np.array([release_probability(float(x), 1.0, 0.1, "laplace") for x in m], dtype=m.dtype)

    def inputs(self, gen, dtype):
        return (5 * gen.random(4).astype(dtype),)


RECORDS = {
    "AuditReport": "a record of an audit",
    "Outlook": "a record of predictions",
    "PrivacyLedger": "a running sum without graphs or arrays",
    "Release": "a named tuple of what may be published",
}


def test_every_public_class_is_covered():
    assert_all_covered(private_sbm, globals(), exempt=RECORDS)
