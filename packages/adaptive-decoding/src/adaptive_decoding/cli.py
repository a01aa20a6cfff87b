"""The command line: `adaptive-decoding generate`, `compare` and `reason`, with any model that transformers loads."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from adaptive_decoding.metrics import SentenceEncoder

DTYPES = ("auto", "float64", "float32", "bfloat16", "float16")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 2 with one line on standard error where the input is at fault."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, OSError, ImportError) as error:
        print(f"adaptive-decoding: {error}", file=sys.stderr)
        return 2


def _count(text: str) -> int:
    """A number of prompts, one at least."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def _writable(*endings: str) -> Callable[[str], Path]:
    """A path with one of the endings, in a folder that exists: found out before the work, not after."""

    def path(text: str) -> Path:
        found = Path(text)
        if endings and found.suffix not in endings:
            raise argparse.ArgumentTypeError(f"must end in {', '.join(endings)}, got {text!r}")
        if not found.absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"must be in a folder that exists, got {text!r}")
        return found

    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="adaptive-decoding", description=__doc__)
    verbs = parser.add_subparsers(required=True)

    def verb(name: str, run: object, told: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=told, description=told)
        made.set_defaults(run=run)
        made.add_argument("--model", required=True, help="a name or folder that transformers loads")
        made.add_argument("--dtype", default="auto", choices=DTYPES, help="that of the weights by default")
        made.add_argument("--max-new-tokens", type=int, default=128)
        made.add_argument("--seed", type=int, default=0)
        made.add_argument("--batch-size", type=int, default=8)
        return made

    one = verb("generate", _generate, "Continue one prompt, or each line of standard input.")
    one.add_argument("prompt", nargs="?")
    one.add_argument("--decoder", default="adaptive:epsilon=0.001")
    one.add_argument(
        "--html", type=_writable(), help="write a heat map of the candidates of one prompt (adaptive only)"
    )

    two = verb("compare", _compare, "Decoders side by side on the prompts of a file.")
    two.add_argument("--prompts", type=Path, required=True, help="text, .jsonl or .wp_source")
    two.add_argument("--decoders", nargs="+", default=["adaptive:epsilon=0.001", "top_p:p=0.95", "sampling"])
    two.add_argument("--metrics", nargs="+", default=["diversity", "perplexity", "k", "mass"])
    two.add_argument("--encoder", help="a sentence encoder, for coherence and mauve")
    two.add_argument("--seeds", type=int, nargs="+", help="several random seeds; --seed alone by default")
    two.add_argument("--limit", type=_count, help="only the first prompts")
    two.add_argument("--rerun-matched", action="store_true", help="also run each decoder at equal candidate-set size")
    two.add_argument("--out", type=_writable(".md", ".json", ".png", ".svg", ".pdf"), help="a file of that kind")

    three = verb("reason", _reason, "Accuracy on questions of GSM8K or MultiArith form.")
    three.add_argument("--questions", type=Path, required=True)
    three.add_argument("--decoder", default="adaptive:epsilon=0.0005")
    three.add_argument("--answer-re", help="a regular expression that finds the answer")
    three.add_argument("--template", default="Question: {question}\nAnswer:")
    three.add_argument("--chat", action="store_true", help="put the tokenizer's chat template around the prompt")
    return parser


def _loaded(options: argparse.Namespace) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    from offprints.device import pick_device
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype).eval()
    return model.to(pick_device()), cast("Any", AutoTokenizer.from_pretrained(options.model))


def _generate(options: argparse.Namespace) -> int:
    from adaptive_decoding.decoders import make_decoder
    from adaptive_decoding.generation import continuations

    decoder = make_decoder(options.decoder)
    prompts = [options.prompt] if options.prompt is not None else [line.rstrip("\n") for line in sys.stdin]
    prompts = [prompt for prompt in prompts if prompt]
    if options.html and (len(prompts) != 1 or decoder.kind != "adaptive"):
        raise ValueError("--html must go with one prompt and an adaptive decoder.")
    model, tokenizer = _loaded(options)
    if options.html:
        return _heat(options, model, tokenizer, prompts[0])
    how = {"max_new_tokens": options.max_new_tokens, "seed": options.seed, "batch_size": options.batch_size}
    for text in continuations(model, tokenizer, prompts, decoder, **how):
        print(text.text)
    return 0


def _heat(
    options: argparse.Namespace, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", prompt: str
) -> int:
    from adaptive_decoding.decoders import make_decoder
    from adaptive_decoding.generation import traced_continuation

    text, trace, out = traced_continuation(
        model, tokenizer, prompt, make_decoder(options.decoder),
        max_new_tokens=options.max_new_tokens, seed=options.seed,
    )  # fmt: skip
    options.html.write_text(trace.to_html(tokenizer, out), encoding="utf-8")
    print(text.text)
    return 0


def _encoder(name: str | None) -> "SentenceEncoder | None":
    if name is None:
        return None
    from transformers import AutoModel, AutoTokenizer

    from adaptive_decoding.metrics import SentenceEncoder

    return SentenceEncoder(AutoModel.from_pretrained(name).eval(), cast("Any", AutoTokenizer.from_pretrained(name)))


def _compare(options: argparse.Namespace) -> int:
    from adaptive_decoding.comparison import compare
    from adaptive_decoding.data import load_prompts

    prompts = load_prompts(options.prompts)[: options.limit]
    references = [prompt.reference for prompt in prompts if prompt.reference is not None]
    model, tokenizer = _loaded(options)
    report = compare(
        model, tokenizer, [prompt.text for prompt in prompts], options.decoders, options.metrics,
        references=references if len(references) == len(prompts) else None, embed=_encoder(options.encoder),
        max_new_tokens=options.max_new_tokens, seeds=options.seeds or [options.seed], batch_size=options.batch_size,
        rerun_matched=options.rerun_matched,
    )  # fmt: skip
    print(report.to_markdown(), end="")
    if options.out is not None:
        writers = {".md": report.to_markdown, ".json": report.to_json}
        if options.out.suffix in writers:
            writers[options.out.suffix](options.out)
        else:
            report.plot(options.metrics[0], options.metrics[-1], options.out)
    return 0


def _reason(options: argparse.Namespace) -> int:
    from adaptive_decoding.data import load_questions
    from adaptive_decoding.reasoning import evaluate_reasoning

    questions = load_questions(options.questions)
    model, tokenizer = _loaded(options)
    report = evaluate_reasoning(
        model, tokenizer, questions, options.decoder, options.answer_re, template=options.template, chat=options.chat,
        max_new_tokens=options.max_new_tokens, seed=options.seed, batch_size=options.batch_size,
    )  # fmt: skip
    low, high = report.interval
    print(f"{report.decoder}: accuracy {report.accuracy:.3f} [{low:.3f}, {high:.3f}] of {len(report.items)}")
    return 0
