"""What the paper's released scripts print for a random GPT-2, beside the Lipschitz constant of its attention."""

import re
import zlib
from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2Model


def measured(attn, X, heads, steps=60):
    """Power iteration on the attention that the module computes, masked, with its output projection."""
    n, (W, b, out) = len(X), (x.detach().double() for x in (attn.c_attn.weight, attn.c_attn.bias, attn.c_proj.weight))

    def f(x):
        q, k, v = (y.unflatten(-1, (heads, -1)).transpose(0, 1) for y in (x @ W + b).chunk(3, -1))
        logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~torch.ones(n, n).tril().bool(), -torch.inf)
        return (logits.softmax(-1) @ v).transpose(0, 1).flatten(1) @ out

    u = torch.linspace(-1, 1, X.numel()).double().cos().reshape(X.shape)
    for _ in range(steps):
        value, tangent = torch.func.jvp(f, (X,), (u / u.norm(),))
        u = torch.func.vjp(f, X)[1](tangent)[0]
    return torch.func.vjp(f, X)[1](value)[0].norm() ** 0.5, u.norm() ** 0.5  # the scripts take jvp(...)[0], `value`


def main(layer=6, lengths=(2, 8, 32, 96), **size):
    model = GPT2Model(GPT2Config(**size)).eval()
    block = model.h[layer]
    words = re.findall(r"\w+|[^\w\s]", " ".join(topics.values()))
    ids = torch.tensor([[zlib.crc32(word.encode()) % model.config.vocab_size for word in words[: max(lengths)]]])
    for n in lengths:
        with torch.no_grad():
            X = block.ln_1(model(ids[:, :n], output_hidden_states=True).hidden_states[layer])[0].double()
        published, constant = measured(block.attn, X, model.config.n_head)
        print(f"n = {n}: released estimate {published:.3f}, Lipschitz constant {constant:.3f}")


if __name__ == "__main__":
    main()
