"""What the paper's released scripts print for a random GPT-2, beside the Lipschitz constant: torch and transformers only."""

import re
import zlib
from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2Model


def main(layers=7, lengths=(2, 8, 32, 96), width=768):
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_layer=layers, n_embd=width, attn_pdrop=0.0)).eval()
    words = re.findall(r"\w+|[^\w\s]", " ".join(topics.values()))
    ids = torch.tensor([[zlib.crc32(word.encode()) % 50257 for word in words[:200]]])
    attn, heads = model.h[-1].attn, model.config.n_head
    for n in lengths:
        caught = []
        hook = attn.register_forward_pre_hook(lambda _, args, kw: caught.append(kw.get("hidden_states", *args)), with_kwargs=True)
        with torch.no_grad():
            model(ids[:, :n])
        hook.remove()
        X = caught[0][0].double()
        W, b, O = (x.detach().double() for x in (attn.c_attn.weight, attn.c_attn.bias, attn.c_proj.weight))

        def f(x, n=n, W=W, b=b, O=O):
            q, k, v = (y.unflatten(-1, (heads, -1)).transpose(0, 1) for y in (x @ W + b).chunk(3, -1))
            logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~torch.ones(n, n).tril().bool(), -torch.inf)
            return (logits.softmax(-1) @ v).transpose(0, 1).flatten(1) @ O

        u = torch.randn_like(X)
        for step in range(60):
            primal, tangent = torch.func.jvp(f, (X,), (u / u.norm(),))
            u = torch.func.vjp(f, X)[1](tangent)[0]
        published = torch.func.vjp(f, X)[1](primal)[0].norm() ** 0.5  # index 0 of jvp, as in the scripts
        print(f"n = {n}: released estimate {published:.3f}, Lipschitz constant {u.norm() ** 0.5:.3f}")


if __name__ == "__main__":
    main()
