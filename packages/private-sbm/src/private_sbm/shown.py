"""What an estimator shows of itself: its parameters and what it released (edge privacy: Section 1 of the paper).

Notebooks print every attribute that ends with an underscore, the parameters, and so the seed: with the seed the noise
could be taken off, and diagnostics are not private at all. Both are kept out of repr, HTML, `dir` and pickles. What
scikit-learn prints of a pipeline around it, parameters of the steps included, is not in reach of a step.
"""

from collections.abc import Iterable
from typing import Any

from sklearn.base import BaseEstimator

SECRET = "random_state"
UNSAFE = "unsafe_diagnostics_"


class Discreet(BaseEstimator):
    """A scikit-learn estimator that shows neither its seed nor `unsafe_diagnostics_`, and pickles neither."""

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Parameters without the seed."""
        return super(Discreet, self._seedless()).__repr__(N_CHAR_MAX)

    def __dir__(self) -> Iterable[str]:
        """All names but the diagnostics: scikit-learn shows what `dir` lists and ends with an underscore."""
        return [name for name in super().__dir__() if name != UNSAFE]

    def __getstate__(self) -> dict[str, object]:
        """Pickles hold no diagnostics and, once fitted, no seed."""
        state = dict(super().__getstate__())
        state.pop("_unsafe", None)
        if "result_" in state:
            state[SECRET] = None
        return state

    def _seedless(self) -> "Discreet":
        return type(self)(**{**self.get_params(deep=False), SECRET: None})

    def _get_params_html(self, *arguments: Any, **options: Any) -> Any:
        """The table of parameters in a notebook (scikit-learn >= 1.7), without the seed."""
        return super(Discreet, self._seedless())._get_params_html(*arguments, **options)  # type: ignore[missing-attribute]
