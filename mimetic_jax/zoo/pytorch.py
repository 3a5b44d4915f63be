"""PyTorch: state dicts, safetensors files and live modules."""

import functools

from mimetic_jax.tree.rules import Rule
from mimetic_jax.tree.tables import attention_rules, mlp_rules
from mimetic_jax.zoo.hugging_face import EXCLUDED, hugging_face
from mimetic_jax.zoo.mamba import STATE_SPACES_MAMBA2

_QKV = ("query", "key", "value")
_QKV_BIASES = ("query_bias", "key_bias", "value_bias")

_rule = functools.partial(Rule, exclude=EXCLUDED)

PYTORCH: tuple[Rule, ...] = (
    # torch.nn.MultiheadAttention, under any name.
    _rule("in_proj_weight", _QKV, "(three h k) d"),
    _rule("in_proj_bias", _QKV_BIASES, "(three h k)"),
    _rule("out_proj/weight", "out", "d (h k)", beside="in_proj_weight"),
    _rule("out_proj/bias", "out_bias", "d", beside="in_proj_weight"),
    *mlp_rules(
        first="linear1",
        second="linear2",
        kernel="weight",
        transposed=True,
        within=r"layers/\d+$",
    ),
    # timm, torchvision and Equimo: ViT, Swin and their relatives.
    *attention_rules(
        fused="attn/qkv",
        out="attn/proj",
        kernel="weight",
        flat=True,
        transposed=True,
        exclude=rf"{EXCLUDED}|visual/",
    ),
    _rule("attn/relative_position_bias_table", "relative_bias", "r h"),
    _rule("relative_position_bias/relative_position_bias_table", "relative_bias", "r h"),
    _rule("pos_embed(?:ding)?", "position", "1 n d"),
    _rule("global_pos_embed/weight", "position", "n d"),
    # GPT-NeoX holds query, key and value head by head here.
    _rule("attention/query_key_value/weight", _QKV, "(h three k) d"),
    _rule("attention/query_key_value/bias", _QKV_BIASES, "(h three k)"),
    *hugging_face("weight", "weight", transposed=True),
    *STATE_SPACES_MAMBA2,
)
"""Models in PyTorch: state dicts, safetensors files, live modules (docs/your_model.md).

Modules named as in torch.nn (`MultiheadAttention` and the encoder and decoder layers made of it),
timm and torchvision (ViT, Swin, BEiT, DINO and others with attn.qkv and attn.proj), and Hugging
Face transformers 4 and 5 (Llama, Mistral, Qwen, Gemma, Phi, OPT, Whisper, BART, CLIP, ViT, DINOv2,
Swin, V-JEPA 2, BERT, ModernBERT, RoBERTa, DistilBERT, GPT-Neo, GPT-NeoX, T5, MPT, Jamba,
Nemotron-H). GPT-2 is `PYTORCH_GPT2`. Equimo's vision transformers have timm's names in Equinox
modules.

Weights are stored (out, in) with flattened heads: give `num_heads`, and `num_kv_heads` where heads
are grouped. GPT-NeoX stores query, key and value of one head after the other. GPT-Neo and T5 don't
divide logits by √K; their query takes that factor. Cross-attention, attention pooling, a vision or
audio tower beside text, resamplers and gated MLPs keep their initialization.

Read from: torch 2.14.1 torch/nn/modules/{activation,transformer}.py; torchvision 0.29.2
models/{vision_transformer,swin_transformer}.py; timm 1.0.31 models/{vision_transformer,
swin_transformer}.py; transformers 5.24 models/*/modeling_*.py; equimo 1.1.0
models/vit.py and layers/attention.py.
"""
