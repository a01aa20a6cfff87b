"""The shared contract, where a public name is a function of arrays; all else is data or talks about text."""

import sys

import dfa_rag
import numpy as np
from dfa_rag import _reference as reference
from dfa_rag.retrieval import unit_rows
from offprints.testing import Conformance, assert_all_covered


class TestPaperSimilarity(Conformance):
    kind = "function"
    framework = "numpy"
    batched = False

    def make(self):
        return dfa_rag.paper_similarity

    def inputs(self, gen, dtype):
        return gen.integers(0, 9, 7).astype(dtype), gen.integers(1, 9, 7).astype(dtype)

    def reference(self, thing, counts, other):
        q, p = reference.State(0, True, set()), reference.State(0, True, set())
        for state, row in ((q, counts), (p, other)):
            for k, n in enumerate(row.tolist()):
                state.next["tag", str(k)] = reference.State(0, False, set(range(int(n))))
        return counts.dtype.type(reference.phi_sim(q, p))


class TestUnitRows(Conformance):
    kind = "function"
    framework = "numpy"

    def make(self):
        return lambda x: unit_rows(x).astype(x.dtype)

    def inputs(self, gen, dtype):
        return (gen.standard_normal((4, 3)).astype(dtype),)


def test_every_public_class_is_covered():
    record, protocol = "a record without behaviour", "a protocol without code"
    text = "takes dialogues and texts, no arrays; its contract is in "
    exempt = {
        **dict.fromkeys(("Belief", "Dialogue", "Difference", "Example", "Explanation", "Fall", "Merge"), record),
        **dict.fromkeys(("Position", "Prompt", "Reply", "Round", "Route", "StepResult", "Turn"), record),
        **dict.fromkeys(("LLM", "Tagger"), protocol),
        "CoverageReport": text + "test_router",
        "BeliefTracker": text + "test_equations",
        "DialogueDFA": text + "test_equations and test_editing",
        "ChatAgent": text + "test_agent",
        "WorkflowSimulator": text + "test_simulator",
        **dict.fromkeys(("ClusterTagger", "EmbeddingTagger", "KeywordTagger", "LLMTagger"), text + "test_tags"),
        **dict.fromkeys(("CopyLLM", "OpenAICompatLLM", "ScriptedLLM", "TransformersLLM"), text + "test_llms"),
        **dict.fromkeys(("BM25Retriever", "DFARouter", "DenseRetriever", "RandomRetriever"), text + "test_router"),
    }
    assert_all_covered(dfa_rag, sys.modules[__name__], exempt)


def test_global_random_states_stay():
    state = np.random.get_state(legacy=True)[1].copy()
    dialogues = dfa_rag.WorkflowSimulator(seed=1).sample(20)
    router = dfa_rag.DFARouter.paper(dfa_rag.DialogueDFA(1).fit(dialogues), dialogues)
    dfa_rag.ClusterTagger(3).fit(dialogues)
    assert router.route(dialogues[0].turns[:1]) == router.route(dialogues[0].turns[:1])
    assert np.array_equal(state, np.random.get_state(legacy=True)[1])
