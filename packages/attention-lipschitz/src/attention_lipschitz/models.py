"""Running other people's models for measurement: evaluation mode, single precision, padding removed, tokens caught.

Tokens are caught where they enter the attention module in the model's own forward pass, as in Section 5 of the paper.
"""

import copy
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Inputs = Tensor | Mapping[str, Tensor] | Sequence[Tensor] | Sequence[Sequence[int]]
Sequence1 = dict[str, Tensor]
"""The arguments of a forward pass of one sequence, batch axis included."""
_PER_TOKEN = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")


class TrainingModeWarning(UserWarning):
    """The model was in training mode; it is measured in evaluation mode (without dropout) and put back."""


class _Caught(Exception):
    """Ends a forward pass once all that was asked for is in."""


@contextmanager
def evaluated(model: nn.Module) -> Generator[None, None, None]:
    """Evaluation mode for the block, every submodule's own mode after it; warns if something was training."""
    modes = {module: module.training for module in model.modules()}
    if any(modes.values()):
        warnings.warn(
            f"{type(model).__name__} is in training mode: dropout is switched off for the measurement.",
            TrainingModeWarning,
            stacklevel=4,
        )
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def single_precision(module: nn.Module) -> nn.Module:
    """The module itself, or a float32 copy if weights are in half precision."""
    halves = (torch.float16, torch.bfloat16)
    return copy.deepcopy(module).float() if any(p.dtype in halves for p in module.parameters()) else module


def sequences(inputs: Inputs, drop_padding: bool = True) -> list[Sequence1]:
    """One dictionary of arguments for each sequence, its padding removed.

    Args:
        inputs: token ids (n,) or (B, n); a list of such rows of any lengths; embeddings (B, n, d); pixels (B, C, H, W);
            or what a tokenizer or image processor returns (`input_ids`, `attention_mask`, …, `pixel_values`).
        drop_padding: whether masked tokens are removed; if not, any is an error.

    Raises:
        TypeError: if it is none of these.
        ValueError: if there is nothing, a mask has gaps, or it masks tokens that must stay.
        FloatingPointError: if a row is masked altogether: its attention would be 0/0.
    """
    if isinstance(inputs, Tensor):
        named = {2: "input_ids", 3: "inputs_embeds", 4: "pixel_values"}
        inputs = inputs[None] if inputs.ndim == 1 else inputs
        if inputs.ndim not in named or inputs.dtype.is_floating_point != (inputs.ndim > 2):
            raise TypeError(
                f"inputs must be ids (B, n), embeddings (B, n, d) or pixels (B, C, H, W), got {inputs.dtype} of shape "
                f"{tuple(inputs.shape)}."
            )
        inputs = {named[inputs.ndim]: inputs}
    if isinstance(inputs, Mapping):
        found = _rows(inputs, drop_padding)
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        found = [{"input_ids": torch.as_tensor(row, dtype=torch.long).reshape(1, -1)} for row in inputs]
    else:
        raise TypeError(f"inputs must be tensors, rows of ids or a tokenizer's output, got {type(inputs).__name__}.")
    if not found or any(next(iter(row.values())).numel() == 0 for row in found):
        raise ValueError("inputs must hold one sequence of one token or more, got none.")
    return found


def _rows(inputs: Mapping[str, Tensor], drop_padding: bool) -> list[Sequence1]:
    main = next((name for name in ("input_ids", "inputs_embeds", "pixel_values") if name in inputs), None)
    if main is None:
        raise TypeError(
            f"inputs must hold input_ids, inputs_embeds or pixel_values, got {', '.join(inputs) or 'nothing'}."
        )
    mask, rows = inputs.get("attention_mask"), []
    for i in range(len(inputs[main])):
        row = {
            name: x[i : i + 1] for name, x in inputs.items() if isinstance(x, Tensor) and len(x) == len(inputs[main])
        }
        if mask is not None:
            kept = mask[i].bool()
            _require_whole(kept, i, drop_padding)
            row = {name: x[:, kept] if name in _PER_TOKEN else x for name, x in row.items() if name != "attention_mask"}
            row.pop("position_ids", None)  # counted from the first real token, as the model does
        rows.append(row)
    return rows


def _require_whole(kept: Tensor, i: int, drop_padding: bool) -> None:
    if not bool(kept.any()):
        raise FloatingPointError(
            f"attention_mask must keep a token in every row, got none in row {i}: attention is 0/0."
        )
    if bool(kept.all()):
        return
    if not drop_padding:
        raise ValueError(
            f"attention_mask must be all ones with drop_padding=False, got {int((~kept).sum())} zeros in row {i}. "
            "Padded tokens have to be removed: pass drop_padding=True."
        )
    at = kept.nonzero().flatten()
    if int(at[-1] - at[0]) + 1 != at.numel():
        raise ValueError(f"attention_mask must be one run of ones, got gaps in row {i}. Remove those tokens yourself.")


def caught(
    model: nn.Module, arguments: Sequence1, before: Sequence[nn.Module] = (), after: Sequence[nn.Module] = ()
) -> list[Tensor]:
    """What enters the modules `before` and leaves the modules `after`, in one forward pass that then ends.

    Raises:
        ValueError: if one of them was never called.
    """
    found: dict[int, Tensor] = {}
    total = len(before) + len(after)

    def keep(place: int, value: Tensor) -> None:
        found[place] = value.detach()
        if len(found) == total:
            raise _Caught

    handles = []
    for place, module in enumerate(before):
        handles.append(module.register_forward_pre_hook(_entering(place, keep), with_kwargs=True))
    for place, module in enumerate(after, len(before)):
        handles.append(module.register_forward_hook(_leaving(place, keep)))
    device = next(model.parameters()).device
    arguments = {name: x.to(device) for name, x in arguments.items()}
    try:
        with torch.no_grad():
            called(model, arguments)
    except _Caught:
        pass
    finally:
        for handle in handles:
            handle.remove()
    if len(found) < total:
        raise ValueError(f"the forward pass of {type(model).__name__} must reach the attention layer, but did not.")
    return [found[place] for place in range(total)]


def called(model: nn.Module, arguments: Sequence1) -> object:
    """One forward pass; a plain torch module gets its only argument by position."""
    if hasattr(model, "config"):
        return model(**arguments)
    return model(*arguments.values())


def _entering(place: int, keep: Callable[[int, Tensor], None]) -> Callable:
    def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
        keep(place, tokens_of(args, kwargs))

    return hook


def _leaving(place: int, keep: Callable[[int, Tensor], None]) -> Callable:
    def hook(module: nn.Module, args: tuple, output: object) -> None:
        keep(place, output[0] if isinstance(output, tuple) else output)  # type: ignore[arg-type]

    return hook


def tokens_of(args: tuple, kwargs: dict) -> Tensor:
    """The tokens of a call, which may come by position or as `hidden_states`."""
    if args:
        return args[0]
    return kwargs["hidden_states"] if "hidden_states" in kwargs else next(iter(kwargs.values()))


def between(model: nn.Module, arguments: Sequence1, first: nn.Module, last: nn.Module) -> Callable[[Tensor], Tensor]:
    """The map from the tokens (n, d) that enter `first` to those that leave `last`, inside the model's forward pass.

    Masks, positions and whatever else the model makes for itself are its own.
    """
    device = next(model.parameters()).device
    arguments = {name: x.to(device) for name, x in arguments.items()}

    def run(X: Tensor) -> Tensor:
        left: list[Tensor] = []

        def swap(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            if args:
                return (X[None], *args[1:]), kwargs
            return args, kwargs | {"hidden_states": X[None]}

        def stop(module: nn.Module, args: tuple, output: object) -> None:
            left.append(output[0] if isinstance(output, tuple) else output)  # type: ignore[arg-type]
            raise _Caught

        handles = [first.register_forward_pre_hook(swap, with_kwargs=True), last.register_forward_hook(stop)]
        try:
            called(model, arguments)
        except _Caught:
            pass
        finally:
            for handle in handles:
                handle.remove()
        return left[0][0]

    return run
