"""What the stored weights are beyond what the model reads: expansions, float32 exports, files."""

import torch
from offprints import checkpoint
from torch import Tensor

from collage_optim._version import DIST, VERSION
from collage_optim.base import Collage
from collage_optim.mcf import MCF
from collage_optim.parts import EIGHT_BITS, decoded, store


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
        """The model's parameters in float32 by name, as copies: h + l (+ the third component), or the master copy."""
        exported = {}
        for name, p in model.named_parameters():
            state = self.state.get(p, {})
            if "master" in state or "param_lo" in state:
                exported[name] = self._value(p).float()
            else:
                exported[name] = p.detach().to(torch.float32, copy=True)
        return exported

    def _value(self, p: Tensor) -> Tensor:
        """What is stored of a parameter, in float64."""
        state = self.state.get(p, {})
        if "master" in state:
            return state["master"].double()
        high, low = self.expansion(p) if self._has(p) else MCF(p.detach(), torch.zeros_like(p))
        total = high.double() + low.double()
        return total + state["param_lo2"].double() if "param_lo2" in state else total

    def reset_low(self, p: Tensor | None = None) -> None:
        """Forget what belongs to former weights, of one parameter or all: low parts become 0, masters the weights.

        Raises:
            KeyError: a parameter that this optimizer does not have.
        """
        if p is not None and not self._has(p):
            raise KeyError(f"no such parameter in this optimizer, of shape {tuple(p.shape)}.")
        for q, state in self.state.items():
            if p is None or q is p:
                for name in ("param_lo", "param_lo2"):
                    if name in state:
                        state[name].zero_()
                if "master" in state:
                    state["master"].copy_(q.detach())
                self._known.pop(id(q), None)

    @torch.no_grad()
    def save_expansion(self, path: str, model: torch.nn.Module) -> None:
        """Write `<path>.safetensors`, and a JSON sidecar, with all that is stored of every parameter.

        `name` is what the model reads, `name.lo` what is stored beyond it (in float32 of a master copy), `name.lo2` the
        third component where there is one.
        """
        tensors: dict[str, Tensor] = {}
        for name, p in model.named_parameters():
            state, high = self.state.get(p, {}), p.detach()
            tensors[name], tensors[f"{name}.lo"] = high, self.expansion(p).lo if self._has(p) else torch.zeros_like(p)
            if "master" in state:
                tensors[f"{name}.lo"] = (state["master"].double() - high.double()).to(state["master"].dtype)
            if "param_lo2" in state:
                tensors[f"{name}.lo2"] = state["param_lo2"]
        most = 3 if any(name.endswith(".lo2") for name in tensors) else 2
        checkpoint.save(path, tensors, method=DIST, version=VERSION, config={"components": most})

    @torch.no_grad()
    def load_expansion(self, path: str, model: torch.nn.Module) -> None:
        """Set weights, low parts and master copies to what `save_expansion` wrote, in whatever mode this one is.

        Raises:
            ValueError: another method's file, or one whose names or shapes are not the model's.
        """
        read = checkpoint.load(path, method=DIST, framework="torch").tensors
        tensors = {name: torch.as_tensor(tensor) for name, tensor in read.items()}
        params = dict(model.named_parameters())
        wrong = [
            name
            for name, p in params.items()
            if any(part not in tensors or tensors[part].shape != p.shape for part in (name, f"{name}.lo"))
        ]
        if wrong or not tensors.keys() <= {name + part for name in params for part in ("", ".lo", ".lo2")}:
            raise ValueError(f"{path} must hold the parameters of this model, got other names or shapes: {wrong[:5]}.")
        for group in self.param_groups:
            for p in group["params"]:
                self._state_of(group, p)
        for name, p in params.items():
            high, *parts = (tensors[name + part].to(p.device) for part in ("", ".lo", ".lo2") if name + part in tensors)
            rest = torch.stack([part.double() for part in parts]).sum(dim=0)
            if high.dtype != p.dtype:
                value = high.double() + rest
                high = value.to(p.dtype)
                rest = value - high.double()
            p.copy_(high)
            store(p, self.state.get(p, {}), rest)
            self._known.pop(id(p), None)

    def _has(self, p: Tensor) -> bool:
        return any(q is p for group in self.param_groups for q in group["params"])
