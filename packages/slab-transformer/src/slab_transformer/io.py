"""Save and load converted and fused models: safetensors, and the recipe (Guo et al., 2024, Section 3) as JSON."""

import copy
import inspect
import json
from importlib import import_module
from pathlib import Path

import torch
from offprints import checkpoint
from torch import nn

from . import masking
from .convert import _replace
from .errors import UnsupportedModuleError
from .families import SLAttention, build_attention
from .fuse import FixedShape, put_module
from .norms import ChannelAffine, PRepBN, RepBN
from .recipe import get_recipe, put_recipe
from .report import Change, FusionReport
from .schedule import PRepBNSchedule

_METHOD, _VERSION = "slab-transformer", "1"


def save(model: nn.Module, directory: str | Path, schedule: PRepBNSchedule | None = None) -> Path:
    """Write weights, recipe of the conversion and, where given, the state of the schedule into a folder.

    A transformers model is written by its own `save_pretrained`, with the recipe in its config.

    Raises:
        ValueError: A model that was not converted.
    """
    recipe = get_recipe(model)
    if not recipe:
        raise ValueError("model must be converted (there is no recipe to save), got one that is not.")
    recipe["state"] = schedule.state_dict() if schedule is not None else recipe.get("state")
    put_recipe(model, recipe)
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    if hasattr(model, "save_pretrained"):
        own = "save_original_format" in inspect.signature(model.save_pretrained).parameters
        model.save_pretrained(where, **({"save_original_format": False} if own else {}))  # names as in the module tree
    else:
        tensors = {name: t.detach().contiguous() for name, t in _unique_state(model).items()}
        checkpoint.save(where / "model", tensors, method=_METHOD, version=_VERSION, config={"recipe": recipe})
    return where


def load(directory: str | Path, model: nn.Module | None = None) -> nn.Module:
    """Build the model again, in eval mode, with its conversion or fusion, and load its weights.

    Args:
        directory: What `save` (or `save_pretrained` of a converted transformers model) wrote.
        model: For models that are not of transformers: one as it was before the conversion, or after.

    Raises:
        ValueError: No model where one is needed, or a folder without a recipe.
        FileNotFoundError: Nothing there.
    """
    where = Path(directory)
    if (where / "config.json").exists():
        config = json.loads((where / "config.json").read_text())
        recipe = config.get("slab_transformer")
        if not recipe:
            raise ValueError(f"{where / 'config.json'} must hold the recipe of a conversion, got none.")
        made = model if model is not None else _transformers_model(where, config)
        tensors = _transformers_tensors(where)
    else:
        found = checkpoint.load(where / "model", method=_METHOD, framework="torch")
        recipe, tensors = dict(found.config["recipe"]), found.tensors
        if model is None and "builder" in recipe:
            name, classes, size = recipe["builder"]
            model = getattr(import_module("slab_transformer.models"), name)(classes, size)
        if model is None:
            raise ValueError(f"model must be given to load {where}: build it as before the conversion.")
        made = model
    _rebuild(made, recipe)
    missing, unexpected = made.load_state_dict(tensors, strict=False)
    tied = set(getattr(made, "_tied_weights_keys", None) or ())
    lacking = [name for name in missing if name not in tied]
    if lacking or unexpected:
        raise ValueError(
            f"weights of {where} must fit the model; missing {lacking[:3]}, not known {list(unexpected)[:3]}. "
            "Save it with slab_transformer.save: save_pretrained alone writes some models under older names."
        )
    if hasattr(made, "tie_weights"):
        made.tie_weights()
    if recipe.get("state") and not recipe.get("fused"):
        PRepBNSchedule(made, decay_steps=1).load_state_dict(recipe["state"])
    return made.eval()


def load_fused(directory: str | Path, model: nn.Module | None = None) -> nn.Module:
    """`load`, for a fused model.

    Raises:
        ValueError: The model saved there is not fused.
    """
    made = load(directory, model)
    if "fused" not in get_recipe(made):
        raise ValueError(f"the model in {directory} is not fused; use load.")
    return made


def _unique_state(model: nn.Module) -> dict[str, torch.Tensor]:
    seen: set[tuple[int, tuple[int, ...]]] = set()
    state = {}
    for name, tensor in model.state_dict().items():
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if tensor.numel() and key in seen:
            tensor = tensor.clone()
        seen.add(key)
        state[name] = tensor
    return state


def _transformers_model(where: Path, config: dict) -> nn.Module:
    library = import_module("transformers")
    kinds = config.get("architectures") or []
    if not kinds or not hasattr(library, kinds[0]):
        raise ValueError(f"{where / 'config.json'} must name a class of transformers, got {kinds}.")
    kind = getattr(library, kinds[0])
    settings = kind.config_class.from_pretrained(where)
    dtype = getattr(torch, str(config.get("dtype") or config.get("torch_dtype") or "float32"))
    return kind(settings).to(dtype)


def _transformers_tensors(where: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(where.glob("*.safetensors")):
        tensors.update(load_file(path))
    if not tensors:
        raise FileNotFoundError(f"no safetensors in {where}.")
    return tensors


def _rebuild(model: nn.Module, recipe: dict) -> None:
    if not hasattr(model, "named_modules"):
        raise UnsupportedModuleError(f"model must be a module, got {type(model).__name__}.")
    recipe = copy.deepcopy(recipe)
    fused = recipe.get("fused")
    first = next(model.parameters())
    for name, arguments in recipe.get("attention", {}).items():
        if not isinstance(model.get_submodule(name), SLAttention):
            build_attention(model, name, arguments, first)
    done = fused["norms"] if fused else {}
    for name, kind in recipe.get("norms", {}).items():
        if name not in done and not isinstance(model.get_submodule(name), (PRepBN, RepBN)):
            _replace(
                model,
                name,
                model.get_submodule(name),
                kind,
                "identity",
                recipe.get("momentum"),
                bool(recipe.get("sync")),
            )
    for name, what in done.items():
        if isinstance(what, int):
            zero = torch.zeros(what, dtype=first.dtype, device=first.device)
            put_module(model, name, ChannelAffine(zero, zero))
        else:
            put_module(model, name, FixedShape(tuple(what)) if what else nn.Identity())
    for name in fused["biases"] if fused else []:
        layer = model.get_submodule(name)
        if layer.bias is None:
            outputs = layer.weight.shape[0]
            layer.bias = nn.Parameter(torch.zeros(outputs, dtype=layer.weight.dtype, device=layer.weight.device))
    if fused:
        model.fusion_report = FusionReport([Change(*row) for row in fused["report"]])
    else:
        masking.install(model)
    put_recipe(model, recipe)
