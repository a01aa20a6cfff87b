"""The command line: `lococo calibrate`, `tune`, `ppl` and `compare`, with any model of Llama's kind."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 with one line on standard error where the input is at fault."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"lococo: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lococo", description=__doc__)
    verbs = parser.add_subparsers(required=True)

    def verb(name: str, run: object, told: str, chunk: int, context: int) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=told, description=told)
        made.set_defaults(run=run)
        made.add_argument("--model", required=True, help="a name or folder that transformers loads")
        made.add_argument("--texts", type=Path, required=True, help="a .txt or .jsonl file, or a folder of .txt files")
        made.add_argument("--dtype", default="auto", help="float32, bfloat16, …; that of the weights by default")
        made.add_argument("--context", type=int, default=context, help="tokens of a document")
        made.add_argument("--chunk", type=int, default=chunk, help="tokens at a time")
        made.add_argument("--batch-size", type=int, default=2)
        return made

    def trains(made: argparse.ArgumentParser) -> None:
        made.add_argument("--mem", type=int, default=512, help="slots of each layer")
        made.add_argument("--kernel", type=int, default=21)
        made.add_argument("--local", type=int, help="last slots that stay; a quarter by default")
        made.add_argument("--steps", type=int, default=1000)
        made.add_argument("--accumulation", type=int, default=1)
        made.add_argument("--seed", type=int, default=0)
        made.add_argument("--out", type=Path, required=True, help="a folder")

    one = verb("calibrate", _calibrate, "Train heads on some text; the model stays as it is.", 512, 4096)
    trains(one)
    one.add_argument("--recipe", choices=("default", "paper"), default="default")
    one.add_argument("--objective", choices=("lm", "lm+distill", "distill"), default="lm")
    one.add_argument("--held-out", type=int, default=0, help="documents for validation")
    two = verb("tune", _tune, "Extend the context: adapters, interpolated positions and heads.", 512, 8192)
    trains(two)
    two.add_argument("--lr", type=float, default=5e-5)
    for name, run, told in (
        ("ppl", _ppl, "Perplexity with one cache."),
        ("compare", _compare, "Caches side by side on the same tokens."),
    ):
        three = verb(name, run, told, 128, 1024)
        several = {"nargs": "+", "default": ["full", "h2o:mem_size=128", "streaming:mem_size=128"]}
        three.add_argument(
            "--caches" if name == "compare" else "--cache",
            help="full, lococo:heads=FOLDER, h2o:mem_size=128,local_len=0, streaming:…, random:…, snapkv:…",
            **(several if name == "compare" else {"default": "full"}),  # type: ignore[arg-type]
        )
    return parser


def _loaded(options: argparse.Namespace) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]":
    from offprints.device import pick_device
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from lococo.data import load_texts

    texts = load_texts(options.texts)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(options.model)
    return model.to(pick_device()), tokenizer, texts


def _calibrate(options: argparse.Namespace) -> int:
    from lococo.heads import LoCoCoCompressor
    from lococo.train import PAPER, calibrate

    model, tokenizer, texts = _loaded(options)
    paper = options.recipe == "paper"
    heads = LoCoCoCompressor.for_model(
        model, mem_size=options.mem, kernel_size=options.kernel, local_len=0 if paper else options.local,
        init="paper" if paper else "kaiming", seed=options.seed,
    )  # fmt: skip
    how = {
        "context": options.context, "chunk": options.chunk, "steps": options.steps, "batch_size": options.batch_size,
        "accumulation": options.accumulation, "seed": options.seed, "objective": options.objective,
        "held_out": options.held_out,
    }  # fmt: skip
    more = (
        {k: PAPER[k] for k in ("lr", "lr_alpha", "lr_norms", "schedule", "train_norms", "grad_clip")} if paper else {}
    )
    told = calibrate(model, heads, texts, tokenizer=tokenizer, **how, **more)  # type: ignore[arg-type]
    heads.save_pretrained(options.out)
    if paper:
        model.save_pretrained(options.out / "model")
    print(f"loss {told.losses[0]:.4f} -> {told.losses[-1]:.4f}, best after {told.best_step} steps, in {options.out}")
    return 0


def _tune(options: argparse.Namespace) -> int:
    from lococo.heads import LoCoCoCompressor
    from lococo.tune import tune_long_context

    model, tokenizer, texts = _loaded(options)
    heads = LoCoCoCompressor.for_model(
        model, mem_size=options.mem, kernel_size=options.kernel, local_len=options.local, seed=options.seed
    )
    tuned = tune_long_context(
        model, heads, texts, target=options.context, tokenizer=tokenizer, chunk=options.chunk, steps=options.steps,
        batch_size=options.batch_size, accumulation=options.accumulation, lr=options.lr, seed=options.seed,
    )  # fmt: skip
    tuned.save(options.out)
    print(f"loss {tuned.losses[0]:.4f} -> {tuned.losses[-1]:.4f}, positions / {tuned.factor:g}, in {options.out}")
    return 0


def _ppl(options: argparse.Namespace) -> int:
    from lococo.evaluate import perplexity
    from lococo.named import make_cache

    model, tokenizer, texts = _loaded(options)
    found = perplexity(
        model, texts, make_cache(options.cache, model), tokenizer=tokenizer, context=options.context,
        chunk=options.chunk, batch_size=options.batch_size,
    )  # fmt: skip
    print(f"perplexity {found.perplexity:.4f}, NLL {found.nll:.4f}, cache {found.bytes / 1e6:.2f} MB")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from lococo.evaluate import compare_caches
    from lococo.named import make_cache

    model, tokenizer, texts = _loaded(options)
    caches = {name: make_cache(name, model) for name in options.caches}
    print(
        compare_caches(
            model, texts, caches, tokenizer=tokenizer, context=options.context, chunk=options.chunk,
            batch_size=options.batch_size,
        )
    )  # fmt: skip
    return 0
