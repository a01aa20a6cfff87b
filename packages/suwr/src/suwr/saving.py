"""Fitted estimators on disk: safetensors and JSON."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from offprints import checkpoint
from offprints.checks import message
from offprints.device import pick_device

from suwr.fitting import History
from suwr.inputs import Scaling
from suwr.policy import SequentialPolicy
from suwr.space import Space

if TYPE_CHECKING:
    from suwr.base import SUWREstimator

METHOD = "suwr"
M = TypeVar("M", bound="SUWREstimator")
_SPACE = ("units", "costs", "usable")


def save(model: "SUWREstimator", folder: Path) -> Path:
    """Write `model.safetensors` and `model.json`; returns the folder."""
    tensors = {f"policy.{name}": value for name, value in model.policy_.state_dict().items()}
    tensors |= {f"space.{name}": getattr(model._space, name) for name in _SPACE}
    scaling = model._scaling._asdict()
    tensors |= {f"scaling.{name}": torch.as_tensor(np.asarray(value)) for name, value in scaling.items()}
    parameters = model.get_params(deep=False)
    if not isinstance(model.random_state, int):
        parameters["random_state"] = model.seed_
    parameters["device"] = "auto"
    parameters["groups"] = None if model.groups is None else [np.asarray(g).tolist() for g in model.groups]
    parameters["feature_costs"] = None if model.feature_costs is None else np.asarray(model.feature_costs).tolist()
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}
    config: dict[str, object] = {
        "class": type(model).__name__,
        "parameters": plain,
        "n_features_in": model.n_features_in_,
        "policy": _shape(model.policy_),
        "step": model._space.step,
        "names": model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else None,
        "budget": model.budget_,
        "seed": model.seed_,
        "patches": type(model.groups).__name__ == "Patches",
        "history": vars(model.history_),
    }
    if hasattr(model, "classes_"):
        config["classes"] = {"dtype": str(model.classes_.dtype), "values": model.classes_.tolist()}
    else:
        config["target"] = [model.mean_, model.scale_]
    checkpoint.save(folder / "model", tensors, method=METHOD, version=version(METHOD), config=config)
    return folder


def load(cls: type[M], folder: Path, device: str | torch.device) -> M:
    """The estimator that `save` wrote.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it is of another class, method or format.
    """
    where = pick_device(device)
    found = checkpoint.load(folder / "model", method=METHOD, device=where, framework="torch")
    config: dict[str, Any] = found.config
    if config.get("class", cls.__name__) != cls.__name__:
        raise ValueError(message(str(folder), f"a {cls.__name__}", f"a {config['class']}", f"Use {config['class']}."))
    try:
        return _restored(cls, found.tensors, config, where)
    except (KeyError, IndexError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            message(str(folder), f"what save_pretrained of a {cls.__name__} wrote", f"{type(error).__name__}: {error}")
        ) from error


def _shape(policy: SequentialPolicy) -> dict[str, object]:
    """What `SequentialPolicy` is made with, as trained: the estimator's parameters may have been set anew since."""
    body: Any = policy.bodies[0]
    return {
        "n_outputs": policy.n_outputs,
        "hidden": policy.select.in_features,
        "layers": len(body) - 1,
        "trunk": policy.trunk,
        "value": policy.value is not None,
        "step_input": policy.step_input,
        "dtype": str(policy.select.weight.dtype).removeprefix("torch."),
    }


def _restored(cls: type[M], tensors: Mapping[str, Any], config: dict[str, Any], where: torch.device) -> M:
    from suwr.units import Patches

    parameters: dict[str, Any] = dict(config["parameters"])
    if config["patches"]:
        parameters["groups"] = Patches(np.asarray(g) for g in parameters["groups"])
    model = cls(**parameters)
    model.n_features_in_, model.budget_, model.seed_ = config["n_features_in"], config["budget"], config["seed"]
    if config["names"] is not None:
        model.feature_names_in_ = np.asarray(config["names"], dtype=object)
    if "classes" in config:
        kind = config["classes"]["dtype"]
        model.classes_ = np.asarray(config["classes"]["values"], dtype=object if kind == "object" else kind)
    else:
        model.mean_, model.scale_ = config["target"]
    parts: dict[str, dict[str, Any]] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = value
    model._space = Space(**parts["space"], step=config["step"])
    model._scaling = Scaling(**{name: value.cpu().numpy() for name, value in parts["scaling"].items()})
    model.n_units_ = len(model._space.units)
    shape = config["policy"] | {"dtype": getattr(torch, config["policy"]["dtype"]), "device": where}
    if "classes" in config and len(model.classes_) != shape["n_outputs"]:
        raise IndexError(f"{len(model.classes_)} classes for {shape['n_outputs']} outputs")
    model.policy_ = SequentialPolicy(model.n_features_in_, n_units=model.n_units_, **shape)
    model.policy_.load_state_dict(parts["policy"], strict=True)
    model.policy_.eval().requires_grad_(False)
    model.history_ = History(**config["history"])
    return model
