"""PyTorch: state dicts, safetensors files and live modules."""

import functools

from mimetic_jax.rules import CROSS_ATTENTION, Rule, attention_rules, mlp_rules
from mimetic_jax.zoo.mamba import STATE_SPACES_MAMBA2

# The vision tower beside a text model has another number of heads.
_EXCLUDED = rf"{CROSS_ATTENTION}|multihead_attn|attn_pool|vision_(?:tower|model)[/.]"
_QKV = ("query", "key", "value")
_QKV_BIASES = ("query_bias", "key_bias", "value_bias")

_rule = functools.partial(Rule, exclude=_EXCLUDED)
_attention = functools.partial(
    attention_rules, flat=True, transposed=True, kernel="weight", exclude=_EXCLUDED
)
_mlp = functools.partial(mlp_rules, transposed=True, kernel="weight")


def _letters(prefix: str, suffix: str, out: str, undivided: bool = False) -> tuple[Rule, ...]:
    """Layers q, k, v and an output."""
    query, key, value, out = (f"{prefix}{name}{suffix}" for name in ("q", "k", "v", out))
    return _attention(query=query, key=key, value=value, out=out, undivided=undivided)


PYTORCH: tuple[Rule, ...] = (
    # torch.nn.MultiheadAttention, whose output is described with Hugging Face's.
    _rule("in_proj_weight", _QKV, "(three h k) d"),
    _rule("in_proj_bias", _QKV_BIASES, "(three h k)"),
    # timm and torchvision: ViT, Swin and their relatives.
    *_attention(fused="attn/qkv", out="attn/proj"),
    _rule("attn/relative_position_bias_table", "relative_bias", "r h"),
    *_letters("attn/attention/", "_proj", "out", undivided=True),  # GPT-Neo
    # Hugging Face: Llama, Mistral, Qwen, Gemma, OPT, Whisper, BART, CLIP's text, ViT, DINOv2, Swin.
    *_letters("(?:(?<=attn/)|(?<=attention/))", "_proj", "(?:o|out)"),
    _rule("relative_position_bias/relative_position_bias_table", "relative_bias", "r h"),
    # Phi-3, BERT and RoBERTa, GPT-NeoX, DistilBERT, T5.
    *_attention(fused="(?<=attn/)qkv_proj", out="(?<=attn/)o_proj", grouped=True),
    *_attention(
        query="attention/(?:self|attention)/query",
        key="attention/(?:self|attention)/key",
        value="attention/(?:self|attention)/value",
        out="attention/output/dense",
    ),
    _rule("attention/query_key_value/weight", _QKV, "(h three k) d"),
    _rule("attention/query_key_value/bias", _QKV_BIASES, "(h three k)"),
    _rule("attention/dense/weight", "out", "d (h k)"),
    _rule("attention/dense/bias", "out_bias", "d"),
    *_letters("attention/", "_lin", "out"),
    *_letters("SelfAttention/", "", "o", undivided=True),
    *_mlp(first="mlp/(?:fc1|0)", second="mlp/(?:fc2|3)"),
    *_mlp(within=r"layers[/.]\d+$"),
    *_mlp(first="linear1", second="linear2", within=r"layers[/.]\d+$"),
    *_mlp(first="intermediate/dense", second="(?<!attention[/.])output/dense"),
    *_mlp(first="ffn/lin1", second="ffn/lin2"),
    *_mlp(first="mlp/c_fc", second="mlp/c_proj"),
    *_mlp(first="mlp/dense_h_to_4h", second="mlp/dense_4h_to_h"),
    Rule("pos_embed(?:ding)?", "position", "1 n d"),
    Rule("embeddings/position_embeddings", "position", "1 n d"),
    Rule("(?:embeddings/position_embeddings?|wpe)/weight", "position", "n d"),
    # Mamba-2 beside attention; Mamba's own projections are no attention.
    Rule("mamba/in_proj/.*", ()),
    *STATE_SPACES_MAMBA2,
)
"""Models in PyTorch: state dicts, safetensors files, live modules (docs/pytorch.md).

Modules named as in torch.nn (`MultiheadAttention` and the encoder and decoder layers made of it),
timm and torchvision (ViT, Swin, BEiT, DINO and others with attn.qkv and attn.proj), and Hugging
Face transformers 4 and 5 (Llama, Mistral, Qwen, Gemma, Phi-3, OPT, Whisper, BART, CLIP, ViT,
DINOv2, Swin, BERT, RoBERTa, DistilBERT, GPT-Neo, GPT-NeoX, T5, Jamba). GPT-2 is `PYTORCH_GPT2`.

Weights are stored (out, in) with flattened heads: give `num_heads`, and `num_kv_heads` where heads
are grouped. GPT-NeoX stores query, key and value of one head after the other. GPT-Neo and T5 don't
divide logits by √K; their query takes that factor. Cross-attention, attention pooling, a vision
tower beside text and gated MLPs keep their initialization.

Read from: torch 2.14.1 torch/nn/modules/{activation,transformer}.py; torchvision 0.29.2
models/{vision_transformer,swin_transformer}.py; timm 1.0.31 models/{vision_transformer,
swin_transformer}.py; transformers 5.23 models/*/modeling_*.py.
"""

PYTORCH_GPT2: tuple[Rule, ...] = (
    _rule("attn/c_attn/weight", _QKV, "d (three h k)"),
    _rule("attn/c_attn/bias", _QKV_BIASES, "(three h k)"),
    _rule("attn/c_proj/weight", "out", "(h k) d"),
    _rule("attn/c_proj/bias", "out_bias", "d"),
    *mlp_rules(first="mlp/c_fc", second="mlp/c_proj", kernel="weight"),
    Rule("wpe/weight", "position", "n d"),
)
"""GPT-2 in PyTorch, Hugging Face's.

Its Conv1D stores weights (in, out), unlike all other layers: attn.c_attn.weight is [D, 3 D]. Give
`num_heads`. Positions are wpe.weight [N, D], for text: `SinCos(axes=1)`. Cross-attention keeps its
initialization.

Read from: transformers 5.23 models/gpt2/modeling_gpt2.py and pytorch_utils.py.
"""
