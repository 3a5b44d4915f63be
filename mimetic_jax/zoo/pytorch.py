"""PyTorch: state dicts, safetensors files and live modules."""

import functools
from collections.abc import Mapping

from mimetic_jax.rules.rule import Rule
from mimetic_jax.rules.tables import (
    QKV,
    biases_of,
    layer_names,
    only_beside,
    torch_attention,
    torch_mlp,
)
from mimetic_jax.zoo.gpt2 import PYTORCH_NANOGPT
from mimetic_jax.zoo.hugging_face import EXCLUDED, QKV_OUT, hugging_face
from mimetic_jax.zoo.norms import adding_one, gains, hugging_face_norms, scales

_rule = functools.partial(Rule, exclude=EXCLUDED)

# timm's ResPostBlock has the names of its Block, so that only what it lacks shows the order.
_PRE_NORM = (
    ("ls1/gamma",),
    ("gamma_1",),
    ("ls1",),
    ("attn/qkv/bias", "!attn/rel_pos/mlp/fc1/weight", "!attn/rel_pos/relative_position_bias_table"),
)
# Stages of MaxViT, CoAtNet and TinyViT hold query, key and value of one head after the other, and
# a block of DaViT with cpe1 attends between channels.
_BLOCK = r"^(?:(?!(?:.*[/.])?stages[/.]).*\d)?$"

_GPT_NEOX = torch_attention(
    fused="attention/query_key_value", out="attention/dense", by_head=True, exclude=EXCLUDED
)

_NORMS = (
    # Swin V2, of timm and torchvision, and timm's variant of it.
    *scales("norm1/weight", "norm2/weight", "attn/logit_scale"),
    *scales("norm1/weight", "norm2/weight", "attn/meta_mlp/fc1/weight"),
    *(rule for marks in _PRE_NORM for rule in gains("norm1/weight", "norm2/weight", *marks)),
    *scales("ls1/gamma", "ls2/gamma"),
    *scales("gamma_1|ls1", "gamma_2|ls2", "norm1/weight"),
    # torchvision's ViT, CLIP.
    *(
        rule
        for attention in ("self_attention", "attn")
        for rule in gains("ln_1/weight", "ln_2/weight", f"{attention}/in_proj_weight")
    ),
    *scales("ls_1/gamma", "ls_2/gamma"),
    *hugging_face_norms("weight", "weight"),
)

PYTORCH: tuple[Rule, ...] = (
    # torch.nn.MultiheadAttention, under any name but that of a decoder's cross-attention, and of
    # pooling from a learned probe.
    Rule("multihead_attn/.*", (), beside="self_attn/in_proj_weight"),
    Rule(
        "encoder_attention/multihead_attn/.*",
        (),
        beside="self_attention/multihead_attn/in_proj_weight",
    ),
    Rule(r"[^/.]+/(?:in_proj_(?:weight|bias)|out_proj/(?:weight|bias))", (), beside="probe"),
    _rule("in_proj_weight", QKV, "(three h k) d"),
    _rule("in_proj_bias", biases_of(QKV), "(three h k)"),
    _rule("out_proj/weight", "out", "d (h k)", beside="in_proj_weight"),
    _rule("out_proj/bias", "out_bias", "d", beside="in_proj_weight"),
    *torch_mlp(first="linear1", second="linear2", within=r"layers/\d+$", exclude=EXCLUDED),
    # timm, torchvision and Equimo: ViT, Swin and their relatives. Attention between channels
    # (XCiT, EdgeNeXt) has a temperature.
    Rule("(?:qkv|proj)/(?:weight|bias)", (), beside="temperature"),
    Rule("attn/qkv/bias_mask", ()),  # what DINOv3 multiplies the bias of the key by
    *(
        rule
        for mark, within in (("!cpe1/proj/weight", _BLOCK), ("attn/meta_mlp/fc1/weight", ""))
        for rule in only_beside(
            torch_attention(
                fused="attn/qkv", out="attn/proj", within=within, exclude=rf"{EXCLUDED}|visual/"
            ),
            mark,
        )
    ),
    # ConViT
    _rule("attn/qk/weight", QKV[:2], "(two h k) d"),
    _rule("attn/qk/bias", biases_of(QKV[:2]), "(two h k)"),
    _rule("attn/v/weight", "value", "(g k) d", beside="attn/qk/weight"),
    _rule("attn/v/bias", "value_bias", "(g k)", beside="attn/qk/weight"),
    _rule("attn/relative_position_bias_table", "relative_bias", "r h"),
    _rule("relative_position_bias/relative_position_bias_table", "relative_bias", "r h"),
    _rule("patch_embed/proj/weight|conv_proj/weight", "patch", "d c u v"),
    _rule("pos_embed(?:ding)?", "position", "1 n d"),
    _rule("global_pos_embed/weight", "position", "n d"),
    *only_beside(_GPT_NEOX, "../../embed_in/weight"),
    *hugging_face("weight", "weight", transposed=True),
    *_NORMS,
)
"""Models in PyTorch: state dicts, safetensors files, live modules (docs/your_model.md).

Modules named as in torch.nn (`MultiheadAttention` and the encoder and decoder layers made of it),
timm and torchvision (ViT, Swin, BEiT, DINO, ConViT and others with attn.qkv and attn.proj), and
Hugging Face transformers 4 and 5 (Llama, Mistral, Qwen, Gemma, Phi, OPT, Whisper, BART, CLIP, ViT,
DINOv2, Swin, V-JEPA 2, BERT, ModernBERT, RoBERTa, DistilBERT, GPT-Neo, GPT-NeoX, T5, MPT, Jamba,
Nemotron-H). GPT-2 is `PYTORCH_GPT2`. Equimo's vision transformers have timm's names in Equinox
modules.

Weights are stored (out, in) with flattened heads: give `num_heads`, and `num_kv_heads` if heads
are grouped. GPT-NeoX stores query, key and value of one head after the other. GPT-Neo and T5 don't
divide logits by √K; their query takes that factor. Cross-attention, attention pooling, attention
of class tokens alone (CaiT), attention between channels (XCiT, EdgeNeXt), gated delta nets and
linear attention (Kimi Linear, OLMo Hybrid, MiniMax), a vision or audio tower beside text with its
MLPs, resamplers and gated MLPs keep their initialization.

Gains and scales are known of these models; not of torch.nn's encoder layers, whose norms stand
before or after a layer by a flag, nor of timm's Block without a bias of qkv and without LayerScale,
whose names ResPostBlock shares. Gemma 1, Nemotron, Qwen3-Next and others add 1 to gains with
Llama's names: `PYTORCH_PLUS_ONE`.

Read from: torch 2.14.1 torch/nn/modules/{activation,transformer}.py; torchvision 0.29.2
models/{vision_transformer,swin_transformer}.py; timm 1.0.31 models/{vision_transformer,
swin_transformer,convit,xcit,cait,edgenext}.py; transformers 5.24 models/*/modeling_*.py; equimo
1.1.0 models/vit.py and layers/attention.py.
"""

_c_attn = functools.partial(torch_attention, fused="attn/c_attn", out="attn/c_proj")
BY_TYPE: Mapping[str, tuple[Rule, ...]] = {
    "exaone": (*torch_attention(**layer_names("attn/attention/{}_proj", QKV_OUT)), *PYTORCH),
    "gpt_bigcode": (*_c_attn(by_head=True), *PYTORCH_NANOGPT),
    "gpt_neox": (*_GPT_NEOX, *PYTORCH),
    "qwen": PYTORCH_NANOGPT,
}
"""The rules of models whose names others have, by their type in config.json."""
GROUPED_BY_TYPE = {"gpt_bigcode": (*_c_attn(grouped=True), *PYTORCH_NANOGPT)}
"""Those of models that hold their heads in another way if key and value have fewer."""

PYTORCH_PLUS_ONE: tuple[Rule, ...] = adding_one(PYTORCH)
"""`PYTORCH` for models that have Llama's names and store w of their gain 1 + w.

Gemma 1, Qwen3-Next, Qwen3.5, Step 3.7 and MiniMax M3. `mimetic check` and `mimetic fit` take it
if the file's config.json names one of them.

Read from: transformers 5.24 models/{gemma,qwen3_next,qwen3_5,qwen3_5_moe,step3p7,minimax_m3_vl}/
modeling_*.py.
"""
