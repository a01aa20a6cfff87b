"""Graphs from one method into another."""

import networkx as nx
import numpy as np


def test_the_automaton_of_dialogues_is_a_directed_graph_that_an_embedding_gives_back():
    """Control: the same graph without its directions, from which no direction can be read."""
    import duplex_embed as dx
    from dfa_rag import DialogueDFA, WorkflowSimulator

    dialogues = WorkflowSimulator(seed=0).sample(300)
    automaton = nx.DiGraph(DialogueDFA(min_support=5).fit(dialogues).to_networkx())
    automaton.remove_edges_from(list(nx.selfloop_edges(automaton)))
    pairs = list(automaton.edges)
    assert len(automaton) >= 10
    assert len(pairs) >= 12

    def told(graph):
        model = dx.DUPLEX(dim=32, random_state=0, device="cpu").fit(graph, epochs=150)
        return model.predict_edges(pairs, task="type").argmax(1)

    truth = np.array([2 if automaton.has_edge(v, u) else 1 for u, v in pairs])  # both ways, or forward
    composed = np.mean(told(automaton) == truth)
    control = np.mean(told(automaton.to_undirected()) == truth)
    assert composed >= 0.9
    assert control <= np.mean(truth == 2)
