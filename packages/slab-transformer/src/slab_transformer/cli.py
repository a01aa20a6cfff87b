"""Command line: convert, fuse and train (Guo et al., 2024, Sections 3 and 5)."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import torch
from offprints.device import pick_device
from torch import Tensor, nn
from torch.nn import functional as F

from . import models
from .convert import convert
from .data import image_batches, image_folder
from .fuse import fuse
from .io import load, save
from .recalibrate import recalibrate
from .recipe import get_recipe, put_recipe
from .schedule import PRepBNSchedule
from .train import train

BUILDERS = sorted(name for name in vars(models) if name.startswith("slab_"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 with a message when the input is wrong."""
    options = _parser().parse_args(arguments)
    try:
        text = options.run(options)
    except (ValueError, TypeError, FileNotFoundError, ModuleNotFoundError) as error:
        sys.stderr.write(f"slab-transformer {options.command}: {error}\n")
        return 2
    sys.stdout.write(text.rstrip() + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slab-transformer", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("convert", help="convert a transformers model and save it")
    one.add_argument("--model", required=True, help="folder or name of a transformers model")
    one.add_argument("--auto", default="AutoModelForCausalLM", help="class of transformers to load it with")
    one.add_argument("--norm", default="prepbn", choices=("prepbn", "repbn", "bn", "none"))
    one.add_argument("--attention", default=None, choices=("sla",))
    one.add_argument("--stages", type=int, nargs="*")
    one.add_argument("--total-steps", type=int)
    one.add_argument("--warmup-steps", type=int)
    one.add_argument("--init", default="identity", choices=("identity", "paper"))
    one.add_argument("--out", required=True)
    one.set_defaults(run=_convert)
    two = commands.add_parser("fuse", help="fuse a trained model that was saved here")
    two.add_argument("--model", required=True, help="folder written by convert, train or save")
    two.add_argument("--out", required=True)
    two.add_argument("--fixed-size", action="store_true")
    two.add_argument("--strict", action="store_true")
    two.add_argument("--force", action="store_true")
    two.set_defaults(run=_fuse)
    three = commands.add_parser(
        "train", help="train one of the paper's models on a folder of images, as in Section 5.1"
    )
    three.add_argument("--model", required=True, choices=BUILDERS)
    three.add_argument("--data", required=True, help="folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    three.add_argument("--epochs", type=int, default=300)
    three.add_argument("--recalibrate-epochs", type=int, default=10)
    three.add_argument("--batch", type=int, default=128)
    three.add_argument("--image-size", type=int, default=224)
    three.add_argument("--lr", type=float, default=5e-4, help="for a batch of 512; scaled linearly")
    three.add_argument("--warmup-epochs", type=int, default=20)
    three.add_argument("--label-smoothing", type=float, default=0.1)
    three.add_argument("--device")
    three.add_argument("--out", required=True)
    three.set_defaults(run=_train)
    return parser


def _convert(options: argparse.Namespace) -> str:
    library = import_module("transformers")
    model = getattr(library, options.auto).from_pretrained(options.model)
    schedule = {"total_steps": options.total_steps, "warmup_steps": options.warmup_steps}
    if options.total_steps is None:
        schedule = {}
    norm = None if options.norm == "none" else options.norm
    report = convert(model, norm, options.attention, options.stages, init=options.init, **schedule)
    save(model, options.out)
    return str(report)


def _fuse(options: argparse.Namespace) -> str:
    fused = fuse(
        load(options.model), inplace=True, strict=options.strict, fixed_size=options.fixed_size, force=options.force
    )
    save(fused, options.out)
    return str(fused.fusion_report)


def _train(options: argparse.Namespace) -> str:
    device = pick_device(options.device)
    files, classes = image_folder(Path(options.data) / "train")
    held, _ = image_folder(Path(options.data) / "val")
    batch = min(options.batch, len(files))
    per_epoch = len(files) // batch
    steps = options.epochs * per_epoch
    build = getattr(models, options.model)
    model = build(len(classes), options.image_size, total_steps=steps).to(device)
    schedule = PRepBNSchedule(model)
    gen = torch.Generator().manual_seed(0)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for x, y in image_batches(files, options.image_size, batch, gen):
                if len(y) == batch:
                    yield x.to(device), y.to(device)

    def loss(module: nn.Module, pair: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(_logits(module(pair[0])), pair[1], label_smoothing=options.label_smoothing)

    rate = options.lr * batch / 512
    warmup = min(options.warmup_epochs * per_epoch, steps // 2)
    train(model, batches(), loss, steps, rate, warmup=warmup, final_lr=5e-6 * batch / 512, schedule=schedule)
    if options.recalibrate_epochs:
        recalibrate(model, batches(), options.recalibrate_epochs * per_epoch, mode="ema")
    put_recipe(model, {**get_recipe(model), "builder": [options.model, len(classes), options.image_size]})
    save(model, options.out, schedule)
    right = 0
    with torch.no_grad():
        for x, y in image_batches(held, options.image_size, batch):
            right += int((_logits(model.eval()(x.to(device))).argmax(-1).cpu() == y).sum())
    return f"accuracy on {len(held)} images: {right / len(held):.4f}"


def _logits(outputs: object) -> Tensor:
    return outputs if isinstance(outputs, Tensor) else outputs.logits
