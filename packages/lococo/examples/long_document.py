"""Read a long text once into a cache of fixed size, keep it on disk, and ask about it another time.

    python long_document.py MODEL FILE "a question"

MODEL is a name or folder that transformers loads (a Llama, Mistral, Qwen or SmolLM), FILE a text.
"""

import sys
from pathlib import Path

import torch
from lococo import LoCoCoCache, LoCoCoCompressor, load_texts, observe
from lococo.host import cache_argument
from transformers import AutoModelForCausalLM, AutoTokenizer

name, file, question = sys.argv[1:4]
model = AutoModelForCausalLM.from_pretrained(name).eval()
tokenizer = AutoTokenizer.from_pretrained(name)
key = cache_argument(model)  # "cache", or "past_key_values" before transformers 5.24

text = load_texts(file)[0]
document = tokenizer(text, return_tensors="pt")["input_ids"]
heads = LoCoCoCompressor.for_model(model, mem_size=256, alpha_init=0.0)  # or from_pretrained("heads", model)
kept = Path(file).with_suffix(".context")

with observe(model), torch.no_grad():
    cache = LoCoCoCache(model, heads)
    for part in document.split(128, dim=1):
        model(part, **{key: cache})
    print(cache.report())
    cache.save(kept)

    again = LoCoCoCache(model, heads).restore(kept)
    asked = tokenizer(f"\nQuestion: {question}\nAnswer:", return_tensors="pt")["input_ids"]
    whole = torch.cat((document, asked), 1)
    out = model.generate(whole, max_new_tokens=40, do_sample=False, **{key: again})
print(tokenizer.decode(out[0, whole.shape[1] :], skip_special_tokens=True))
