"""The command line: fit an automaton on logs, show it, chat through it, evaluate it."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dfa_rag.agent import ChatAgent
from dfa_rag.coverage import coverage
from dfa_rag.data import SYSTEM, Dialogue
from dfa_rag.dfa import DialogueDFA
from dfa_rag.evaluate import JudgeCase, retrieval_precision, win_rate, workflow_adherence
from dfa_rag.formats import load_dialogues, save_dialogues
from dfa_rag.llm_tagger import LLMTagger
from dfa_rag.llms import LLM, CopyLLM, OpenAICompatLLM, TransformersLLM
from dfa_rag.retrieval import BM25Retriever, DenseRetriever, RandomRetriever
from dfa_rag.router import DFARouter
from dfa_rag.tags import ClusterTagger, KeywordTagger, Tagger, tag_dialogues


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status (0, 1 for an endpoint that fails, or 2 for wrong usage)."""
    options = _parser().parse_args(arguments)
    try:
        return {"fit": _fit, "show": _show, "chat": _chat, "evaluate": _evaluate}[options.verb](options)
    except ConnectionError as error:
        print(f"dfa-rag: {error}", file=sys.stderr)
        return 1
    except (TypeError, ValueError, OSError, ImportError) as error:
        print(f"dfa-rag: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dfa-rag", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    fit = verbs.add_parser("fit", help="tag dialogues, learn the automaton, write it and the tagged dialogues")
    _data_options(fit)
    _learning_options(fit)
    fit.add_argument("--out", type=Path, default=Path("flow"), help="stem of the files written")
    show = verbs.add_parser("show", help="print an automaton")
    show.add_argument("automaton", type=Path)
    show.add_argument("--as", dest="form", choices=["summary", "mermaid", "dot", "json", "svg"], default="summary")
    chat = verbs.add_parser("chat", help="talk to a model that follows the automaton; an empty line ends")
    chat.add_argument("automaton", type=Path, help="as written by fit; the tagged dialogues lie beside it")
    _tagger_options(chat)
    chat.add_argument("--llm", default="copy", help="copy, hf:NAME, or openai:NAME")
    chat.add_argument("--guard", choices=["off", "reask", "block"], default="off")
    evaluate = verbs.add_parser("evaluate", help="split dialogues, learn on one part, measure on the other")
    _data_options(evaluate)
    _learning_options(evaluate)
    evaluate.add_argument("--test", type=float, default=0.3, help="share of the dialogues that is held out")
    evaluate.add_argument("--examples", type=int, default=5)
    evaluate.add_argument("--llm", help="answer with it too, by the router and by dense retrieval")
    evaluate.add_argument("--judge", help="compare these answers pairwise with it")
    evaluate.add_argument("--limit", type=int, default=72, help="answers to compare (the paper: 72)")
    return parser


def _data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="JSONL, ChatML, MultiWOZ, SGD, chatterbot YAML, CSV")
    parser.add_argument("--format", default="auto")
    _tagger_options(parser)


def _tagger_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tagger", default="data", help="data (tags of the file), keywords:FILE.json, clusters:N, or "
                        "a model as for --llm")  # fmt: skip
    parser.add_argument("--cache", type=Path, help="file of tags that a model gave")
    parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL", "http://localhost:8000/v1"))


def _learning_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--min-support", type=int, default=5)
    parser.add_argument("--min-share", type=float, help="share of a state's dialogues that makes a branch; 0: none")
    parser.add_argument("--threshold", type=float, help="λ; default by similarity")
    parser.add_argument("--similarity", choices=["lookahead", "paper"], default="lookahead")


def language_model(name: str, base_url: str) -> LLM:
    """The model of `copy`, `hf:NAME` or `openai:NAME` (key in $OPENAI_API_KEY).

    Raises:
        ValueError: for another form.
    """
    kind, _, model = name.partition(":")
    if name == "copy":
        return CopyLLM()
    if kind == "hf" and model:
        return TransformersLLM(model)
    if kind == "openai" and model:
        return OpenAICompatLLM(base_url, model, os.environ.get("OPENAI_API_KEY"))
    raise ValueError(f"a model must be copy, hf:NAME or openai:NAME, got {name!r}.")


class _Recorded:
    """Tags as the data have them; a live utterance gets those of the same text in the data."""

    def __init__(self, dialogues: Sequence[Dialogue]) -> None:
        self.known = {(turn.role, turn.text): turn.tags for dialogue in dialogues for turn in dialogue.turns}

    def tag_turn(self, text: str, role: str, history: Sequence = ()) -> tuple[str, ...]:
        return self.known.get((role, text), ())


def _tagger(options: argparse.Namespace, dialogues: Sequence[Dialogue]) -> Tagger:
    kind, _, what = options.tagger.partition(":")
    if kind == "data":
        return _Recorded(dialogues)
    if kind == "keywords":
        return KeywordTagger(json.loads(Path(what).read_text(encoding="utf-8")))
    if kind == "clusters":
        return ClusterTagger(int(what or 12)).fit(dialogues)
    return LLMTagger(language_model(options.tagger, options.base_url), cache=options.cache)


def _tagged(options: argparse.Namespace, seen: Sequence[Dialogue], *others: Sequence[Dialogue]) -> list[list[Dialogue]]:
    """Dialogues with the tags of a tagger that learnt, if it learns at all, from the first ones alone."""
    if options.tagger == "data":
        return [list(part) for part in (seen, *others)]
    tagger = _tagger(options, seen)
    return [tag_dialogues(tagger, part) for part in (seen, *others)]


def _automaton(options: argparse.Namespace) -> DialogueDFA:
    threshold = "auto" if options.threshold is None else options.threshold
    share = "auto" if options.min_share is None else options.min_share or None
    return DialogueDFA(options.min_support, threshold, options.similarity, min_share=share)


def _fit(options: argparse.Namespace) -> int:
    kept = options.out.with_suffix(".jsonl")
    if kept.resolve() == options.data.resolve():
        raise ValueError(f"--out must not overwrite the data, got {kept} for both. Give another stem.")
    (tagged,) = _tagged(options, load_dialogues(options.data, options.format))
    dfa = _automaton(options).fit(tagged)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    print(dfa.summary())
    dfa.save(options.out)
    save_dialogues(kept, tagged)
    dfa.to_dot(options.out.with_suffix(".dot"))
    dfa.to_mermaid(options.out.with_suffix(".mmd"))
    return 0


def _show(options: argparse.Namespace) -> int:
    dfa = DialogueDFA.load(options.automaton)
    forms = {"summary": dfa.summary, "mermaid": dfa.to_mermaid, "dot": dfa.to_dot, "json": dfa.to_json}
    print(_svg(dfa.to_dot()) if options.form == "svg" else forms[options.form]())
    return 0


def _svg(source: str) -> str:
    """The drawing that Graphviz makes of DOT source.

    Raises:
        ImportError: without the extra `viz`.
        FileNotFoundError: without Graphviz's program.
    """
    try:
        import graphviz
    except ImportError as error:
        raise ImportError('an SVG drawing needs graphviz: pip install "dfa-rag[viz]"') from error
    try:
        return str(graphviz.Source(source).pipe(format="svg", encoding="utf-8"))
    except graphviz.ExecutableNotFound as error:
        raise FileNotFoundError(f"Graphviz's program must be on the path: {error}") from error


def _chat(options: argparse.Namespace) -> int:
    dfa, dialogues = DialogueDFA.load(options.automaton), load_dialogues(options.automaton.with_suffix(".jsonl"))
    model = language_model(options.llm, options.base_url)
    agent = ChatAgent(DFARouter(dfa, dialogues), model, _tagger(options, dialogues), guard=options.guard)
    for line in sys.stdin:
        if not line.strip():
            break
        reply = agent.reply(line.strip())
        print(reply.text)
        shown = ", ".join(example.dialogue_id for example in reply.examples)
        print(f"  [{dfa.name(reply.state)}; examples {shown}{'; off the path' if reply.fallback else ''}]")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    dialogues = load_dialogues(options.data, options.format)
    cut = max(1, round(len(dialogues) * (1 - options.test)))
    if not dialogues[cut:]:
        raise ValueError(f"--test must leave a dialogue to measure on, got {options.test} of {len(dialogues)}.")
    train, test = _tagged(options, dialogues[:cut], dialogues[cut:])
    dfa = _automaton(options).fit(train)
    report = coverage(dfa, test)
    print(f"{len(train)} to learn from, {len(test)} to measure on; {len(dfa.states)} states")
    print(f"turns followed {report.share:.3f}, adherence of the data {workflow_adherence(dfa, test):.3f}")
    k = options.examples
    routers = {
        "dfa": DFARouter(dfa, train, k),
        "paper": DFARouter(DialogueDFA.paper().fit(train), train, k, "random", "greedy"),
        "dense": DenseRetriever(train, k), "bm25": BM25Retriever(train, k), "random": RandomRetriever(train, k),
    }  # fmt: skip
    for name, router in routers.items():
        found = retrieval_precision(router, test, k, lambda e: e.answer.tags, lambda d, p: d.turns[p].tags)
        print(f"{name:7s} precision@{k} {found.precision:.3f}, majority right {found.accuracy:.3f}")
    if options.llm and options.judge:
        print(_judged(options, routers["dfa"], routers["dense"], test))
    return 0


def _judged(options: argparse.Namespace, ours: DFARouter, other: DenseRetriever, test: Sequence[Dialogue]) -> str:
    """Answers of one model with the examples of two retrievers, compared by another."""
    from dfa_rag.prompts import answering_prompt

    model, judge = (language_model(name, options.base_url) for name in (options.llm, options.judge))
    cases = []
    for dialogue in test:
        for place, turn in enumerate(dialogue.turns):
            if (
                turn.role == SYSTEM
                and place
                and len(cases) < options.limit
                and dialogue.turns[place - 1].role != SYSTEM
            ):
                so_far = dialogue.turns[:place]
                answers = [
                    model.complete(answering_prompt(so_far, side.route(so_far).examples)) for side in (ours, other)
                ]
                cases.append(JudgeCase(so_far, turn.text, answers[0], answers[1]))
    found = win_rate(judge, cases)
    return (
        f"win rate over dense retrieval {found.rate:.3f} [{found.low:.3f}, {found.high:.3f}], "
        f"{found.wins} wins, {found.ties} ties, {found.losses} losses"
    )
