"""The command line: `attention-lipschitz scan` measures the attention layers of a checkpoint on a text (Section 5)."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from attention_lipschitz.report import LipschitzReport


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 with one line on standard error where the input is at fault."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, OSError, ImportError, TypeError, FloatingPointError) as error:
        print(f"attention-lipschitz: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attention-lipschitz", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("scan", help="local Lipschitz constants by layer and length")
    one.set_defaults(run=_scan)
    one.add_argument("model", help="a name or folder that transformers loads")
    one.add_argument("--text", type=Path, help="a .txt or .jsonl file; Python's own documentation by default")
    one.add_argument("--layers", default="0", help="such as 0,6")
    one.add_argument("--lengths", default="4:128:x2", help="such as 4,8,16 or 2:98:2 (step) or 4:128:x2 (factor)")
    one.add_argument("--samples", type=int, default=10, help="windows for each length")
    one.add_argument("--scope", default="self+out", help="self, self+out, block, layer or model")
    one.add_argument("--estimator", default="exact", help="exact, paper_code (no Lipschitz constant) or both")
    one.add_argument("--heads", action="store_true", help="each head by itself too")
    one.add_argument("--adversarial", type=float, metavar="R", help="adversarial tokens of that radius too")
    one.add_argument("--allow-loose", action="store_true", help="bounds by radius for rotary models too")
    one.add_argument("--device", default="cpu")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--out", type=Path, help="a .json report")
    one.add_argument("--plot", type=Path, help="a .png, .svg or .pdf figure")
    two = verbs.add_parser("show", help="a report again, as text or figure")
    two.set_defaults(run=_show)
    two.add_argument("report", type=Path)
    two.add_argument("--plot", type=Path)
    return parser


def parsed_lengths(text: str) -> list[int]:
    """Lengths of a text such as "4,8,16", "2:98:2" (step) or "4:128:x2" (factor).

    Raises:
        ValueError: if it is none of these.
    """
    try:
        if ":" not in text:
            found = [int(part) for part in text.split(",")]
        else:
            first, last, step = text.split(":")
            found, end = [int(first)], int(last)
            grow = int(step.removeprefix("x"))
            while found[0] > 0 and grow > (1 if step.startswith("x") else 0):
                following = found[-1] * grow if step.startswith("x") else found[-1] + grow
                if following > end:
                    return found
                found.append(following)
            raise ValueError(step)
    except ValueError as error:
        raise ValueError(f"lengths must be like 4,8,16 or 2:98:2 or 4:128:x2, got {text!r}.") from error
    return found


def _scan(options: argparse.Namespace) -> int:
    from attention_lipschitz.data import documentation, read_text
    from attention_lipschitz.scan import scan

    lengths, layers = parsed_lengths(options.lengths), [int(layer) for layer in options.layers.split(",")]
    text = documentation() if options.text is None else read_text(options.text)
    model, tokenizer = _loaded(options.model)
    report = scan(
        model, text, layers=layers, lengths=lengths, samples=options.samples, heads=options.heads,
        estimator=options.estimator, scope=options.scope, adversarial=options.adversarial, tokenizer=tokenizer,
        allow_loose=options.allow_loose, device=options.device, seed=options.seed,
    )  # fmt: skip
    if options.out is not None:
        report.to_json(options.out)
    return _told(report, options.plot)


def _loaded(name: str) -> "tuple[nn.Module, Callable[[str], object]]":
    from transformers import AutoModel, AutoTokenizer

    from attention_lipschitz.data import WordHashTokenizer

    model: Any = AutoModel.from_pretrained(name).eval()
    load: Any = AutoTokenizer.from_pretrained
    try:
        tokenizer = load(name)
        known = bool(tokenizer("text", add_special_tokens=False)["input_ids"])
    except (OSError, ValueError, TypeError):
        known = False
    if not known:  # a folder without a vocabulary gives an error, or a tokenizer that knows no word
        size = model.get_input_embeddings().num_embeddings
        print(f"no tokenizer in {name}: words are hashed to its {size} ids", file=sys.stderr)
        return model, WordHashTokenizer(size)
    return model, lambda text: tokenizer(text, add_special_tokens=False, verbose=False)


def _show(options: argparse.Namespace) -> int:
    from attention_lipschitz.report import LipschitzReport

    return _told(LipschitzReport.from_json(options.report), options.plot)


def _told(report: "LipschitzReport", plot: Path | None) -> int:
    print(report.summary())
    if plot is not None:
        report.plot(plot)
    return 0
