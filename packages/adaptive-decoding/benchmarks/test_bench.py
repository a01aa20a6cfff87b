"""Duels: the rule without a sort against the same rule with one, transformers' warpers, and a step of generation."""

import functools
import math

import pytest
import torch
import transformers
from adaptive_decoding import AdaptiveLogitsProcessor
from offprints.seeding import rng
from offprints.testing import offline_lm

LOW = -1e4  # finite, so that a spoilt output shows
SIZES = [32768, 50257, 128000, 256000]
LARGE = {size: 20.0 for size in SIZES if size >= 50_000}
PROCESSOR = AdaptiveLogitsProcessor(1e-3, filter_value=LOW)


def scores(rows):
    return lambda size: 3 * torch.randn(rows, size, generator=rng(size, "cpu"))


def ours(x):
    return PROCESSOR(None, x)


def full_sort(x, epsilon=1e-3):
    """The released warper's way, a sort and full-size temporaries, with the tail summed from its end."""
    n = x.shape[-1]
    ordered, ids = torch.sort(x, descending=True)
    p = ordered.softmax(-1)
    rest = torch.cat((p.flip(-1).cumsum(-1).flip(-1), p.new_zeros(len(p), 1)), -1)
    left = torch.arange(n, -1, -1, dtype=p.dtype)
    known, unknown = torch.xlogy(p, p), torch.xlogy(rest, rest / left.clamp(min=1))
    delta = (known + unknown[:, 1:] - unknown[:, :-1]) / math.log(n)
    removed = (delta > epsilon).long().cumprod(-1) == 0
    removed[:, 0] = False
    return x.masked_fill(removed.scatter(1, ids, removed), LOW)


def close(a, b):
    torch.testing.assert_close(a, b)


def test_rule_one_row(duel):
    duel(sizes=SIZES, make=scores(1), ours=ours, peers={"full sort": full_sort}, same=close,
         target={"full sort": LARGE}, growth="n")  # fmt: skip


def test_rule_eight_rows(duel):
    duel(sizes=SIZES, make=scores(8), ours=ours, peers={"full sort": full_sort}, same=close,
         target={"full sort": LARGE}, growth="n")  # fmt: skip


def kept_mass(x, output):
    """Probability that is kept, the least over rows."""
    return float((x.softmax(-1) * (output > LOW / 2)).sum(-1).min())


LIBRARY = {
    "transformers TopPLogitsWarper": transformers.TopPLogitsWarper(0.95, filter_value=LOW),
    "transformers MinPLogitsWarper": transformers.MinPLogitsWarper(0.05, filter_value=LOW),
}


@pytest.mark.parametrize("rows", [1, 8])
def test_library_warpers(duel, rows):
    """They keep other tokens, by their nature; the mass kept stands beside the ratio."""
    duel(
        sizes=SIZES,
        make=scores(rows),
        ours=ours,
        peers={name: functools.partial(warper, None) for name, warper in LIBRARY.items()},
        quality=(kept_mass, lambda mine, other: mine > 0.1),
        target={"transformers TopPLogitsWarper": {size: 4.0 for size in SIZES if size >= 50_000}},
        id=f"library_warpers_{rows}",
    )


# ---- a whole generation


@functools.cache
def model_and_prompt():
    model, tokenizer = offline_lm()
    return model, tokenizer("The history of the city begins", return_tensors="pt")


def generated(new, **extra):
    model, prompt = model_and_prompt()
    with torch.random.fork_rng():
        return model.generate(**prompt, do_sample=True, top_k=0, max_new_tokens=new, min_new_tokens=new, **extra)


def test_generation(duel):
    """A step with the rule against a step of plain sampling: less than 2 % more."""
    duel(
        sizes=[8, 32],
        make=lambda new: new,
        ours=lambda new: generated(new, logits_processor=[AdaptiveLogitsProcessor(1e-3)]),
        peers={"plain sampling": generated},
        quality=(lambda new, output: float(output.shape[1]), lambda mine, other: mine == other),
        target={"plain sampling": 0.98},
    )
