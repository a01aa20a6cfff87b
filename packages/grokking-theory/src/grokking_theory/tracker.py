"""How far a network has left its initial kernel: NTK drift of any torch model during training."""

from dataclasses import dataclass, field
from math import nan, sqrt

import torch
from jaxtyping import Num, Shaped
from offprints.checks import require_choice, require_finite, require_kind, require_range, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

from grokking_theory.empirical import Forward, NTKOptions, Output, ntk_parts
from grokking_theory.kernels import quadratic_ntk
from grokking_theory.model import QuadraticNetwork, regression_head


@dataclass(frozen=True)
class NTKRecord:
    """One measurement of the kernel Θ_t against Θ_0.

    Attributes:
        step: when.
        change: ‖Θ_t - Θ_0‖_F, as in the paper's figures.
        relative: ‖Θ_t - Θ_0‖_F / ‖Θ_0‖_F.
        distance: 1 - ⟨Θ_t, Θ_0⟩ / (‖Θ_t‖_F ‖Θ_0‖_F), which the scale of the weights does not move.
        eigenvalues: the five largest of Θ_t (fewer for smaller kernels), in falling order.
        alignment: centred alignment ⟨HΘ_tH, HYYᵀH⟩ / (‖HΘ_tH‖ ‖HYYᵀH‖) with the targets; NaN without targets.
        layers: `distance` by parameter name, with `per_layer`.
    """

    step: int
    change: float
    relative: float
    distance: float
    eigenvalues: tuple[float, ...]
    alignment: float = nan
    layers: dict[str, float] = field(default_factory=dict)


class NTKTracker:
    """Compares the empirical NTK on fixed inputs with the one at the moment the tracker was attached.

        tracker = NTKTracker(model, x, every=100)       # Θ_0 is computed here
        for step in range(1, 1001):
            ...                                         # train
            tracker(step)                               # measures at every 100th step, else returns None
        tracker.records[-1].distance

    It is a callback of `fit`, too. For a `QuadraticNetwork` with a single output the closed form is used.

    Args:
        model: any torch module, see `empirical_ntk`.
        x: n inputs, of which a copy is kept; for a `QuadraticNetwork` pairs (n, 2), or triples (n, 3) for its
            regression head.
        output: as in `empirical_ntk`; with "trace_sample" the direction is drawn once.
        every: steps between measurements.
        chunk: see `empirical_ntk`.
        max_bytes: see `empirical_ntk`.
        per_layer: record the distance of each parameter's part of the kernel, too.
        targets: (n,) labels or values, or (n, C) values, for `alignment`. Integers and booleans count as labels.
        forward_fn: see `empirical_ntk`.
        seed: of "trace_sample".
        vectorize: see `empirical_ntk`.

    Attributes:
        records: the measurements so far; the first is that of Θ_0, at step 0.

    Raises:
        TypeError: if the inputs or the targets are no tensors; and as `empirical_ntk`.
        ValueError: if `every` < 1, the targets do not fit or are not finite; and as `empirical_ntk`.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Num[Tensor, "n ..."],
        output: Output = "first",
        every: int = 100,
        chunk: int = 64,
        max_bytes: int = 2 << 30,
        per_layer: bool = False,
        targets: Shaped[Tensor, "n ..."] | None = None,
        forward_fn: Forward | None = None,
        seed: int = 0,
        vectorize: bool = True,
    ) -> None:
        require_range("every", every, low=1, integer=True)
        require_range("chunk", chunk, low=1, integer=True)
        require_kind("x", x, Tensor)
        require_range("len(x)", len(x), low=1, integer=True)
        if targets is not None:
            require_kind("targets", targets, Tensor)
            require_shape("targets", targets[..., None].flatten(1), (len(x), None))
            _require_targets(targets)
        self.model, self.x, self.every, self.per_layer = model, x.detach().clone(), every, per_layer
        self._targets = targets
        triples = isinstance(model, QuadraticNetwork) and x.shape[1:] == (3,)
        if isinstance(model, QuadraticNetwork):
            require_shape("x", x, ("n", 3 if triples else 2), hint="Give pairs or triples of integers.")
        forward_fn = regression_head if triples and forward_fn is None else forward_fn
        self._closed_form = (
            isinstance(model, QuadraticNetwork)
            and not per_layer
            and output not in ("trace_sample", "full")
            and forward_fn in (None, regression_head)
            and all(parameter.requires_grad for parameter in model.parameters())
            and model.W.dtype in (torch.float32, torch.float64)
        )
        self._options = NTKOptions(output, chunk, max_bytes, forward_fn, seed, vectorize)
        self._initial = self._parts(model)
        self.records: list[NTKRecord] = []
        self.records.append(self._record(0, self._initial))

    def __call__(self, step: int, model: nn.Module | None = None) -> dict[str, float] | None:
        """Measure if `step` is a multiple of `every`; returns the columns of a `History`, or None.

        Args:
            step: updates done.
            model: measured instead of the attached one, if given (an averaged copy, say).
        """
        if step % self.every:
            return None
        record = self.measure(step, model)
        columns = {"ntk_change": record.change, "ntk_relative": record.relative, "ntk_distance": record.distance}
        layers = {f"ntk_distance/{name}": value for name, value in record.layers.items()}
        return columns | ({"ntk_alignment": record.alignment} if self._targets is not None else {}) | layers

    def measure(self, step: int, model: nn.Module | None = None) -> NTKRecord:
        """Measure now, whatever `every` says; a step that was measured before is measured again and replaced."""
        require_range("step", step, low=0, integer=True)
        record = self._record(step, self._parts(self.model if model is None else model))
        self.records = [earlier for earlier in self.records if earlier.step != step] + [record]
        return record

    def _record(self, step: int, parts: dict[str, Tensor]) -> NTKRecord:
        kernel, start = _total(parts), _total(self._initial)
        require_finite("kernel", kernel, hint=f"At step {step} a weight or a gradient of the model is not.")
        layers = {}
        for name, part in parts.items() if self.per_layer else ():
            require_choice("parameter of the measured model", name, self._initial)
            layers[name] = kernel_distance(part, self._initial[name])
        scale = float(start.norm())
        change = float((kernel - start).norm())
        return NTKRecord(
            step=step,
            change=change,
            relative=change / scale if scale else nan,
            distance=kernel_distance(kernel, start),
            eigenvalues=tuple(torch.linalg.eigvalsh(_square(kernel)).flip(0)[:5].tolist()),
            alignment=nan if self._targets is None else label_alignment(_mean_over_outputs(kernel), self._targets),
            layers=layers,
        )

    def kernel(self, model: nn.Module | None = None) -> Tensor:
        """Θ_t itself, as `empirical_ntk` returns it."""
        return _total(self._parts(self.model if model is None else model))

    def _parts(self, model: nn.Module) -> dict[str, Tensor]:
        if not (self._closed_form and isinstance(model, QuadraticNetwork)):
            return ntk_parts(model, self.x, None, self._options, self.per_layer)
        triples, output = self.x, self._options.output
        if isinstance(output, str) and output != "first":
            raise ValueError(f"output must be 'first', a number, 'trace_sample' or 'full', got {output!r}.")
        high = model.p - 1 if triples.shape[1] == 2 else 0
        c = 0 if output == "first" else require_range("output", output, low=0, high=high, integer=True)
        if triples.shape[1] == 2:
            triples = torch.cat([triples, torch.full_like(triples[:, :1], int(c))], dim=1)
        return {"total": quadratic_ntk(model.W, model.V, triples, max_bytes=self._options.max_bytes)}


def _total(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(parts.values())).sum(0) if len(parts) > 1 else next(iter(parts.values()))


def _square(kernel: Tensor) -> Tensor:
    """(n, n) as it is; (n, n, C, C) as (nC, nC)."""
    return kernel if kernel.ndim == 2 else kernel.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)


def _mean_over_outputs(kernel: Tensor) -> Tensor:
    return kernel if kernel.ndim == 2 else kernel.diagonal(dim1=2, dim2=3).mean(2)


def kernel_distance(kernel: Tensor, other: Tensor) -> float:
    """1 - ⟨K, K'⟩ / (‖K‖_F ‖K'‖_F): 0 for kernels that agree up to scale, NaN if exactly one of them is zero."""
    norm, other_norm = float(kernel.norm()), float(other.norm())
    if norm == 0 or other_norm == 0:
        return 0.0 if norm == other_norm else nan
    # through the difference of the unit kernels: 1 - cos would lose half the digits near 0
    return float((kernel / norm - other / other_norm).square().sum()) / 2


def label_alignment(kernel: Tensor, targets: Tensor) -> float:
    """Centred alignment of a kernel (n, n) with the Gram matrix of the targets (integer labels become one-hot).

    ⟨HKH, HYYᵀH⟩ / (‖HKH‖_F ‖HYYᵀH‖_F) with H = I - 11ᵀ/n; NaN if either is constant.

    Raises:
        ValueError: if real targets are not finite, or labels have more than one column.
    """
    _require_targets(targets)
    if not targets.is_floating_point():
        labels = targets.long().reshape(len(targets))
        targets = F.one_hot(labels - labels.min())
    rows = targets.to(kernel.device, kernel.dtype).reshape(len(targets), -1)
    rows = rows - rows.mean(0)
    label_gram = rows @ rows.t()
    centred = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
    scale = sqrt(float(centred.square().sum()) * float(label_gram.square().sum()))
    return float((centred * label_gram).sum()) / scale if scale else nan


def _require_targets(targets: Tensor) -> None:
    if targets.is_floating_point():
        require_finite("targets", targets)
    elif targets.numel() != len(targets):
        raise ValueError(
            f"targets must be of shape ({len(targets)},) if they are labels, got {tuple(targets.shape)}. "
            "Give values as floating-point numbers."
        )
