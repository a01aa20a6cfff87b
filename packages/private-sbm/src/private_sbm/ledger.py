"""What repeated releases of one graph cost together (edge privacy: Section 1 of the paper)."""

from math import exp, expm1, inf, log, sqrt
from typing import NamedTuple

from offprints.checks import require_range


class BudgetExceededError(RuntimeError):
    """A release would cost more than is left; nothing was spent and no edge was looked at."""


class Charge(NamedTuple):
    """One release.

    Attributes:
        eps: its eps.
        delta: its delta.
        what: a public description.
    """

    eps: float
    delta: float
    what: str


class PrivacyLedger:
    """A budget for one graph: every release is charged before it runs.

    Basic composition: (sum eps_i, sum delta_i). Advanced, for any slack s > 0 (Kairouz, Oh, Viswanath 2015):
    (sum eps_i (e^eps_i - 1) / (e^eps_i + 1) + sqrt(2 ln(1 / s) sum eps_i^2), sum delta_i + s).

    Args:
        eps: budget; None: unlimited.
        delta: budget; None: unlimited.
        slack: s, charged to delta once; None: basic composition only.

    Raises:
        TypeError, ValueError: if a budget is not positive.
    """

    def __init__(self, eps: float | None = None, delta: float | None = None, slack: float | None = None) -> None:
        for name, value in (("eps", eps), ("delta", delta), ("slack", slack)):
            if value is not None:
                require_range(name, value, low=0, low_open=True)
        self.budget = (inf if eps is None else float(eps), inf if delta is None else float(delta))
        self.slack = slack
        self.charges: list[Charge] = []

    def spend(self, eps: float, delta: float, what: str = "") -> None:
        """Charge one release.

        Raises:
            TypeError, ValueError: if eps or delta is negative or no number.
            BudgetExceededError: if the total would exceed the budget.
        """
        require_range("eps", eps, low=0)
        require_range("delta", delta, low=0)
        charges = [*self.charges, Charge(float(eps), float(delta), what)]
        total = self._total(charges)
        if total[0] > self.budget[0] * (1 + 1e-12) or total[1] > self.budget[1] * (1 + 1e-12):
            left = ", ".join(f"{name} {limit:g}" for name, limit in zip(("eps", "delta"), self.budget, strict=True))
            raise BudgetExceededError(
                f"the release would bring the total to eps {total[0]:g}, delta {total[1]:g}; the budget is {left}."
            )
        self.charges = charges

    @property
    def total(self) -> tuple[float, float]:
        """(eps, delta) of all charges: the better of basic and advanced composition."""
        return self._total(self.charges)

    def _total(self, charges: list[Charge]) -> tuple[float, float]:
        basic = sum(charge.eps for charge in charges), sum(charge.delta for charge in charges)
        if self.slack is None or not charges:
            return basic
        drift = sum(charge.eps * (-expm1(-charge.eps)) / (1 + exp(-charge.eps)) for charge in charges)
        spread = sqrt(2 * log(1 / self.slack) * sum(charge.eps**2 for charge in charges)) if self.slack < 1 else 0.0
        return min(basic[0], drift + spread), basic[1] + self.slack

    def __repr__(self) -> str:
        """Totals and budget: all public."""
        return f"PrivacyLedger(charges={len(self.charges)}, total={self.total}, budget={self.budget})"
