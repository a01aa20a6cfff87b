"""Attach the tracker to a language model that is fine-tuned, and see when it stops being a kernel machine.

    python examples/is_it_still_a_kernel.py

A small GPT-2 with random weights learns to copy the first token of a sequence to its end. (Put any causal model of
transformers in its place.)
"""

import grokking_theory as gt
import torch
from offprints.seeding import isolated, rng
from transformers import GPT2Config, GPT2LMHeadModel


def last_logits(model, ids):
    return model(input_ids=ids).logits[:, -1]


with isolated(0):
    config = GPT2Config(n_layer=2, n_head=4, n_embd=64, n_positions=16, vocab_size=32, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()

ids = torch.randint(1, 32, (256, 12), generator=rng(0, "cpu"))
answers = ids[:, 0]
tracker = gt.NTKTracker(model, ids[:24], output="trace_sample", every=25, forward_fn=last_logits, targets=answers[:24])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
penalty = gt.LinfRegularizer(model.parameters(), strength=1e-3)

print("step  loss    accuracy  1 - cos(Θ_t, Θ_0)  alignment with the labels")
for step in range(1, 151):
    logits = last_logits(model, ids)
    loss = torch.nn.functional.cross_entropy(logits, answers) + penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (found := tracker(step)) is not None:
        accuracy = (logits.argmax(1) == answers).float().mean()
        print(
            f"{step:4}  {loss.item():.4f}  {accuracy:8.3f}  {found['ntk_distance']:17.4f}  {found['ntk_alignment']:.3f}"
        )
