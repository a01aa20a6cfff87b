"""Where attention sits in each architecture, and how its weights are laid out.

The paper measures GPT-2 and BERT (Section 5). An adapter takes a model, its attention layers in order and the place of
one, and says what that one is made of. Layers are known by the name of their class, so transformers is not imported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attention_lipschitz.core import AttentionLayer


class UnsupportedArchitectureError(ValueError):
    """No adapter knows this model, or the model does something that attention in closed form does not."""


@dataclass(frozen=True)
class Site:
    """One attention layer inside a model.

    Attributes:
        layer: its weights.
        tokens: the module that the tokens enter.
        output: the module whose output the layer must reproduce: the output projection.
        block: the whole transformer layer.
        norm: the norm whose output the tokens are, or None.
        after: the norm behind attention and residual, where there is one instead (as in BERT).
        limit: most positions of a position table, or None.
        batch_first: whether tokens come as (B, n, d).
    """

    layer: AttentionLayer
    tokens: nn.Module
    output: nn.Module
    block: nn.Module
    norm: nn.Module | None = None
    after: nn.Module | None = None
    limit: int | None = None
    batch_first: bool = True


Adapter = Callable[[nn.Module, Sequence[nn.Module], int], Site]
_ADAPTERS: dict[str, Adapter] = {}


def register_adapter(cls: type | str, adapter: Adapter) -> None:
    """Make another architecture known.

    Args:
        cls: the class of its transformer layer (or of its attention module), or that class's name.
        adapter: (model, all layers of such classes in the model, index) -> `Site`.
    """
    _ADAPTERS[cls if isinstance(cls, str) else cls.__name__] = adapter


def adapter_of(module: nn.Module) -> Adapter | None:
    """The adapter for the class of a module or one that it derives from."""
    return next((_ADAPTERS[c.__name__] for c in type(module).__mro__ if c.__name__ in _ADAPTERS), None)


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model that an adapter knows, in the order in which they are registered.

    Raises:
        UnsupportedArchitectureError: if there is none, listing what is known.
    """
    found = [module for module in model.modules() if adapter_of(module) is not None]
    if not found:
        raise UnsupportedArchitectureError(
            f"model must have layers of one of {', '.join(sorted(_ADAPTERS))}, got {type(model).__name__}. "
            "Add yours with register_adapter."
        )
    return found


def split_heads(weight: Tensor, heads: int, repeat: int = 1) -> Tensor:
    """(H k, ...) to (H, k, ...), each repeated for the query heads that share it."""
    return weight.unflatten(0, (heads, -1)).repeat_interleave(repeat, dim=0)


def _maybe(bias: Tensor | None, heads: int, repeat: int = 1) -> Tensor | None:
    return None if bias is None else split_heads(bias, heads, repeat)


def _joined(out: nn.Linear, heads: int) -> Tensor:
    """(H, d_out, k) pieces of an output projection (d_out, H k)."""
    return out.weight.unflatten(1, (heads, -1)).transpose(0, 1)


def _from_linear(
    query: nn.Linear, key: nn.Linear, value: nn.Linear, out: nn.Linear, heads: int, repeat: int = 1, **options: Any
) -> AttentionLayer:
    shared = heads // repeat
    return AttentionLayer.from_projections(
        split_heads(query.weight, heads), split_heads(key.weight, shared, repeat),
        split_heads(value.weight, shared, repeat), _joined(out, heads), query_bias=_maybe(query.bias, heads),
        key_bias=_maybe(key.bias, shared, repeat), value_bias=_maybe(value.bias, shared, repeat), out_bias=out.bias,
        **options,
    )  # fmt: skip


def _embedding_table(model: nn.Module, *names: str) -> Any:
    return next((m for name, m in model.named_modules() if name.rpartition(".")[2] in names), None)


def _gpt2(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    """Conv1D keeps (in, out): queries are columns 0…d, keys d…2d, values 2d…3d of `c_attn`."""
    block: Any = blocks[index]
    attn, heads = block.attn, block.attn.num_heads
    weight, bias = attn.c_attn.weight.T, attn.c_attn.bias
    parts, biases = weight.chunk(3), bias.chunk(3)
    scale = attn.head_dim**-0.5 if attn.scale_attn_weights else 1.0
    if attn.scale_attn_by_inverse_layer_idx:
        scale /= attn.layer_idx + 1
    out = attn.c_proj.weight.unflatten(0, (heads, -1)).mT
    layer = AttentionLayer.from_projections(
        split_heads(parts[0], heads), split_heads(parts[1], heads), split_heads(parts[2], heads), out,
        query_bias=split_heads(biases[0], heads),
        key_bias=split_heads(biases[1], heads), value_bias=split_heads(biases[2], heads), out_bias=attn.c_proj.bias,
        causal=True, scale=scale,
    )  # fmt: skip
    table = _embedding_table(model, "wpe")
    return Site(layer, attn, attn.c_proj, block, norm=block.ln_1, limit=table.num_embeddings if table else None)


def _bert(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    block: Any = blocks[index]
    own, out = block.attention.self, block.attention.output
    kind = getattr(own, "position_embedding_type", None) or getattr(own.config, "position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnsupportedArchitectureError(
            f"position_embedding_type must be 'absolute', got {kind!r}: it is query-dependent."
        )
    heads = own.num_attention_heads
    layer = _from_linear(own.query, own.key, own.value, out.dense, heads, causal=bool(own.config.is_decoder))
    earlier: Any = blocks[index - 1]
    before = earlier.output.LayerNorm if index else _embedding_table(model, "LayerNorm")
    table = _embedding_table(model, "position_embeddings")
    limit = None
    if table is not None:  # RoBERTa counts from its padding index on
        limit = table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return Site(layer, block.attention, out.dense, block, norm=before, after=out.LayerNorm, limit=limit)


def _distilbert(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    block: Any = blocks[index]
    attn = block.attention
    layer = _from_linear(attn.q_lin, attn.k_lin, attn.v_lin, attn.out_lin, attn.n_heads)
    earlier: Any = blocks[index - 1]
    before = earlier.output_layer_norm if index else _embedding_table(model, "LayerNorm")
    table = _embedding_table(model, "position_embeddings")
    limit = table.num_embeddings if table is not None else None
    return Site(layer, attn, attn.out_lin, block, norm=before, after=block.sa_layer_norm, limit=limit)


def _vit(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    block: Any = blocks[index]
    attn = block.attention
    if hasattr(attn, "q_proj"):
        own, names, out = attn, ("q_proj", "k_proj", "v_proj"), attn.o_proj
    else:  # before transformers 5.5 or so
        own, names, out = attn.attention, ("query", "key", "value"), attn.output.dense
    query, key, value = (getattr(own, name) for name in names)
    heads = own.config.num_attention_heads
    return Site(_from_linear(query, key, value, out, heads), attn, out, block, norm=block.layernorm_before)


def _gpt_neox(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    """`query_key_value` holds query, key and value of one head after the other."""
    block: Any = blocks[index]
    attn = block.attention
    heads = attn.config.num_attention_heads
    weight = attn.query_key_value.weight.unflatten(0, (heads, 3, -1))
    bias = attn.query_key_value.bias
    biases = (None,) * 3 if bias is None else bias.unflatten(0, (heads, 3, -1)).unbind(1)
    frequencies, factor = _rotary(model)
    layer = AttentionLayer.from_projections(
        weight[:, 0], weight[:, 1], weight[:, 2], _joined(attn.dense, heads),
        query_bias=biases[0], key_bias=biases[1], value_bias=biases[2],
        out_bias=attn.dense.bias, causal=True, frequencies=frequencies, rotary_factor=factor,
    )  # fmt: skip
    return Site(layer, attn, attn.dense, block, norm=block.input_layernorm)


def _llama(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    """Llama, Mistral, Qwen2: grouped queries, rotary positions, maybe a sliding window."""
    block: Any = blocks[index]
    attn, config = block.self_attn, block.self_attn.config
    if hasattr(attn, "q_norm"):
        raise UnsupportedArchitectureError(
            "queries and keys must be linear in the tokens, but this model normalises them."
        )
    heads = config.num_attention_heads
    frequencies, factor = _rotary(model)
    layer = _from_linear(
        attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj, heads, repeat=heads // config.num_key_value_heads,
        causal=True, scale=attn.scaling, frequencies=frequencies, rotary_factor=factor, window=_window(config, index),
    )  # fmt: skip
    return Site(layer, attn, attn.o_proj, block, norm=block.input_layernorm)


def _window(config: object, index: int) -> int | None:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and kinds[index] != "sliding_attention":
        return None
    if kinds is None and not getattr(config, "use_sliding_window", True):
        return None
    return getattr(config, "sliding_window", None)


def _rotary(model: nn.Module) -> tuple[Tensor, float]:
    """Frequencies and factor of a model's rotary embedding."""
    found: Any = next((m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding")), None)
    if found is None:
        raise UnsupportedArchitectureError(
            "a rotary embedding must be in the model: pass the whole model, not one layer."
        )
    if getattr(found, "rope_type", "default") in ("dynamic", "longrope"):
        raise UnsupportedArchitectureError(
            f"rotary frequencies must not depend on the length, got {found.rope_type!r}."
        )
    return found.inv_freq, float(getattr(found, "attention_scaling", 1.0))


def _multihead(model: nn.Module, blocks: Sequence[nn.Module], index: int) -> Site:
    """`torch.nn.MultiheadAttention` used as self-attention."""
    attn: Any = blocks[index]
    if not attn._qkv_same_embed_dim or attn.bias_k is not None or attn.add_zero_attn:
        raise UnsupportedArchitectureError(
            "MultiheadAttention must be self-attention: kdim = vdim = embed_dim, no add_bias_kv, no add_zero_attn."
        )
    heads = attn.num_heads
    weights = attn.in_proj_weight.chunk(3)
    biases = (None,) * 3 if attn.in_proj_bias is None else attn.in_proj_bias.chunk(3)
    layer = AttentionLayer.from_projections(
        split_heads(weights[0], heads), split_heads(weights[1], heads), split_heads(weights[2], heads),
        _joined(attn.out_proj, heads),
        query_bias=_maybe(biases[0], heads), key_bias=_maybe(biases[1], heads), value_bias=_maybe(biases[2], heads),
        out_bias=attn.out_proj.bias,
    )  # fmt: skip
    whole: Any = next(
        (m for m in model.modules() if getattr(m, "self_attn", None) is attn and hasattr(m, "norm1")), None
    )
    if whole is None:
        return Site(layer, attn, attn, attn, batch_first=attn.batch_first)
    norms: dict[str, Any] = {"norm": whole.norm1} if whole.norm_first else {"after": whole.norm1}
    return Site(layer, attn, attn, whole, batch_first=attn.batch_first, **norms)


for _names, _adapter in {
    ("GPT2Block",): _gpt2,
    ("BertLayer", "RobertaLayer"): _bert,
    ("TransformerBlock",): _distilbert,
    ("ViTLayer",): _vit,
    ("GPTNeoXLayer",): _gpt_neox,
    ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer"): _llama,
    ("MultiheadAttention",): _multihead,
}.items():
    for _name in _names:
        register_adapter(_name, _adapter)

__all__ = ["Adapter", "Site", "UnsupportedArchitectureError", "adapter_of", "attention_layers", "register_adapter"]
