"""Language models: scripted, copying, any OpenAI-compatible server (on the loopback), transformers."""

import contextlib
import json
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from dfa_rag import CopyLLM, Dialogue, Example, OpenAICompatLLM, ScriptedLLM, TransformersLLM, Turn, align
from dfa_rag.prompts import Prompt

ASK = Prompt(({"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}))


def completion(text):
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


class Server:
    """Answers with a list of (status, headers, body) in turn, the last one for ever; a number in place of a status is a
    wait in seconds."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []
        outer, self.stop = self, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append((self.path, dict(self.headers), body))
                status, headers, content = outer.answers[min(len(outer.seen), len(outer.answers)) - 1]
                if isinstance(status, float):
                    outer.stop.wait(status)
                    status = 200
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client has gone

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.stop.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def model(url, waits, **options):
    return OpenAICompatLLM(url, "m", sleep=waits.append, backoff=0.5, **options)


def test_a_completion():
    with Server((200, {}, completion("hello"))) as server:
        assert model(server.url + "/", [], api_key="k", max_tokens=7, temperature=0.5).complete(ASK) == "hello"
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer k"
    assert body == {"model": "m", "messages": list(ASK.messages), "max_tokens": 7, "temperature": 0.5}


def test_busy_servers_are_asked_again_with_back_off():
    busy, waits = [(429, {}, "slow down"), (503, {"Retry-After": "2"}, ""), (500, {"Retry-After": "900"}, "")], []
    with Server(*busy, (200, {}, completion("ok"))) as server:
        assert model(server.url, waits).complete(ASK) == "ok"
    assert waits == [0.5, 2.0, 60.0]
    assert len(server.seen) == 4
    assert "Authorization" not in server.seen[0][1]


@pytest.mark.parametrize("asked", ["Wed, 21 Oct 2026 07:28:00 GMT", "\xb2", "-3", "1.", ""])
def test_a_wait_that_is_no_number_is_not_obeyed(asked):
    waits = []
    with Server((429, {"Retry-After": asked}, ""), (200, {}, completion("ok"))) as server:
        assert model(server.url, waits).complete(ASK) == "ok"
    assert waits == [0.5]


def test_patience_ends():
    waits = []
    with (
        Server((429, {}, "slow down")) as server,
        pytest.raises(ConnectionError, match="3 tries.*status 429.*Check that") as caught,
    ):
        model(server.url, waits, retries=2).complete(ASK)
    assert server.url in str(caught.value)
    assert waits == [0.5, 1.0]


def test_time_outs_are_tried_again():
    waits = []
    with Server((5.0, {}, completion("late")), (200, {}, completion("in time"))) as server:
        assert model(server.url, waits, timeout=0.2).complete(ASK) == "in time"
    assert waits == [0.5]
    with Server((5.0, {}, completion("late"))) as server, pytest.raises(ConnectionError, match="ReadTimeout"):
        model(server.url, [], timeout=0.1, retries=0).complete(ASK)


@pytest.mark.parametrize("body", ["<html>", '{"choices": []}', "[]", '{"choices": [{"message": {"content": null}}]}'])
def test_malformed_answers(body):
    waits = []
    with Server((200, {}, body), (200, {}, completion("fine"))) as server:
        assert model(server.url, waits).complete(ASK) == "fine"
    with Server((200, {}, body)) as server, pytest.raises(ValueError, match="must answer with a chat completion"):
        model(server.url, [], retries=1).complete(ASK)
    assert len(server.seen) == 2


def test_refusals_are_not_tried_again():
    with Server((401, {}, "who are you")) as server, pytest.raises(PermissionError, match="401.*Check api_key"):
        model(server.url, []).complete(ASK)
    with Server((404, {}, "no such model")) as server, pytest.raises(ValueError, match="404.*no such model"):
        model(server.url, []).complete(ASK)
    assert len(server.seen) == 1


def test_nobody_there():
    with Server((200, {}, "")) as server:
        pass
    with pytest.raises(ConnectionError, match="ConnectError.*base_url"):
        model(server.url, [], retries=1).complete(ASK)


def test_scripts_end():
    llm = ScriptedLLM(["a"])
    assert llm.complete(ASK) == "a"
    with pytest.raises(ValueError, match="got 1 and one more"):
        llm.complete(ASK)
    assert ScriptedLLM(lambda prompt: prompt.messages[-1]["content"]).complete(ASK) == "hi"


def test_copying_takes_the_majority_and_the_better_example_at_a_tie():
    def example(text, *tags):
        turns = (Turn("user", "x"), Turn("system", text, tags))
        return Example(text, 1, align(Dialogue(text, turns)))

    votes = (example("one", "a"), example("two", "b"), example("three", "b"))
    assert CopyLLM().complete(Prompt((), votes)) == "two"
    assert CopyLLM().complete(Prompt((), votes[:2])) == "one"
    assert CopyLLM().complete(Prompt((), (example("x"), example("y"), example("y")))) == "y"
    assert CopyLLM("sorry").complete(ASK) == "sorry"


def test_transformers_needs_its_extra(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "torch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install .dfa-rag\[hf\]"):
        TransformersLLM("any")


class EchoTokenizer:
    """Words are tokens; a chat template that names the roles."""

    chat_template, pad_token_id, eos_token_id = "named", None, 7

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize
        assert add_generation_prompt
        return " ".join(f"<{m['role']}> {m['content']}" for m in messages) + " <assistant>"

    def __call__(self, text, return_tensors=None, add_special_tokens=True):
        ids = (["<s>"] if add_special_tokens else []) + text.split()
        if return_tensors is None:
            return {"input_ids": ids}
        return Batch(input_ids=np.array([ids]), attention_mask=np.ones((1, len(ids))))

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return " ".join(ids).replace(" / ", "\n")


class Batch(dict):
    def to(self, device):
        assert device == "cpu"
        return self


class EchoModel:
    """Says the last two words again, then "/ and more"."""

    device = "cpu"

    class config:
        max_position_embeddings, _name_or_path = 20, "echo/model"

    def generate(self, input_ids, attention_mask, **options):
        assert input_ids.shape == attention_mask.shape
        assert options["max_new_tokens"] == 8
        assert options["pad_token_id"] == 7
        assert options["num_beams"] == 1
        assert options["do_sample"] is False
        return np.concatenate([input_ids, input_ids[:, -2:], [["/", "and", "more"]]], axis=1)


def test_transformers_prompts_and_answers(monkeypatch):
    """What goes into a model and comes out, without torch: the words are counted, the prompt is cut off again."""
    stands = types.ModuleType("torch")
    stands.no_grad = contextlib.nullcontext
    library = types.ModuleType("transformers")
    library.AutoModelForCausalLM = library.AutoTokenizer = None
    monkeypatch.setitem(sys.modules, "torch", stands)
    monkeypatch.setitem(sys.modules, "transformers", library)
    prompt = Prompt(({"role": "system", "content": "be brief"}, {"role": "user", "content": "say good day"}))
    chat = TransformersLLM(EchoModel(), EchoTokenizer(), max_new_tokens=8)
    assert chat.complete(prompt) == "day <assistant>\nand more"
    assert (chat.name, chat.context, chat.count_tokens("one two three")) == ("echo/model", 12, 3)
    plain = TransformersLLM(EchoModel(), EchoTokenizer(), max_new_tokens=8, chat=False, name="own")
    assert plain.complete(prompt) == "good day"
    assert plain.name == "own"
    exact = Prompt(({"role": "user", "content": "w " * 10},))  # <user> and <assistant> make it 12
    assert chat.complete(exact).startswith("w <assistant>")
    with pytest.raises(ValueError, match="a prompt must have at most 12 tokens, got 13. Lower the budget"):
        chat.complete(Prompt(({"role": "user", "content": "w " * 11},)))
    with pytest.raises(TypeError, match="tokenizer must be given"):
        TransformersLLM(EchoModel())
    with pytest.raises(ValueError, match="max_new_tokens must be"):
        TransformersLLM(EchoModel(), EchoTokenizer(), max_new_tokens=0)


@pytest.mark.slow
def test_smollm_answers_and_keeps_to_its_context():
    from offprints.testing import offline_lm

    model, tokenizer = offline_lm()
    llm = TransformersLLM(model, tokenizer, max_new_tokens=8, name="smol")
    assert "Paris" in llm.complete(Prompt(({"role": "user", "content": "What is the capital of France?"},)))
    plain = TransformersLLM(model, tokenizer, max_new_tokens=8, chat=False)
    answer = plain.complete(Prompt(({"role": "user", "content": "The capital of France is"},)))
    assert answer.startswith("Paris")
    assert "\n" not in answer
    assert llm.count_tokens("The capital of France is") == 5
    assert llm.context == 8192 - 8
    with pytest.raises(ValueError, match="at most 8184 tokens"):
        llm.complete(Prompt(({"role": "user", "content": "word " * 9000},)))
    with pytest.raises(TypeError, match="tokenizer must be given"):
        TransformersLLM(model)


@pytest.mark.slow
def test_sentence_encoder():
    import numpy as np
    from dfa_rag.hf import SentenceEncoder
    from offprints.testing import offline_encoder

    encoder = SentenceEncoder(*offline_encoder())
    found = encoder(["How do I reset my password?", "I forgot my login credentials", "The weather is nice today"])
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.ones(3))
    assert found[0] @ found[1] == pytest.approx(0.678, abs=2e-3)
    assert found[0] @ found[2] == pytest.approx(-0.043, abs=2e-3)
    assert encoder([]).shape == (0, 384)
    with pytest.raises(TypeError, match="tokenizer must be given"):
        SentenceEncoder(encoder.model)
