"""When a run fitted, when it generalised, and how far the kernel had moved at both."""

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import ArrayLike
from offprints.checks import require_finite, require_kind, require_range

from grokking_theory.history import History

SETTLED = 0.02
"""How far test accuracy may fall again after the run has generalised."""


@dataclass(frozen=True)
class GrokkingReport:
    """What `grokking_report` found; steps are None where the event did not happen, numbers then NaN.

    Attributes:
        fit_step: first evaluation with training accuracy >= fit.
        grok_step: first evaluation with test accuracy >= grok from which on it stays >= grok - 0.02.
        delay: grok_step - fit_step.
        test_acc_at_fit: test accuracy when the training set was fitted.
        ntk_change_at_fit: ‖Θ_t - Θ_0‖_F there; the same at grok_step, and for the scale-free distance 1 - cos.
        ntk_change_at_grok: see above.
        ntk_distance_at_fit: see above.
        ntk_distance_at_grok: see above.
        loss_onset: step at which the test loss bends most in log-log scale (`change_point`).
        kernel_onset: step at which the kernel distance does.
        classification: "not fitted", "no generalisation", "no delay" or "grokking" (delay >= 2 fit_step and test
            accuracy at most ½ at fit_step).
    """

    fit_step: float | None
    grok_step: float | None
    delay: float
    test_acc_at_fit: float
    ntk_change_at_fit: float
    ntk_change_at_grok: float
    ntk_distance_at_fit: float
    ntk_distance_at_grok: float
    loss_onset: float | None
    kernel_onset: float | None
    classification: str

    def table(self) -> str:
        """The report as two aligned columns."""
        rows = {name.replace("_", " "): value for name, value in self.__dict__.items()}
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in rows.items())


def _shown(value: float | str | None) -> str:
    return "-" if value is None or value != value else value if isinstance(value, str) else f"{value:.4g}"


def grokking_report(history: History, fit: float = 0.99, grok: float = 0.99) -> GrokkingReport:
    """Find fit, generalisation, delay and the drift of the kernel in a history (figures 1 and 2).

    Args:
        history: of `fit`; the NTK columns are NaN without an `NTKTracker` among its callbacks.
        fit: training accuracy that counts as fitted.
        grok: test accuracy that counts as generalised.

    Raises:
        TypeError: if it is no history.
        ValueError: if a threshold is outside (0, 1], or the history has no test accuracy.
    """
    require_kind("history", history, History)
    require_range("fit", fit, low=0, high=1, low_open=True)
    require_range("grok", grok, low=0, high=1, low_open=True)
    steps, test_acc = history.series("test_acc")
    if not len(steps):
        raise ValueError("history must hold test accuracies, got none. Leave some points out of the training set.")
    fit_step = _first(*history.series("train_acc"), fit)
    lowest_from_here = np.minimum.accumulate(test_acc[::-1])[::-1]
    grok_step = _first(steps, np.where(lowest_from_here >= grok - SETTLED, test_acc, -np.inf), grok)
    delay = nan if fit_step is None or grok_step is None else grok_step - fit_step
    at_fit = nan if fit_step is None else history.at("test_acc", fit_step)

    def reading(name: str, step: float | None) -> float:
        return nan if step is None else history.at(name, step)

    loss_steps, loss = history.series("test_loss")
    loss_steps, loss = loss_steps[np.isfinite(loss)], loss[np.isfinite(loss)]
    return GrokkingReport(
        fit_step=fit_step,
        grok_step=grok_step,
        delay=delay,
        test_acc_at_fit=at_fit,
        ntk_change_at_fit=reading("ntk_change", fit_step),
        ntk_change_at_grok=reading("ntk_change", grok_step),
        ntk_distance_at_fit=reading("ntk_distance", fit_step),
        ntk_distance_at_grok=reading("ntk_distance", grok_step),
        loss_onset=change_point(loss_steps, np.log(np.maximum(loss, np.finfo(float).tiny))),
        kernel_onset=change_point(*history.series("ntk_distance")),
        classification=_classify(fit_step, grok_step, at_fit),
    )


def _first(steps: np.ndarray, values: np.ndarray, threshold: float) -> float | None:
    reached = np.flatnonzero(values >= threshold)
    return float(steps[reached[0]]) if len(reached) else None


def _classify(fit_step: float | None, grok_step: float | None, at_fit: float) -> str:
    if grok_step is None:
        return "no generalisation" if fit_step is not None else "not fitted"
    late = fit_step is not None and grok_step - fit_step >= 2 * fit_step and at_fit <= 0.5
    return "grokking" if late else "no delay"


def change_point(steps: ArrayLike, values: ArrayLike) -> float | None:
    """Where a curve bends: the best single knot of a broken line in log(1 + step), or None.

    All interior steps are tried; the knot with the least squared error is kept if it explains the curve better than
    one straight line by the Bayesian information criterion (two more parameters).

    Args:
        steps: (k,) increasing, from 0 on.
        values: (k,) finite.

    Raises:
        ValueError: if the lengths differ, steps are negative or do not increase, or something is not finite.
    """
    steps, values = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
    if steps.shape != values.shape:
        raise ValueError(f"steps and values must have the same length, got {steps.shape} and {values.shape}.")
    require_finite("steps", steps)
    require_finite("values", values)
    if (steps < 0).any() or (np.diff(steps) <= 0).any():
        raise ValueError("steps must increase from 0 or above, got others. Sort them, and drop doubles.")
    if len(steps) < 5:
        return None
    x = np.log1p(steps)
    line = np.stack([np.ones_like(x), x], axis=1)
    straight = _squared_error(line, values)
    bent = [_squared_error(np.column_stack([line, np.maximum(x - x[i], 0)]), values) for i in range(2, len(x) - 2)]
    best = int(np.argmin(bent))
    scale = np.finfo(float).eps * max(float((values**2).sum()), np.finfo(float).tiny)
    gain = len(x) * np.log((straight + scale) / (bent[best] + scale))
    return float(steps[best + 2]) if gain > 2 * np.log(len(x)) else None


def _squared_error(columns: np.ndarray, values: np.ndarray) -> float:
    solution = np.linalg.lstsq(columns, values, rcond=None)[0]
    return float(((columns @ solution - values) ** 2).sum())
