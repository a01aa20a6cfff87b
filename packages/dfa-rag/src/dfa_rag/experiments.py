"""The runs behind the claims: retrievers on simulated and hand-made dialogues, the automaton, off-path turns."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from offprints.seeding import rng, spawn

from dfa_rag.agent import ChatAgent
from dfa_rag.data import SYSTEM, USER, Dialogue, Turn
from dfa_rag.dfa import DialogueDFA
from dfa_rag.evaluate import JudgeCase, inform_success, retrieval_precision, win_rate
from dfa_rag.formats import load_dialogues
from dfa_rag.llms import CopyLLM, ScriptedLLM
from dfa_rag.prompts import Prompt, answering_prompt
from dfa_rag.retrieval import BM25Retriever, DenseRetriever, Encoder, Example, RandomRetriever
from dfa_rag.router import DFARouter
from dfa_rag.simulator import WorkflowSimulator, random_workflow

Metrics = dict[str, float]
Retriever = BM25Retriever | DFARouter | DenseRetriever | RandomRetriever
HERE = Path(__file__).parent / "dialogues"
LIBRARY, MULTIWOZ, WORLD = HERE / "library.jsonl", HERE / "multiwoz.json", HERE / "multiwoz_world.json"
BASELINES = ("random", "tfidf_last", "tfidf_history", "tfidf_both", "bm25_last", "bm25_both")
METHODS = ("dfa", "greedy", "hybrid", "paper")
MINILM = ("minilm_last", "minilm_history", "minilm_both")
GRAPHS = (10, 13, 17, 21, 25)
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
NOISES = (0.0, 0.05, 0.1, 0.2)


def retrievers(
    train: Sequence[Dialogue], examples: int, min_support: int = 5, encoder: Encoder | None = None
) -> dict[str, Retriever]:
    """All that compare: the router in four settings, and the baselines, the dense ones also on an encoder."""
    learned = DialogueDFA(min_support).fit(train)
    published = DialogueDFA(min_support, similarity="paper").fit(train)
    found: dict[str, Retriever] = {
        "random": RandomRetriever(train, examples),
        "tfidf_last": DenseRetriever(train, examples, query="last"),
        "tfidf_history": DenseRetriever(train, examples, query="history"),
        "tfidf_both": DenseRetriever(train, examples, query="both"),
        "bm25_last": BM25Retriever(train, examples, query="last"),
        "bm25_both": BM25Retriever(train, examples, query="both"),
        "dfa": DFARouter(learned, train, examples, "random"),
        "greedy": DFARouter(learned, train, examples, "random", "greedy"),
        "hybrid": DFARouter(learned, train, examples),
        "paper": DFARouter(published, train, examples, "random", "greedy"),
    }
    if encoder is not None:
        found |= {f"minilm_{q}": DenseRetriever(train, examples, encoder, q) for q in ("last", "history", "both")}
        found["hybrid_minilm"] = DFARouter(learned, train, examples, encoder=encoder)
    return found


def acts_of(dialogues: Sequence[Dialogue]) -> Callable[[Example], object]:
    """The true act of an example's answer: that of the simulator, else its tags."""
    known = {dialogue.id: dialogue for dialogue in dialogues}
    return lambda example: act_at(known[example.dialogue_id], example.place)


def act_at(dialogue: Dialogue, place: int) -> object:
    """The true act of a system turn."""
    acts = dialogue.meta.get("acts")
    return acts[place] if isinstance(acts, list) else dialogue.turns[place].tags


def precisions(
    routers: Mapping[str, Retriever], train: Sequence[Dialogue], test: Sequence[Dialogue], k: int
) -> Metrics:
    """Precision@k and accuracy of the majority's act of each retriever."""
    act, found = acts_of(train), {}
    for name, router in routers.items():
        measured = retrieval_precision(router, test, k, act, act_at)
        found |= {name: measured.precision, f"copy_{name}": measured.accuracy}
    return found


def simulated(flow: int | str, seed: int, n: int, noise: float) -> list[Dialogue]:
    """Dialogues of the support flow, or of a random workflow with that many stages."""
    if isinstance(flow, str):
        return WorkflowSimulator(flow, seed, noise).sample(n)
    stages, texts = random_workflow(flow, seed)
    return WorkflowSimulator(stages, seed, noise, texts).sample(n)


def support(seed: int, noise: float, train: int, test: int) -> Metrics:
    """All retrievers on the support flow."""
    dialogues = simulated("support", seed, train + test, noise)
    learn, held = dialogues[:train], dialogues[train:]
    return precisions(retrievers(learn, 5), learn, held, 5)


def noise_curve(seed: int, train: int, test: int) -> dict[str, float | list[float]]:
    """`support` at several noises: metrics name_noise, and a series for each name."""
    runs = [support(seed, noise, train, test) for noise in NOISES]
    found: dict[str, float | list[float]] = {
        f"{name}_{noise:g}": run[name] for noise, run in zip(NOISES, runs, strict=True) for name in run
    }
    return found | {name: [run[name] for run in runs] for name in (*BASELINES, *METHODS)}


def workflows(seed: int, noise: float, graphs: Sequence[int], train: int, test: int) -> Metrics:
    """Means over random workflows, one of each size; and the win rate of hybrid over TF-IDF examples with CopyLLM."""
    rows, cases, acts = [], [], {}
    for size, own in zip(graphs, spawn(seed, len(graphs)), strict=True):
        dialogues = simulated(size, own, train + test, noise)
        learn, held = dialogues[:train], dialogues[train:]
        routers = retrievers(learn, 5)
        rows.append(precisions(routers, learn, held, 5))
        acts |= {turn.text: act_at(d, k) for d in dialogues for k, turn in enumerate(d.turns)}
        cases += judged(routers["hybrid"], routers["tfidf_both"], held)
    won = win_rate(act_judge(acts), cases)
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]} | {"win_rate": won.rate}


def judged(ours: Retriever, other: Retriever, test: Sequence[Dialogue]) -> list[JudgeCase]:
    """What CopyLLM answers with the examples of two retrievers, at each system turn of the test dialogues."""
    copy, cases = CopyLLM(), []
    for dialogue in test:
        for place in range(1, len(dialogue.turns), 2):
            so_far = dialogue.turns[:place]
            replies = [copy.complete(Prompt((), side.route(so_far).examples)) for side in (ours, other)]
            cases.append(JudgeCase(so_far, dialogue.turns[place].text, replies[0], replies[1]))
    return cases


def act_judge(acts: Mapping[str, object]) -> ScriptedLLM:
    """A judge that knows the act of every text: the reply with the act of the real one wins."""

    def answer(prompt: Prompt) -> str:
        said = dict(re.findall(r"^(Real reply|A|B):\n> reply: (.*)$", prompt.messages[1]["content"], re.MULTILINE))
        right = [acts.get(said[name]) == acts.get(said["Real reply"]) for name in ("A", "B")]
        return "tie" if right[0] == right[1] else "AB"[right.index(True)]

    return ScriptedLLM(answer)


def hand_made(seed: int, train: int, encoder: Encoder | None = None) -> Metrics:
    """All retrievers on the library dialogues, split at random; three examples, τ = 2."""
    dialogues = load_dialogues(LIBRARY)
    order = rng(seed).permutation(len(dialogues)).tolist()
    learn, held = [dialogues[k] for k in order[:train]], [dialogues[k] for k in order[train:]]
    return precisions(retrievers(learn, 3, 2, encoder), learn, held, 3)


def minilm(seed: int, train: int, test: int, encoder: Encoder) -> Metrics:
    """Retrievers with sentence embeddings on the support flow, a random workflow and the library, tag noise 0.1."""
    found: Metrics = {}
    for label, flow in (("support", "support"), ("graph", 17)):
        dialogues = simulated(flow, seed, train + test, 0.1)
        learn, held = dialogues[:train], dialogues[train:]
        run = precisions(retrievers(learn, 5, encoder=encoder), learn, held, 5)
        found |= {f"{label}_{name}": value for name, value in run.items() if not name.startswith("copy_")}
    run = hand_made(seed, 30, encoder)
    return found | {f"library_{name}": value for name, value in run.items() if not name.startswith("copy_")}


def threshold_curves(seed: int, train: int, test: int) -> dict[str, float | list[float]]:
    """Precision of the paper's random examples, and states, against λ for both similarities, without noise."""
    dialogues = simulated("support", seed, train + test, 0.0)
    learn, held = dialogues[:train], dialogues[train:]
    found: dict[str, float | list[float]] = {}
    for similarity, preset in (("paper", 0.1), ("lookahead", 0.6)):
        shares, states = [], []
        for level in LEVELS:
            dfa = DialogueDFA(merge_threshold=level, similarity=similarity, min_share=None).fit(learn)
            router = DFARouter(dfa, learn, 5, "random", "greedy")
            shares.append(retrieval_precision(router, held, 5, acts_of(learn), act_at).precision)
            states.append(float(len(dfa.states)))
        found |= {f"{similarity}_precision": shares, f"{similarity}_states": states}
        found[similarity] = shares[LEVELS.index(preset)]
    found["tree"] = float(len(DialogueDFA(merge_threshold=None, min_share=None).fit(learn).states))
    return found


def interpretable(seed: int, train: int, fresh: int) -> Metrics:
    """The automaton of noise-free dialogues against the flow that made them."""
    dialogues = simulated("support", seed, train, 0.0)
    dfa = DialogueDFA().fit(dialogues)
    accepted = sum(
        dfa.accepts([turn.tags for turn in dialogue.turns])
        for dialogue in WorkflowSimulator("support", seed + 10_000).sample(fresh)
    )
    entries = {role: sum(dfa.is_entry(q) and dfa.role(q) == role for q in dfa.states) for role in (USER, SYSTEM)}
    tree = DialogueDFA(merge_threshold=None).fit(dialogues)
    return {
        "rejected": float(fresh - accepted),
        "user_entries": float(entries[USER]),
        "system_entries": float(entries[SYSTEM]),
        "states": float(len(dfa.states)),
        "tree_states": float(len(tree.states)),
        "stages": 10.0,
        "drawing_faults": float(drawing_faults(dfa)),
    }


def drawing_faults(dfa: DialogueDFA) -> int:
    """Lines of the DOT and Mermaid drawings that do not follow their grammar, and states or edges that lack one."""
    quoted = r'"(?:[^"\\\n]|\\["\\])*"'
    value = rf"(?:{quoted}|[\w.]+)"
    attributes = rf"\[\w+={value}(?:, ?\w+={value})*\]"
    dot = re.compile(rf"\s*(?:digraph \w+ \{{|\}}|rankdir={value};|node {attributes};|n\d+(?: -> n\d+)? {attributes};)")
    label = r'"(?:[\w .,?-]|#\d+;)*"'
    flow = re.compile(
        rf"\s*(?:flowchart LR|n\d+(?:\[{label}\]|\({label}\))|n\d+ (?:-\.->|-->\|{label}\|) n\d+"
        r"|classDef \w+ fill:#\w+,stroke:#\w+|class n\d+(?:,n\d+)* \w+)"
    )
    faults = sum(not dot.fullmatch(line) for line in dfa.to_dot().splitlines())
    faults += sum(not flow.fullmatch(line) for line in dfa.to_mermaid().splitlines())
    edges = len(dfa.transitions)
    faults += abs(dfa.to_dot().count(" -> ") - edges)
    return faults + abs(len(re.findall(r" -\.->| -->", dfa.to_mermaid())) - edges)


def off_path(seed: int, train: int, test: int) -> Metrics:
    """An unknown user turn and an answer to it, put into each test dialogue at a random place."""
    dialogues = simulated("support", seed, train + test, 0.0)
    learn, held = dialogues[:train], dialogues[train:]
    dfa, gen = DialogueDFA(min_support=1).fit(learn), rng(seed)  # no rare tag, so no turn that ends without one
    odd = (Turn(USER, "what is the capital of France", ("geography",)), Turn(SYSTEM, "I cannot say.", ("shrug",)))
    walks = {mode: DFARouter(dfa, learn, 5, "random", mode) for mode in ("greedy", "belief")}
    found = dict.fromkeys(("not_fallen", "moved", "greedy_lost", "belief_lost", "belief_unnoticed"), 0.0)
    turns = 0
    for dialogue in held:
        cut = 2 * int(gen.integers(len(dialogue.turns) // 2))
        for mode, router in walks.items():
            whole, here = [router.start()], router.start()
            for turn in dialogue.turns:
                whole.append(router.advance(whole[-1], turn.tags, turn.role))
            for turn in dialogue.turns[:cut]:
                here = router.advance(here, turn.tags, turn.role)
            before = here.state
            here = router.advance(here, odd[0].tags, USER)
            if mode == "greedy":
                found["not_fallen"] += not here.fell_back
                found["moved"] += here.state != before
            else:
                found["belief_unnoticed"] += not here.fell_back
            here = router.advance(here, odd[1].tags, SYSTEM)
            for place, turn in enumerate(dialogue.turns[cut:], cut + 1):
                here = router.advance(here, turn.tags, turn.role)
                found[f"{mode}_lost"] += here.state != whole[place].state
        turns += len(dialogue.turns) - cut
    for name in ("greedy_lost", "belief_lost"):
        found[name] /= turns
    for name in ("belief_unnoticed",):
        found[name] /= len(held)
    return found


def multiwoz(seed: int) -> Metrics:
    """Inform and Success of a scripted model behind the whole agent, against those worked out by hand.

    The seed decides the order in which the dialogues are learnt and played.
    """
    dialogues = load_dialogues(MULTIWOZ)
    world = json.loads(WORLD.read_text(encoding="utf-8"))
    order = rng(seed).permutation(len(dialogues)).tolist()
    dialogues = [dialogues[k] for k in order]
    router = DFARouter(DialogueDFA(min_support=2).fit(dialogues), dialogues)
    responses = {}
    for dialogue in dialogues:
        recorded = {turn.text: turn.tags for turn in dialogue.turns}
        told = [turn.text for turn in dialogue.turns if turn.role == SYSTEM]
        agent = ChatAgent(router, ScriptedLLM(told), Lookup(recorded))
        responses[dialogue.id] = [agent.reply(turn.text).text for turn in dialogue.turns if turn.role == USER]
    goals = {dialogue.id: dialogue.meta["goal"] for dialogue in dialogues}
    measured = inform_success(goals, responses, world["database"])
    expected = {name: tuple(answers) for name, answers in world["expected"].items()}
    return {
        "inform": 100 * measured.inform,
        "success": 100 * measured.success,
        "disagreements": float(sum(measured.each[name] != answers for name, answers in expected.items())),
        "inform_by_hand": 100 * float(np.mean([inform for inform, _ in expected.values()])),
        "success_by_hand": 100 * float(np.mean([success for _, success in expected.values()])),
    }


class Lookup:
    """Tags of texts that are known."""

    def __init__(self, tags: Mapping[str, tuple[str, ...]]) -> None:
        self.tags = tags

    def tag_turn(self, text: str, role: str, history: Sequence[Turn] = ()) -> tuple[str, ...]:
        """Its tags; none for another text."""
        return self.tags.get(text, ())


def judging(seed: int, cases: int) -> Metrics:
    """Judges with a taste, with a bias for the first place, and without sense: swapping the sides mirrors the rate."""
    gen = rng(seed)
    words = [f"reply {k}" for k in gen.permutation(4 * cases)]
    pairs = [JudgeCase((Turn(USER, f"question {k}"),), "real", words[2 * k], words[2 * k + 1]) for k in range(cases)]
    swapped = [case._replace(ours=case.other, other=case.ours) for case in pairs]

    def taste(prompt: Prompt) -> str:
        a, b = re.findall(r"> reply: reply (\d+)", prompt.messages[1]["content"])
        return "tie" if int(a) % 5 == int(b) % 5 else "A" if int(a) % 5 > int(b) % 5 else "B"

    judges = {"taste": taste, "first": lambda prompt: "A", "senseless": lambda prompt: "both are fine to me"}
    found: Metrics = {}
    for name, judge in judges.items():
        one, two = (win_rate(ScriptedLLM(judge), side) for side in (pairs, swapped))
        found[f"{name}_asymmetry"] = abs(one.rate + two.rate - 1) + abs(one.wins - two.losses)
        found[f"{name}_rate"] = one.rate
    return found


def prompt_of(router: Retriever, so_far: Sequence[Turn]) -> Prompt:
    """The answering prompt with a retriever's examples, as a transcript."""
    return answering_prompt(so_far, router.route(so_far).examples, layout="transcript")
