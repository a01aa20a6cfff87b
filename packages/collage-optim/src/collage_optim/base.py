"""What the optimizers share: checking parameters and gradients, running kernels over chunks, loading state."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from offprints.checks import require_choice, require_range
from torch import Tensor

from collage_optim.chunks import CHUNK, Scratch, Views, chunks, flat, put_back
from collage_optim.mcf import FLOATS, MCF
from collage_optim.parts import EIGHT_BITS, decoded, encoded, stored_value

Group = dict[str, Any]
"""An entry of `param_groups`, as torch types it."""
Step = Callable[[Views, Tensor | None], None]
"""A kernel with its numbers: (chunk, raw or None)."""
PACK = 4 * CHUNK
"""Elements of small tensors that one compiled kernel takes together: 3 MiB of copies of their state at most."""


def require_low(mode: object, components: object, low_dtype: object) -> None:
    """Which low parts there are: a third one, or one in 8 bits, of modes light and plus.

    Raises:
        ValueError: other combinations.
    """
    require_choice("components", components, (2, 3))
    if components == 3 and mode not in ("light", "plus"):
        raise ValueError(f'components=3 needs mode "light" or "plus", got {mode!r}.')
    if low_dtype is not None and (low_dtype not in EIGHT_BITS or mode not in ("light", "plus") or components == 3):
        raise ValueError(
            f'low_dtype must be None or one of {EIGHT_BITS}, with mode "light" or "plus" and two components, '
            f"got {low_dtype}."
        )


def refuse_coupled(group: Group, decoupled: bool = False) -> None:
    """Raises ValueError for settings of torch.optim.Adam whose weight decay is part of the gradient."""
    if group.get("weight_decay") and not group.get("decoupled_weight_decay", decoupled):
        raise ValueError(
            f"weight_decay must be decoupled, as in AdamW; got {group['weight_decay']} of an Adam that adds it to the "
            "gradient. Set it to 0, or to what a decoupled decay should be."
        )


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
    mode: object
    version: int = -1  # of the weights as the optimizer left them; -1 before its first step


class Collage(torch.optim.Optimizer):
    """Base of `CollageAdamW` and `CollageSGD`; keeps the contract of torch.optim.Optimizer.

    State that is lower than float32 stays in its type when it is loaded, and so does what is wider than the parameter.
    """

    modes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """Settings that tell a state of this kind of optimizer from that of another."""
    # A gradient scaler hands scale and overflow to the step instead of unscaling float16 gradients in place.
    _step_supports_amp_scaling = True

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

    def __setstate__(self, state: Group) -> None:
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

    def _wide(self, group: Group, p: Tensor) -> bool:
        """Whether the kernel for parameters like p computes in float32 (or wider) and rounds what it stores."""
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
        try:
            for p in self.param_groups[-1]["params"]:
                self._check_parameter(group, p)
        except (TypeError, RuntimeError):
            del self.param_groups[-1]
            raise

    def _check_settings(self, group: Group) -> None:
        require_choice("mode", group["mode"], self.modes)
        require_choice("math", group["math"], ("strict", "fp32"))
        require_choice("nonfinite", group["nonfinite"], ("raise", "skip", "propagate"))
        require_choice("foreach", group["foreach"], (None, True, False))
        require_low(group["mode"], group["components"], group["low_dtype"])
        rate = group["lr"]
        rate = float(rate) if isinstance(rate, Tensor) and rate.numel() == 1 else rate
        if require_range("lr", rate, low=0.0) == float("inf"):
            raise ValueError("lr must be finite, got inf.")
        if group["components"] == 3 and group["math"] != "strict":
            raise ValueError('components=3 needs math="strict": float32 cannot hold three.')

    def _check_parameter(self, group: Group, p: Tensor) -> None:
        if p.is_complex():
            raise RuntimeError(f"{type(self).__name__} does not support sparse/complex parameters, got {p.dtype}.")
        if p.dtype not in FLOATS:
            raise TypeError(f"parameters must be of {', '.join(map(str, FLOATS))}, got {p.dtype}.")
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
                    f"{state[name].device}, expected {wanted} on {p.device}. Cast or move the model, and choose "
                    "the mode, before making the optimizer."
                )
        return {name: state[name] for name in names}

    def _known_of(self, group: Group, p: Tensor) -> Known:
        """The views of a parameter, made anew when it or its state is another tensor; warns when others changed it."""
        known, place = self._known.get(id(p)), (p.data_ptr(), p.dtype)
        if known is not None:
            moved = known.place != place
            if known.place[1] != p.dtype:
                raise RuntimeError(
                    f"dtype no longer matches the state of its parameter: {known.place[1]} at its last step, {p.dtype} "
                    "now. Cast the model before making the optimizer."
                )
            if known.version not in (-1, p._version) or moved:
                self._warn_of_swap(known)
                known.version = -1
            state = self.state[p]
            moved |= known.mode != group["mode"]
            for name, tensor in known.held.items():
                moved |= state.get(name) is not tensor
            if not moved:
                return known
        held = self._state_of(group, p)
        views, copied = flat({"param": p, **held})
        held = {**held, "step": self.state[p]["step"]}
        self._known[id(p)] = Known({} if copied else views, held, place, group["mode"])  # a copy would go stale
        return self._known[id(p)]

    def _warn_of_swap(self, known: Known) -> None:
        if known.held.keys() & {"param_lo", "master"}:
            self._warn(
                "swapped",
                "weights were changed outside of the optimizer (loaded or averaged): their low parts or master copies "
                "are stale, unless these are the weights they were made with. Call reset_low() after such a change.",
            )

    def load_state_dict(self, state_dict: Group) -> None:
        """Load; state in float32 or 8 bits keeps its type, and settings that are missing keep the present ones.

        A state of torch.optim.AdamW (for `CollageSGD`: SGD) is accepted: its low parts start at zero, with a warning.
        The mode is the saved one; a warning tells when it is another than the present one.

        Raises:
            TypeError, ValueError: settings that this optimizer or its parameters refuse, such as those of a torch.optim
                Adam whose decay is part of the gradient, or a low part in 16 bits where 8 are kept. Nothing was loaded.
        """
        present, saved = [dict(group) for group in self.param_groups], state_dict["state"]
        for before, old in zip(present, state_dict["param_groups"], strict=False):
            self._check_state({**before, **{k: v for k, v in old.items() if k != "params"}}, old, saved)
            if old.get("mode", before["mode"]) != before["mode"]:
                self._warn("mode", f"the loaded state goes on in its mode {old['mode']!r}, not in {before['mode']!r}.")
        super().load_state_dict(state_dict)
        for group, before, old in zip(self.param_groups, present, state_dict["param_groups"], strict=True):
            for name in before.keys() - old.keys():
                group[name] = before[name]
            for p, number in zip(group["params"], old["params"], strict=True):
                if saved.get(number) and "step" not in saved[number]:
                    self._warn("step", "the loaded state has no step: it counts as one.")
                    self.state[p]["step"] = torch.ones((), dtype=torch.float32)
                for name, kind in self._names(group).items() if number in saved else ():
                    if saved[number].get(name) is not None:
                        self.state[p][name] = (
                            saved[number][name].detach().to(p.device, self._dtype(kind, group, p), copy=True)
                        )
                    else:
                        self._warn("missing", f"the loaded state has no {name}: it starts anew (low parts at zero).")
        self._known.clear()

    def _check_state(self, group: Group, old: Group, saved: dict[int, dict[str, Tensor]]) -> None:
        """Whether settings, with those of a saved group in them, suit the group's parameters and saved tensors."""
        if missing := [name for name in self.marks if name not in old]:
            raise ValueError(f"the state must be of an optimizer like {type(self).__name__}, got none of {missing}.")
        self._check_settings(group)
        for p in group["params"]:
            self._check_parameter(group, p)
        for number in old["params"]:
            low = saved.get(number, {}).get("param_lo")
            if low is not None and (low.dtype in EIGHT_BITS) != (group["low_dtype"] is not None):
                raise ValueError(f"low_dtype is {group['low_dtype']}, but the loaded low part is of {low.dtype}.")

    # ---- a step

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # pyrefly: ignore[bad-override]
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
        self._check_gradients()
        self._warned.discard("swapped")
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

    def _check_gradients(self) -> None:
        """Of all groups, before anything changes: modes as they stand now, gradients, and the fused kernels."""
        for group in self.param_groups:
            require_choice("mode", group["mode"], self.modes)
            for p in group["params"]:
                gradient = p.grad
                if gradient is None:
                    continue
                if gradient.is_sparse or gradient.is_complex():
                    raise RuntimeError(f"{type(self).__name__} does not support sparse/complex gradients.")
                if gradient.dtype != p.dtype:
                    raise TypeError(f"a gradient must be of its parameter's type {p.dtype}, got {gradient.dtype}.")
                self._ready(group, p)

    def _ready(self, group: Group, p: Tensor) -> None:
        """Make what the kernel for parameters like p needs, where that can fail."""

    def _step_group(self, number: int, group: Group) -> None:
        """Parameters of one type, device and age share chunks."""
        lots: dict[tuple[torch.dtype, torch.device, float], list[tuple[Tensor, Known]]] = defaultdict(list)
        for place, p in enumerate(group["params"]):
            if p.grad is None:
                continue
            known = self._known_of(group, p)
            # a step on the device is not read: each parameter is by itself
            age = -1.0 - place if group.get("capturable") else known.held["step"].item()
            lots[p.dtype, p.device, age].append((p, known))
        for lot in lots.values():
            torch._foreach_add_([known.held["step"] for _, known in lot], 1.0)
            self._step_lot(number, group, lot)

    def _step_lot(self, number: int, group: Group, lot: list[tuple[Tensor, Known]]) -> None:
        kernel = self._kernel(group, number, lot[0][1].held["step"], lot[0][0])
        parts, copies = [], []
        for p, known in lot:
            gradient = p.grad
            assert gradient is not None
            if known.views and type(gradient) is Tensor and gradient.is_contiguous():
                parts.append({**known.views, "grad": gradient.view(-1)})
                continue
            part, copied = flat({"param": p, **self._state_of(group, p), "grad": gradient})
            parts.append(part)
            copies.append((part, copied))
        size, pack = (1 << 24, PACK) if group.get("compile") else (CHUNK, CHUNK)
        if group["foreach"] is False or len(lot) == 1 or group["mode"] == "stochastic":  # draws go by parameter
            pack = 0
        wide = self._wide(group, lot[0][0])
        for chunk in chunks(parts, size, self._scratch, pack):
            self._run(number, group, chunk, kernel, wide)
        for part, copied in copies:
            put_back(part, copied)
        for p, known in lot:
            known.version = p._version

    def _run(self, number: int, group: Group, chunk: Views, kernel: Step, wide: bool) -> None:
        """One chunk through its kernel: gradients unscaled, 8-bit low parts decoded, observers served."""
        work = dict(chunk)
        scale = getattr(self, "grad_scale", None)
        if scale is not None or group["maximize"]:
            gradient = chunk["grad"]
            kind = torch.promote_types(gradient.dtype, torch.float32) if wide else gradient.dtype
            (unscaled,) = self._scratch.like(gradient, "gradient", dtype=kind)
            sign = -1.0 if group["maximize"] else 1.0
            work["grad"] = unscaled.copy_(gradient).mul_(sign if scale is None else sign / float(scale))
        if group["low_dtype"] is not None:
            work["param_lo"] = decoded(chunk["param"], chunk["param_lo"])
        raw = torch.empty(len(chunk["param"]) if self._active else 0, dtype=torch.float64, device=chunk["param"].device)
        before = stored_value(work) if self._active else MCF(raw, raw)
        kernel(work, raw if self._active else None)
        if group["low_dtype"] is not None:
            chunk["param_lo"].copy_(encoded(work["param"], work["param_lo"], group["low_dtype"]))
            work["param_lo"] = decoded(chunk["param"], chunk["param_lo"])  # what is stored, for who measures
        for observer in self._active:
            observer.chunk(number, before, stored_value(work), raw)
