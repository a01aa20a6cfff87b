"""The rule as a logits processor of transformers (Section 3 of the paper)."""

import math
import warnings
from typing import TYPE_CHECKING

import torch
from offprints.checks import message, require_choice, require_kind, require_range
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from adaptive_decoding.candidates import Choice, Rule, as_epsilon, choose, real_part, warn_of_too_few
from adaptive_decoding.lifecycle import Generation
from adaptive_decoding.ranking import checked_top, traced, upcast
from adaptive_decoding.trace import DecodingTrace, Step

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SAMPLING = ("multinomial", "uniform")
DEFAULT_TOP_K = 50


def checked_scores(scores: Tensor) -> Tensor:
    """(rows, V) floating-point scores.

    Raises:
        TypeError: if it is no tensor.
        ValueError: if it has another shape or kind of numbers.
    """
    require_kind("scores", scores, Tensor)
    if not scores.is_floating_point():
        raise ValueError(message("scores", "of a floating-point type", str(scores.dtype), "Pass logits, not ids."))
    if scores.ndim != 2 or scores.shape[1] == 0:
        hint = "Add the batch axis by scores.unsqueeze(0)." if scores.ndim == 1 else "Pass those of the last position."
        raise ValueError(message("scores", "of shape (batch, vocabulary)", tuple(scores.shape), hint))
    return scores


def held(value: float, dtype: torch.dtype) -> float:
    """A score as the dtype can hold it: −1e9 is out of the range of float16; −inf stays."""
    return value if math.isinf(value) else max(value, torch.finfo(dtype).min)


def tempered(x: Tensor, temperature: float, most: float) -> Tensor:
    """(rows, V) scores divided by the temperature; rows that would leave ±`most` by it are shifted to 0 first."""
    top = x.amax(-1, keepdim=True)
    over = (top.abs() > most * min(temperature, 1.0)) & torch.isfinite(top)
    return torch.where(over, x - top, x) / temperature


class AdaptiveLogitsProcessor(LogitsProcessor):
    """Keep token k = 1, 2, …, most probable first, while ΔConf_k > ε; everything else gets `filter_value` (Section 3).

    Conf_k = 1 − H_k / ln n is the share of the greatest entropy that is resolved when k tokens are known and the others
    spread evenly over the rest; see `confidence_increments`. Cost: O(batch · V), no sort. It keeps no state but the
    trace, can be pickled and copied, and works with any model that `generate` takes, compiled or not, in greedy
    decoding, sampling and beam search. In a beam search rows are beams, which are reordered between calls: the trace is
    one of calls then, not of hypotheses.

    `generate` applies its own temperature, top-k and top-p *after* this, and takes them from the model's settings if
    they are not given: it cuts to 50 tokens by default, which neither the processor nor its trace can see. So pass the
    temperature here, where it comes before the rule, and `**processor.generate_kwargs(model)` to `generate`.

    A new generation is told by its prompt. One whose prompt is that of the last and exactly one token longer than what
    the last call saw looks as if it went on: call `reset()` before it.

    Args:
        epsilon: ε in [0, 1), or a tensor with one for each row of the batch. The paper uses 0.001 and 0.0005.
        rule: "prefix", "pointwise" or "last", as in `candidate_mask`.
        sampling: "multinomial", from the renormalised probabilities, or "uniform", evenly from what is kept (Table 8).
        flat: "top1" or "keep_all", as in `candidate_mask`.
        min_tokens_to_keep: the most probable tokens that stay in any case, unless at −inf; beam search needs 2.
        vocab_size: n, where the last logits only fill the vocabulary up.
        count_masked: whether tokens that came in at −inf count in n.
        filter_value: the score of what is not kept (the least of the dtype, where that cannot hold it).
        record: whether to keep a `trace`, of one generation at a time.
        temperature: what the scores are divided by before the rule.

    Attributes:
        trace: the `DecodingTrace` of the generation at hand; empty without `record`.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if an argument is out of range; at a call, if the scores are not (batch, vocabulary) floating-point
            numbers, or a row holds NaN or +inf or nothing finite (the row is named).
    """

    def __init__(
        self,
        epsilon: float | Tensor = 1e-3,
        rule: str = "prefix",
        sampling: str = "multinomial",
        flat: str = "top1",
        min_tokens_to_keep: int = 1,
        vocab_size: int | None = None,
        count_masked: bool = True,
        filter_value: float = -math.inf,
        record: bool = False,
        temperature: float = 1.0,
    ) -> None:
        self.epsilon = as_epsilon(epsilon)
        if isinstance(self.epsilon, Tensor) and self.epsilon.ndim != 1:
            raise ValueError(message("epsilon", "a number or of shape (batch,)", tuple(self.epsilon.shape)))
        self.how = Rule(rule, flat, min_tokens_to_keep, vocab_size, count_masked)
        self.sampling = require_choice("sampling", sampling, SAMPLING)
        self.filter_value = float(require_range("filter_value", filter_value, high=0.0))
        self.temperature = require_range("temperature", temperature, low=0, low_open=True, high=1e6)
        require_kind("record", record, bool)
        self.record = record
        self.trace = DecodingTrace()
        self._generation = Generation()
        self._warned = False

    def reset(self) -> None:
        """Forget the generation at hand and its trace."""
        self.trace, self._generation = DecodingTrace(), Generation()

    def generate_kwargs(self, model: "PreTrainedModel", **more: object) -> dict[str, object]:
        """Arguments for `model.generate` that sample by this rule alone, as Section 3 of the paper does.

        `do_sample=True`, this processor, and all that `generate` would cut with afterwards switched off: its default
        top-k of 50, and what the model was published with. For example
        `model.generate(**batch, **processor.generate_kwargs(model, max_new_tokens=50))`.

        Args:
            model: whose `generation_config` is looked at.
            more: further arguments of `generate`; `logits_processor` may hold processors that come before this one.

        Raises:
            ValueError: if an argument, or a setting of the model that cannot be overruled, cuts after the rule.
        """
        settings = getattr(model, "generation_config", None)
        off: dict[str, object] = {
            "top_k": 0, "top_p": 1.0, "temperature": 1.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0
        }  # fmt: skip
        if getattr(settings, "min_p", None) is not None:
            off["min_p"] = 0.0
        if getattr(settings, "top_h", None) is not None:
            raise ValueError(message("model.generation_config.top_h", "None", settings.top_h, "Set it to None."))
        for name in (*off, "min_p", "top_h"):
            if more.get(name) is not None and more[name] != off.get(name):
                hint = (
                    "Give it to AdaptiveLogitsProcessor." if name == "temperature" else "It would cut after the rule."
                )
                raise ValueError(message(name, "left out", repr(more[name]), hint))
        before = more.get("logits_processor")
        chain = LogitsProcessorList([*(before if isinstance(before, list) else []), self])
        return {"do_sample": True, **more, **off, "logits_processor": chain}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(batch, length) ids so far and (batch, V) scores -> (batch, V) scores of the same dtype, on the same device.

        Raises:
            ValueError: as the class says.
        """
        checked_scores(scores)
        size = scores.shape[1]
        if not traced(scores):
            self._warn(scores)
        x = real_part(upcast(scores.detach()), self.how.vocab_size)
        if self.temperature != 1.0:
            x = tempered(x, self.temperature, torch.finfo(scores.dtype).max)
        if size == 1:
            checked_top(x)
            return scores
        choice = choose(x, self._limits(len(x)), self.how)
        if self.record and not traced(scores):
            self._keep(input_ids, x, choice)
        return self._written(scores, x, choice)

    def _written(self, scores: Tensor, x: Tensor, choice: Choice) -> Tensor:
        uniform, fill = self.sampling == "uniform", held(self.filter_value, scores.dtype)
        kept = torch.zeros_like(choice.order.values) if uniform else choice.order.values
        kept = kept.clamp(min=torch.finfo(scores.dtype).min)  # what is kept stays finite in 16 bits
        out = scores.new_full(scores.shape, fill)
        out.scatter_(1, choice.order.ids, kept.masked_fill(~choice.keep, fill).to(out.dtype))
        if choice.everything is not None:
            whole = torch.zeros_like(x).masked_fill(x == -torch.inf, -torch.inf) if uniform else x
            real = out[:, : x.shape[1]]
            out[:, : x.shape[1]] = torch.where(choice.everything, whole.to(out.dtype), real)
        return out

    def _limits(self, rows: int) -> float | Tensor:
        """ε of every row; in a beam search the rows of one prompt follow each other."""
        if not isinstance(self.epsilon, Tensor):
            return self.epsilon
        times, left = divmod(rows, len(self.epsilon))
        if left:
            raise ValueError(message("epsilon", f"one number for each of {rows} rows", f"{len(self.epsilon)} numbers"))
        return self.epsilon.repeat_interleave(times)

    def _warn(self, scores: Tensor) -> None:
        """Once each: of a top-k of 50 that came before, as in a list of processors, and of more to keep than there are.

        That of `generate` comes after, where nothing can be seen of it.
        """
        size, wanted = scores.shape[1], self.how.min_tokens_to_keep
        if self._warned or not len(scores):
            return
        self._warned = True
        if wanted > size:
            warn_of_too_few(wanted, size)
        if size > DEFAULT_TOP_K and bool((torch.isfinite(scores).sum(-1) == DEFAULT_TOP_K).all()):
            text = "exactly 50 tokens come in: is it a top-k by default? The rule is made for all; leave top-k out."
            warnings.warn(text, stacklevel=3)

    def _keep(self, input_ids: Tensor, x: Tensor, choice: Choice) -> None:
        if not self._generation.goes_on(input_ids):
            self.trace = DecodingTrace(input_ids.shape[1])
        self.trace.append(measured(x, choice))


def measured(x: Tensor, choice: Choice) -> Step:
    """What a trace keeps of one step: k, the kept mass, the confidence of the kept set, the entropy in nats."""
    order = choice.order
    n = torch.as_tensor(choice.n, dtype=choice.delta.dtype, device=x.device).reshape(-1, 1)
    stays = order.filled(choice.keep)
    k = stays.sum(-1)
    mass = (order.probs * stays).sum(-1)
    rest = order.rest[:, -1] + (order.probs * ~stays).sum(-1)
    known = -(torch.xlogy(order.probs, order.probs) * stays).sum(-1)
    unknown = -torch.xlogy(rest, rest / (n[:, 0] - k).clamp(min=1))
    entropy = torch.special.entr(torch.softmax(x, -1)).sum(-1).to(mass.dtype)
    resolved = known + unknown
    if choice.everything is not None:
        every = choice.everything[:, 0]
        k = torch.where(every, torch.isfinite(x).sum(-1), k)
        mass, resolved = torch.where(every, torch.ones_like(mass), mass), torch.where(every, entropy, resolved)
    scale = n[:, 0].log()
    confidence = torch.where(scale > 0, 1 - resolved / scale.clamp(min=1e-300), torch.ones_like(resolved))
    return Step(k, mass, confidence, entropy)
