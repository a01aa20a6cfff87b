"""What the claims about training share: models on grids, the grid of learning rates, sizes of equal parameter count."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from offprints.claims import MissingResource, Scale
from offprints.seeding import isolated

from direct_spectral.data.clouds import Batches
from direct_spectral.functional import relative_l1
from direct_spectral.interpolation import GridFNO, neuralop_fno
from direct_spectral.layers import parameter_count
from direct_spectral.operator import CloudOperator, PointOperator, Prepared
from direct_spectral.train import evaluate, train_operator

Data = Mapping[str, torch.Tensor]
Contest = tuple[Callable[[], PointOperator], Data, Data]
DIVERGED = 1000.0
"""Per cent: what a run counts whose loss was not finite."""


class OnGrid(CloudOperator):
    """An FNO that takes the points for an equispaced grid, whatever they are, in one dimension.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_modes: m.
        inner: "own" or "neuralop".
        options: of the inner model.
    """

    def __init__(
        self, in_channels: int, out_channels: int, width: int, n_modes: int, inner: str, options: dict | None = None
    ) -> None:
        super().__init__()
        self._set_up(1, in_channels, ((0.0, 1.0),), True, append_positions=False, max_basis_bytes=1, validate=False)
        self.n_modes = (1,)
        self._register_scales(out_channels, None, None)
        if inner == "own":
            self.inner = GridFNO(in_channels + 1, out_channels, width, (n_modes,), **(options or {}))
        else:
            more: dict = {"positional_embedding": None} | (options or {})
            self.inner = neuralop_fno((n_modes,), in_channels + 1, out_channels, width, **more)

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Values in order, with the position that an equispaced grid would have."""
        u = inputs.features.transpose(1, 2)
        line = torch.linspace(-1, 1, u.shape[-1] + 1, dtype=u.dtype, device=u.device)[:-1]
        return self.inner(torch.cat([u, line.expand(len(u), 1, -1)], 1)).transpose(1, 2)


class Run(NamedTuple):
    """One model after training: its error in per cent, and errors against seconds of training, epoch by epoch."""

    model: PointOperator
    error: float
    errors: list[float]
    seconds: list[float]
    lr: float


def trained(
    make: Callable[[], PointOperator], train: Data, test: Data, scale: Scale, seed: int, device: str, lr: float
) -> Run:
    """One run at one learning rate; errors are relative L1, of the test set."""
    with isolated(seed):  # every model starts from the same state of the generators
        model = make().to(device)
    model.fit_scales(train["u"], train["y"])
    batches = Batches(train, scale.batch, shuffle=True, seed=seed, device=device)
    held_out = Batches(test, scale.batch, device=device)
    every = max(1, scale.epochs // 8)
    try:
        history = train_operator(model, batches, held_out, scale.epochs, lr, schedule="onecycle", every=every)
    except ValueError as error:
        if "the loss" not in str(error):
            raise
        return Run(model, DIVERGED, [DIVERGED], [0.0], lr)
    error = evaluate(model, held_out, relative_l1)["mean"]
    seen = [epoch for epoch in range(scale.epochs) if (epoch + 1) % every == 0 or epoch + 1 == scale.epochs]
    return Run(model, min(error, DIVERGED), history.error, [history.seconds[epoch] for epoch in seen], lr)


def measured(
    models: Mapping[str, Contest], scale: Scale, seed: int, device: str
) -> tuple[dict[str, float | list[float]], dict[str, PointOperator]]:
    """Every model at the best of the scale's learning rates: errors, rates, parameter counts, curves; the models."""
    found: dict[str, float | list[float]] = {}
    kept = {}
    for name, (make, train, test) in models.items():
        runs = [trained(make, train, test, scale, seed, device, lr) for lr in scale.lrs]
        best = min(runs, key=lambda run: run.error)
        found |= {name: best.error, f"{name}_lr": best.lr, f"{name}_parameters": float(parameter_count(best.model))}
        found |= {f"{name}_errors": best.errors, f"{name}_seconds": best.seconds}
        kept[name] = best.model
    return found, kept


def folder(name: str) -> Path:
    """Where the paper's data lie, for the full scale.

    Raises:
        MissingResource: if the environment does not say, or nothing is there.
    """
    root = os.environ.get("DIRECT_SPECTRAL_DATA")
    if not root or not (Path(root) / name).exists():
        raise MissingResource(f"the full scale reads {name} in the folder that DIRECT_SPECTRAL_DATA names")
    return Path(root) / name
