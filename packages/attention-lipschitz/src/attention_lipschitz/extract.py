"""Attention layers of real models as `AttentionLayer`s, and the tokens that enter them.

The paper's Section 5 measures layers 0 and 6 of GPT-2 and BERT on real text. A layer is extracted with an explicit mask
and compared with what the model's own forward pass computes: bare modules apply a mask under one backend and none under
another.
"""

from collections.abc import Sequence
from typing import Any

import torch
from offprints.checks import require_choice, require_range
from offprints.seeding import rng
from torch import Tensor, nn

from attention_lipschitz.adapters import Site, UnsupportedArchitectureError, adapter_of, attention_layers
from attention_lipschitz.blocks import AttentionBlock, TokenNorm
from attention_lipschitz.core import AttentionLayer
from attention_lipschitz.models import Inputs, Sequence1, caught, evaluated, sequences

SCOPES = ("self", "self+out", "block")
WHOLE_SCOPES = ("layer", "model")
"""Scopes that go through the model's own modules instead of extracted weights."""


class ExtractionMismatchError(RuntimeError):
    """The extracted layer does not compute what the model does."""


def extract_attention(
    model: nn.Module,
    layer: int = 0,
    scope: str = "self+out",
    *,
    causal: bool | None = None,
    check: bool | Inputs = True,
    live: bool = False,
) -> AttentionLayer | AttentionBlock:
    """The attention of one layer of a model (Section 5): its heads (A, c, V, O), mask and positions.

    Args:
        model: a transformers model (GPT-2, BERT, RoBERTa, DistilBERT, ViT, GPT-NeoX, Llama, Mistral, Qwen2), a torch
            module with `nn.MultiheadAttention` in it, or one that `register_adapter` made known.
        layer: which one, from 0; negative counts from the end.
        scope: "self" (heads side by side), "self+out" (with the output projection), "block" (with residual and norm,
            as the paper's scripts for BERT measure it).
        causal: overrides the mask; needed for `nn.MultiheadAttention`, whose mask is an argument of its call.
        check: compare with the model's own forward pass on random inputs, or on inputs given here.
        live: keep the weights attached to the model's parameters, for `lipschitz_penalty`.

    Raises:
        UnsupportedArchitectureError: if no adapter fits.
        ValueError: if there is no such layer or scope, or the block has no norm that is known.
        ExtractionMismatchError: if extracted and own values differ by more than 1e-4 of the largest (float32).
    """
    require_choice("scope", scope, SCOPES)
    site = find_site(model, layer)
    found = site.layer if live else _detached(site.layer)
    if found.query.dtype in (torch.float16, torch.bfloat16):
        found = found.measured(torch.float32)
    if causal is not None:
        found = found._rebuilt(causal=bool(causal))
    if check is not False:
        _require_parity(model, site, found, None if check is True else check)
    if scope == "self":
        return found._rebuilt(out=None, out_bias=None)
    return found if scope == "self+out" else _with_residual(site, found)


def find_site(model: nn.Module, layer: int) -> Site:
    """Where the attention of a layer sits.

    Raises:
        UnsupportedArchitectureError: if no adapter fits.
        ValueError: if there is no such layer.
    """
    blocks = attention_layers(model)
    last = len(blocks) - 1
    require_range("layer", layer, low=-len(blocks), high=last, integer=True, because=f"{len(blocks)} layers")
    index = layer % len(blocks)
    adapter = adapter_of(blocks[index])
    if adapter is None:
        raise UnsupportedArchitectureError(
            f"layer {layer} must be of a known class, got {type(blocks[index]).__name__}."
        )
    return adapter(model, blocks, index)


def _detached(layer: AttentionLayer) -> AttentionLayer:
    return layer._rebuilt(**{name: x.detach() for name, x in layer._buffers.items() if x is not None})


def _with_residual(site: Site, layer: AttentionLayer) -> AttentionBlock:
    chosen = site.after if site.after is not None else site.norm
    if chosen is None:
        raise ValueError('scope must be "self" or "self+out" where the norm of the block is not known, got "block".')
    norm = TokenNorm.from_module(chosen).measured(layer.query.dtype)
    return AttentionBlock(layer, norm, before=site.after is None)


def attention_norm(model: nn.Module, layer: int = 0) -> TokenNorm:
    """The norm whose output enters the attention of a layer (Section 3 bounds attention on its image).

    Raises:
        ValueError: if there is none.
    """
    norm = find_site(model, layer).norm
    if norm is None:
        raise ValueError(f"layer {layer} must have a norm in front of its attention, got none that is known.")
    found = TokenNorm.from_module(norm)
    return found.measured(torch.float32) if found.weight.dtype in (torch.float16, torch.bfloat16) else found


def layernorm_radius(model: nn.Module, layer: int = 0) -> float:
    """R = ‖γ‖_∞ √d + ‖β‖ of the norm in front of a layer's attention: its tokens lie in the ball B_R (Section 3).

    Raises:
        ValueError: if there is no norm.
    """
    return attention_norm(model, layer).radius()


def capture_inputs(
    model: nn.Module, inputs: Inputs, layer: int = 0, *, scope: str = "self+out", drop_padding: bool = True
) -> list[Tensor]:
    """The tokens (n_i, d) that enter the attention of a layer, one tensor for each sequence, padding removed.

    Every sequence runs by itself without its padding, so that neither left padding nor its neighbours change it.

    Args:
        model: as in `extract_attention`; put into evaluation mode for the pass, and back.
        inputs: ids (B, n), rows of ids, embeddings (B, n, d), pixels, or a tokenizer's output.
        layer: which one.
        scope: with "block" (and a norm in front) or "layer", what enters the block instead of the attention.
        drop_padding: whether masked tokens are removed; if not, any is an error.

    Raises:
        UnsupportedArchitectureError: if no adapter fits.
        ValueError: if a sequence is longer than the position table, or as `models.sequences` says.
        FloatingPointError: if a row is masked altogether.
    """
    require_choice("scope", scope, (*SCOPES, *WHOLE_SCOPES))
    rows = sequences(inputs, drop_padding)
    if isinstance(model, nn.MultiheadAttention):
        return [next(iter(row.values()))[0] for row in rows]
    site = find_site(model, layer)
    module = entrance(model, site, scope)
    with evaluated(model):
        found = []
        for row in rows:
            require_places(row, site.limit)
            (tokens,) = caught(model, row, before=[module])
            found.append(tokens[0] if site.batch_first else tokens[:, 0])
    return found


def entrance(model: nn.Module, site: Site, scope: str) -> nn.Module:
    """The module whose input is the X of a scope."""
    if scope == "model":
        return find_site(model, 0).block
    if scope == "layer":
        return site.block
    return site.norm if scope == "block" and site.after is None and site.norm is not None else site.tokens


def require_places(row: Sequence1, limit: int | None) -> None:
    """Refuse a sequence that the position table does not cover."""
    main = row.get("input_ids", row.get("inputs_embeds"))
    if limit is not None and main is not None and main.shape[1] > limit:
        raise ValueError(f"inputs must hold at most {limit} tokens (the position table), got {main.shape[1]}.")


def _require_parity(model: nn.Module, site: Site, layer: AttentionLayer, inputs: Inputs | None) -> None:
    with evaluated(model), torch.no_grad():
        if isinstance(site.tokens, nn.MultiheadAttention) and inputs is None:
            tokens, wanted = _multihead_values(site, layer)
        else:
            row = sequences(_random_inputs(model, site) if inputs is None else inputs)[0]
            tokens, wanted = caught(model, row, before=[site.tokens], after=[site.output])
            tokens, wanted = (x[0] if site.batch_first else x[:, 0] for x in (tokens, wanted))
    got = layer.measured()(tokens.double() if tokens.device.type != "mps" else tokens)
    gap, size = float((got - wanted).abs().max()), float(wanted.abs().max())
    eps = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}.get(wanted.dtype, 0.0)
    if not gap <= max(1e-4, 16 * eps) * max(size, 1e-30):
        raise ExtractionMismatchError(
            f"the extracted layer must compute what {type(site.tokens).__name__} does, got a difference of {gap:.3g} "
            f"beside values of {size:.3g}. Its mask, scale or positions may be special: write an adapter."
        )


def _multihead_values(site: Site, layer: AttentionLayer) -> tuple[Tensor, Tensor]:
    module: Any = site.tokens
    weight = module.in_proj_weight
    drawn = torch.from_numpy(rng(0).standard_normal((5, layer.dim))).to(weight)
    batched = drawn[None] if site.batch_first else drawn[:, None]
    seen = layer.mask(5)
    mask = None if seen is None else ~seen
    wanted = module(batched, batched, batched, attn_mask=mask, need_weights=False)[0]
    return drawn, wanted[0] if site.batch_first else wanted[:, 0]


def _random_inputs(model: Any, site: Site) -> Inputs:
    """Ids or pixels that the model takes."""
    gen = rng(0)
    config: Any = getattr(model, "config", None)
    if hasattr(config, "image_size"):
        sides = config.image_size if isinstance(config.image_size, Sequence) else (config.image_size,) * 2
        pixels = torch.from_numpy(gen.standard_normal((1, config.num_channels, *sides)))
        return pixels.to(next(model.parameters()).dtype)
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    if embedding is None:
        raise ValueError(
            "check must be inputs that the model takes, or False, where they cannot be made up; got True for "
            f"{type(model).__name__}."
        )
    length = 9 if site.limit is None else min(9, site.limit)
    return torch.from_numpy(gen.integers(0, embedding.num_embeddings, (1, length)))
