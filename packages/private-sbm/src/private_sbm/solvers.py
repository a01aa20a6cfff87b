"""The elliptope program max <A - lam J, Y>, Y psd, Y_ii = 1: its certified solution, or a proof that there is none.

Privacy needs a solver that misses no certificate (Section 1 of the paper: the estimator is a function of the graph).
Proposals are cheap: Burer-Monteiro iterations V <- rows of (A - lam J + shift) V, normalised, rounded and improved.
Any proposal that passes its certificate is the answer, whatever found it. If none passes, the staircase minimises to
the end and proves absence: with C = A - lam J, y_i = V_i (C V)_i and m = lambda_min(diag(y) - C), weak duality gives

    max <C, Y> - <C, V V^T> <= gap = n max(0, -m),

and a certified s with lam_2 > floor would satisfy sum_i ||V_i - s_i w||^2 <= gap / floor for w = V^T s / n. So there is
none when n - sigma_1(V)^2 > gap / floor; and when gap / floor <= 1/4 it could only be the rounding of V, which failed.
"""

from typing import NamedTuple

import numpy as np
from offprints.checks import require_choice
from offprints.seeding import rng
from scipy import optimize

from private_sbm.certificates import DENSE, FLOOR, Certificate, certificate, hopeless, least
from private_sbm.graphs import Matrix, dense, greatest_degree, operator

SOLVERS = ("staircase", "power", "scs", "enumerate")
ENUMERABLE = 14
SWEEPS = 300
ROUNDS = 12
SMALL = 64
"""Up to this many vertices a product with a dense matrix is quicker than scipy's with a sparse one."""


class Solution(NamedTuple):
    """Of the program. Not differentially private.

    Attributes:
        s: (n,) the certified optimum, or None.
        certificate: of s, or None.
        decided: whether the absence of a certificate is proved (True wherever one is found).
        v: (n, k) the last factor, for a warm start.
    """

    s: np.ndarray | None
    certificate: Certificate | None
    decided: bool
    v: np.ndarray | None


def solve(a: Matrix, lam: float, solver: str = "staircase", v0: np.ndarray | None = None) -> Solution:
    """The certified optimum of the elliptope program, or a proved absence.

    Args:
        a: (n, n) symmetric adjacency, zero diagonal.
        lam: penalty.
        solver: "staircase"; "power" (proposals only: absence is never proved); "scs" (the program itself, needs
            the extra `exact`); "enumerate" (all 2^(n-1) sign vectors, n <= 14).
        v0: (n, k) a factor to start from.

    Raises:
        ValueError: if the solver is unknown, or "enumerate" is asked for more than 14 vertices.
    """
    require_choice("solver", solver, SOLVERS)
    if solver == "enumerate":
        return enumerated(a, lam)
    if solver == "scs":
        from private_sbm.exact import elliptope

        return elliptope(a, lam)
    if a.shape[0] <= SMALL:
        a = dense(a)
    tried: set[bytes] = set()
    shift = _row_sums(a)
    v = _start(a, shift) if v0 is None else v0
    v, found = _power(a, lam, v, shift, tried)
    if found is not None:
        return Solution(found[0], found[1], True, v)
    if solver == "power":
        return Solution(None, None, False, v)
    return _staircase(a, lam, v, tried)


def improved(a: Matrix, lam: float, s: np.ndarray, rounds: int = 30) -> np.ndarray:
    """Greedy moves towards d > 0: every vertex takes the sign of (A s - lam 1^T s)_i, until nothing changes."""
    for _ in range(rounds):
        field = a @ s - lam * (s.sum() - s)
        new = np.where(field == 0, s, np.sign(field))
        if np.array_equal(new, s):
            break
        s = new
    return s


def canonical(s: np.ndarray) -> np.ndarray:
    """Labels in {0, 1} with vertex 0 in community 0."""
    return (s != s[0]).astype(np.int64)


def enumerated(a: Matrix, lam: float) -> Solution:
    """All sign vectors with s_0 = 1; those with a negative S_ii are left out, for S cannot be psd there.

    Raises:
        ValueError: if there are more than 14 vertices.
    """
    n = a.shape[0]
    if n > ENUMERABLE:
        raise ValueError(f'n must be at most {ENUMERABLE} with solver="enumerate", got {n}. Use "staircase".')
    entries = dense(a)
    bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)) & 1
    signs = np.hstack([np.ones((len(bits), 1)), 1.0 - 2.0 * bits])
    d = signs * (signs @ entries) - lam * signs * signs.sum(axis=1, keepdims=True)
    kept = signs[(d.min(axis=1) + lam) * n / (n - 1) > FLOOR]
    for s in kept:
        found = certificate(entries, lam, s)
        if found.lam2 > FLOOR:
            return Solution(s, found, True, None)
    return Solution(None, None, True, None)


def _row_sums(a: Matrix) -> float:
    return greatest_degree(a) + 1e-9


def _start(a: Matrix, shift: float) -> np.ndarray:
    """Random rows, the same for every graph of a size."""
    n = a.shape[0]
    columns = min(20, int(np.ceil(np.sqrt(2 * n))) + 1)
    return _normalised(rng(0).standard_normal((n, columns)))


def _normalised(v: np.ndarray) -> np.ndarray:
    return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)


def _product(a: Matrix, lam: float, v: np.ndarray) -> np.ndarray:
    return a @ v - lam * v.sum(axis=0)


def _power(
    a: Matrix, lam: float, v: np.ndarray, shift: float, tried: set[bytes]
) -> tuple[np.ndarray, tuple[np.ndarray, Certificate] | None]:
    """Burer-Monteiro iterations, with a rounding tried at sweeps 4, 8, 16, 32 and so on, and at the end."""
    value, check = -np.inf, 4
    for sweep in range(1, SWEEPS + 1):
        c = _product(a, lam, v)
        now = float(np.vdot(c, v))
        if now < value - 1e-9 * abs(value):
            shift += lam * len(v)
        settled = sweep > 1 and abs(now - value) <= 1e-9 * abs(now)
        value = now
        if sweep == check or settled:
            check *= 2
            found = _rounded(a, lam, v, tried)
            if found is not None or settled:
                return v, found
        v = _normalised(c + shift * v)
    return v, _rounded(a, lam, v, tried)


def _rounded(a: Matrix, lam: float, v: np.ndarray, tried: set[bytes]) -> tuple[np.ndarray, Certificate] | None:
    """The signs of the leading left singular vector, as they are and improved: certified, or None."""
    _, vectors = np.linalg.eigh(v.T @ v)
    s = np.where(v @ vectors[:, -1] >= 0, 1.0, -1.0)
    for proposal in (s, improved(a, lam, s)):
        key = np.packbits(proposal == proposal[0]).tobytes()
        if key in tried:
            continue
        tried.add(key)
        if not hopeless(a, lam, proposal):
            found = certificate(a, lam, proposal)
            if found.lam2 > FLOOR:
                return proposal, found
    return None


def _staircase(a: Matrix, lam: float, v: np.ndarray, tried: set[bytes]) -> Solution:
    """Minimise to the end, adding columns along negative directions of the dual matrix, until absence is proved."""
    n = len(v)
    for effort in range(ROUNDS):
        v = _descend(a, lam, v, 200 * 2**effort)
        found = _rounded(a, lam, v, tried)
        if found is not None:
            return Solution(found[0], found[1], True, v)
        gap, value, direction = _gap(a, lam, v)
        spread = n - float(np.linalg.eigvalsh(v.T @ v)[-1])
        if gap / FLOOR <= 0.25 or spread > gap / FLOOR:
            return Solution(None, None, True, v)
        if value < -FLOOR / (8 * n) and v.shape[1] < n + 1:
            v = _stepped(a, lam, np.hstack([v, np.zeros((n, 1))]), direction)
    return Solution(None, None, False, v)


def _gap(a: Matrix, lam: float, v: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Duality gap of V, the least eigenvalue of its dual matrix, and the eigenvector."""
    n, c = len(v), _product(a, lam, v)
    y = np.sum(c * v, axis=1)
    scale = float(np.abs(y).max()) + _row_sums(a) + lam * n
    if n <= DENSE:
        value, vector = least(np.diag(y) - dense(a) + lam, scale)
    else:
        moved = operator(n, lambda x: y * x.ravel() - _product(a, lam, x.ravel()))
        value, vector = least(moved, scale)
    return n * (max(0.0, -value) + 1e-13 * scale), value, vector


def _descend(a: Matrix, lam: float, v: np.ndarray, steps: int) -> np.ndarray:
    """L-BFGS on the unnormalised factor W, V = W / |W| row by row."""
    shape = v.shape

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        norms = np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-300)
        unit = w / norms
        c = _product(a, lam, unit)
        along = np.sum(c * unit, axis=1, keepdims=True)
        return -float(along.sum()), (-2.0 * (c - along * unit) / norms).ravel()

    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20}
    return _normalised(
        optimize.minimize(loss, v.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(shape)
    )


def _stepped(a: Matrix, lam: float, v: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """A step along (0, direction) in the new last column that raises the objective."""
    start, step = float(np.vdot(_product(a, lam, v), v)), 1.0
    best = v
    while step > 1e-6:
        trial = v.copy()
        trial[:, -1] += step * direction
        trial = _normalised(trial)
        if float(np.vdot(_product(a, lam, trial), trial)) > start:
            best = trial
            break
        step /= 4
    return best
