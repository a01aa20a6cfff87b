"""What the optimizers share: checking parameters and gradients, running kernels over chunks, loading state."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from offprints.checks import require_choice, require_range
from torch import Tensor

from collage_optim.chunks import CHUNK, Scratch, Views, chunks, flat, put_back
from collage_optim.mcf import FLOATS, MCF
from collage_optim.parts import EIGHT_BITS, decoded, encoded, stored_value

Group = dict[str, object]
"""An entry of `param_groups`."""
Step = Callable[[Views, Tensor | None], None]
"""A kernel with its numbers: (chunk, raw or None)."""


class Observer(Protocol):
    """What watches every chunk: `begin(optimizer)`, `chunk(...)` for each, `end()`."""

    def begin(self) -> bool:
        """A step begins; whether it is to be measured."""

    def chunk(self, group: int, before: MCF, after: MCF, raw: Tensor) -> None:
        """One chunk was updated: float64 parts before and after, and the update that was asked for."""

    def end(self) -> None:
        """The step is over."""


@dataclass
class Known:
    """Flat views of a parameter and its state, good as long as the tensors are the same and lie where they lay."""

    views: Views
    held: dict[str, Tensor]
    place: tuple[int, torch.dtype]
    version: int = -1  # of the weights as the optimizer left them; -1 before its first step


class Collage(torch.optim.Optimizer):
    """Base of `CollageAdamW` and `CollageSGD`; keeps the contract of torch.optim.Optimizer.

    State that is lower than float32 stays in its type when it is loaded, and so does what is wider than the parameter.
    """

    modes: tuple[str, ...] = ()

    def __init__(self, params: Iterable[Tensor] | Iterable[Group], defaults: Group) -> None:
        self._fresh()
        super().__init__(params, defaults)

    def _fresh(self) -> None:
        """What is neither state nor setting: buffers, observers, versions of weights as we left them."""
        self._scratch = Scratch()
        self._observers, self._active = list[Observer](), list[Observer]()
        self._known: dict[int, Known] = {}  # by id of the parameter
        self._warned: set[str] = set()
        self.skipped = 0

    def __setstate__(self, state: dict[str, object]) -> None:
        """Of pickle, deepcopy and `load_state_dict`: settings that another optimizer did not save take our defaults."""
        if not hasattr(self, "_scratch"):
            self._fresh()
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    # ---- what a subclass says

    def _names(self, group: Group) -> dict[str, str]:
        """State tensors of a parameter: name -> "param", "wide" or "low", their type."""
        raise NotImplementedError

    def _kernel(self, group: Group, number: int, step: Tensor, p: Tensor) -> Step:
        """The kernel for parameters like p of group `number`, with the numbers of this step."""
        raise NotImplementedError

    # ---- parameters

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; it may have a mode and settings of its own.

        Raises:
            ValueError: a setting out of its range.
            TypeError: parameters that are not floating, or of a type that the mode cannot use.
            RuntimeError: complex parameters.
        """
        group = {**self.defaults, **param_group}
        self._check_settings(group)
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.is_complex():
                raise RuntimeError(f"{type(self).__name__} does not support sparse/complex parameters, got {p.dtype}.")
            if p.dtype not in FLOATS:
                raise TypeError(f"parameters must be of {', '.join(map(str, FLOATS))}, got {p.dtype}.")
            self._check_parameter(group, p)

    def _check_settings(self, group: Group) -> None:
        require_choice("mode", group["mode"], self.modes)
        require_choice("math", group["math"], ("strict", "fp32"))
        require_choice("nonfinite", group["nonfinite"], ("raise", "skip", "propagate"))
        require_choice("components", group["components"], (2, 3))
        rate = group["lr"]
        require_range("lr", rate if isinstance(rate, float | int) else float(rate), low=0.0)
        if group["components"] == 3 and (group["mode"] not in ("light", "plus") or group["math"] != "strict"):
            raise ValueError('components=3 needs mode "light" or "plus" and math="strict": float32 cannot hold three.')
        low = group["low_dtype"]
        if low is not None and (low not in EIGHT_BITS or group["mode"] not in ("light", "plus")):
            raise ValueError(f'low_dtype must be None or one of {EIGHT_BITS}, with mode "light" or "plus", got {low}.')

    def _check_parameter(self, group: Group, p: Tensor) -> None:
        if p.dtype == torch.float32 and "param_lo" in self._names(group):
            self._warn("float32", "fp32 weights already: a low part gives them 48 bits, which few trainings need.")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            warnings.warn(text, UserWarning, stacklevel=2)

    # ---- state

    def _dtype(self, kind: str, group: Group, p: Tensor) -> torch.dtype:
        if kind == "wide":
            return torch.promote_types(p.dtype, torch.float32)
        return group["low_dtype"] or p.dtype if kind == "low" else p.dtype

    def _state_of(self, group: Group, p: Tensor) -> dict[str, Tensor]:
        """The state of a parameter, made at its first step.

        Raises:
            RuntimeError: the parameter was cast or moved after its state was made.
        """
        state = self.state[p]
        names = self._names(group)
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=p.device if group.get("capturable") else "cpu")
        for name, kind in names.items():
            wanted = self._dtype(kind, group, p)
            if name not in state:
                made = torch.zeros_like(p, dtype=wanted, memory_format=torch.preserve_format)
                state[name] = made.copy_(p) if name == "master" else made
            elif (state[name].dtype, state[name].device) != (wanted, p.device):
                raise RuntimeError(
                    f"{name} dtype/device no longer matches its parameter: got {state[name].dtype} on "
                    f"{state[name].device}, expected {wanted} on {p.device}. Cast or move the model before making the "
                    "optimizer."
                )
        return {name: state[name] for name in names}

    def _known_of(self, group: Group, p: Tensor) -> Known:
        """The views of a parameter, made anew when it or its state is another tensor; warns when others changed it."""
        known, place = self._known.get(id(p)), (p.data_ptr(), p.dtype)
        if known is not None:
            moved = known.place != place
            if known.version not in (-1, p._version) or moved:
                self._warn_of_swap(known)
                known.version = -1
            state = self.state[p]
            for name, tensor in known.held.items():
                moved |= state.get(name) is not tensor
            if not moved:
                return known
        held = self._state_of(group, p)
        views, copied = flat({"param": p, **held})
        held = {**held, "step": self.state[p]["step"]}
        self._known[id(p)] = Known({} if copied else views, held, place)  # a copy would go stale
        return self._known[id(p)]

    def _warn_of_swap(self, known: Known) -> None:
        if known.held.keys() & {"param_lo", "master"}:
            self._warn(
                "swapped",
                "weights were changed outside of the optimizer (loaded or averaged): their low parts or master copies "
                "are stale. Call reset_low() after such a change.",
            )

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Load; state in float32 or 8 bits keeps its type, and settings that are missing keep the present ones.

        A state of torch.optim.AdamW is accepted: its low parts start at zero, with a warning.
        """
        present = [dict(group) for group in self.param_groups]
        super().load_state_dict(state_dict)
        saved = state_dict["state"]
        for group, before, old in zip(self.param_groups, present, state_dict["param_groups"], strict=True):
            for name in before.keys() - old.keys():
                group[name] = before[name]
            for p, number in zip(group["params"], old["params"], strict=True):
                for name, kind in self._names(group).items() if number in saved else ():
                    if name in saved[number]:
                        self.state[p][name] = (
                            saved[number][name].detach().to(p.device, self._dtype(kind, group, p), copy=True)
                        )
                    else:
                        self._warn("missing", f"the loaded state has no {name}: it starts anew (low parts at zero).")
        self._known.clear()

    # ---- a step

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One step; returns the closure's loss, or None.

        Never traced by torch.compile (it would delete error terms); `compile=True` of `CollageAdamW` is the fast way.

        Raises:
            RuntimeError: sparse gradients; parameters cast or moved since the first step.
            TypeError: a gradient of another type than its parameter.
            ValueError: a gradient that is not finite, with nonfinite="raise".
        """
        if torch.compiler.is_compiling():  # only then: asking the compiler to keep out takes seconds to import it
            return torch.compiler.disable(self._step)(closure)
        return self._step(closure)

    @torch.no_grad()
    def _step(self, closure: Callable[[], Tensor] | None) -> Tensor | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._must_skip():
            self.skipped += 1
            return loss
        self._active = [observer for observer in self._observers if observer.begin()]
        for number, group in enumerate(self.param_groups):
            self._step_group(number, group)
        for observer in self._active:
            observer.end()
        return loss

    def _must_skip(self) -> bool:
        """Whether a gradient scaler found an overflow, or a gradient that is not finite is to be skipped."""
        found = getattr(self, "found_inf", None)
        if found is not None and bool(found):
            return True
        for group in self.param_groups:
            if group["nonfinite"] == "propagate":
                continue
            for place, p in enumerate(group["params"]):
                if p.grad is not None and not p.grad.is_sparse and not bool(torch.isfinite(p.grad).all()):
                    if group["nonfinite"] == "skip":
                        return True
                    raise ValueError(
                        f"gradients must be finite, got NaN or inf in parameter {place} of shape {tuple(p.shape)}; "
                        "nothing was changed."
                    )
        return False

    def _step_group(self, number: int, group: Group) -> None:
        """Parameters of one type, device and age share chunks."""
        lots: dict[tuple[torch.dtype, torch.device, float], list[tuple[Tensor, Known]]] = defaultdict(list)
        capturable = group.get("capturable")
        for p in group["params"]:
            gradient = p.grad
            if gradient is None:
                continue
            if gradient.is_sparse or gradient.is_complex():
                raise RuntimeError(f"{type(self).__name__} does not support sparse/complex gradients.")
            if gradient.dtype != p.dtype:
                raise TypeError(f"a gradient must be of its parameter's type {p.dtype}, got {gradient.dtype}.")
            known = self._known_of(group, p)
            age = -1.0 if capturable else known.held["step"].item()
            lots[p.dtype, p.device, age].append((p, known))
        for lot in lots.values():
            torch._foreach_add_([known.held["step"] for _, known in lot], 1.0)
            self._step_lot(number, group, lot)

    def _step_lot(self, number: int, group: Group, lot: list[tuple[Tensor, Known]]) -> None:
        kernel = self._kernel(group, number, lot[0][1].held["step"], lot[0][0])
        parts, copies = [], []
        for p, known in lot:
            gradient = p.grad
            if known.views and type(gradient) is Tensor and gradient.is_contiguous():
                parts.append({**known.views, "grad": gradient.view(-1)})
                continue
            part, copied = flat({"param": p, **self._state_of(group, p), "grad": gradient})
            parts.append(part)
            copies.append((part, copied))
        size = CHUNK if not group.get("compile") else 1 << 24
        for chunk in chunks(parts, size, self._scratch, group["foreach"] is not False and len(lot) > 1):
            self._run(number, group, chunk, kernel)
        for part, copied in copies:
            put_back(part, copied)
        for p, known in lot:
            known.version = p._version

    def _run(self, number: int, group: Group, chunk: Views, kernel: Step) -> None:
        """One chunk through its kernel: gradients unscaled, 8-bit low parts decoded, observers served."""
        work = dict(chunk)
        scale = getattr(self, "grad_scale", None)
        if scale is not None or group["maximize"]:
            (gradient,) = self._scratch.like(chunk["grad"], "gradient")
            sign = -1.0 if group["maximize"] else 1.0
            factor = sign if scale is None else sign / float(scale)
            work["grad"] = torch.mul(chunk["grad"], factor, out=gradient)
        if group["low_dtype"] is not None:
            work["param_lo"] = decoded(chunk["param"], chunk["param_lo"])
        if not self._active:
            kernel(work, None)
        else:
            raw = torch.empty(len(chunk["param"]), dtype=torch.float64, device=chunk["param"].device)
            before = stored_value(work)
            kernel(work, raw)
            after = stored_value(work)
            for observer in self._active:
                observer.chunk(number, before, after, raw)
        if group["low_dtype"] is not None:
            chunk["param_lo"].copy_(encoded(work["param"], work["param_lo"], group["low_dtype"]))
