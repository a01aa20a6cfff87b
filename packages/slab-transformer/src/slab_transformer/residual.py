"""Fold the last norm of a head-less Swin into its last stage (Guo et al., 2024, Section 3.2, as released).

The residual stream of the stage is scaled by a: everything that writes to it gets a on its rows, everything that reads
it 1/a on its columns, and b goes to the bias of the last writer.
"""

import torch
from torch import Tensor, nn

from .errors import FusionError

_SMALL = 1e-6


def fold_into_residual(model, plans):
    """Replace the plan "affine" of the last norm by a scaled residual stream, in transformers' `SwinModel`.

    Raises:
        FusionError: Another architecture, norms of the last stage that are not folded, or a channel with |a| < 1e-6.
    """
    from .fuse import ChannelAffine, Plan, put_module, write_layer

    encoder, norm = getattr(model, "encoder", None), getattr(model, "layernorm", None)
    stages = getattr(encoder, "layers", None)
    if type(model).__name__ != "SwinModel" or stages is None:
        raise FusionError(
            f'headless="residual" is known for transformers\' SwinModel, got {type(model).__name__}. Use "affine".'
        )
    if not isinstance(norm, ChannelAffine):
        raise FusionError('headless="residual": the last norm is folded already, as something reads it.')
    a, b = norm.a.detach().double(), norm.b.detach().double()
    if float(a.abs().min()) < _SMALL:
        worst = int(a.abs().argmin())
        raise FusionError(
            f"layernorm: channel {worst} has |a| = {float(a[worst].abs()):.2g} < 1e-6: 1/a does not exist."
        )
    number = len(stages) - 1
    open_norms = [p.name for p in plans if p.action == "affine" and p.name.startswith(f"encoder.layers.{number}.")]
    if open_norms:
        raise FusionError(
            f'headless="residual": {open_norms[0]} is not folded, so that it reads the stream itself. '
            "Pass fixed_size=True when images keep their size."
        )
    if number == 0:
        raise FusionError('headless="residual" needs two stages: the stream starts at a patch merging.')
    _scale_stage(stages, a, b, write_layer)
    put_module(model, "layernorm", nn.Identity())
    return [
        Plan(p.name, "residual", f"into encoder.layers.{number}", _touched(model, number))
        if p.name == "layernorm"
        else p
        for p in plans
    ]


def _writers_and_readers(block: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    attention = block.attention
    if hasattr(block, "mlp"):
        inside, outside = block.mlp.fc1, block.mlp.fc2
    else:  # transformers 5.0
        inside, outside = block.intermediate.dense, block.output.dense
    if hasattr(attention, "sla"):
        sla = attention.sla
        return [sla.proj, outside], [sla.q, sla.k, sla.v, inside]
    if hasattr(attention, "o_proj"):
        return [attention.o_proj, outside], [attention.q_proj, attention.k_proj, attention.v_proj, inside]
    old = attention.self
    return [attention.output.dense, outside], [old.query, old.key, old.value, inside]


def _touched(model: nn.Module, number: int) -> tuple[str, ...]:
    layers = {id(m): name for name, m in model.named_modules()}
    names = [layers[id(model.encoder.layers[number - 1].downsample.reduction)]]
    for block in model.encoder.layers[number].blocks:
        for group in _writers_and_readers(block):
            names += [layers[id(layer)] for layer in group]
    return tuple(names)


def _scale_stage(stages: nn.ModuleList, a: Tensor, b: Tensor, write) -> None:
    reduction = stages[-2].downsample.reduction
    blocks = list(stages[-1].blocks)
    with torch.no_grad():
        _rows(reduction, a, None, write)
        for block in blocks:
            writers, readers = _writers_and_readers(block)
            for layer in writers:
                shift = b if block is blocks[-1] and layer is writers[-1] else None
                _rows(layer, a, shift, write)
            for layer in readers:
                bias = layer.bias.double() if layer.bias is not None else a.new_zeros(layer.out_features)
                write(layer, layer.weight.double() / a, bias)


def _rows(layer: nn.Module, a: Tensor, shift: Tensor | None, write) -> None:
    bias = layer.bias.double() if layer.bias is not None else a.new_zeros(layer.out_features)
    write(layer, layer.weight.double() * a[:, None], a * bias + (0 if shift is None else shift))
