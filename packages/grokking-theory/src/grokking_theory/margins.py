"""Margins of a classifier (section 4)."""

import torch
from jaxtyping import Float, Int
from offprints.checks import require_finite, require_range, require_shape
from torch import Tensor, nn

from grokking_theory.tasks import require_labels

Data = tuple[Tensor, Tensor]
"""Inputs (n, 2) and labels (n,)."""


def margin(model: nn.Module, data: Data) -> Float[Tensor, " n"]:
    """q(x) = f_y(x) - max over y' ≠ y of f_{y'}(x): positive where the model is right.

    Args:
        model: maps inputs to (n, p) outputs.
        data: inputs and labels, for instance `task.train` of a classification task.

    Raises:
        TypeError: if `data` is no pair, or the labels are no integers.
        ValueError: if there are no points, shapes differ, a label lies outside the outputs or an output is not finite.
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(f"data must be a pair (inputs, labels), got {type(data).__name__}. Pass task.train, say.")
    inputs, labels = data
    require_range("number of points", len(inputs), low=1, integer=True)
    with torch.no_grad():
        outputs = model(inputs)
    return output_margin(outputs, labels)


def output_margin(outputs: Float[Tensor, "n p"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """`margin` of outputs that are there already."""
    require_shape("labels", labels, (len(outputs),))
    require_labels("labels", labels, outputs.shape[1])
    require_finite("outputs", outputs)
    right = outputs.gather(1, labels[:, None])
    others = outputs.scatter(1, labels[:, None], -torch.inf)
    return right[:, 0] - others.amax(1)


def normalized_margin(model: nn.Module, data: Data) -> float:
    """Min over x of q(x), divided by ‖θ‖_∞³: what the scale of a 3-homogeneous network does not change.

    The balanced `fourier_construction` has 4p; the largest possible one is of order p.

    Raises:
        ValueError: if all weights are zero; and as `margin`.
    """
    largest = max(float(value.detach().abs().amax()) for value in model.parameters())
    require_range("‖θ‖_∞", largest, low=0, low_open=True)
    return float(margin(model, data).amin()) / largest**3


def margin_loss(model: nn.Module, data: Data, gamma: float = 0.0) -> float:
    """L_γ = Pr[q(x) <= γ]; for γ = 0 the 0-1 error, ties counted as errors.

    Equation (4.3) prints q > γ, which would count the successes.

    Raises:
        ValueError: if gamma is negative or NaN; and as `margin`.
    """
    require_range("gamma", gamma, low=0)
    return float((margin(model, data) <= gamma).double().mean())
