"""The models of the claims: SmolLM2-135M with MiniLM, and a tiny random one that proves the path."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from offprints.seeding import isolated, rng
from offprints.testing import offline_encoder, offline_lm

from adaptive_decoding.experiments_texts import articles, documentation
from adaptive_decoding.metrics import Embed, SentenceEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Bench:
    """A model, its tokenizer, an encoder of sentences and texts by article."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    embed: Embed
    texts: list[list[str]]


@cache
def bench(name: str) -> Bench:
    """The model "smollm2-135m" in bfloat16 with float32 logits, "tiny", or any other by its name or folder."""
    if name == "tiny":
        return Bench(*tiny(), letters, documentation())
    encoder = SentenceEncoder(*offline_encoder(), max_length=128)
    if name == "smollm2-135m":
        model, tokenizer = offline_lm(name)
        return Bench(precise_head(model), tokenizer, encoder, articles())
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(name, dtype="auto", device_map="auto").eval()
    return Bench(loaded, cast("Any", AutoTokenizer.from_pretrained(name)), encoder, articles())


def precise_head(model: "PreTrainedModel") -> "PreTrainedModel":
    """Weights in bfloat16 but for the last layer: 8-bit mantissas would put the logits on a grid of 0.06."""
    weight = cast("Any", model.get_output_embeddings()).weight.detach().float().clone()
    model = model.bfloat16()
    head: Any = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.float32)
    head.weight = torch.nn.Parameter(weight, requires_grad=False)
    head.register_forward_pre_hook(lambda module, inputs: (inputs[0].float(),))
    model.set_output_embeddings(head)
    return model


@cache
def tiny() -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A random Llama over printable characters, with grouped-query attention, and its tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", *map(chr, range(32, 127))]
    letters_of = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    letters_of.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters_of.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters_of, pad_token="<pad>", eos_token="<eos>")
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.5, pad_token_id=0, bos_token_id=None,
        eos_token_id=1,
    )  # fmt: skip
    with isolated(0):
        return LlamaForCausalLM(config).eval(), tokenizer


def letters(texts: Sequence[str]) -> np.ndarray:
    """(texts, 26) how often each letter stands in a text: an encoder for quick runs."""
    return np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=float) + 0.01


def prompts_of(here: Bench, seed: int, count: int, length: int, more: int, first: bool) -> tuple[list[str], list[str]]:
    """`count` prompts of `length` tokens, and the `more` tokens of the same paragraph that follow.

    `first`: from the first paragraph of as many articles; else from any paragraphs, of as many articles as there are.
    """
    gen = rng(seed)
    pool = [parts[0] for parts in here.texts] if first else [part for parts in here.texts for part in parts]
    prompts, references = [], []
    for at in gen.permutation(len(pool)).tolist():
        ids = here.tokenizer(pool[at])["input_ids"]
        if len(ids) >= length + (0 if first else more) and len(prompts) < count:
            prompts.append(str(here.tokenizer.decode(ids[:length])))
            references.append(str(here.tokenizer.decode(ids[length : length + more])))
    if len(prompts) < count:
        raise ValueError(f"prompts must be at most {len(prompts)} (the texts at hand), got {count}.")
    return prompts, references
