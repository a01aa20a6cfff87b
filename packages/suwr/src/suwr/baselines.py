"""What the paper compares with in Section 5: L2X, INVASE, REAL-X, whose selectors see all of x."""

from collections.abc import Iterator

import numpy as np
import torch
from offprints.checks import message, require_range
from torch import nn
from torch.nn import functional as F

from suwr.explainer import Explainer, two_hidden


class L2X(Explainer):
    """Chen et al. 2018: k features of every row, by k Gumbel-softmax draws of temperature tau and their maximum.

    The selector sees all of x, and learns with the predictor: its choice can carry the label.

    Args:
        k: features of every row.
        tau: temperature.
        lr, weight_decay: of Adam.
        hidden: width of both networks, two hidden layers each.
        batch_size, max_epochs, patience, validation_fraction, device, random_state: as in `SUWRClassifier`.
    """

    def __init__(
        self, k: int = 4, tau: float = 0.1, lr: float = 1e-3, weight_decay: float = 1e-4, hidden: int = 100,
        batch_size: int = 1000, max_epochs: int = 300, patience: int | None = None, validation_fraction: float = 0.2,
        device: str = "auto", random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.k = k
        self.tau = tau
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_range("k", self.k, low=1, integer=True)
        require_range("tau", self.tau, low=0, low_open=True)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        return nn.ModuleDict({"select": two_hidden(d, self.hidden, d), "predict": two_hidden(d, self.hidden, k)})

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = torch.log_softmax(self._nets["select"](x), dim=1)
        noise = torch.empty(len(x), min(self.k, x.shape[1]), x.shape[1], device=x.device).exponential_().log().neg()
        soft = torch.softmax((logits[:, None] + noise) / self.tau, dim=2).amax(dim=1)
        return F.cross_entropy(self._nets["predict"](x * soft), y)

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        best = self._nets["select"](x).topk(min(self.k, x.shape[1]), dim=1).indices
        return torch.zeros_like(x).scatter_(1, best, 1.0)


class INVASE(Explainer):
    """Yoon et al. 2019: each feature with a probability pi_i(x); predictor, baseline of all x, and an actor.

    Actor: (l_predict - l_baseline) sum [m_i log pi_i + (1 - m_i) log(1 - pi_i)] + sparsity ||pi||_1, by REINFORCE. A
    feature is shown where pi_i(x) >= 1/2. The selector sees all of x.

    Args:
        sparsity: price of a feature in nats.
        lr, weight_decay, hidden, batch_size: as in `L2X`.
        max_epochs, patience, validation_fraction, device, random_state: as in `L2X`.
    """

    def __init__(
        self, sparsity: float = 0.1, lr: float = 1e-4, weight_decay: float = 1e-4, hidden: int = 100,
        batch_size: int = 1000, max_epochs: int = 300, patience: int | None = None, validation_fraction: float = 0.2,
        device: str = "auto", random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.sparsity = sparsity
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_range("sparsity", self.sparsity, low=0)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        nets = {"select": two_hidden(d, self.hidden, d, nn.SELU), "predict": two_hidden(d, self.hidden, k, nn.SELU)}
        return nn.ModuleDict(nets | {"baseline": two_hidden(d, self.hidden, k, nn.SELU)})

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = self._nets["select"](x)
        pi = torch.sigmoid(logits)
        m = (torch.rand_like(pi) < pi).to(x.dtype)
        shown = F.cross_entropy(self._nets["predict"](x * m), y, reduction="none")
        full = F.cross_entropy(self._nets["baseline"](x), y, reduction="none")
        log_m = -F.binary_cross_entropy_with_logits(logits, m, reduction="none").sum(dim=1)
        actor = ((shown - full).detach() * log_m).mean() + self.sparsity * pi.sum(dim=1).mean()
        return shown.mean() + full.mean() + actor

    def _price(self, mask: torch.Tensor) -> torch.Tensor:
        return self.sparsity * mask.sum(dim=1).mean()

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        return (self._nets["select"](x) >= 0).to(x.dtype)


class REALX(Explainer):
    """Jethani et al. 2021: a predictor trained on random masks only, then a selector trained against it.

    The selector minimises cross-entropy + sparsity ||pi||_1 through a straight-through relaxed Bernoulli of temperature
    tau; a feature is shown where pi_i(x) >= 1/2. EVAL-X, a second predictor on random masks, evaluates
    (`evaluate_proba`). The predictor cannot learn the selector's code, but the selector still sees all of x.

    Args:
        sparsity: price of a feature in nats.
        tau: temperature.
        lr, weight_decay, hidden, batch_size: as in `L2X`.
        max_epochs, patience, validation_fraction, device, random_state: as in `L2X`;
            predictor, evaluator and selector get `max_epochs` each.
    """

    def __init__(
        self, sparsity: float = 0.1, tau: float = 0.1, lr: float = 1e-3, weight_decay: float = 1e-4, hidden: int = 100,
        batch_size: int = 1000, max_epochs: int = 300, patience: int | None = None, validation_fraction: float = 0.2,
        device: str = "auto", random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.sparsity = sparsity
        self.tau = tau
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_range("sparsity", self.sparsity, low=0)
        require_range("tau", self.tau, low=0, low_open=True)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        names = {"predict": k, "evaluate": k, "select": d}
        return nn.ModuleDict({name: two_hidden(d, self.hidden, outputs) for name, outputs in names.items()})

    def _stages(self) -> Iterator[tuple[list[str], str]]:
        yield ["predict"], "predict"
        yield ["evaluate"], "evaluate"
        yield ["select"], "select"

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if stage != "select":
            return F.cross_entropy(self._nets[stage](x * (torch.rand_like(x) < 0.5)), y)
        logits = self._nets["select"](x)
        u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        soft = torch.sigmoid((logits + torch.log(u) - torch.log1p(-u)) / self.tau)
        m = soft + ((soft > 0.5).to(x.dtype) - soft).detach()
        price = self.sparsity * torch.sigmoid(logits).sum(dim=1).mean()
        return F.cross_entropy(self._nets["predict"](x * m), y) + price

    @torch.no_grad()
    def _validation(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> float:
        if stage == "select":
            return super()._validation(stage, x, y)
        fixed = torch.Generator(x.device).manual_seed(0)  # the same masks in every epoch
        shown = torch.rand(x.shape, generator=fixed, device=x.device) < 0.5
        return float(F.cross_entropy(self._nets[stage](x * shown), y))

    def _price(self, mask: torch.Tensor) -> torch.Tensor:
        return self.sparsity * mask.sum(dim=1).mean()

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        return (self._nets["select"](x) >= 0).to(x.dtype)

    @torch.no_grad()
    def evaluate_proba(self, X: object, masks: np.ndarray) -> np.ndarray:
        """(n, K) EVAL-X: class probabilities from given (n, d) bool masks, by the second predictor.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`, or other masks.
        """
        x = self._rows(X)
        shown = np.asarray(masks)
        if shown.shape != tuple(x.shape) or shown.dtype != bool:
            raise ValueError(message("masks", f"bool of shape {tuple(x.shape)}", f"{shown.dtype} {shown.shape}"))
        known = x * torch.as_tensor(shown, device=x.device)
        return torch.softmax(self._nets["evaluate"](known).double(), dim=1).cpu().numpy()
