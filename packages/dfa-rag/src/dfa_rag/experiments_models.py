"""The runs that need real models: plug and play, and what a small language model makes of the examples."""

import json
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from offprints.seeding import rng
from offprints.testing import offline_encoder, offline_lm

from dfa_rag.agent import ChatAgent
from dfa_rag.data import SYSTEM, USER
from dfa_rag.dfa import DialogueDFA
from dfa_rag.experiments import Lookup, Metrics, act_at, prompt_of, retrievers, simulated
from dfa_rag.hf import SentenceEncoder
from dfa_rag.llms import LLM, OpenAICompatLLM, ScriptedLLM, TransformersLLM
from dfa_rag.router import DFARouter
from dfa_rag.simulator import SUPPORT, SUPPORT_TEXTS


@cache
def encoder() -> SentenceEncoder:
    """MiniLM, loaded once a process."""
    model, tokenizer = offline_encoder()
    return SentenceEncoder(model, tokenizer, max_length=128)


@cache
def small_model() -> TransformersLLM:
    """SmolLM2-135M, loaded once a process."""
    model, tokenizer = offline_lm()
    return TransformersLLM(model, tokenizer, max_new_tokens=24, name="smollm2-135m", chat=False)


@contextmanager
def chat_server(answer: str) -> Generator[str]:
    """A chat-completions endpoint on the loopback that always answers the same; yields its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"choices": [{"message": {"role": "assistant", "content": answer}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def plug_and_play(seed: int, train: int, turns: int) -> Metrics:
    """One router behind three models: the first user turns of a dialogue, said to each."""
    dialogues = simulated("support", seed, train + 1, 0.0)
    learn, live = dialogues[:train], dialogues[train]
    router = DFARouter(DialogueDFA().fit(learn), learn, 3)
    said = [turn.text for turn in live.turns if turn.role == USER][:turns]
    told = [turn.text for turn in live.turns if turn.role == SYSTEM][:turns]
    tagger = Lookup({turn.text: turn.tags for dialogue in dialogues for turn in dialogue.turns})
    shown, empty = [], 0
    with chat_server("One moment, please.") as url:
        models: list[LLM] = [ScriptedLLM(told), small_model(), OpenAICompatLLM(url, "any", timeout=20.0)]
        for model in models:
            agent = ChatAgent(router, model, tagger, layout="transcript")
            reply = agent.reply(said[0])
            empty += not reply.text.strip()
            shown.append([(example.dialogue_id, example.place) for example in reply.examples])
            for text in said[1:]:
                empty += not agent.reply(text).text.strip()
    return {"different_examples": float(sum(other != shown[0] for other in shown)), "empty": float(empty)}


def lexicon(texts: Mapping[str, Sequence[str]], acts: Sequence[str]) -> dict[str, set[str]]:
    """Act -> words that only its paraphrases hold."""
    words = {act: set(re.findall(r"\w+", " ".join(texts[act]).lower())) for act in acts}
    return {act: own - set().union(*(words[other] for other in acts if other != act)) for act, own in words.items()}


def act_said(reply: str, words: Mapping[str, set[str]]) -> str | None:
    """The act whose own words a reply holds most of, by share of its words; None without any, or at a tie."""
    said = set(re.findall(r"\w+", reply.lower()))
    scores = {act: len(said & own) / len(own) for act, own in words.items() if own}
    top = max(scores.values())
    best = [act for act, score in scores.items() if score == top]
    return best[0] if top > 0 and len(best) == 1 else None


def small_model_answers(seed: int, train: int, places: int, noise: float) -> Metrics:
    """SmolLM2's replies with three examples of each retriever; right where the lexicon hears the workflow's act."""
    dialogues = simulated("support", seed, train + 40, noise)
    learn, held = dialogues[:train], dialogues[train:]
    routers = retrievers(learn, 3)
    words = lexicon(SUPPORT_TEXTS, sorted({act for answers in SUPPORT.values() for act, _ in answers.values()}))
    every = [(dialogue, place) for dialogue in held for place in range(1, len(dialogue.turns), 2)]
    chosen = [every[k] for k in rng(seed).permutation(len(every))[:places].tolist()]
    found: Metrics = {"trials": float(len(chosen))}
    for name in ("hybrid", "tfidf_last", "random"):
        right = 0
        for dialogue, place in chosen:
            reply = small_model().complete(prompt_of(routers[name], dialogue.turns[:place]))
            right += act_said(reply, words) == act_at(dialogue, place)
        found |= {f"hits_{name}": float(right), name: right / len(chosen)}
    return found
