"""Kernels on integer tuples in closed form, and the test whether a kernel is permutation-equivariant."""

from collections.abc import Callable, Mapping
from math import sqrt

import torch
from jaxtyping import Float, Int
from offprints.checks import require_finite, require_range, require_same_device, require_shape
from offprints.seeding import rng
from torch import Tensor

from grokking_theory.empirical import MemoryBudgetError
from grokking_theory.tasks import require_integers, require_labels

TupleKernel = Callable[[Tensor, Tensor], Tensor]
"""Maps (n, m) and (n2, m) integer tuples to an (n, n2) matrix."""


def quadratic_ntk(
    W: Float[Tensor, "h two_p"],
    V: Float[Tensor, "p h"],
    t1: Int[Tensor, "n 3"],
    t2: Int[Tensor, "n2 3"] | None = None,
    max_bytes: int = 2 << 30,
) -> Float[Tensor, "n n2"]:
    """The empirical NTK of the regression head g = Σ_k V_ck (Q_ka + R_kb)² in closed form (appendix B).

        K = (Σ_k w_k w_kᵀ) ∘ [c = c'] + (Σ_k v_k v_kᵀ) ∘ ([a = a'] + [b = b'])
        w_k(x) = (Q_ka + R_kb)²        v_k(x) = 2 V_ck (Q_ka + R_kb)

    Two (n, h) by (h, n2) products: O(h n n2) instead of O(p h n n2) for gradients of all 3ph weights. With c fixed it
    is the kernel of that output of the classification network. rank K <= 3ph.

    Args:
        W: (h, 2p) input weights [Q R].
        V: (p, h) output weights.
        t1: (n, 3) triples (a, b, c).
        t2: further triples; `t1` for None.
        max_bytes: the limit on result and factors.

    Raises:
        TypeError: if the triples are no integers.
        ValueError: if shapes, dtypes or devices do not fit, a weight is not finite, or a label lies outside [0, p).
        MemoryBudgetError: if result and factors exceed `max_bytes`.
    """
    p = V.shape[0]
    require_shape("W", W, (V.shape[1], 2 * p))
    require_same_device(W=W, V=V, t1=t1, t2=t2)
    if W.dtype != V.dtype:
        raise ValueError(f"W and V must have one dtype, got {W.dtype} and {V.dtype}.")
    require_finite("W", W)
    require_finite("V", V)
    same = t2 is None
    t2 = t1 if t2 is None else t2
    for name, triples in (("t1", t1), ("t2", t2)):
        require_labels(name, triples, p)
        require_shape(name, triples, ("n", 3))
    needed = V.element_size() * (4 * len(t1) * len(t2) + 3 * V.shape[1] * (len(t1) + len(t2)))
    if needed > max_bytes:
        raise MemoryBudgetError(needed, max_bytes, "Pass fewer triples, or raise max_bytes.")
    hidden1, head1 = _factors(W, V, t1)
    hidden2, head2 = (hidden1, head1) if same else _factors(W, V, t2)
    equal = [t1[:, i, None] == t2[:, i] for i in range(3)]
    kernel = (hidden1.square() @ hidden2.square().t()).mul_(equal[2])
    shared = equal[0].to(V.dtype).add_(equal[1])
    return kernel.addcmul_((head1 * hidden1) @ (head2 * hidden2).t(), shared, value=4.0)


def _factors(W: Tensor, V: Tensor, triples: Tensor) -> tuple[Tensor, Tensor]:
    """Q_ka + R_kb and V_ck, each (n, h)."""
    left, right = W.detach().t().contiguous().split(V.shape[0])
    hidden = left.index_select(0, triples[:, 0]).add_(right.index_select(0, triples[:, 1]))
    return hidden, V.detach().index_select(0, triples[:, 2])


def match_kernel(
    t1: Int[Tensor, "n m"], t2: Int[Tensor, "n2 m"] | None = None, *, weights: Mapping[tuple[int, ...], float]
) -> Float[Tensor, "n n2"]:
    """K(x, x') = Σ_S weights[S] · 1[x_i = x'_i for all i in S], over sets S of columns.

    Every kernel that is invariant under permutations of the symbols of each column (definition 2.2) depends on the
    pattern of matching columns only, and has this form; it is positive semi-definite if all weights are >= 0.

    Args:
        t1: (n, m) integer tuples.
        t2: further tuples; `t1` for None.
        weights: by tuple of column numbers; `()` is the constant.

    Raises:
        TypeError: if the tuples are no integers.
        ValueError: if a column does not exist, a weight is not finite, or the shapes or devices differ.
    """
    t2 = t1 if t2 is None else t2
    require_integers("t1", t1)
    require_integers("t2", t2)
    require_same_device(t1=t1, t2=t2)
    require_shape("t2", t2, ("n", t1.shape[1]))
    kernel = torch.zeros(len(t1), len(t2), dtype=torch.float64, device=t1.device)
    for columns, weight in weights.items():
        require_finite(f"weights[{columns}]", weight)
        match = torch.ones(len(t1), len(t2), dtype=torch.bool, device=t1.device)
        for column in columns:
            require_range("column", column, low=0, high=t1.shape[1] - 1, integer=True)
            match &= t1[:, column, None] == t2[:, column]
        kernel += weight * match
    return kernel


def expected_ntk(
    t1: Int[Tensor, "n m"],
    t2: Int[Tensor, "n2 m"] | None = None,
    kappa: float = 9 / 5,
    sigma: float = 1 / sqrt(3),
    sigma_v: float = 0.0,
) -> Float[Tensor, "n n2"]:
    """The kernel of one hidden neuron in expectation over the initial weights (proposition B.3).

        E K = σ⁴ [c = c'] (4 + (κ - 1)[a = a'] + (κ - 1)[b = b'] + 4 [a = a', b = b'])
              + 4 σ_V² σ² [c = c'] ([a = a'] + [b = b'])²

    The first line is the gradient in V, the second the gradient in W, which the paper's proof leaves out (σ_V = 0). A
    network of width h has h times this kernel in expectation. For distinct tuples λ_min >= 4σ⁴.

    Args:
        t1: (n, 3) triples; for (n, 2) pairs the factor [c = c'] is dropped (the kernel of one output).
        t2: further tuples; `t1` for None.
        kappa: E W⁴ / σ⁴ of the entries of W: 9/5 uniform, 3 Gaussian; at least 1.
        sigma: standard deviation of the entries of W: 1/√3 for U(-1, 1).
        sigma_v: standard deviation of the entries of V.

    Raises:
        TypeError: if the tuples are no integers.
        ValueError: if kappa < 1, a deviation is negative, or the tuples have neither 2 nor 3 columns.
    """
    require_range("kappa", kappa, low=1, because="a kurtosis")
    require_range("sigma", sigma, low=0)
    require_range("sigma_v", sigma_v, low=0)
    require_integers("t1", t1)
    require_range("columns of t1", t1.shape[1], low=2, high=3, integer=True)
    head = (2,) if t1.shape[1] == 3 else ()
    in_w = 4 * sigma_v**2 * sigma**2
    one = (kappa - 1) * sigma**4 + in_w
    both = 4 * sigma**4 + 2 * in_w  # ([a=a'] + [b=b'])² = [a=a'] + [b=b'] + 2 [a=a', b=b']
    return match_kernel(t1, t2, weights={head: 4 * sigma**4, (0, *head): one, (1, *head): one, (0, 1, *head): both})


def onehot_rbf(
    t1: Int[Tensor, "n m"], t2: Int[Tensor, "n2 m"] | None = None, gamma: float = 0.5
) -> Float[Tensor, "n n2"]:
    """exp(-γ ‖x - x'‖²) on the one-hot vectors of integer tuples: exp(-2γ · number of columns that differ).

    Raises:
        TypeError: if the tuples are no integers.
        ValueError: if gamma <= 0, or the shapes or devices differ.
    """
    require_range("gamma", gamma, low=0, low_open=True)
    t2 = t1 if t2 is None else t2
    require_integers("t1", t1)
    require_integers("t2", t2)
    require_same_device(t1=t1, t2=t2)
    require_shape("t2", t2, ("n", t1.shape[1]))
    differ = sum((t1[:, i, None] != t2[:, i]).double() for i in range(t1.shape[1]))
    return torch.exp(-2 * gamma * torch.as_tensor(differ))


def check_equivariance(
    kernel: TupleKernel, p: int, trials: int = 10, m: int = 3, points: int = 32, seed: int = 0, rtol: float = 1e-9
) -> bool:
    """Whether K(Tx, Tx') = K(x, x') for random permutations T = (T_1, ..., T_m) of the symbols of each column.

    By theorem 2.4 this is exactly when kernel regression is permutation-equivariant, so that the lower bounds apply to
    it. A kernel that passes has no counter-example among `trials`; one that fails has.

    Args:
        kernel: maps (n, m) and (n2, m) integer tuples to an (n, n2) matrix.
        p: symbols 0, ..., p - 1.
        trials: random permutations.
        m: columns.
        points: random tuples on which the kernels are compared, all p^m where those are fewer.
        seed: of points and permutations.
        rtol: of the largest entry of the kernel.

    Raises:
        ValueError: if the kernel returns another shape or a value that is not finite, or a number is out of range.
    """
    require_range("p", p, low=2, integer=True)
    for name, value in (("trials", trials), ("m", m), ("points", points)):
        require_range(name, value, low=1, integer=True)
    require_range("rtol", rtol, low=0)
    generator = rng(seed, "cpu")
    if p**m <= points:
        x = torch.cartesian_prod(*[torch.arange(p)] * m).reshape(p**m, m)
    else:
        x = torch.randint(p, (points, m), generator=generator)
    before = torch.as_tensor(kernel(x, x))
    require_shape("kernel(x, x)", before, (len(x), len(x)))
    require_finite("kernel(x, x)", before)
    scale = float(before.abs().max())
    for _ in range(trials):
        moved = torch.stack([torch.randperm(p, generator=generator)[x[:, i]] for i in range(m)], dim=1)
        if float((torch.as_tensor(kernel(moved, moved)) - before).abs().max()) > rtol * scale:
            return False
    return True
