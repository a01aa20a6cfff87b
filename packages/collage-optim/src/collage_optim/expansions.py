"""What the stored weights are beyond what the model reads: expansions, float32 exports, files."""

import torch
from offprints import checkpoint
from torch import Tensor

from collage_optim._version import DIST, VERSION
from collage_optim.base import Collage
from collage_optim.mcf import MCF
from collage_optim.parts import EIGHT_BITS, decoded, encoded


class Expansions(Collage):
    """Reading, exporting, saving and resetting the low parts of an optimizer's weights."""

    def expansion(self, p: Tensor) -> MCF:
        """(h, l) of a parameter; l is zero where the mode keeps none, or before the first step.

        Raises:
            KeyError: a parameter that this optimizer does not have.
        """
        group = next((group for group in self.param_groups if any(q is p for q in group["params"])), None)
        if group is None:
            raise KeyError(f"no such parameter in this optimizer, of shape {tuple(p.shape)}.")
        low = self.state[p].get("param_lo") if p in self.state else None
        if low is None:
            return MCF(p.detach(), torch.zeros_like(p))
        if low.dtype in EIGHT_BITS:
            low = decoded(p.detach().reshape(-1), low.reshape(-1)).view(p.shape)
        return MCF(p.detach(), low)

    def export_fp32(self, model: torch.nn.Module) -> dict[str, Tensor]:
        """The model's parameters in float32: h + l (+ the third component), or the master copy, by name."""
        exported = {}
        for name, p in model.named_parameters():
            state = self.state.get(p, {})
            if "master" in state:
                exported[name] = state["master"].float().clone()
            elif "param_lo" in state:
                high, low = self.expansion(p)
                total = high.double() + low.double()
                exported[name] = (total + state["param_lo2"].double() if "param_lo2" in state else total).float()
            else:
                exported[name] = p.detach().float()
        return exported

    def reset_low(self, p: Tensor | None = None) -> None:
        """Forget what belongs to former weights, of one parameter or all: low parts become 0, masters the weights."""
        for q, state in self.state.items():
            if p is None or q is p:
                for name in ("param_lo", "param_lo2"):
                    if name in state:
                        state[name].zero_()
                if "master" in state:
                    state["master"].copy_(q.detach())
                self._known.pop(id(q), None)

    def save_expansion(self, path: str, model: torch.nn.Module) -> None:
        """Write `<path>.safetensors` with `name` and `name.lo` for every parameter, and a JSON sidecar."""
        tensors = {}
        for name, p in model.named_parameters():
            tensors[name], tensors[f"{name}.lo"] = self.expansion(p) if self._has(p) else (p, torch.zeros_like(p))
        checkpoint.save(path, tensors, method=DIST, version=VERSION, config={"components": 2})

    @torch.no_grad()
    def load_expansion(self, path: str, model: torch.nn.Module) -> None:
        """Set weights and low parts to what `save_expansion` wrote.

        Raises:
            ValueError: another method's file, or one whose names or shapes are not the model's.
        """
        tensors = checkpoint.load(path, method=DIST, framework="torch").tensors
        params = dict(model.named_parameters())
        wrong = [name for name, p in params.items() if name not in tensors or tensors[name].shape != p.shape]
        if wrong or len(tensors) != 2 * len(params):
            raise ValueError(f"{path} must hold the parameters of this model, got other names or shapes: {wrong[:5]}.")
        for group in self.param_groups:
            for p in group["params"]:
                self._state_of(group, p)
        for name, p in params.items():
            p.copy_(tensors[name])
            if "param_lo" in self.state.get(p, {}):
                low = tensors[f"{name}.lo"].to(p.device, p.dtype)
                stored = self.state[p]["param_lo"]
                stored.copy_(encoded(p, low, stored.dtype) if stored.dtype in EIGHT_BITS else low)
            self._known.pop(id(p), None)

    def _has(self, p: Tensor) -> bool:
        return any(q is p for group in self.param_groups for q in group["params"])
