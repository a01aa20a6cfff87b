"""Tiny random models of every family, and norms with statistics that are not trivial."""

import torch
import transformers as tf
from offprints.seeding import isolated
from slab_transformer import PRepBN
from slab_transformer.fuse import find_norms, rep_of

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
PYRAMID = {
    "image_size": 64,
    "hidden_sizes": [8, 16, 16, 16],
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 2, 2],
}
TEXT = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}

BUILD = {
    "vit": lambda: tf.ViTForImageClassification(tf.ViTConfig(image_size=16, patch_size=4, num_labels=3, **SMALL)),
    "deit": lambda: tf.DeiTForImageClassificationWithTeacher(tf.DeiTConfig(image_size=16, patch_size=4, **SMALL)),
    "swin": lambda: tf.SwinForImageClassification(swin_config()),
    "pvt": lambda: tf.PvtForImageClassification(tf.PvtConfig(**PYRAMID)),
    "pvt_v2": lambda: tf.PvtV2ForImageClassification(tf.PvtV2Config(**PYRAMID)),
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(num_key_value_heads=2, **TEXT, **SMALL)),
    "llama_tied": lambda: tf.LlamaForCausalLM(
        tf.LlamaConfig(num_key_value_heads=2, tie_word_embeddings=True, **TEXT, **SMALL)
    ),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(num_key_value_heads=2, head_dim=4, **TEXT, **SMALL)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(num_key_value_heads=2, **TEXT, **SMALL)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(num_key_value_heads=2, head_dim=4, **TEXT, **SMALL)),
    "gemma": lambda: tf.GemmaForCausalLM(tf.GemmaConfig(num_key_value_heads=2, head_dim=4, **TEXT, **SMALL)),
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=16, n_layer=2, n_head=2, **TEXT)),
    "bert": lambda: tf.BertForSequenceClassification(tf.BertConfig(**TEXT, **SMALL)),
    "roberta": lambda: tf.RobertaForSequenceClassification(tf.RobertaConfig(**TEXT, **SMALL)),
}
VISION = ("vit", "deit", "swin", "pvt", "pvt_v2")


def swin_config(**changes):
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
    return tf.SwinConfig(**{**sizes, **changes})


def build(family, dtype=torch.float64, seed=0):
    """A model in eval mode whose weights are large enough that its outputs vary."""
    with isolated(seed):
        model = BUILD[family]()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def as_if_trained(model, seed=1):
    """Statistics, weights and alpha as after training, lambda at 0."""
    gen = torch.Generator().manual_seed(seed)
    for norm in find_norms(model).values():
        rep = rep_of(norm)
        with torch.no_grad():
            for tensor in (rep.bn.weight, rep.bn.bias, rep.bn.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=gen) * 0.5 + 0.3)
            rep.bn.running_var.copy_(torch.rand(rep.bn.running_var.shape, generator=gen) + 0.5)
            rep.alpha.fill_(0.4)
        if isinstance(norm, PRepBN):
            norm.set_lam(0.0)
    return model.eval()


def first_layer(model):
    """The first block of a ViT; transformers 5.0 keeps them elsewhere."""
    return vit_layers(model)[0]


def vit_layers(model):
    body = getattr(model, "vit", model)
    return body.layers if hasattr(body, "layers") else body.encoder.layer


def linear_of(block):
    """The layer that the second norm of a ViT's block feeds."""
    return block.mlp.fc1 if hasattr(block, "mlp") else block.intermediate.dense


def logits(outputs):
    return outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state
