"""Runs behind the claims about models: random GPT-2 and BERT on text, a small trained model (Section 5)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from offprints.seeding import isolated

from attention_lipschitz.byte_gpt import byte_gpt, byte_ids, train_byte_gpt
from attention_lipschitz.data import WordHashTokenizer, documentation
from attention_lipschitz.report import LipschitzReport
from attention_lipschitz.scan import scan

if TYPE_CHECKING:
    from torch import nn

Metrics = dict[str, float | Sequence[float]]
RADIUS = 100.0
"""R of the adversarial tokens."""


def random_model(family: str, seed: int, size: dict[str, int]) -> "nn.Module":
    """GPT-2 or BERT with random weights; `size` are fields of the configuration, none for the published one."""
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

    options: Any = size
    with isolated(seed):
        model = GPT2Model(GPT2Config(**options)) if family == "gpt2" else BertModel(BertConfig(**options))
    return model.eval()


def _scanned(family: str, seed: int, layer: int, lengths: Sequence[int], samples: int, size: dict[str, int],
             adversarial: float | None, device: str) -> LipschitzReport:  # fmt: skip
    model: Any = random_model(family, seed, size)
    tokenizer = WordHashTokenizer(model.config.vocab_size)
    return scan(
        model, documentation(), layers=[layer], lengths=lengths, samples=samples, estimator="both", tokenizer=tokenizer,
        adversarial=adversarial, bounds=False, device=device, progress=False,
    )  # fmt: skip


def _medians(report: LipschitzReport, lengths: Sequence[int], column: str, data: str = "real") -> list[float]:
    rows = report.select(data=data)
    return [float(np.median([getattr(row, column) for row in rows if row.n == n])) for n in lengths]


def published_curve(
    seed: int, layer: int, lengths: Sequence[int], samples: int, size: dict[str, int], device: str
) -> Metrics:
    """Exponents of both estimators on a random GPT-2, and the coefficient of the published one; series: both curves."""
    report = _scanned("gpt2", seed, layer, lengths, samples, size, None, device)
    published = report.growth_exponent(layer, column="paper_code", n_min=1)
    exact = report.growth_exponent(layer, n_min=1)
    return {
        "exponent": published.slope, "coefficient": published.coefficient, "exact_exponent": exact.slope,
        "unconverged": float(sum(row.converged is False for row in report.rows)), "lengths": list(map(float, lengths)),
        "published": _medians(report, lengths, "paper_code"), "exact": _medians(report, lengths, "lipschitz"),
    }  # fmt: skip


def planted_and_real(
    seed: int, layer: int, lengths: Sequence[int], samples: int, size: dict[str, int], device: str
) -> Metrics:
    """Exact exponents at the adversarial tokens of head 0 and on text, for masked GPT-2 and unmasked BERT."""
    found: Metrics = {"lengths": list(map(float, lengths))}
    for family in ("gpt2", "bert"):
        given = size if family == "gpt2" or not size else {
            "hidden_size": size["n_embd"], "num_hidden_layers": size["n_layer"], "num_attention_heads": size["n_head"],
            "intermediate_size": 4 * size["n_embd"], "vocab_size": size["vocab_size"],
        }  # fmt: skip
        report = _scanned(family, seed, layer, lengths, samples, given, RADIUS, device)
        found |= {
            f"real_{family}": report.growth_exponent(layer, n_min=1).slope,
            f"adversarial_{family}": report.growth_exponent(layer, n_min=1, data="adversarial").slope,
            f"real_{family}_curve": _medians(report, lengths, "lipschitz"),
            f"adversarial_{family}_curve": _medians(report, lengths, "lipschitz", "adversarial"),
        }
    return found


def trained_and_random(seed: int, lengths: Sequence[int], samples: int, steps: int, width: int, device: str) -> Metrics:
    """Medians of a byte GPT before and after training, on text it was not trained on; series: by layer and head."""
    text = documentation()
    cut = len(text) // 10
    model: Any = byte_gpt(seed, width=width)
    model.to(device)
    found: Metrics = {}
    for kind in ("random", "trained"):
        if kind == "trained":
            losses = train_byte_gpt(model, text[cut:], steps=steps, seed=seed)
            found["loss"] = float(np.mean(losses[-20:]))
        report = scan(
            model, byte_ids(text[:cut]), lengths=lengths, samples=samples, heads=True, bounds=False, device=device,
            progress=False,
        )  # fmt: skip
        whole = [row for row in report.rows if row.head is None]
        found[kind] = float(np.median([row.lipschitz or 0.0 for row in whole]))
        for n in lengths:
            found[f"{kind}_{n}"] = float(np.median([row.lipschitz or 0.0 for row in whole if row.n == n]))
        layers, heads = len(model.transformer.h), model.config.n_head
        found[f"{kind}_heads"] = [
            float(np.median([row.lipschitz or 0.0 for row in report.rows if (row.layer, row.head) == (layer, head)]))
            for layer in range(layers) for head in range(heads)
        ]  # fmt: skip
    return found
