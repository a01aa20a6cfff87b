"""Language models behind one method: transformers, any OpenAI-compatible endpoint, and two that are deterministic.

The method is plug and play (Section 1): a router hands any of them the same prompt.
"""

import itertools
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from offprints.checks import require_kind, require_range

from dfa_rag.prompts import Prompt

if TYPE_CHECKING:
    import httpx
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LOG = logging.getLogger(__name__)


class LLM(Protocol):
    """Any language model (Section 3, step 4): a name, for caches, and an answer to a prompt."""

    name: str

    def complete(self, prompt: Prompt) -> str:
        """The model's answer."""
        ...


class ScriptedLLM:
    """Answers from a list, one after the other, or by a function of the prompt; for tests and replays (Section 4).

    Args:
        answers: texts in order, or prompt -> text.
        name: for caches.

    Raises:
        ValueError: when asked more often than there are answers.
    """

    def __init__(self, answers: Sequence[str] | Callable[[Prompt], str], name: str = "scripted") -> None:
        self.answers, self.name, self.prompts = answers, name, list[Prompt]()

    def complete(self, prompt: Prompt) -> str:
        """The next answer."""
        self.prompts.append(prompt)
        if callable(self.answers):
            return self.answers(prompt)
        if len(self.prompts) > len(self.answers):
            raise ValueError(f"answers must cover every question, got {len(self.answers)} and one more question.")
        return self.answers[len(self.prompts) - 1]


class CopyLLM:
    """Says what most examples say: the first answer whose tags are the most frequent (ties: the better example).

    A lower bound of what in-context learning (Section 3, step 4) can do, without a model.

    Args:
        otherwise: the answer when there are no examples.
    """

    name = "copy"

    def __init__(self, otherwise: str = "I am sorry, I cannot help with that.") -> None:
        self.otherwise = otherwise

    def complete(self, prompt: Prompt) -> str:
        """The majority's answer."""
        if not prompt.examples:
            return self.otherwise
        acts = [example.answer.tags or (example.answer.text,) for example in prompt.examples]
        votes = Counter(acts)
        return prompt.examples[acts.index(max(acts, key=lambda act: votes[act]))].answer.text


class TransformersLLM:
    """A causal language model of transformers (the open models of Section 4), decoded greedily.

    Args:
        model: a loaded model, or a name or folder for `from_pretrained`.
        tokenizer: its tokenizer; needed with a loaded model.
        max_new_tokens: of an answer.
        name: for caches; by default the model's own.
        device: where a model given by name goes.
        chat: use the tokenizer's chat template; if not, or without one, the text is continued up to the next line.

    Raises:
        ImportError: if torch or transformers is missing (extra `hf`).
        TypeError: if a loaded model comes without a tokenizer.
        ValueError: if a prompt leaves no room for an answer.
    """

    def __init__(
        self,
        model: "str | PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        max_new_tokens: int = 64,
        name: str | None = None,
        device: str | None = None,
        chat: bool = True,
    ) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError as error:
            raise ImportError('TransformersLLM needs torch and transformers: pip install "dfa-rag[hf]"') from error
        self.max_new_tokens = require_range("max_new_tokens", max_new_tokens, low=1, integer=True)
        if isinstance(model, str):
            from offprints.device import pick_device

            tokenizer = tokenizer or AutoTokenizer.from_pretrained(model)
            self.model: Any = AutoModelForCausalLM.from_pretrained(model).eval().to(pick_device(device))
        else:
            self.model = model
        if tokenizer is None:
            raise TypeError("tokenizer must be given with a loaded model, got None.")
        self.tokenizer, self._torch = tokenizer, torch
        self.chat = chat and bool(tokenizer.chat_template)
        self.name = name or str(getattr(self.model.config, "_name_or_path", "") or type(self.model).__name__)

    @property
    def context(self) -> int:
        """Tokens that a prompt may have."""
        return int(self.model.config.max_position_embeddings) - self.max_new_tokens

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def complete(self, prompt: Prompt) -> str:
        """Greedy continuation of the chat."""
        if self.chat:
            messages = [dict(message) for message in prompt.messages]
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        else:
            text = "\n\n".join(message["content"] for message in prompt.messages)
        batch = self.tokenizer(text, return_tensors="pt", add_special_tokens=not self.chat).to(self.model.device)
        length = batch["input_ids"].shape[1]
        if length > self.context:
            raise ValueError(f"a prompt must have at most {self.context} tokens, got {length}. Lower the budget.")
        pad = self.tokenizer.pad_token_id
        with self._torch.no_grad():
            made = self.model.generate(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=False, num_beams=1,
                max_new_tokens=self.max_new_tokens, temperature=None, top_p=None, top_k=None,
                pad_token_id=self.tokenizer.eos_token_id if pad is None else pad,
            )  # fmt: skip
        answer = str(self.tokenizer.decode(made[0, length:], skip_special_tokens=True)).strip()
        return answer if self.chat else answer.partition("\n")[0].strip()


class OpenAICompatLLM:
    """Any server that speaks `POST {base_url}/chat/completions` (the hosted models of Section 4).

    Time-outs, 408, 409, 429, 5xx and unreadable bodies are tried again with exponential back-off; `Retry-After` is
    obeyed up to a minute.

    Args:
        base_url: such as "http://localhost:8000/v1".
        model: the server's name of the model.
        api_key: sent as a bearer token; None sends none.
        timeout: seconds of one request.
        retries: further tries.
        max_tokens: of an answer.
        temperature: of the sampling; 0 is greedy.
        backoff: seconds before the first further try; doubled each time.
        transport: an httpx transport, for proxies and tests.
        sleep: waits some seconds.

    Raises:
        ConnectionError: the endpoint cannot be reached or stays busy; the message names it and what to check.
        PermissionError: 401 or 403.
        ValueError: any other refusal, or an answer that is not a chat completion.
    """

    AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        max_tokens: int = 256,
        temperature: float = 0.0,
        backoff: float = 0.5,
        transport: "httpx.BaseTransport | None" = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        require_kind("base_url", base_url, str)
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, got {base_url!r}.")
        self.url, self.model, self.name = base_url.rstrip("/") + "/chat/completions", model, model
        self.timeout = require_range("timeout", timeout, low=0, low_open=True)
        self.retries = require_range("retries", retries, low=0, integer=True)
        self.max_tokens = require_range("max_tokens", max_tokens, low=1, integer=True)
        self.temperature = require_range("temperature", temperature, low=0)
        self.backoff = require_range("backoff", backoff, low=0)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._transport, self._sleep = transport, sleep

    def complete(self, prompt: Prompt) -> str:
        """The first choice of a chat completion."""
        import httpx

        body = {
            "model": self.model, "messages": [dict(message) for message in prompt.messages],
            "max_tokens": self.max_tokens, "temperature": self.temperature,
        }  # fmt: skip
        problem = ""
        with httpx.Client(timeout=self.timeout, transport=self._transport, headers=self._headers) as client:
            for attempt in itertools.count():
                wait = self.backoff * 2**attempt
                try:
                    response = client.post(self.url, json=body)
                except httpx.TransportError as error:
                    problem = f"{type(error).__name__} ({error})"
                else:
                    if response.is_success:
                        answer, problem = _answer(response)
                        if answer is not None:
                            return answer
                    elif response.status_code in self.AGAIN:
                        problem = f"status {response.status_code} ({response.text[:120]})"
                        asked = response.headers.get("Retry-After", "")
                        wait = min(60.0, float(asked)) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", asked) else wait
                    else:
                        _refuse(self.url, response)
                if attempt >= self.retries:
                    break
                LOG.info("%s: %s; another try in %.1f s", self.url, problem, wait)
                self._sleep(wait)
        if problem.startswith("an answer"):
            raise ValueError(f"{self.url} must answer with a chat completion, got {problem}. Is base_url right?")
        raise ConnectionError(
            f"{self.url} could not be used, the last of {self.retries + 1} tries ended with {problem}. "
            "Check that the server runs, base_url (with /v1) and timeout."
        )


def _answer(response: "httpx.Response") -> tuple[str | None, str]:
    """The text of a chat completion, or what is wrong with it."""
    try:
        content = response.json()["choices"][0]["message"]["content"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, IndexError, TypeError):
        return None, f"an answer that is none ({response.text[:120]!r})"
    return (content, "") if isinstance(content, str) else (None, f"an answer without text ({response.text[:120]!r})")


def _refuse(url: str, response: "httpx.Response") -> None:
    said = f"{url} refused with status {response.status_code}: {response.text[:200]}"
    if response.status_code in (401, 403):
        raise PermissionError(f"{said}. Check api_key.")
    raise ValueError(f"{said}. Check base_url and model.")
