"""Decoders by name: the rule, transformers' own warpers, and the two that it lacks (the decoders of Section 4)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import transformers
from offprints.checks import message, require_choice, require_kind, require_range
from transformers import LogitsProcessor

from adaptive_decoding.contrastive import ALPHA, TOP_K
from adaptive_decoding.mirostat import MirostatLogitsProcessor
from adaptive_decoding.processor import AdaptiveLogitsProcessor

DEFAULTS: Mapping[str, Mapping[str, float | str]] = {
    "adaptive": {"epsilon": 1e-3, "rule": "prefix", "sampling": "multinomial", "flat": "top1"},
    "greedy": {},
    "sampling": {},
    "top_k": {"k": 50},
    "top_p": {"p": 0.95},
    "min_p": {"p": 0.05},
    "typical": {"p": 0.95},
    "eta": {"epsilon": 3e-4},
    "epsilon": {"epsilon": 3e-4},
    "top_h": {"h": 0.4},
    "mirostat": {"tau": 3.0, "eta": 0.1},
    "contrastive": {"k": TOP_K, "alpha": ALPHA},
}
"""Name -> its parameters and their defaults."""
WARPERS = {  # name -> (class of transformers, its argument, our parameter)
    "top_k": ("TopKLogitsWarper", "top_k", "k"),
    "top_p": ("TopPLogitsWarper", "top_p", "p"),
    "min_p": ("MinPLogitsWarper", "min_p", "p"),
    "typical": ("TypicalLogitsWarper", "mass", "p"),
    "eta": ("EtaLogitsWarper", "epsilon", "epsilon"),
    "epsilon": ("EpsilonLogitsWarper", "epsilon", "epsilon"),
    "top_h": ("TopHLogitsWarper", "top_h", "h"),
}
WITHOUT_SAMPLING = ("greedy", "contrastive")
TUNED: Mapping[str, tuple[str, float, float, bool]] = {  # name -> (parameter, least, greatest, on a log scale)
    "adaptive": ("epsilon", 1e-5, 0.5, True),
    "top_k": ("k", 1, 4096, True),
    "top_p": ("p", 1e-3, 0.9999, False),
    "min_p": ("p", 1e-6, 0.999, True),
    "typical": ("p", 1e-3, 0.9999, False),
    "eta": ("epsilon", 1e-7, 0.9, True),
    "epsilon": ("epsilon", 1e-7, 0.9, True),
    "top_h": ("h", 1e-3, 0.999, False),
    "mirostat": ("tau", 0.05, 20.0, True),
}
"""The parameter that sets the size of the candidate set, and where it is looked for."""


@dataclass(frozen=True)
class Decoder:
    """A decoder with its parameters (Section 4).

    Attributes:
        kind: one of the names of `DEFAULTS`.
        parameters: all of them; what is not given has its default.
        temperature: what the scores are divided by first.

    Raises:
        ValueError: listing the choices, if the kind or a parameter is unknown.
    """

    kind: str
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_choice("decoder", self.kind, DEFAULTS)
        for name in self.parameters:
            require_parameter(self.kind, name, DEFAULTS[self.kind])
        object.__setattr__(self, "parameters", {**DEFAULTS[self.kind], **self.parameters})

    @property
    def name(self) -> str:
        """As `make_decoder` reads it, parameters at their defaults left out unless they are its first."""
        given = dict(self.parameters)
        if self.temperature != 1.0:
            given["temperature"] = self.temperature
        first = next(iter(DEFAULTS[self.kind]), "")
        shown = [f"{k}={_shown(v)}" for k, v in given.items() if k == first or DEFAULTS[self.kind].get(k) != v]
        return self.kind + (":" + ",".join(shown) if shown else "")

    @property
    def samples(self) -> bool:
        """Whether a token is drawn from the candidates."""
        return self.kind not in WITHOUT_SAMPLING

    def number(self, name: str) -> float | int:
        """One of the parameters that are numbers.

        Raises:
            TypeError: if it is a text.
        """
        value = self.parameters[name]
        if isinstance(value, str):
            raise TypeError(message(name, "a number", repr(value)))
        return value

    def tuned(self, value: float) -> "Decoder":
        """The same with another value of the parameter that sets the size of its candidate set.

        Raises:
            ValueError: if it has none.
        """
        require_choice("kind", self.kind, TUNED)
        name = TUNED[self.kind][0]
        return Decoder(self.kind, {**self.parameters, name: round(value) if name == "k" else value}, self.temperature)

    def processors(self, record: bool = False) -> list[LogitsProcessor]:
        """Fresh logits processors in the order of use; none for greedy, plain sampling and contrastive search.

        `record`: whether an `AdaptiveLogitsProcessor` keeps a trace.
        """
        found: list[LogitsProcessor] = []
        if self.temperature != 1.0:
            found.append(transformers.TemperatureLogitsWarper(self.temperature))
        if self.kind == "adaptive":
            rule, sampling, flat = (str(self.parameters[name]) for name in ("rule", "sampling", "flat"))
            found.append(AdaptiveLogitsProcessor(self.number("epsilon"), rule, sampling, flat, record=record))
        elif self.kind == "mirostat":
            found.append(MirostatLogitsProcessor(self.number("tau"), self.number("eta")))
        elif self.kind in WARPERS:
            kind, argument, parameter = WARPERS[self.kind]
            found.append(getattr(transformers, kind)(**{argument: self.parameters[parameter]}))
        return found


def require_parameter(kind: str, name: str, allowed: Iterable[str]) -> None:
    """Check that a decoder has a parameter.

    Raises:
        ValueError: if it is unknown, listing those that there are.
    """
    if not list(allowed):
        raise ValueError(message(f"{kind}", "given without parameters", repr(name)))
    require_choice(f"parameter of {kind}", name, allowed)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def make_decoder(spec: "str | Decoder") -> Decoder:
    """The decoder that a text like "top_p:p=0.95" or "contrastive:alpha=0.6,k=5" names (Section 4).

    Names: adaptive, greedy, sampling, top_k, top_p, min_p, typical, eta, epsilon, top_h, mirostat, contrastive. A
    parameter that is not given has its default; those that sample also take `temperature`.

    Raises:
        TypeError: if it is no text.
        ValueError: listing the choices, if the name or a parameter is unknown, given twice or out of range.
    """
    if isinstance(spec, Decoder):
        return spec
    require_kind("decoder", spec, str)
    kind, _, rest = spec.partition(":")
    kind = require_choice("decoder", kind.strip(), DEFAULTS)
    values, allowed = (
        dict(DEFAULTS[kind]),
        [*DEFAULTS[kind], *(["temperature"] if kind not in WITHOUT_SAMPLING else [])],
    )
    seen: set[str] = set()
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        require_parameter(kind, name, allowed)
        if not equals or name in seen:
            raise ValueError(message(f"decoder {spec!r}", "name:parameter=value,… with each one once", repr(part)))
        seen.add(name)
        values[name] = text if isinstance(DEFAULTS[kind].get(name), str) else _number(spec, name, text)
    temperature = float(values.pop("temperature", 1.0))
    require_range("temperature", temperature, low=0, low_open=True, high=1e6)
    decoder = Decoder(kind, values, temperature)
    decoder.processors()  # whatever is out of range is refused here
    if kind == "contrastive":
        require_range("k", values["k"], low=1, integer=True)
        require_range("alpha", values["alpha"], low=0, high=1)
    return decoder


def _number(spec: str, name: str, text: str) -> float | int:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(message(f"{name} in {spec!r}", "a number", repr(text))) from error
    if not math.isfinite(value):
        raise ValueError(message(f"{name} in {spec!r}", "finite", repr(text)))
    return int(value) if name == "k" and value.is_integer() else value
