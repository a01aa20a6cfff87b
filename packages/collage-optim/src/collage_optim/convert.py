"""Into a running training, as section 5 replaces the optimizer: from torch's AdamW, float32 weights, in a Trainer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from offprints.checks import require_kind, require_shape
from torch import Tensor

from collage_optim.adamw import CollageAdamW, Mode
from collage_optim.base import refuse_coupled
from collage_optim.parts import store

if TYPE_CHECKING:
    from transformers import TrainingArguments


@torch.no_grad()
def from_adamw(
    optimizer: torch.optim.Optimizer,
    mode: Mode = "plus",
    *,
    weights: Mapping[Tensor, Tensor] | None = None,
    **settings: object,
) -> CollageAdamW:
    """A `CollageAdamW` over the same parameters that goes on where a torch.optim.AdamW stands.

    m, v and t are taken over, rounded to the parameters' type (v as an expansion in mode "plus").

    Args:
        optimizer: a torch.optim.AdamW (or an Adam without weight decay).
        mode: of the new optimizer.
        weights: float32 (or float64) weights by parameter (the tensor, not its name): h = RN(w) is written into the
            parameter, what is left into the low parts.
        **settings: further arguments of `CollageAdamW`.

    Raises:
        TypeError: another optimizer.
        ValueError: weights of another shape or of no parameter of the optimizer; decay that is part of the gradient.
    """
    require_kind("optimizer", optimizer, torch.optim.Adam, hint="AdamW is one.")
    for group in optimizer.param_groups:
        refuse_coupled(group, isinstance(optimizer, torch.optim.AdamW))
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    strangers = [key if isinstance(key, str) else type(key).__name__ for key in weights or () if id(key) not in known]
    if strangers:
        raise ValueError(f"weights must be by parameter of the optimizer, got other keys: {strangers[:5]}.")
    kept = ("params", "lr", "betas", "eps", "weight_decay", "maximize", "amsgrad")
    groups = [{name: group[name] for name in kept if name in group} for group in optimizer.param_groups]
    options: dict[str, Any] = settings
    made = CollageAdamW(groups, mode=mode, **options)
    for group in made.param_groups:
        for p in group["params"]:
            wide = (weights or {}).get(p)
            if wide is not None:
                require_shape("weights", wide, tuple(p.shape))
                p.copy_(wide)
            old = optimizer.state.get(p, {})
            if not old and wide is None:
                continue
            names, state = made._names(group), made.state[p]
            made._state_of(group, p)
            for name in names:
                if name in old:
                    state[name].copy_(old[name])
            if "exp_avg_sq_lo" in names and old:
                state["exp_avg_sq_lo"].copy_(old["exp_avg_sq"].double() - state["exp_avg_sq"].double())
            if old:
                state["step"].copy_(torch.as_tensor(old["step"]))
            if wide is not None:
                store(p, state, wide.double() - p.double())
    return made


def wrap_hf_trainer_kwargs(
    arguments: "TrainingArguments", mode: Mode = "plus", **settings: object
) -> tuple[type[CollageAdamW], dict[str, object]]:
    """What `transformers.Trainer(optimizer_cls_and_kwargs=...)` takes: the class and its arguments.

    Rate, betas, eps and decay come from the training arguments: the Trainer leaves all but the decay to these.

    Args:
        arguments: transformers.TrainingArguments.
        mode: of the optimizer.
        **settings: further arguments of `CollageAdamW`, which win.
    """
    given = {
        "lr": arguments.learning_rate,
        "betas": (arguments.adam_beta1, arguments.adam_beta2),
        "eps": arguments.adam_epsilon,
        "weight_decay": arguments.weight_decay,
    }
    return CollageAdamW, {**given, "mode": mode, **settings}
