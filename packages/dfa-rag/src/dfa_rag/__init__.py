"""Keep any language model on the workflow of example dialogues (Sun et al., ICML 2024).

A finite automaton over tags is learnt from dialogues; a live conversation is followed through it, and the model is
shown a few training dialogues that passed through the same state.
"""

from dfa_rag.agent import ChatAgent, Reply
from dfa_rag.belief import Belief, BeliefTracker
from dfa_rag.coverage import CoverageReport, Fall, coverage
from dfa_rag.data import Dialogue, Round, Turn, align, normalise_tags
from dfa_rag.describing import Explanation
from dfa_rag.dfa import DialogueDFA
from dfa_rag.editing import Difference
from dfa_rag.formats import load_dialogues, save_dialogues
from dfa_rag.llm_tagger import LLMTagger
from dfa_rag.llms import LLM, CopyLLM, OpenAICompatLLM, ScriptedLLM, TransformersLLM
from dfa_rag.merging import Merge
from dfa_rag.prompts import Prompt
from dfa_rag.retrieval import BM25Retriever, DenseRetriever, Example, RandomRetriever, Route
from dfa_rag.router import DFARouter, Position
from dfa_rag.similarity import paper_similarity
from dfa_rag.simulator import WorkflowSimulator, random_workflow
from dfa_rag.tags import ClusterTagger, EmbeddingTagger, KeywordTagger, Tagger, tag_dialogues
from dfa_rag.walking import StepResult

__all__ = [
    "LLM",
    "BM25Retriever",
    "Belief",
    "BeliefTracker",
    "ChatAgent",
    "ClusterTagger",
    "CopyLLM",
    "CoverageReport",
    "DFARouter",
    "DenseRetriever",
    "Dialogue",
    "DialogueDFA",
    "Difference",
    "EmbeddingTagger",
    "Example",
    "Explanation",
    "Fall",
    "KeywordTagger",
    "LLMTagger",
    "Merge",
    "OpenAICompatLLM",
    "Position",
    "Prompt",
    "RandomRetriever",
    "Reply",
    "Round",
    "Route",
    "ScriptedLLM",
    "StepResult",
    "Tagger",
    "TransformersLLM",
    "Turn",
    "WorkflowSimulator",
    "align",
    "coverage",
    "load_dialogues",
    "normalise_tags",
    "paper_similarity",
    "random_workflow",
    "save_dialogues",
    "tag_dialogues",
]
