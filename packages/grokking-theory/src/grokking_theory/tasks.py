"""The data of the paper: modular addition, and any other operation given by its table, split into train and test."""

from collections.abc import Callable
from functools import cached_property
from math import floor, prod
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Num
from offprints.checks import require_choice, require_kind, require_range, require_shape
from offprints.seeding import rng
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

Kind = Literal["classification", "regression"]

LARGEST_POPULATION = 2**62
"""Points are numbered by 64-bit integers."""

LARGEST_LIST = 2**28
"""All points are listed, or drawn from a list, up to this many (some 8 GiB)."""

OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "quadratic": lambda a, b: a * a + a * b + b * b,
}


def sample_size(p: int, kind: Kind) -> int:
    """The paper's number of training points (appendix A): ⌊2 p^{5/3}⌋ classification, ⌊2 p^{2.25}⌋ regression.

    At most the number of points there are, p² or p³: classification asks for more than that up to p = 7, regression at
    p = 2.

    Raises:
        TypeError: if p is no integer.
        ValueError: if p < 2, or the kind is unknown.
    """
    require_range("p", p, low=2, integer=True)
    require_choice("kind", kind, ("classification", "regression"))
    return min(p**2, floor(2 * p ** (5 / 3))) if kind == "classification" else min(p**3, floor(2 * p**2.25))


def table(op: str | Callable[[Tensor, Tensor], Tensor], p: int) -> Int[Tensor, "p p"]:
    """The table of an operation on {0, ..., p-1}: entry [a, b] is op(a, b) mod p.

    Args:
        op: "add", "subtract", "multiply", "quadratic" (a^2 + ab + b^2), or a function of two (p, p) integer tensors.
        p: the modulus.

    Raises:
        TypeError: if `op` does not return integers.
        ValueError: if p < 2, the name is unknown, or `op` returns another shape.
    """
    require_range("p", p, low=2, integer=True)
    if isinstance(op, str):
        require_choice("op", op, OPERATIONS)
        op = OPERATIONS[op]
    a, b = torch.meshgrid(torch.arange(p), torch.arange(p), indexing="ij")
    values = op(a, b)
    require_integers("op(a, b)", values)
    require_shape("op(a, b)", values, (p, p))
    return (values % p).long()


def require_labels(name: str, labels: Tensor, p: int) -> None:
    """Check that labels are integers in [0, p).

    Raises:
        TypeError: if they are no integers.
        ValueError: if one lies outside.
    """
    require_integers(name, labels)
    if labels.numel() and not _traced(labels):
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= p:
            raise ValueError(f"{name} must be integers in [0, {p}), got values from {low} to {high}.")


def _traced(values: Tensor) -> bool:
    """Whether torch is only tracing: there are no values to look at then."""
    return torch.compiler.is_compiling() or isinstance(values, FakeTensor) or values.is_meta


def require_integers(name: str, values: Tensor) -> None:
    """Check that a tensor holds integers: TypeError otherwise."""
    require_kind(name, values, Tensor)
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise TypeError(f"{name} must hold integers (token numbers, not one-hot vectors), got {values.dtype}.")


@runtime_checkable
class Task(Protocol):
    """What `fit` needs to know of a task; `ModularAddition` is one, and so is anything with these four attributes."""

    p: int
    kind: Kind

    @property
    def train(self) -> tuple[Tensor, Tensor]:
        """Inputs (n, 2) and class labels (n,), or inputs (n, 3) and real targets (n,)."""
        ...

    @property
    def test(self) -> tuple[Tensor, Tensor]:
        """The same, for the points that are held out."""
        ...


class ModularAddition:
    """Addition modulo p as a learning problem (section 2), or any binary operation given by its table.

    - classification: x = (a_1, ..., a_{m-1}), label (a_1 + ... + a_{m-1}) mod p; N = p^{m-1} points.
    - regression: x = (a_1, ..., a_m), target p · 1[a_1 + ... + a_{m-1} ≡ a_m (mod p)]; N = p^m points. The zero
      predictor has population loss p, the best constant has p - 1.

    Inputs are integer tuples: the one-hot vectors of the paper are never built.

    Args:
        p: the modulus, at least 2.
        kind: "classification" or "regression".
        n_train: number of training points, or a share of all N points in (0, 1]; None takes `sample_size` (m = 3 only).
        m: variables of the regression problem (3 in the paper's main text; theorem 3.5 has any m >= 2).
        seed: of the split; the same seed gives the same split everywhere.
        replace: draw n points independently and uniformly, as the theorems do, instead of n different ones.
        op: (p, p) integer table to learn instead of addition, for m = 3; see `table` and `load_table`.

    Attributes:
        size: N, the number of points.
        train: inputs (n, columns) and targets (n,): int64 labels, or float64 values.
        test: the same for all points that are not in `train`, in order.
        rho_c: how often the most frequent c stands in the training set (theorem 3.1).

    Raises:
        TypeError: if a number is of the wrong kind, or the table is not of integers.
        ValueError: if p < 2, n_train is below 1, above N without replacement, a share outside (0, 1], or missing with
            m other than 3, if N is too large to draw or list its points, or the table does not fit.
    """

    def __init__(
        self,
        p: int,
        kind: Kind = "classification",
        n_train: int | float | None = None,
        m: int = 3,
        seed: int = 0,
        replace: bool = False,
        op: Tensor | None = None,
    ) -> None:
        require_range("p", p, low=2, integer=True)
        require_choice("kind", kind, ("classification", "regression"))
        require_range("m", m, low=2, integer=True)
        require_kind("replace", replace, bool)
        if op is not None:
            if m != 3:
                raise ValueError(f"m must be 3 with a table of a binary operation, got {m}.")
            require_labels("op", op, p)
            require_shape("op", op, (p, p))
            op = op.long().cpu()
        self.p, self.kind, self.m, self.seed, self.replace, self.op = p, kind, m, seed, replace, op
        self.columns = m if kind == "regression" else m - 1
        self.size = p**self.columns
        require_range("p ** columns", self.size, high=LARGEST_POPULATION, integer=True, hint="Lower p or m.")
        if n_train is None and m != 3:
            raise ValueError(f"n_train must be given for m = {m}, got None: the paper's sample sizes are for m = 3.")
        self.n_train = self._count(sample_size(p, kind) if n_train is None else n_train)
        if not replace and self.n_train > self.size // 50:  # fewer are drawn without a list of all
            self._require_list()
        codes = rng(seed).choice(self.size, self.n_train, replace=replace)
        self._codes = torch.from_numpy(np.asarray(codes, dtype=np.int64))

    def __repr__(self) -> str:
        return (
            f"ModularAddition(p={self.p}, kind={self.kind!r}, n_train={self.n_train} of {self.size}, m={self.m}, "
            f"seed={self.seed}, replace={self.replace}, op={'addition' if self.op is None else 'table'})"
        )

    def _count(self, n_train: int | float) -> int:
        if isinstance(n_train, float):
            require_range("n_train", n_train, low=0, high=1, low_open=True, because="a share of all points")
            return max(1, round(n_train * self.size))
        high = None if self.replace else self.size
        because = "" if self.replace else f"N = {self.p}^{self.columns}, the number of points"
        require_range("n_train", n_train, low=1, high=high, integer=True, because=because)
        return int(n_train)

    def _require_list(self) -> None:
        require_range("N", self.size, high=LARGEST_LIST, integer=True, because="points to list", hint="Lower p or m.")

    def _decode(self, codes: Tensor) -> Int[Tensor, "n columns"]:
        digits = [codes // self.p**power % self.p for power in reversed(range(self.columns))]
        return torch.stack(digits, dim=1)

    def targets(self, inputs: Int[Tensor, "n columns"]) -> Num[Tensor, " n"]:
        """Labels (int64) or values (float64) of integer tuples.

        Raises:
            TypeError: if the inputs are no integers.
            ValueError: if they have another number of columns, or lie outside [0, p).
        """
        require_labels("inputs", inputs, self.p)
        require_shape("inputs", inputs, ("n", self.columns))
        summands = inputs[:, : self.m - 1]
        if self.op is None:
            answer = summands.sum(1) % self.p
        else:
            answer = self.op.to(inputs.device)[summands[:, 0], summands[:, 1]]
        if self.kind == "classification":
            return answer
        return self.p * (answer == inputs[:, -1]).double()

    @cached_property
    def train(self) -> tuple[Tensor, Tensor]:
        """Training inputs and targets."""
        inputs = self._decode(self._codes)
        return inputs, self.targets(inputs)

    @cached_property
    def test(self) -> tuple[Tensor, Tensor]:
        """All points outside the training set, in order, and their targets (empty if there are none)."""
        self._require_list()
        held_out = torch.ones(self.size, dtype=torch.bool)
        held_out[self._codes] = False
        inputs = self._decode(held_out.nonzero().squeeze(1))
        return inputs, self.targets(inputs)

    def train_inputs(self, limit: int | None = None) -> Int[Tensor, "n columns"]:
        """The first `limit` training inputs (all for None): what an NTK is computed on."""
        if limit is not None:
            require_range("limit", limit, low=1, integer=True)
        return self.train[0][:limit]

    def all_inputs(self) -> Int[Tensor, "N columns"]:
        """All N inputs, in order: the last variable runs fastest."""
        self._require_list()
        return self._decode(torch.arange(self.size))

    def population(self) -> tuple[Tensor, Tensor]:
        """All N inputs and their targets."""
        inputs = self.all_inputs()
        return inputs, self.targets(inputs)

    @property
    def rho_c(self) -> int:
        """How many training points have the most frequent last variable c (regression) or label (classification)."""
        inputs, labels = self.train
        column = inputs[:, -1] if self.kind == "regression" else labels
        return int(torch.bincount(column, minlength=self.p).max())


def require_consistent(name: str, inputs: Tensor, targets: Tensor) -> None:
    """Check that equal inputs have equal targets: otherwise nothing interpolates them.

    Args:
        name: what the data are called in the message.
        inputs: (n, ...) points.
        targets: (n, ...) their labels or values.

    Raises:
        ValueError: naming two rows that contradict each other.
    """
    n = inputs.shape[0]
    _, which = torch.unique(inputs.reshape(n, prod(inputs.shape[1:])), dim=0, return_inverse=True)
    first = torch.full((int(which.max()) + 1 if n else 0,), n, dtype=torch.long, device=which.device)
    first = first.scatter_reduce(0, which, torch.arange(n, device=which.device), "amin")[which]
    flat = targets.reshape(n, prod(targets.shape[1:]))
    differs = (flat != flat[first.to(flat.device)]).any(1).nonzero()
    if len(differs):
        row = int(differs[0])
        raise ValueError(
            f"{name} must have one target for one input (inconsistent labels): rows {int(first[row])} and {row} have "
            "equal inputs and different targets. Drop one of them, or use ridge > 0."
        )
