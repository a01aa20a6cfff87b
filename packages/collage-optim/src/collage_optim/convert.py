"""Into a running training, as section 5 replaces the optimizer: from torch's AdamW, float32 weights, in a Trainer."""

from collections.abc import Mapping

import torch
from offprints.checks import require_kind, require_shape
from torch import Tensor

from collage_optim.adamw import CollageAdamW, Mode


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
        optimizer: a torch.optim.AdamW (or Adam without weight decay in the gradient).
        mode: of the new optimizer.
        weights: float32 (or float64) weights by parameter: h = RN(w) is written into the parameter, l = RN(w - h).
        **settings: further arguments of `CollageAdamW`.

    Raises:
        TypeError: another optimizer.
        ValueError: weights of another shape.
    """
    require_kind("optimizer", optimizer, torch.optim.Adam, hint="AdamW is one.")
    kept = ("params", "lr", "betas", "eps", "weight_decay", "maximize", "amsgrad")
    groups = [{name: group[name] for name in kept if name in group} for group in optimizer.param_groups]
    made = CollageAdamW(groups, mode=mode, **settings)
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
            if wide is not None and "param_lo" in names:
                state["param_lo"].copy_(wide.double() - p.double())
            if wide is not None and "master" in names:
                state["master"].copy_(wide)
    return made


def wrap_hf_trainer_kwargs(mode: Mode = "plus", **settings: object) -> tuple[type[CollageAdamW], dict[str, object]]:
    """What `transformers.Trainer(optimizer_cls_and_kwargs=...)` takes: the class and its arguments."""
    return CollageAdamW, {"mode": mode, **settings}
