"""Tiny models and tokenizers for the tests."""

import torch
from lococo.host import cache_argument
from offprints.seeding import isolated

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.5, "pad_token_id": 0,
    "eos_token_id": None, "bos_token_id": None,
}  # fmt: skip


def build(family="llama", dtype=torch.float64, **changes):
    """A tiny random model of a family."""
    import transformers

    names = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    more = {"qwen3": {"head_dim": 8}, "mistral": {"sliding_window": None}}.get(family, {})
    config = getattr(transformers, f"{names[family]}Config")(**{**SIZES, **more, **changes})
    with isolated(0):
        return getattr(transformers, f"{names[family]}ForCausalLM")(config).to(dtype).eval()


def put(model, cache):
    """The cache, under the name that the model takes it by."""
    return {cache_argument(model): cache}


def letters():
    """A tokenizer of printable characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", *map(chr, range(32, 127)), "\n"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")
