"""The command line: what training in 16 bits costs and loses, and training at the paper's scale."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collage_optim.adamw import MODES
from collage_optim.memory import STRATEGIES, memory_report
from collage_optim.train import Settings, train


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status (0, 2 for wrong usage, 130 when interrupted)."""
    parser = argparse.ArgumentParser(prog="collage-optim", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    memory = verbs.add_parser("memory", help="bytes per parameter of each strategy")
    memory.add_argument("parameters", type=_count, help="how many, such as 125e6 or 6.7B")
    memory.add_argument("--strategies", nargs="+", default=["bf16", "light", "plus", "fp32_states", "fp32_master"],
                        choices=list(STRATEGIES))  # fmt: skip
    _train_options(verbs.add_parser("train", help="a language model of transformers on a token file"))
    options = parser.parse_args(arguments)
    try:
        if options.verb == "memory":
            sys.stdout.write(memory_report(options.parameters, options.strategies) + "\n")
            return 0
        return _train(options)
    except (TypeError, ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"collage-optim: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("collage-optim: interrupted, nothing was written\n")
        return 130


def _count(text: str) -> int:
    units = {"K": 1e3, "M": 1e6, "B": 1e9}
    try:
        factor = units.get(text[-1:].upper(), 1.0)
        return int(float(text[:-1] if factor != 1.0 else text) * factor)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"must be a number such as 125e6 or 6.7B, got {text!r}") from None


def _train_options(parser: argparse.ArgumentParser) -> None:
    add, given = parser.add_argument, Settings(Path())
    add("--tokens", type=Path, required=True, help="token ids: .bin of nanoGPT (uint16) or of Megatron (with .idx)")
    add("--hf-config", default=given.hf_config, help="a name or folder that transformers' AutoConfig reads")
    add("--mode", choices=MODES, default=given.mode)
    add("--math", choices=["strict", "fp32"], default=given.math)
    add("--lr", type=float, default=given.lr)
    add("--betas", type=float, nargs=2, default=given.betas)
    add("--wd", type=float, default=given.weight_decay)
    add("--warmup", type=int, default=given.warmup)
    add("--steps", type=int, default=given.steps)
    add("--seq", type=int, default=given.length)
    add("--global-batch", type=int, default=given.global_batch)
    add("--micro-batch", type=int, default=given.micro_batch)
    add("--every", type=int, default=given.every, help="steps between lines")
    add("--seed", type=int, default=given.seed)
    add("--save", type=Path, help="where the trained weights go, in float32 (safetensors)")


def _train(options: argparse.Namespace) -> int:
    settings = Settings(
        tokens=options.tokens, hf_config=options.hf_config, mode=options.mode, math=options.math, lr=options.lr,
        betas=tuple(options.betas), weight_decay=options.wd, warmup=options.warmup, steps=options.steps,
        length=options.seq, global_batch=options.global_batch, micro_batch=options.micro_batch, every=options.every,
        seed=options.seed, save=options.save,
    )  # fmt: skip
    for line in train(settings):
        text = "  ".join(f"{name} {value:.6g}" for name, value in line.items())
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
