"""Publish the two communities of a graph in a file, under edge privacy, and let small real graphs be refused."""

import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import private_sbm as ps


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # A SNAP-style list of contacts: what a data holder has on disk.
        contacts, truth = ps.asymmetric_sbm(2000, rho=0.4, a=24, b=2, seed=1)
        path = Path(folder) / "contacts.txt"
        path.write_text("# contacts\n" + "\n".join(f"{u}\t{v}" for u, v in contacts.edges))
        graph = ps.load_graph(path, nodes=2000)

        # What to expect, from public knowledge alone; nothing is spent.
        print(ps.explain_refusal(ps.PrivateSBM(a=24, b=2, rho=0.4, eps=1.0, delta=1e-6), 2000).summary())

        # One release, charged to a budget; without a, b known, part of it pays for a noisy density.
        ledger = ps.PrivacyLedger(eps=2.0, delta=1e-5)
        estimator = ps.PrivateSBM(lam="noisy-density", eps=1.2, eps_density=0.1, delta=1e-6, random_state=0)
        estimator.fit(graph, ledger=ledger)
        print("released:", estimator.result_.released, "spent:", ledger.total)
        if estimator.labels_ is not None:
            print("exact:", bool(np.array_equal(estimator.labels_, truth)))
        print("saved:", estimator.save(Path(folder) / "release").name)

    # The same eps on a real network of 34 people: the honest answer is None, and it was foreseeable.
    club = ps.unweighted(nx.karate_club_graph())
    print("karate club, before:", "likely" if ps.utility_report(34, (3.5, 1.0), delta=1e-3).likely else "unlikely")
    refused = ps.PrivateSBM(lam="noisy-density", eps=1.0, delta=1e-3, random_state=0).fit(club)
    print("karate club:", "released" if refused.result_.released else "refused")


if __name__ == "__main__":
    main()
