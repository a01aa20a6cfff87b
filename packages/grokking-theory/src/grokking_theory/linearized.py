"""What the kernel regime predicts: the network linearised at its weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Num
from offprints.checks import require_choice, require_finite, require_range, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

from grokking_theory.empirical import Forward, NTKOptions, eval_mode, ntk_parts, raised
from grokking_theory.model import regression_head
from grokking_theory.tasks import Task, require_consistent


class Linearization:
    """The network linearised at its present weights, trained to time t by gradient flow on ½ Σ ‖f - y‖² (theorem 3.1).

        f_t(x) = f_0(x) + K(x, X) K⁻¹ (I - e^{-K t}) (y - f_0(X)),    f_∞(x) = f_0(x) + K(x, X) K⁺ (y - f_0(X))

    One eigendecomposition serves all times. t is learning rate × steps of gradient descent on that sum.

    Args:
        model: at the weights to linearise at, usually the initial ones; it is not changed.
        x_train: n inputs.
        y_train: targets, (n,) or (n, C) like the outputs of the model.
        x_test: n_test inputs to predict.
        mode: "full" couples the outputs through the (nC, nC) kernel, which is what training the network would do;
            "per_output" treats each output by its own (n, n) kernel.
        rcond: eigenvalues below rcond times the largest count as zero.
        limit: the largest n · C that "full" accepts.
        chunk: see `empirical_ntk`.
        max_bytes: see `empirical_ntk`.
        forward_fn: see `empirical_ntk`.

    Raises:
        ValueError: if the targets do not fit the outputs, are not finite or contradict each other, or n · C > limit.
        MemoryBudgetError: if a kernel exceeds `max_bytes`.
    """

    def __init__(
        self,
        model: nn.Module,
        x_train: Num[Tensor, "n ..."],
        y_train: Num[Tensor, "n ..."],
        x_test: Num[Tensor, "n_test ..."],
        mode: Literal["full", "per_output"] = "full",
        rcond: float = 1e-10,
        limit: int = 6000,
        chunk: int = 64,
        max_bytes: int = 2 << 30,
        forward_fn: Forward | None = None,
    ) -> None:
        require_choice("mode", mode, ("full", "per_output"))
        require_range("rcond", rcond, low=0, high=1, high_open=True)
        require_finite("y_train", y_train)
        require_consistent("training data", x_train, y_train)
        with eval_mode(model), torch.no_grad():
            read = forward_fn or (lambda model, x: model(x))
            start, self.initial = raised(read(model, x_train)), raised(read(model, x_test))  # like the kernel
        require_shape("y_train", y_train, tuple(start.shape), hint="Give one-hot rows for class labels.")
        gap = (y_train.to(start.dtype) - start).reshape(len(x_train), -1)
        outputs = gap.shape[1]
        options = NTKOptions("full", chunk, max_bytes, forward_fn)
        if mode == "full":
            hint = 'Use mode="per_output", or raise limit.'
            require_range("n · C", gap.numel(), high=limit, because="limit", hint=hint)
            pairs = [(_square(model, x_train, None, options), _square(model, x_test, x_train, options))]
            gaps = [gap.reshape(-1)]
        else:
            chosen = [replace(options, output=o) for o in range(outputs)]
            pairs = [(_square(model, x_train, None, o), _square(model, x_test, x_train, o)) for o in chosen]
            gaps = list(gap.t())
        self.factors = []
        for (square, cross), one in zip(pairs, gaps, strict=True):
            values, vectors = torch.linalg.eigh(square)
            kept = values > rcond * values[-1].clamp_min(0)
            self.factors.append((values[kept], vectors[:, kept].t() @ one, vectors[:, kept], cross))
        self.mode, self.start = mode, start

    def at(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Predictions on the training and the test inputs at time t >= 0; None is t = ∞."""
        if time is not None:
            require_range("time", time, low=0)
        moves = []
        for values, gap, vectors, cross in self.factors:
            grown = gap / values if time is None else gap * -torch.expm1(-values * time) / values
            moves.append((vectors @ (values * grown), cross @ (vectors @ grown)))
        joined = [parts[0] if self.mode == "full" else torch.stack(parts, 1) for parts in zip(*moves, strict=True)]
        return self.start + joined[0].reshape(self.start.shape), self.initial + joined[1].reshape(self.initial.shape)


def _square(model: nn.Module, x: Tensor, x2: Tensor | None, options: NTKOptions) -> Tensor:
    """The kernel as a matrix: (n, n2), or (nC, n2 C) for all outputs."""
    kernel = ntk_parts(model, x, x2, options)["total"]
    if kernel.ndim == 2:
        return kernel
    rows, columns, outputs, _ = kernel.shape
    return kernel.permute(0, 2, 1, 3).reshape(rows * outputs, columns * outputs)


def linearized_predictions(
    model: nn.Module,
    x_train: Num[Tensor, "n ..."],
    y_train: Num[Tensor, "n ..."],
    x_test: Num[Tensor, "n_test ..."],
    time: float | None = None,
    mode: Literal["full", "per_output"] = "full",
    rcond: float = 1e-10,
    limit: int = 6000,
    chunk: int = 64,
    max_bytes: int = 2 << 30,
    forward_fn: Forward | None = None,
) -> Tensor:
    """What the kernel regime would predict: f_0(x) + K(x, X) K⁺ (y - f_0(X)), or the same at a finite time.

    Arguments and errors are those of `Linearization`; `time` None is training to convergence.

    Returns:
        Predictions on `x_test`, in the shape of the model's outputs.
    """
    found = Linearization(model, x_train, y_train, x_test, mode, rcond, limit, chunk, max_bytes, forward_fn)
    return found.at(time)[1]


@dataclass(frozen=True)
class LinearizedCurve:
    """Losses and accuracies of the linearised network over time, each (times,).

    The loss is the mean over points of the square error summed over outputs; the accuracy that of the largest output
    (classification) or of thresholding at p/2 (regression).
    """

    times: np.ndarray
    train_loss: np.ndarray
    test_loss: np.ndarray
    train_acc: np.ndarray
    test_acc: np.ndarray


def linearized_curve(
    model: nn.Module,
    task: Task,
    times: Sequence[float],
    mode: Literal["full", "per_output"] = "full",
    rcond: float = 1e-10,
    limit: int = 6000,
    max_bytes: int = 2 << 30,
) -> LinearizedCurve:
    """The counterfactual to a training run: what NTK training on the same split would have done.

    Classification is fitted to one-hot targets by square loss. Arguments and errors as in `Linearization`; ValueError
    if there is no time or no held-out point, too.
    """
    require_range("number of times", len(times), low=1, integer=True)
    (x_train, y_train), (x_test, y_test) = task.train, task.test
    require_range("points in task.test", len(x_test), low=1, integer=True, hint="Leave some out of the training set.")
    device = next(model.parameters()).device
    x_train, y_train, x_test, y_test = (value.to(device) for value in (x_train, y_train, x_test, y_test))
    classes = task.kind == "classification"
    want = [F.one_hot(y, task.p).double() if classes else y for y in (y_train, y_test)]
    head = None if classes else regression_head
    found = Linearization(model, x_train, want[0], x_test, mode, rcond, limit, max_bytes=max_bytes, forward_fn=head)
    rows = []
    for time in times:
        losses, hits = [], []
        for guess, right in zip(found.at(time), want, strict=True):
            losses.append(float((guess - right).square().reshape(len(right), -1).sum(1).mean()))
            right_one = guess.argmax(1) == right.argmax(1) if classes else (guess - right).abs() < task.p / 2
            hits.append(float(right_one.double().mean()))
        rows.append(losses + hits)
    return LinearizedCurve(np.asarray(times, dtype=float), *np.array(rows).T)
