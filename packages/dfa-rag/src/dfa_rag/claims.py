"""The paper's claims and how each is measured; the runs themselves are in `experiments` and `experiments_models`."""

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from offprints.claims import Method, MissingResource, Runs, Scale, best, bound, exact, greater, within

from dfa_rag import experiments, experiments_tags, figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = Method(
    dist="dfa-rag",
    title="DFA-RAG: Conversational Semantic Router for Large Language Models with Definite Finite Automaton",
    authors="Yiyou Sun, Junjie Hu, Wei Cheng, Haifeng Chen",
    field="Dialogue",
    summary="Learn a finite automaton from example dialogues and keep any language model on their workflow.",
    venue="ICML 2024",
    arxiv="2402.04411",
    bibtex="""@inproceedings{sun2024dfarag,
  title = {{DFA-RAG}: Conversational Semantic Router for Large Language Models with Definite Finite Automaton},
  author = {Sun, Yiyou and Hu, Junjie and Cheng, Wei and Chen, Haifeng},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series = {PMLR},
  volume = {235},
  year = {2024},
}""",
    deviations=[
        "Written from the paper's abstract and figures and a third party's summary of its method; there is no released "
        "code. The order of merging (red-blue, breadth first, entry states of one role only) is this package's.",
        "The default similarity looks four letters ahead; the paper's one-step φ_sim with λ = 0.1 is "
        "`DialogueDFA.paper()`. Merging needs φ >= λ and φ > 0.",
        "By default a branch may also have fewer than τ dialogues if these are a fifth of its state's, three at least "
        "(`min_share`): τ alone, as in the paper, cuts rare branches in each copy of a stage before copies are merged.",
        "The default router keeps a belief over states and ranks by state and text; the paper's single path with "
        "random examples of the state is `DFARouter.paper()`.",
        "The paper's logs (Twitter), GPT-4 and its judges cannot be had offline: dialogues here come from workflow "
        "simulators and hand-made files, examples and win rates are judged by the workflow's act.",
        "MultiWOZ: only the measures, on 20 hand-made dialogues of its form; not the paper's scores.",
    ],
)

TABLE = "Section 4, win rates"
FRESH = "It holds on seeds 300 to 307 and 400 to 407 too, which had no part in any choice."


def paired(label: str, names: tuple[str, ...]) -> list[str]:
    """Metric names with a label in front."""
    return [f"{label}_{name}" for name in names]


@METHOD.claim(
    "support",
    where=TABLE,
    says="Without tag noise, examples from the automaton's state are the right ones, more often than those of random, "
    "BM25 and dense retrieval.",
    paper={"win_rate_gpt4": 0.743, "win_rate_gpt35": 0.759},
    expect=[
        greater("dfa", 0.97),
        greater("dfa", best(*experiments.BASELINES), by=0.03),
        greater("copy_dfa", best(*(f"copy_{name}" for name in experiments.BASELINES)), by=0.03),
        greater("tfidf_last", "random", by=0.3),
    ],
    smoke=Scale(seeds=2, train=60, test=10),
    cpu=Scale(seeds=16, train=200, test=200),
    full=Scale(seeds=8, train=20_000, test=2000, needs="2 CPU hours"),
    note="Open is the majority's act (copy_), a gate of this package: five examples outvote a wrong one, so TF-IDF on "
    "last turn and history is at 0.964 there and a margin of 0.03 leaves no room for seed 11 (0.92), where 61 % of the "
    "answers in a stage are 'no', so that at λ = 0.6 it merges with a stage that differs in 'yes' alone. Precision is "
    "clear. The seeds were raised from 8 to 16 after the first run, which left this gate open too.",
)
def support(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Precision@5 of the next system act on the support flow; copy_: accuracy of the majority's act."""
    return experiments.support(seed, 0.0, scale.train, scale.test)


@METHOD.claim(
    "noise",
    where=TABLE,
    says="With noisy tags too: text and state together are at least as good as the best text alone, and the belief "
    "over states is better than one path.",
    expect=[
        greater("hybrid_0.05", best(*(f"{name}_0.05" for name in experiments.BASELINES))),
        greater("hybrid_0.1", best(*(f"{name}_0.1" for name in experiments.BASELINES))),
        within("hybrid_0.2", "tfidf_both_0.2", margin=0.05),
        greater("dfa_0.1", "greedy_0.1", by=0.05),
        greater("dfa_0.1", 0.85),
    ],
    smoke=Scale(seeds=2, train=40, test=5),
    cpu=Scale(seeds=8, train=200, test=100),
    full=Scale(seeds=8, train=20_000, test=2000, needs="8 CPU hours"),
    note="At noise 0.2 a first run compared with the least of the peers, by a slip in the gate (the distance to random "
    "was 0.88); it now names the strongest one. With `min_share` the belief and one path are better, one path more: "
    "with a floor of 2 their gate came out open; the floor of 3, from seeds 100 to 107, helps the belief. " + FRESH,
)
def noise(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Precision@5 on the support flow with tags dropped and inserted with probability 0, 0.05, 0.1, 0.2."""
    return experiments.noise_curve(seed, scale.train, scale.test)


@METHOD.claim(
    "workflows",
    where=TABLE,
    says="The same on random workflows of 10 to 25 stages whose answers are generic.",
    expect=[
        greater("dfa", best(*experiments.BASELINES), by=0.03),
        greater("hybrid", best(*experiments.BASELINES), by=0.03),
        greater("win_rate", 0.5),
    ],
    smoke=Scale(seeds=2, train=60, test=5, graphs=(10, 13)),
    cpu=Scale(seeds=6, train=200, test=100, graphs=experiments.GRAPHS),
    full=Scale(seeds=8, train=20_000, test=2000, graphs=experiments.GRAPHS, needs="12 CPU hours"),
)
def workflows(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Mean precision@5 over five graphs; win_rate: CopyLLM with hybrid against TF-IDF examples, judged by the act."""
    return experiments.workflows(seed, 0.0, scale.graphs, scale.train, scale.test)


@METHOD.claim(
    "workflows-noisy",
    where=TABLE,
    says="And with a tenth of the tags wrong.",
    expect=[
        greater("hybrid", best(*experiments.BASELINES)),
        greater("dfa", "greedy", by=0.03),
        greater("win_rate", 0.5),
    ],
    smoke=Scale(seeds=2, train=60, test=5, graphs=(10, 13)),
    cpu=Scale(seeds=6, train=200, test=100, graphs=experiments.GRAPHS),
    full=Scale(seeds=8, train=20_000, test=2000, graphs=experiments.GRAPHS, needs="12 CPU hours"),
)
def workflows_noisy(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """As `workflows`, tags dropped and inserted with probability 0.1."""
    return experiments.workflows(seed, 0.1, scale.graphs, scale.train, scale.test)


@METHOD.claim(
    "tags-alone",
    where=TABLE,
    says="The automaton adds to its tags: state and text beat TF-IDF over the same tags, and over tags and texts; the "
    "state alone beats TF-IDF over tags.",
    expect=[
        greater("support_hybrid_0.1", best("support_tags_0.1", "support_tags_texts_0.1")),
        greater("graphs_hybrid_0.1", best("graphs_tags_0.1", "graphs_tags_texts_0.1")),
        greater("graphs_hybrid_0", best("graphs_tags_0", "graphs_tags_texts_0")),
        greater("graphs_dfa_0", "graphs_tags_0"),
    ],
    smoke=Scale(seeds=2, train=60, test=5, graphs=(10,)),
    cpu=Scale(seeds=6, train=200, test=60, graphs=(10, 17, 25)),
    full=Scale(seeds=8, train=20_000, test=2000, graphs=experiments.GRAPHS, needs="6 CPU hours"),
    note="Fails without noise: exact tags of history and last turn tell all that the state does, and in `hybrid` text "
    "outvotes an exact state (a first try of weights=(3, 1, 1) on other seeds did not). With noise it holds.",
)
def tags_alone(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """The router's tags are the workflow's own; these peers read them too, the text baselines elsewhere do not."""
    return experiments_tags.tags_alone(seed, scale.graphs, scale.train, scale.test)


@METHOD.claim(
    "hand-made",
    where=TABLE,
    says="And on 44 hand-made dialogues of a library desk, 30 to learn from.",
    expect=[greater("hybrid", best(*experiments.BASELINES)), greater("hybrid", "random", by=0.1)],
    smoke=Scale(seeds=2, train=30),
    cpu=Scale(seeds=16, train=30),
)
def hand_made(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Precision@3 of the next system act (its hand-made tag), random splits, τ = 2."""
    return experiments.hand_made(seed, scale.train)


@METHOD.claim(
    "multiwoz",
    where="Section 4, MultiWOZ",
    says="Task-oriented measures: Inform and Success of replies that go through the router.",
    paper={"inform": 93.3, "success": 90.0},
    expect=[exact("disagreements"), exact("inform", to=75.0), exact("success", to=55.0)],
    smoke=Scale(seeds=1),
    cpu=Scale(seeds=5),
    note="Only the measures: 20 hand-made dialogues, a scripted model, and values worked out by hand.",
)
def multiwoz(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Dialogues whose Inform or Success differs from that worked out by hand; both in percent."""
    return experiments.multiwoz(seed)


@METHOD.claim(
    "interpretable",
    where="Section 3, steps 2 and 3",
    says="The automaton is the workflow: it accepts fresh dialogues, has no more user entry states than the workflow "
    "has stages, and can be drawn.",
    expect=[exact("rejected"), bound("stages", "user_entries"), exact("drawing_faults")],
    smoke=Scale(seeds=2, train=100, fresh=50),
    cpu=Scale(seeds=8, train=200, fresh=1000),
    note="It failed before `min_share`, with τ = 5 alone: branches that fewer than 5 of 200 training dialogues took "
    "were not learnt, and up to 58 of 1000 fresh ones were rejected. Shares of 0.1 to 0.3 mended it on these seeds; "
    "the floor of 3 was chosen on seeds 100 to 107. " + FRESH,
)
def interpretable(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Noise-free support flow: fresh dialogues rejected, entry states, faults in the DOT and Mermaid drawings."""
    return experiments.interpretable(seed, scale.train, scale.fresh)


@METHOD.claim(
    "off-path",
    where="Section 3, step 4",
    says="Unknown input falls back to the last valid state, and the conversation joins in again.",
    expect=[exact("not_fallen"), exact("moved"), exact("greedy_lost"), exact("belief_unnoticed"), exact("belief_lost")],
    smoke=Scale(seeds=2, train=60, test=10),
    cpu=Scale(seeds=8, train=200, test=100),
    note="It failed before unknown tags spoke for a turn off the path: in up to 2 % of the later turns the belief read "
    "the unknown turn as a known one whose tag was lost. τ = 1 here: with rare tags below τ a state has an edge that "
    "unknown tags follow too. All off-path tags are unknown here: one that the automaton knows elsewhere may move the "
    "state. " + FRESH,
)
def off_path(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """An unknown turn and its answer in each dialogue: not noticed, state moved, later turns in another state."""
    return experiments.off_path(seed, scale.train, scale.test)


@METHOD.claim(
    "judge",
    where="Section 4, judging",
    says="The judge is asked in both orders: swapping sides mirrors the result, a bias for the first place gives ties.",
    paper={"agreement_with_people": 0.85},
    expect=[
        exact("taste_asymmetry"),
        exact("first_asymmetry"),
        exact("senseless_asymmetry"),
        exact("first_rate", to=0.5),
        exact("senseless_rate", to=0.5),
    ],
    smoke=Scale(seeds=2, cases=10),
    cpu=Scale(seeds=8, cases=100),
    note="Agreement with people needs people and a large model; what is measured is the harness, with scripted judges.",
)
def judge(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """|rate + swapped rate - 1| + |wins - swapped losses| of three scripted judges."""
    return experiments.judging(seed, scale.cases)


@METHOD.claim(
    "threshold",
    where="Section 3, step 3",
    says="One-step similarity merges stages that share their answers; looking ahead does not.",
    expect=[greater("lookahead", "paper", by=0.1), greater("lookahead", 0.97)],
    smoke=Scale(seeds=2, train=60, test=5),
    cpu=Scale(seeds=8, train=200, test=100),
)
def threshold(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Precision@5 of random examples of the state, one path, no noise: φ_sim at λ = 0.1, look-ahead at 0.6."""
    return experiments.threshold_curves(seed, scale.train, scale.test)


@METHOD.claim(
    "sentence-embeddings",
    where=TABLE,
    says="Dense retrieval with real sentence embeddings (MiniLM) is beaten too, on the support flow and a random "
    "workflow with tag noise 0.1, and on the library dialogues.",
    expect=[
        greater("support_hybrid_minilm", best(*paired("support", experiments.MINILM))),
        greater("graph_hybrid_minilm", best(*paired("graph", experiments.MINILM))),
        greater("library_hybrid_minilm", best(*paired("library", experiments.MINILM))),
    ],
    smoke=Scale(seeds=1, train=30, test=3),
    cpu=Scale(seeds=6, train=100, test=40),
    tolerance=1e-3,
)
def sentence_embeddings(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Precision of MiniLM retrieval by last utterance, history, and both; hybrid with the same embeddings."""
    models = _models()
    return experiments.minilm(seed, scale.train, scale.test, models.encoder())


@METHOD.claim(
    "plug-and-play",
    where="Section 1",
    says="The router goes with any language model: the same examples for a scripted one, SmolLM2 and a server.",
    expect=[exact("different_examples"), exact("empty")],
    smoke=Scale(seeds=1, train=40, turns=1),
    cpu=Scale(seeds=5, train=200, turns=1),
)
def plug_and_play(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Models that were shown other examples, and empty replies."""
    return _models().plug_and_play(seed, scale.train, scale.turns)


@METHOD.claim(
    "small-model",
    where=TABLE,
    says="The examples steer a real small language model (SmolLM2-135M): its replies do what the workflow does next.",
    expect=[greater("hybrid", "random", by=0.2), greater("hybrid", 0.6)],
    smoke=Scale(seeds=1, train=40, places=1),
    cpu=Scale(seeds=6, train=200, places=6),
    tolerance=0.2,
)
def small_model(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Share of replies whose act, judged by the words that only that act uses, is the right one; tag noise 0.1."""
    return _models().small_model_answers(seed, scale.train, scale.places, 0.1)


def _models() -> ModuleType:
    """The runs with real models, imported only when one is measured.

    Raises:
        MissingResource: if torch or transformers is not installed.
    """
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingResource('real models need torch and transformers: pip install "dfa-rag[hf]"') from error
    from dfa_rag import experiments_models

    return experiments_models


@METHOD.figure(
    "automaton",
    needs=["interpretable"],
    caption="The automaton learnt from 200 simulated support dialogues: entry states, user turns blue, system turns "
    "green, width = dialogues; they end in the turns of states that no arrow leaves.",
)
def automaton(runs: Mapping[str, Runs]) -> "Figure":
    """Entry states in columns by turn."""
    return figures.automaton()


@METHOD.figure(
    "noise",
    needs=["noise"],
    caption="Precision@5 of the shown examples against tag noise on the support flow; line: median over seeds, band: "
    "least to greatest.",
)
def noise_figure(runs: Mapping[str, Runs]) -> "Figure":
    """All retrievers."""
    return figures.noise(runs)


@METHOD.figure(
    "threshold",
    needs=["threshold"],
    caption="Precision of the state's examples and number of states against the merge threshold λ, for the paper's "
    "similarity and the look-ahead one.",
)
def threshold_figure(runs: Mapping[str, Runs]) -> "Figure":
    """Two panels."""
    return figures.threshold(runs)
