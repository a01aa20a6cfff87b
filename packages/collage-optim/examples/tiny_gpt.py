"""Train a small GPT on Python's documentation in bfloat16: plain AdamW against two-component weights.

Run: python examples/tiny_gpt.py
"""

from collage_optim import CollageAdamW, memory_report
from collage_optim.data import standard_library_text
from collage_optim.training import train_gpt

if __name__ == "__main__":
    text = standard_library_text()
    print(memory_report(100_000, ("bf16", "light", "plus", "fp32_master")))
    for mode in ("plain", "light", "plus", "fp32_master"):
        run = train_gpt(text, lambda p, m=mode: CollageAdamW(p, weight_decay=0.1, mode=m), seed=0, steps=300)
        print(f"{mode:12s} held-out loss {run.loss:.4f}, EDQ ratio {run.ratios[-1]:.3f}, lost {run.lost[-1]:.1%}")
