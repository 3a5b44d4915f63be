"""Where well-known models keep the gain of the norm before a layer, and the scale after it."""

from typing import Any

from mimetic_jax.tree.rules import Rule

_LEAF = "/(?:scale|weight)"
_GEMMA = "pre_feedforward_layernorm/weight"


def _gains(first: str, second: str, **options: Any) -> tuple[Rule, ...]:
    """The norms before attention and before the MLP, by the names of their leaves."""
    return (
        Rule(first, "attention_gain", "d", **options),
        Rule(second, "mlp_gain", "d", **options),
    )


def _scales(first: str, second: str, **options: Any) -> tuple[Rule, ...]:
    """What multiplies the output of attention and of the MLP."""
    return (
        Rule(first, "attention_scale", "d", **options),
        Rule(second, "mlp_scale", "d", **options),
    )


NORMS: tuple[Rule, ...] = (
    # Norms after the layer, or maybe after it: those of torch.nn's encoder and of Swin V2.
    *(
        Rule("(?:norm[12]|layernorm_(?:before|after))/weight", (), beside=other)
        for other in (
            "self_attn/in_proj_weight",
            "attn/logit_scale",
            "attention/self/logit_scale",
        )
    ),
    # Gemma 2 and 3 have norms before and after each layer.
    *_gains(f"input_layernorm{_LEAF}", _GEMMA, beside=_GEMMA, plus_one=True),
    *_scales(
        "post_attention_layernorm/weight",
        "post_feedforward_layernorm/weight",
        beside=_GEMMA,
        plus_one=True,
    ),
    *_gains("pre_attention_norm/scale", "pre_ffw_norm/scale", plus_one=True),
    # Llama, Mistral, Qwen, Phi, GPT-NeoX; without the first, the second is a norm after attention.
    Rule(f"input_layernorm{_LEAF}", "attention_gain", "d"),
    Rule("post_attention_layernorm/weight", "mlp_gain", "d", beside="input_layernorm/weight"),
    # timm, DINOv2 and ours
    *_gains(f"norm1{_LEAF}", f"norm2{_LEAF}"),
    *_scales("ls1/gamma", "ls2/gamma"),
    *_scales("layer_scale1/lambda1", "layer_scale2/lambda1"),
    Rule("layer_scale", "attention_scale", "d", beside="attention/query/kernel"),
    # Hugging Face's ViT; CLIP; GPT-2, GPT-Neo and torchvision; Llama as published and EasyLM
    *_gains(f"layernorm_before{_LEAF}", f"layernorm_after{_LEAF}"),
    *_gains(f"layer_norm1{_LEAF}", f"layer_norm2{_LEAF}"),
    *_gains(f"ln_1{_LEAF}", f"ln_2{_LEAF}"),
    *_gains(f"attention_norm{_LEAF}", f"ffn_norm{_LEAF}"),
    # Flax's own numbers, in vit_jax and big_vision
    *_gains(
        r"(?<=encoderblock/)LayerNorm_0/scale",
        r"(?<=encoderblock/)LayerNorm_[12]/scale",
    ),
    *_gains("LayerNorm_0/scale", "LayerNorm_[12]/scale", within=r"encoderblock_\d+$"),
)
"""Gains and scales by name, whatever the table of the layers.

The part of a path before the name is that of the block: the gain is that of the attention and of
the MLP below it. A stacked leaf has an axis of layers in front. Norms after the residual (BERT,
torch.nn's default, Swin V2) multiply no product. Gemma 1 has Llama's names but adds 1 to its gains:
give rules with `plus_one`.

Read from: timm 1.0.31 models/{vision_transformer,swin_transformer_v2}.py; transformers 5.24
models/{dinov2,vit,clip,gpt2,llama,gemma2,swinv2}/modeling_*.py; torchvision 0.29.2
models/vision_transformer.py; google-research/vision_transformer vit_jax/models_vit.py (143bd26).
"""
