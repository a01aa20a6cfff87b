"""What to expect, from public parameters alone, before or after a release (the paper's question: Section 1).

Nothing here reads a graph, so nothing here costs privacy.
"""

from dataclasses import dataclass
from math import ceil, inf, log

from offprints.checks import require_choice, require_range

from private_sbm.estimator import PrivateSBM
from private_sbm.mechanism import release_probability, threshold_T
from private_sbm.penalty import balanced_penalty, predicted_asymmetric, predicted_margin
from private_sbm.thresholds import (
    MODELS,
    asymmetric_exponent,
    censored_exponent,
    delta_exponent,
    general_exponent,
    predicted_surplus,
    private_threshold,
    tau,
)


@dataclass(frozen=True)
class Outlook:
    """What the exponents predict for graphs of the model; nothing of it depends on a graph.

    Attributes:
        exponent: eta(0): recovery without privacy succeeds as n grows when it exceeds 1.
        margin: L to expect at this n.
        threshold: T of the noisy test.
        release_probability: of a graph with the expected margin.
        asymptotic_eps: the smallest eps as n grows at this delta = n^-gamma.
        smallest_eps: the smallest eps that releases with probability 1/2 at this n (inf if none).
        smallest_n: the smallest n that does so at this eps and delta (inf if none).
        reasons: what stands in the way, in words; empty when a release is likely.
    """

    exponent: float
    margin: float
    threshold: float
    release_probability: float
    asymptotic_eps: float
    smallest_eps: float
    smallest_n: float
    reasons: tuple[str, ...]

    @property
    def likely(self) -> bool:
        """Whether a release is more likely than not."""
        return self.release_probability > 0.5

    def summary(self) -> str:
        """In a few lines."""
        head = (
            f"exponent {self.exponent:.3g}, expected margin {self.margin:.3g}, threshold {self.threshold:.3g}: "
            f"release probability about {self.release_probability:.2g}"
        )
        return "\n".join([head, *(f"- {reason}" for reason in self.reasons)])


def explain_refusal(estimator: PrivateSBM, n: int, xi: float | None = None) -> Outlook:
    """Which threshold a refusal would come from, and the smallest eps and n, from public parameters alone.

    A refusal of one graph is never explained by that graph: whether it was certified is as secret as its edges.

    Args:
        estimator: its a, b, rho, lam, eps, delta and noise are used; a and b must be given (censored: a).
        n: vertices.
        xi: probability of a flipped label (censored model).

    Returns:
        An `Outlook`.

    Raises:
        TypeError, ValueError: for n < 3, missing parameters, and what `fit` would refuse.
    """
    require_range("n", n, low=3, integer=True)
    estimator._validate()
    estimator._validate_size(n)
    model = _Public(estimator, xi)
    margin = model.margin(n)
    limit = threshold_T(estimator.eps, estimator.delta, estimator.noise)
    chance = estimator.tail(margin) if margin > 0 else 0.0
    exponent, gamma = model.exponent(), delta_exponent(estimator.delta, n)
    asymptotic, eps, size = model.asymptotic(gamma), _smallest_eps(estimator, margin), model.smallest_n()
    reasons = []
    if exponent <= 1:
        reasons.append(f"exact recovery is impossible or not covered: the exponent {exponent:.3g} is not above 1.")
    elif chance <= 0.5:
        reasons.append(
            f"the expected margin {margin:.3g}, set by {model.limit(n)}, does not reach T = {limit:.3g}: the noise of "
            "eps is too large."
        )
        reasons.append(f"smallest eps at n = {n}: {eps:.3g}; smallest n at this eps and delta: {size:.3g}.")
    if estimator.guarantee(n) == "heuristic" and estimator.strict:
        reasons.append(
            "no complete solver for this model, solver and n (or no extra `exact`): strict=True refuses unseen."
        )
        chance = 0.0
    return Outlook(exponent, margin, float(limit), chance, asymptotic, eps, size, tuple(reasons))


def utility_report(
    n: int,
    degrees: tuple[float, float],
    *,
    eps: float = 1.0,
    delta: float | None = None,
    model: str = "asymmetric",
    rho: float = 0.5,
    noise: str = "discrete",
    outliers: bool = False,
    exact_limit: int = 300,
) -> Outlook:
    """Whether a release is to be expected, before any budget is spent.

    Args:
        n: vertices.
        degrees: public guesses of a vertex's mean degree (inside its community, to all others), in a community of
            rho n; censored: (edges with the right sign, edges with the wrong sign).
        eps: of the test.
        delta: of the test; n^-2 by default.
        model: as in `PrivateSBM`.
        rho: size of the smallest community over n.
        noise: of the test.
        outliers: whether the general model has outliers.
        exact_limit: as in `PrivateSBM`.

    Returns:
        An `Outlook`.

    Raises:
        TypeError, ValueError: for n < 3, degrees that are not positive (the second may be 0 in the censored model) or
            that exceed the number of vertices there.
    """
    require_range("n", n, low=3, integer=True)
    inside, across = degrees
    require_choice("model", model, MODELS)
    require_range("rho", rho, low=0, high=1, low_open=True, high_open=True)
    room = (n, n) if model == "censored" else (rho * n, (1 - rho) * n)
    require_range("degrees[0]", inside, low=0, high=room[0], low_open=True, because="so many vertices there are")
    require_range("degrees[1]", across, low=0, high=room[1], low_open=model != "censored", because="likewise")
    delta = n**-2.0 if delta is None else delta
    common = {"eps": eps, "delta": delta, "noise": noise, "exact_limit": exact_limit}
    if model == "censored":
        total = inside + across
        return explain_refusal(PrivateSBM(model, a=total / log(n), **common), n, xi=across / total)
    a, b = inside / (rho * log(n)), across / ((1 - rho) * log(n))
    return explain_refusal(PrivateSBM(model, a=a, b=b, rho=rho, outliers=outliers, **common), n)


class _Public:
    """The model's exponents at an estimator's parameters."""

    def __init__(self, estimator: PrivateSBM, xi: float | None) -> None:
        self.estimator, self.xi = estimator, xi
        self.censored = estimator.model == "censored"
        if self.censored and (estimator.a is None or xi is None):
            raise ValueError("a and xi must be given to predict the censored model.")
        if not self.censored and (estimator.a is None or estimator.b is None):
            raise ValueError("a and b must be given to predict a release: public model parameters.")
        self.a, self.b = float(estimator.a or 0.0), float(estimator.b or 0.0)
        self.rho = estimator.rho if estimator.rho is not None else 0.5

    def exponent(self) -> float:
        if self.censored:
            return censored_exponent(self.a, self.xi or 0.0)
        if self.estimator.model == "general":
            return general_exponent(self.rho, self.a, self.b)
        return asymmetric_exponent(self.rho, self.a, self.b)

    def margin(self, n: int) -> float:
        if self.censored:
            xi = self.xi or 0.0
            surplus = predicted_surplus(lambda c: censored_exponent(self.a, xi, c), self.a * (1 - 2 * xi))
            return surplus * log(n) / (4 if self.estimator.neighbor == "relabel" else 2)
        rate, outliers = self._rate(n), self.estimator.outliers
        return predicted_margin(self.estimator.model, n, rate, self.rho, self.a, self.b, outliers)

    def limit(self, n: int) -> str:
        """What the expected margin comes from."""
        if self.estimator.model == "asymmetric":
            rate = self._rate(n)
            if predicted_asymmetric(rate, self.rho, self.a, self.b) >= rate - self.b:
                return "the penalty's distance from the density across, lam - q"
        return "the vertex with the least surplus"

    def _rate(self, n: int) -> float:
        """The penalty lam in units of ln n / n."""
        lam = self.estimator.lam
        if lam == "balanced":
            model, outliers = self.estimator.model, self.estimator.outliers
            return balanced_penalty(model, n, self.rho, self.a, self.b, outliers) * n / log(n)
        if isinstance(lam, str):  # the mean density of two equal communities is near (a + b) / 2
            return tau(self.a, self.b) if lam == "tau" else self._mean_rate()
        return lam * n / log(n)

    def _mean_rate(self) -> float:
        inside = self.rho**2 + (1 - self.rho) ** 2
        return inside * self.a + (1 - inside) * self.b

    def asymptotic(self, gamma: float) -> float:
        found = private_threshold(
            self.estimator.model, gamma=gamma, a=self.a, b=self.b or None, rho=self.rho, xi=self.xi,
            outliers=self.estimator.outliers,
        )  # fmt: skip
        return 2 * found if self.estimator.neighbor == "relabel" else found

    def smallest_n(self) -> float:
        """The n from which the predicted margin is released with probability above 1/2, by squaring and bisection."""

        def enough(n: float) -> bool:
            margin = self.margin(ceil(n))
            return margin > 0 and self.estimator.tail(margin) > 0.5

        low, high = 3.0, 4.0
        while not enough(high):
            low, high = high, high * high
            if high > 1e300:
                return inf
        while high / low > 1.01:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if enough(middle) else (middle, high)
        return float(ceil(high))


def _smallest_eps(estimator: PrivateSBM, margin: float) -> float:
    """By bisection: the eps at which the expected margin is released with probability 1/2."""
    if margin <= 1 + 1e-9:
        return inf

    def enough(eps: float) -> bool:
        return release_probability(margin, eps, estimator.delta, estimator.noise) >= 0.5

    low, high = 1e-6, 1e6
    if not enough(high):
        return inf
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
