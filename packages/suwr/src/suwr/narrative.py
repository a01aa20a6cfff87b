"""What was looked at, in which order, what was thought after each step; the same asked step by step (Section 3)."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from offprints.checks import message, require_shape
from sklearn.utils.validation import check_is_fitted

from suwr.inference import Unmasked
from suwr.inputs import columns_of

if TYPE_CHECKING:
    import pandas as pd

    from suwr.base import SUWREstimator


class Step(NamedTuple):
    """One state of a narrative.

    Attributes:
        feature: what was revealed to come here: a name, or names for a group; None at the start.
        value: its value (or values); None at the start.
        p_select: probability of that choice among what was hidden; None at the start.
        p_stop: probability of stopping here.
        prediction: (K,) class probabilities, or the predicted number, from what is revealed so far.
    """

    feature: str | tuple[str, ...] | None
    value: float | tuple[float, ...] | None
    p_select: float | None
    p_stop: float
    prediction: tuple[float, ...]


@dataclass(frozen=True)
class Narrative:
    """The unmasking of one row.

    Attributes:
        steps: the states in their order; the first shows nothing.
        classes: labels as text, or None for a regressor.
    """

    steps: tuple[Step, ...]
    classes: tuple[str, ...] | None

    @property
    def features(self) -> list[str]:
        """Names of all that was revealed, in order."""
        names: list[str] = []
        for step in self.steps[1:]:
            names += [step.feature] if isinstance(step.feature, str) else list(step.feature or ())
        return names

    def __str__(self) -> str:
        lines = [f"before looking: {self._prediction(self.steps[0])}; stop {self.steps[0].p_stop:.2f}"]
        for number, step in enumerate(self.steps[1:], 1):
            seen = _shown(step.feature, step.value)
            lines.append(
                f"{number}. {seen} (chosen {step.p_select:.2f}): {self._prediction(step)}; stop {step.p_stop:.2f}"
            )
        return "\n".join([*lines, "nothing else was looked at"])

    def _prediction(self, step: Step) -> str:
        if self.classes is None:
            return f"predicts {step.prediction[0]:.4g}"
        pairs = zip(self.classes, step.prediction, strict=True)
        top = sorted(pairs, key=lambda pair: -pair[1])[:3]
        return ", ".join(f"P({name}) = {p:.2f}" for name, p in top)

    def to_dict(self) -> dict[str, object]:
        """JSON values: classes, and the fields of every step."""
        return {
            "classes": None if self.classes is None else list(self.classes),
            "steps": [s._asdict() for s in self.steps],
        }

    def to_frame(self) -> "pd.DataFrame":
        """One line a step; needs pandas."""
        import pandas as pd

        outputs = self.classes or ("prediction",)
        rows = []
        for step in self.steps:
            names = [f"P({name})" if self.classes else name for name in outputs]
            fields = step._asdict()
            fields.pop("prediction")
            rows.append(fields | dict(zip(names, step.prediction, strict=True)))
        return pd.DataFrame(rows)


def _shown(feature: Any, value: Any) -> str:
    if isinstance(feature, str):
        return f"{feature} = {value:.4g}"
    pairs = list(zip(feature, value, strict=True))
    listed = ", ".join(f"{name} = {number:.4g}" for name, number in pairs[:3])
    return listed + (f" and {len(pairs) - 3} more" if len(pairs) > 3 else "")


def narrate(model: "SUWREstimator", rows: np.ndarray, seen: Unmasked) -> list[Narrative]:
    """Narratives of rows from their recorded unmasking."""
    names, classes = columns_of(model), _labels(model)
    order, stop = seen.order.cpu().numpy(), seen.stop_prob.double().cpu().numpy()
    chosen, outputs = seen.select_prob.double().cpu().numpy(), model._readable(seen.outputs)
    units, step_size = model._space.units.cpu().numpy(), model._space.step
    single_columns = bool((units.sum(axis=1) == 1).all())
    told = []
    for i, row in enumerate(rows):
        steps = [Step(None, None, None, float(stop[i, 0]), tuple(outputs[i, 0].tolist()))]
        shown = np.zeros(len(row), dtype=bool)
        t, taken = 0, int((order[i] >= 0).sum())
        while t < taken:
            after = min(t + step_size, taken)
            new = units[order[i, t:after]].any(axis=0) & ~shown & ~np.isnan(row)
            shown |= new
            columns = np.flatnonzero(new)
            single = single_columns and len(columns) == 1
            feature = names[columns[0]] if single else tuple(names[j] for j in columns)
            value = float(row[columns[0]]) if single else tuple(row[columns].tolist())
            p = float(np.prod(chosen[i, t:after]))
            steps.append(Step(feature, value, p, float(stop[i, after]), tuple(outputs[i, after].tolist())))
            t = after
        told.append(Narrative(tuple(steps), classes))
    return told


def _labels(model: "SUWREstimator") -> tuple[str, ...] | None:
    return tuple(str(c) for c in model.classes_) if hasattr(model, "classes_") else None


@dataclass(frozen=True)
class Question:
    """What a session asks for.

    Attributes:
        columns: indices of the values it wants, in the order in which `tell` takes them.
        names: their names.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.names)

    def to_dict(self) -> dict[str, object]:
        """JSON values."""
        return asdict(self)


class Session:
    """Measures one feature after another: `ask` what to measure, `tell` the value, until `ask` gives None.

    No full row is needed, and the result is that of `predict` on the full row, bit for bit: what has not been told is
    filled with the training mean, and no choice reads it. Made by `session()` of a fitted estimator, with
    stop="threshold"; with `allow_missing` NaN says that a value cannot be measured.
    """

    def __init__(self, model: "SUWREstimator") -> None:
        check_is_fitted(model)
        self._model = model
        self._row = model._scaling.mean.copy()
        self._told = np.zeros(len(self._row), dtype=bool)

    def _unmasked(self) -> Unmasked:
        return self._model._unmask_rows(self._row[None], record=True, stop="threshold")

    def _known(self, seen: Unmasked) -> int:
        """Number of units that are told in full, in the order of their choice."""
        units = self._model._space.units.cpu().numpy()
        known = 0
        for unit in seen.order[0].tolist():
            if unit < 0 or not (self._told[units[unit]]).all():
                break
            known += 1
        return known

    def ask(self) -> Question | None:
        """What to measure next; None when enough is known (or the budget is spent)."""
        seen = self._unmasked()
        known, units = self._known(seen), self._model._space.units.cpu().numpy()
        chosen = [unit for unit in seen.order[0].tolist()[known : known + self._model._space.step] if unit >= 0]
        if not chosen:
            return None
        columns = np.flatnonzero(units[chosen].any(axis=0) & ~self._told)
        names = columns_of(self._model)
        return Question(tuple(columns.tolist()), tuple(names[j] for j in columns))

    def tell(self, *values: float) -> None:
        """The values that `ask` wants, in its order.

        Raises:
            RuntimeError: if nothing is asked for.
            TypeError, ValueError: for another number of values, inf, or NaN without `allow_missing`.
        """
        question = self.ask()
        if question is None:
            raise RuntimeError("the session has stopped: ask() gives None. Read prediction.")
        try:
            told = np.array(values, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(message("values", "numbers", repr(values))) from error
        require_shape("values", told, (len(question.columns),), hint=f"Asked for: {question}.")
        if np.isinf(told).any() or (np.isnan(told).any() and not self._model.allow_missing):
            raise ValueError(message("values", "finite", "NaN or inf"))
        self._row[list(question.columns)] = told
        self._told[list(question.columns)] = True

    @property
    def prediction(self) -> np.ndarray:
        """(K,) class probabilities, or (1,) the number, from what has been told."""
        seen = self._unmasked()
        return self._model._readable(seen.outputs)[0, self._known(seen)]

    @property
    def told(self) -> dict[str, float]:
        """Names and values of what has been told."""
        names = columns_of(self._model)
        return {names[j]: float(self._row[j]) for j in np.flatnonzero(self._told)}
